//! Agents whose processes share a folder and sign nothing (Gemini CLI): the traces they leave there are the evidence.
//!
//! - **The first conversation** is the one whose file begins, or that is gone on with, while no other process can have
//!   done it.
//! - **A clear** is the command, logged under the first conversation of our process, and the file that begins next. With
//!   no other process about, that file is ours at once. With others, END and START are made at once and the new
//!   conversation is open: it is that file if nobody else has cleared and no further file comes within [`SETTLE`], and
//!   `ambiguous` otherwise.
//! - **A prompt** decides an open clear: logged under our first conversation and standing in exactly one file, it shows where
//!   we are. Nothing else is needed, so a switch to an existing conversation, and a clear whose line was lost (processes
//!   overwrite each other's log), come out as well, only later. A text that another process typed, too, decides nothing.
//! - **A file without a command**, with no other process about, is the agent started again within the run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::core::{Context, MAX_REMEMBERED, Resumes, Rules, RunState, SETTLE};
use super::decision::Decision;
use super::signal::Signal;
use super::traces::{ALONE, Maker, TextFingerprint, Trace, Typed};
use types::{AgentSessionId, EvidenceKind, Timestamp, TransitionKind};

/// How long a command waits for its file, and a prompt for its line. Why a minute: hooks of the user's run in between, and
/// the agent lets them take that long.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// One run's view of the folder.
#[derive(Debug, Default)]
pub(super) struct FolderRules {
    /// The conversation that our process logs under.
    name: Option<AgentSessionId>,
    /// The file of that conversation was seen to begin; a further beginning is another process that goes on with it.
    name_begun: bool,
    /// Another process goes on with that conversation, and so logs under the same name.
    shared: bool,
    /// Commands that no file has followed yet, by the name they were typed under, oldest first.
    clears: BTreeMap<AgentSessionId, VecDeque<Timestamp>>,
    /// New files that are nobody's yet.
    files: Vec<NewFile>,
    /// Conversations that began during the run.
    fresh: BTreeSet<AgentSessionId>,
    typed: VecDeque<TypedPrompt>,
    written: VecDeque<WrittenPrompt>,
    open: Option<OpenClear>,
}

#[derive(Clone, Debug)]
struct NewFile {
    id: AgentSessionId,
    at: Timestamp,
    seen_at: Timestamp,
    maker: Maker,
}

/// A line of the log.
#[derive(Clone, Debug)]
struct TypedPrompt {
    under: AgentSessionId,
    at: Timestamp,
    seen_at: Timestamp,
    text: TextFingerprint,
}

/// A line of a conversation's file.
#[derive(Clone, Debug)]
struct WrittenPrompt {
    id: AgentSessionId,
    at: Timestamp,
    text: TextFingerprint,
}

/// A clear of ours whose file is not known yet.
#[derive(Clone, Copy, Debug)]
struct OpenClear {
    cleared_at: Timestamp,
    /// When the only candidate may be taken; `None`: only a prompt decides.
    settles_at: Option<Timestamp>,
}

impl Rules for FolderRules {
    fn feed(&mut self, context: &mut Context<'_>, signal: Signal) {
        if let Signal::Trace(trace) = signal {
            self.trace(context, trace);
            self.forget_old(context.now);
        }
    }

    fn entered(&mut self, id: &AgentSessionId) {
        self.name.get_or_insert_with(|| id.clone());
        self.files.retain(|file| file.id != *id);
        self.open = None;
    }

    fn decide(&mut self, context: &mut Context<'_>) {
        if self.name.is_none() {
            return;
        }
        self.decide_by_prompts(context);
        while self.decide_by_clear(context) {}
        self.settle_open(context);
        self.decide_by_restart(context);
    }

    fn wake_at(&self, _: &RunState, now: Timestamp) -> Option<Timestamp> {
        let files =
            self.files.iter().filter(|file| file.maker == Maker::Ours).map(|file| file.seen_at.after(SETTLE));
        let open = self.open.and_then(|open| open.settles_at);
        files.chain(open).filter(|at| *at > now).min()
    }
}

impl FolderRules {
    fn our_clears(&mut self) -> Option<&mut VecDeque<Timestamp>> {
        let name = self.name.as_ref().filter(|_| !self.shared)?;
        self.clears.get_mut(name)
    }

    /// Whether somebody else cleared and may have made a file that began at `at`.
    fn rival_cleared(&self, at: Timestamp) -> bool {
        let others = self.clears.iter().filter(|(by, _)| self.name.as_ref() != Some(by));
        others.flat_map(|(_, clears)| clears).any(|cleared| *cleared <= at)
    }

    /// A file that only the command of another can have made is that one's.
    fn attribute_to_rival(&mut self, at: Timestamp) -> bool {
        let ours = self.our_clears().is_some_and(|clears| clears.iter().any(|cleared| *cleared <= at));
        if ours || self.open.is_some_and(|open| open.cleared_at <= at) {
            return false;
        }
        let name = self.name.clone();
        let mut others = self.clears.iter_mut().filter(|(by, _)| name.as_ref() != Some(by));
        let made = others.find(|(_, clears)| clears.front().is_some_and(|cleared| *cleared <= at));
        made.and_then(|(_, clears)| clears.pop_front()).is_some()
    }

