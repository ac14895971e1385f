//! Deciding by traces: the `log` evidence of an agent whose processes share a folder and sign nothing.
//!
//! - **The first conversation** is the one whose file begins, or that is gone on with, while no other process can have
//!   done it.
//! - **A clear** is the command, logged under the first conversation of our process, and the file that begins next. With
//!   no other process about, that file is ours at once. With others, END and START are made at once and the new
//!   conversation is open: it is that file if nobody else has cleared and no further file comes within [`SETTLE`], and
//!   `ambiguous` otherwise.
//! - **A prompt** decides what is open: logged under our first conversation and standing in exactly one file, it says where
//!   we are. Nothing else is needed, so a switch to an existing conversation, and a clear whose line was lost (processes
//!   overwrite each other's log), come out as well, only later. Words that another process typed, too, decide nothing.
//! - **A file without a command**, with no other process about, is the agent started anew within the run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::traces::{Maker, Trace, Typed, Words};
use super::{Correlator, Decision, Evidence, MAX_REMEMBERED, SETTLE, TransitionKind, Verdict};
use wire::AgentSessionId;
use wire::Timestamp;

/// How long a command waits for its file, and a prompt for its line. Why a minute: hooks of the user's run in between, and
/// the agent lets them take that long.
const PATIENCE: Duration = Duration::from_mins(1);

/// One run's view of the folder.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// What our process logs under.
    name: Option<AgentSessionId>,
    /// The file of that conversation was seen to begin; a further beginning is another process that goes on with it.
    name_begun: bool,
    /// Another process goes on with that conversation, and so logs under the same name.
    shared: bool,
    /// Commands that no file has followed yet, by who typed them, oldest first.
    clears: BTreeMap<AgentSessionId, VecDeque<Timestamp>>,
    /// New files that are nobody's yet.
    files: Vec<File>,
    /// Conversations that began during the run.
    fresh: BTreeSet<AgentSessionId>,
    prompts: VecDeque<Prompt>,
    said: VecDeque<Said>,
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct File {
    id: AgentSessionId,
    at: Timestamp,
    seen_at: Timestamp,
    maker: Maker,
}

#[derive(Clone, Debug)]
struct Prompt {
    under: AgentSessionId,
    at: Timestamp,
    seen_at: Timestamp,
    words: Words,
}

#[derive(Clone, Debug)]
struct Said {
    id: AgentSessionId,
    at: Timestamp,
    words: Words,
}

/// We have cleared, and which file is ours is not known.
#[derive(Clone, Copy, Debug)]
struct Open {
    cleared_at: Timestamp,
    /// When the only candidate may be taken; `None`: only a prompt decides.
    settles_at: Option<Timestamp>,
}

impl Folder {
    /// The run is in this conversation now.
    pub(super) fn entered(&mut self, id: &AgentSessionId) {
        self.name.get_or_insert_with(|| id.clone());
        self.files.retain(|file| file.id != *id);
        self.open = None;
    }

    pub(super) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let files =
            self.files.iter().filter(|file| file.maker == Maker::Ours).map(|file| file.seen_at.after(SETTLE));
        let open = self.open.and_then(|open| open.settles_at);
        files.chain(open).filter(|at| *at > now).min()
    }

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
    fn placed_prompt(&mut self) -> Option<(Prompt, AgentSessionId)> {
        let name = self.name.as_ref().filter(|_| !self.shared)?;
        let ours = self.prompts.iter().enumerate().filter(|(_, prompt)| prompt.under == *name);
        let (at, place) = ours
            .filter(|(_, prompt)| {
                !self.prompts.iter().any(|other| other.under != *name && other.words == prompt.words)
            })
            .find_map(|(at, prompt)| {
                let stands = |said: &&Said| said.words == prompt.words && said.at >= prompt.at;
                let places: BTreeSet<_> = self.said.iter().filter(stands).map(|said| &said.id).collect();
                (places.len() == 1).then(|| Some((at, (*places.first()?).clone())))?
            })?;
        let prompt = self.prompts.remove(at)?;
        // The same words later are another prompt's.
        let line = self.said.iter().position(|said| said.words == prompt.words && said.at >= prompt.at)?;
        self.said.remove(line);
        Some((prompt, place))
    }

    fn forget_what_is_old(&mut self, now: Timestamp) {
        let old = |at: Timestamp| at.after(PATIENCE) < now;
        for clears in self.clears.values_mut() {
            clears.retain(|at| !old(*at));
        }
        self.clears.retain(|_, clears| !clears.is_empty());
        self.prompts.retain(|prompt| !old(prompt.seen_at));
        while self.prompts.len() > MAX_REMEMBERED {
            self.prompts.pop_front();
        }
        while self.said.len() > MAX_REMEMBERED {
            self.said.pop_front();
        }
        while self.files.len() > MAX_REMEMBERED {
            let gone = self.files.remove(0);
            self.fresh.remove(&gone.id);
        }
    }
}