    /// The next prompt of ours that stands in exactly one file, and that file's conversation.
    fn placed_prompt(&mut self) -> Option<(TypedPrompt, AgentSessionId)> {
        let name = self.name.as_ref().filter(|_| !self.shared)?;
        let ours = self.typed.iter().enumerate().filter(|(_, prompt)| prompt.under == *name);
        let (at, place) = ours
            .filter(|(_, prompt)| {
                !self.typed.iter().any(|other| other.under != *name && other.text == prompt.text)
            })
            .find_map(|(at, prompt)| {
                let stands =
                    |written: &&WrittenPrompt| written.text == prompt.text && written.at >= prompt.at;
                let places: BTreeSet<_> =
                    self.written.iter().filter(stands).map(|written| &written.id).collect();
                (places.len() == 1).then(|| Some((at, (*places.first()?).clone())))?
            })?;
        let prompt = self.typed.remove(at)?;
        // The same text later is another prompt's.
        let line =
            self.written.iter().position(|written| written.text == prompt.text && written.at >= prompt.at)?;
        self.written.remove(line);
        Some((prompt, place))
    }

    fn forget_old(&mut self, now: Timestamp) {
        let old = |at: Timestamp| at.after(MAX_DELAY) < now;
        for clears in self.clears.values_mut() {
            clears.retain(|at| !old(*at));
        }
        self.clears.retain(|_, clears| !clears.is_empty());
        self.typed.retain(|prompt| !old(prompt.seen_at));
        while self.typed.len() > MAX_REMEMBERED {
            self.typed.pop_front();
        }
        while self.written.len() > MAX_REMEMBERED {
            self.written.pop_front();
        }
        while self.files.len() > MAX_REMEMBERED {
            let gone = self.files.remove(0);
            self.fresh.remove(&gone.id);
        }
    }

    fn trace(&mut self, context: &mut Context<'_>, trace: Trace) {
        match trace {
            Trace::Typed { under, at, what } => self.typed(context, under, at, what),
            Trace::Begun { id, at, known: false, maker } => self.begun(context, id, at, maker),
            Trace::Begun { id, at, known: true, maker } => {
                if self.name.as_ref() == Some(&id) {
                    self.shared |= self.name_begun && maker != Maker::Ours;
                    self.name_begun = true;
                }
                if at >= context.run.spawned_at {
                    self.continued(context, id, maker);
                }
            }
            Trace::Entered { id, maker } => self.continued(context, id, maker),
            Trace::LogTooLong => {
                let why = "too long to be read, so no command and no prompt of this run will be seen";
                context.reject("log", "what was typed in this folder", why);
            }
            Trace::Prompted { id, at, text } => {
                if at >= context.run.spawned_at {
                    self.written.push_back(WrittenPrompt { id, at, text });
                }
            }
        }
    }

    fn typed(&mut self, context: &mut Context<'_>, under: AgentSessionId, at: Timestamp, what: Typed) {
        let ours = self.name.as_ref() == Some(&under);
        match what {
            Typed::Prompt(text) => {
                self.typed.push_back(TypedPrompt { under, at, seen_at: context.now, text });
            }
            Typed::Clear => {
                if ours {
                    let why = if self.shared {
                        "a command under our name, but another process goes by it, too"
                    } else {
                        "a command of ours that clears; a new file must follow"
                    };
                    context.explain("log", &under.0, !self.shared, why);
                }
                self.clears.entry(under).or_default().push_back(at);
            }
        }
    }

    fn begun(&mut self, context: &mut Context<'_>, id: AgentSessionId, at: Timestamp, maker: Maker) {
        if self.name.as_ref() == Some(&id) {
            self.name_begun = true;
        }
        if context.run.is_in(&id) || context.run.has_departed(&id) || at < context.run.spawned_at {
            return;
        }
        self.fresh.insert(id.clone());
        if context.run.is_unbound() {
            let ours = maker == Maker::Ours;
            let why = format!("begun {}", if ours { ALONE } else { maker.doubt() });
            context.explain("file", &id.0, ours, &why);
            if ours {
                self.bind(context, id, EvidenceKind::Log);
            }
        } else if self.attribute_to_rival(at) {
            context.reject("file", &id.0, "follows a command of another process");
        } else {
            self.files.push(NewFile { id, at, seen_at: context.now, maker });
        }
    }

    fn continued(&mut self, context: &mut Context<'_>, id: AgentSessionId, maker: Maker) {
        if context.run.is_in(&id) || (context.run.is_unbound() && context.run.resumes != Resumes::Unnamed) {
            return;
        }
        let ours = maker == Maker::Ours;
        let why = if ours {
            format!("gone on with {ALONE}")
        } else {
            format!("gone on with {}; a prompt will tell", maker.doubt())
        };
        context.explain("file", &id.0, ours, &why);
        match (ours, context.run.is_unbound()) {
            (false, _) => {}
            (true, true) => self.bind(context, id, EvidenceKind::Log),
            (true, false) => self.transition(context, TransitionKind::Switch, Some(id), EvidenceKind::Log),
        }
    }

    fn decide_by_prompts(&mut self, context: &mut Context<'_>) {
        while let Some((prompt, place)) = self.placed_prompt() {
            let cleared = self.forget_clears_before(prompt.at);
            if context.run.is_in(&place) {
                if cleared {
                    let why = "cleared, but what was typed next stands in the conversation before it: the agent goes on under the same id";
                    context.reject("prompt", &place.0, why);
                }
                continue;
            }
            context.accept("prompt", &place.0, "what was typed here stands in this file alone");
            let fresh = self.fresh.contains(&place) && !context.run.has_departed(&place);
            match (context.run.current().is_some(), fresh) {
                (false, true) => self.bind(context, place, EvidenceKind::Log),
                (true, true) => {
                    self.transition(context, TransitionKind::Clear, Some(place), EvidenceKind::Log);
                }
                (_, false) => {
                    self.transition(context, TransitionKind::Switch, Some(place), EvidenceKind::Log);
                }
            }
        }
    }

    /// A prompt came after them, in the conversation we are known to be in. Says whether there were any.
    fn forget_clears_before(&mut self, at: Timestamp) -> bool {
        let Some(clears) = self.our_clears() else { return false };
        let before = clears.len();
        clears.retain(|cleared| *cleared > at);
        clears.len() < before
    }

    /// Our oldest command and the files that began after it, up to the next command. Says whether it decided something.
    fn decide_by_clear(&mut self, context: &mut Context<'_>) -> bool {
        let Some(clears) = self.our_clears() else { return false };
        let (Some(&cleared_at), next) = (clears.front(), clears.get(1).copied()) else { return false };
        let follows = |file: &&NewFile| file.at >= cleared_at && next.is_none_or(|next| file.at < next);
        let candidates: Vec<NewFile> = self.files.iter().filter(follows).cloned().collect();
        let Some(first) = candidates.iter().min_by_key(|file| file.at) else {
            let nothing_came = next.is_some_and(|next| next.after(SETTLE) <= context.now);
            if nothing_came && let Some(clears) = self.our_clears() {
                clears.pop_front();
            }
            return nothing_came;
        };
        if let Some(clears) = self.our_clears() {
            clears.pop_front();
        }
        if candidates.iter().all(|file| file.maker == Maker::Ours) {
            let id = first.id.clone();
            context.accept("file", &id.0, &format!("the file that began next, {ALONE}"));
            self.transition(context, TransitionKind::Clear, Some(id), EvidenceKind::Log);
            return true;
        }
        self.transition(context, TransitionKind::Clear, None, EvidenceKind::Log);
        let certain = candidates.iter().all(|file| file.maker <= Maker::Settled)
            && candidates.len() == 1
            && !candidates.iter().any(|file| self.rival_cleared(file.at));
        let settles_at = certain.then(|| first.seen_at.after(SETTLE));
        self.open = Some(OpenClear { cleared_at, settles_at });
        context.run.candidates = candidates.into_iter().map(|file| file.id).collect();
        if !certain {
            Self::doubt(context);
        }
        true
    }

    /// An open clear settles on its only candidate, or turns out to be ambiguous.
    fn settle_open(&mut self, context: &mut Context<'_>) {
        let Some(open) = self.open else { return };
        let known = &context.run.candidates;
        let more: Vec<AgentSessionId> = self
            .files
            .iter()
            .filter(|file| file.at >= open.cleared_at && !known.contains(&file.id))
            .map(|file| file.id.clone())
            .collect();
        if !more.is_empty() {
            context.run.candidates.extend(more);
            self.open = Some(OpenClear { settles_at: None, ..open });
            return Self::doubt(context);
        }
        if let ([only], Some(at)) = (&context.run.candidates[..], open.settles_at)
            && at <= context.now
        {
            let id = only.clone();
            context.accept("file", &id.0, "the only file after our command, and nobody else has cleared");
            self.bind(context, id, EvidenceKind::Log);
        }
    }

    fn doubt(context: &mut Context<'_>) {
        let candidates = context.run.candidates.clone();
        for id in &candidates {
            context.reject("file", &id.0, "may be ours or another's; the next prompt will tell");
        }
        context.decide(Decision::Ambiguous { candidates });
    }

    /// A file without any command, and nobody else about: the agent was started again, and goes by a new name.
    fn decide_by_restart(&mut self, context: &mut Context<'_>) {
        if self.open.is_some() {
            return;
        }
        let alone = |file: &&NewFile| file.maker == Maker::Ours && file.seen_at.after(SETTLE) <= context.now;
        let Some(file) = self.files.iter().find(alone).cloned() else { return };
        context.accept("file", &file.id.0, &format!("begun without a command, {ALONE}"));
        self.name = Some(file.id.clone());
        (self.name_begun, self.shared) = (true, false);
        self.transition(context, TransitionKind::Clear, Some(file.id), EvidenceKind::Log);
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