impl Correlator {
    pub(super) fn trace(&mut self, now: Timestamp, trace: Trace, verdict: &mut Verdict) {
        match trace {
            Trace::Typed { under, at, what } => self.typed(now, under, at, what, verdict),
            Trace::Begun { id, at, known: false, maker } => self.begun(now, id, at, maker, verdict),
            Trace::Begun { id, at, known: true, maker } => {
                if self.folder.name.as_ref() == Some(&id) {
                    self.folder.shared |= self.folder.name_begun && maker != Maker::Ours;
                    self.folder.name_begun = true;
                }
                if at >= self.spawned_at {
                    self.entered(now, id, maker, verdict);
                }
            }
            Trace::Entered { id, maker } => self.entered(now, id, maker, verdict),
            Trace::LogTooLong => {
                let why = "too long to be read, so no command and no prompt of this run will be seen";
                verdict.explain(now, "log", "what was typed in this folder", false, why);
            }
            Trace::Said { id, at, words } => {
                if at >= self.spawned_at {
                    self.folder.said.push_back(Said { id, at, words });
                }
            }
        }
        self.folder.forget_what_is_old(now);
    }

    fn typed(
        &mut self,
        now: Timestamp,
        under: AgentSessionId,
        at: Timestamp,
        what: Typed,
        verdict: &mut Verdict,
    ) {
        let ours = self.folder.name.as_ref() == Some(&under);
        match what {
            Typed::Prompt(words) => {
                self.folder.prompts.push_back(Prompt { under, at, seen_at: now, words });
            }
            Typed::Clear => {
                if ours {
                    let why = if self.folder.shared {
                        "a command under our name, but another process goes by it, too"
                    } else {
                        "a command of ours that clears; a new file must follow"
                    };
                    verdict.explain(now, "log", &under.0, !self.folder.shared, why);
                }
                self.folder.clears.entry(under).or_default().push_back(at);
            }
        }
    }

    fn begun(
        &mut self,
        now: Timestamp,
        id: AgentSessionId,
        at: Timestamp,
        maker: Maker,
        verdict: &mut Verdict,
    ) {
        if self.folder.name.as_ref() == Some(&id) {
            self.folder.name_begun = true;
        }
        if self.current() == Some(&id) || self.left.contains(&id) || at < self.spawned_at {
            return;
        }
        self.folder.fresh.insert(id.clone());
        if self.unbound() {
            let ours = maker == Maker::Ours;
            let why = if ours {
                "began when no other process of the agent was in this folder"
            } else {
                "began after our start, but another process may have begun it"
            };
            verdict.explain(now, "file", &id.0, ours, why);
            if ours {
                self.bind(now, id, Evidence::Log, verdict);
            }
        } else if self.folder.attribute_to_rival(at) {
            verdict.explain(now, "file", &id.0, false, "follows a command of another process");
        } else {
            self.folder.files.push(File { id, at, seen_at: now, maker });
        }
    }

    fn entered(&mut self, now: Timestamp, id: AgentSessionId, maker: Maker, verdict: &mut Verdict) {
        if self.current() == Some(&id) || (self.unbound() && !self.continues) {
            return;
        }
        let ours = maker == Maker::Ours;
        let why = if ours {
            "gone on with when no other process of the agent was in this folder"
        } else {
            "gone on with, but another process may have done it; a prompt will tell"
        };
        verdict.explain(now, "file", &id.0, ours, why);
        match (ours, self.unbound()) {
            (false, _) => {}
            (true, true) => self.bind(now, id, Evidence::Log, verdict),
            (true, false) => self.move_on(now, TransitionKind::Switch, Some(id), Evidence::Log, verdict),
        }
    }

    /// The run was in no conversation yet.
    fn unbound(&self) -> bool {
        self.current.is_none() && self.left.is_empty() && self.folder.name.is_none()
    }

    pub(super) fn decide_by_traces(&mut self, now: Timestamp, verdict: &mut Verdict) {
        if self.folder.name.is_none() {
            return;
        }
        self.decide_by_prompts(now, verdict);
        while self.decide_by_clear(now, verdict) {}
        self.settle_open(now, verdict);
        self.started_anew(now, verdict);
    }

    fn decide_by_prompts(&mut self, now: Timestamp, verdict: &mut Verdict) {
        while let Some((prompt, place)) = self.folder.placed_prompt() {
            let cleared = self.forget_clears_before(prompt.at);
            if self.current() == Some(&place) {
                if cleared {
                    let why = "cleared, but what was typed next stands in the conversation before it: the agent goes on under the same id";
                    verdict.explain(now, "prompt", &place.0, false, why);
                }
                continue;
            }
            verdict.explain(now, "prompt", &place.0, true, "what was typed here stands in this file alone");
            let fresh = self.folder.fresh.contains(&place) && !self.left.contains(&place);
            match (self.current.is_some(), fresh) {
                (false, true) => self.bind(now, place, Evidence::Log, verdict),
                (true, true) => self.move_on(now, TransitionKind::Clear, Some(place), Evidence::Log, verdict),
                (_, false) => self.move_on(now, TransitionKind::Switch, Some(place), Evidence::Log, verdict),
            }
        }
    }

    /// A prompt came after them, in the conversation we are known to be in. Says whether there were any.
    fn forget_clears_before(&mut self, at: Timestamp) -> bool {
        let Some(clears) = self.folder.our_clears() else { return false };
        let before = clears.len();
        clears.retain(|cleared| *cleared > at);
        clears.len() < before
    }

    /// Our oldest command and the files that began after it, up to the next command. Says whether it decided something.
    fn decide_by_clear(&mut self, now: Timestamp, verdict: &mut Verdict) -> bool {
        let Some(clears) = self.folder.our_clears() else { return false };
        let (Some(&cleared_at), next) = (clears.front(), clears.get(1).copied()) else { return false };
        let follows = |file: &&File| file.at >= cleared_at && next.is_none_or(|next| file.at < next);
        let candidates: Vec<File> = self.folder.files.iter().filter(follows).cloned().collect();
        let Some(first) = candidates.iter().min_by_key(|file| file.at) else {
            let nothing_came = next.is_some_and(|next| next.after(SETTLE) <= now);
            if nothing_came && let Some(clears) = self.folder.our_clears() {
                clears.pop_front();
            }
            return nothing_came;
        };
        if let Some(clears) = self.folder.our_clears() {
            clears.pop_front();
        }
        if candidates.iter().all(|file| file.maker == Maker::Ours) {
            let id = first.id.clone();
            verdict.explain(
                now,
                "file",
                &id.0,
                true,
                "the file that began next, with no other process in this folder",
            );
            self.move_on(now, TransitionKind::Clear, Some(id), Evidence::Log, verdict);
            return true;
        }
        self.move_on(now, TransitionKind::Clear, None, Evidence::Log, verdict);
        let certain = candidates.iter().all(|file| file.maker <= Maker::Settled)
            && candidates.len() == 1
            && !candidates.iter().any(|file| self.folder.rival_cleared(file.at));
        let settles_at = certain.then(|| first.seen_at.after(SETTLE));
        self.folder.open = Some(Open { cleared_at, settles_at });
        self.candidates = candidates.into_iter().map(|file| file.id).collect();
        if !certain {
            self.doubt(now, verdict);
        }
        true
    }

    /// What is open settles on its only candidate, or turns out to be ambiguous.
    fn settle_open(&mut self, now: Timestamp, verdict: &mut Verdict) {
        let Some(open) = self.folder.open else { return };
        let known = &self.candidates;
        let more: Vec<AgentSessionId> = self
            .folder
            .files
            .iter()
            .filter(|file| file.at >= open.cleared_at && !known.contains(&file.id))
            .map(|file| file.id.clone())
            .collect();
        if !more.is_empty() {
            self.candidates.extend(more);
            self.folder.open = Some(Open { settles_at: None, ..open });
            return self.doubt(now, verdict);
        }
        if let ([only], Some(at)) = (&self.candidates[..], open.settles_at)
            && at <= now
        {
            let id = only.clone();
            verdict.explain(
                now,
                "file",
                &id.0,
                true,
                "the only file after our command, and nobody else has cleared",
            );
            self.bind(now, id, Evidence::Log, verdict);
        }
    }

    fn doubt(&mut self, now: Timestamp, verdict: &mut Verdict) {
        for id in &self.candidates {
            verdict.explain(now, "file", &id.0, false, "may be ours or another's; the next prompt will tell");
        }
        verdict.decisions.push(Decision::Ambiguous { candidates: self.candidates.clone() });
    }

    /// A file without any command, and nobody else about: the agent was started anew, and goes by a new name.
    fn started_anew(&mut self, now: Timestamp, verdict: &mut Verdict) {
        if self.folder.open.is_some() {
            return;
        }
        let alone = |file: &&File| file.maker == Maker::Ours && file.seen_at.after(SETTLE) <= now;
        let Some(file) = self.folder.files.iter().find(alone).cloned() else { return };
        verdict.explain(
            now,
            "file",
            &file.id.0,
            true,
            "began without a command, with no other process in this folder",
        );
        self.folder.name = Some(file.id.clone());
        (self.folder.name_begun, self.folder.shared) = (true, false);
        self.move_on(now, TransitionKind::Clear, Some(file.id), Evidence::Log, verdict);
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
