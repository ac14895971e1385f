//! Agents that keep a registry of their processes (Claude Code): which conversation each is in, by pid and start time.
//!
//! **Clear or switch.** When the registry names another conversation, the decision is made at once, on how that
//! conversation's file begins ([`Beginning`]), because a transition must not wait for a file that comes up to 0.6 s later:
//! no file yet, or one in which nothing was said, is a new, empty conversation (a clear). A file that begins with a `/clear`
//! made since the current conversation was bound is one too. Anything else existed before or is a copy (a switch). `/branch`
//! and the resume picker have their file in place before the registry changes.
//!
//! **Continuing.** A run that continues a conversation, named or not, may register under a fresh id first, and under that of
//! the conversation when it has found it, or when the user has picked it. So until the registry has named a conversation
//! that exists, an id without a file is only a placeholder.
//!
//! **Older versions** leave the old id in the registry after a clear. So only a *change* of it is news, and the log alone can
//! report a clear ([`ClearLog`]); it takes [`SETTLE`](super::core::SETTLE) longer. Two that clear in one folder at once leave two log
//! lines and two files. Where the file's clear bears the id of the last prompt before it, the file that holds that prompt shows
//! whose it is. Where it does not, the transition stands, and the new conversation stays `ambiguous` until all candidates but
//! one are claimed by other processes.
//!
//! **Versions before the registry** are followed by their files, as long as no other process of the agent runs in the folder:
//! a file that begins then is ours ([`Maker`]). With others about, only what the log names can decide.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::clear_log::{ClearLog, ClearedFile, Successor};
use super::core::{Context, Resumes, Rules, RunState};
use super::decision::{Decision, Fork};
use super::signal::{Beginning, HistoryEntry, NewSessionFile, RegistryEntry, Signal};
use super::traces::{ALONE, Maker};
use types::{AgentSessionId, EvidenceKind, Pid, ProcessId, Timestamp, TransitionKind};

/// How much earlier than the binding of the current conversation a clear may lie and still be a fresh one: its line bears
/// the time of the key press, and the registry followed up to 0.3 s later.
const CLEAR_SLACK: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct RegistryRules {
    /// The conversation that the run was to go on with has been found, or another one took its place.
    resumed: bool,
    /// The id that the registry names while that conversation is still being looked for or chosen.
    placeholder: Option<AgentSessionId>,
    /// The conversation that the registry named last for each process.
    named: BTreeMap<Pid, AgentSessionId>,
    /// Conversations that other processes are in or were in.
    claimed: BTreeSet<AgentSessionId>,
    /// Copies of our conversations that were decided on.
    forks: BTreeSet<AgentSessionId>,
    clears: ClearLog,
}

impl Rules for RegistryRules {
    fn feed(&mut self, context: &mut Context<'_>, signal: Signal) {
        match signal {
            Signal::Registry { entry, file } => self.entry(context, entry, file),
            Signal::History(entry) => self.history(context, entry),
            Signal::NewFile(file) => self.new_file(context, file),
            Signal::Continued { id, maker } => self.continued(context, id, maker),
            Signal::Background { from, to, process, forked: false, .. } => {
                self.background(context, &from, to, process);
            }
            Signal::Background { from, to, process, forked: true, begun_at } => {
                self.forked(context, &from, Fork { to, process, begun_at });
            }
            Signal::HandedOver { from, to } => self.handed_over(context, &from, to),
            _ => {}
        }
    }

    fn entered(&mut self, id: &AgentSessionId) {
        self.clears.forget_file(id);
        self.placeholder = None;
    }

    fn departed(&mut self, id: &AgentSessionId) {
        self.clears.forget_commands(id);
    }

    /// The log alone: our conversation was cleared, and a file that begins with it is there.
    fn decide(&mut self, context: &mut Context<'_>) {
        while let Some(current) = context.run.current().cloned() {
            if self.is_shared(context.run, &current) {
                return;
            }
            match self.clears.successor(context.now, &current, context.run) {
                None => return,
                Some(Successor::Known { id, why }) => {
                    context.accept("file", &id.0, why);
                    self.transition(context, TransitionKind::Clear, Some(id), EvidenceKind::Log);
                }
                Some(Successor::OneOf(candidates)) => {
                    self.transition(context, TransitionKind::Clear, None, EvidenceKind::Log);
                    for id in &candidates {
                        self.clears.forget_file(id);
                    }
                    context.run.candidates = candidates;
                    self.narrow_down(context);
                }
            }
        }
    }

    fn wake_at(&self, run: &RunState, now: Timestamp) -> Option<Timestamp> {
        run.current().and_then(|_| self.clears.wake_at(now))
    }
}

impl RegistryRules {
    fn entry(&mut self, context: &mut Context<'_>, entry: RegistryEntry, file: Beginning) {
        let value = format!("{} by pid {}", entry.session, entry.pid);
        let Some(process) = context.run.process(entry.pid) else {
            return self.another_process(context, entry.pid, entry.session);
        };
        if let Some(why) = entry.why_not_of(process, context.run.spawned_at) {
            return context.reject("registry", &value, why);
        }
        let (pid, id) = (entry.pid, entry.session);
        if self.is_resuming(context.run) && file == Beginning::Absent && !context.run.is_in(&id) {
            if self.placeholder.as_ref() != Some(&id) {
                let why = "has no file, and this run goes on with a conversation that has one";
                context.reject("registry", &value, why);
                self.placeholder = Some(id);
            }
            return;
        }
        self.resumed = true;
        let before = self.named.insert(pid, id.clone());
        if before.as_ref() == Some(&id) {
            return;
        }
        if context.run.is_in(&id) {
            return context.accept("registry", &value, "confirms the conversation bound");
        }
        if before.is_none() && context.run.has_departed(&id) {
            let why =
                "names a conversation this run has left; this version does not keep its entry up to date";
            return context.reject("registry", &value, why);
        }
        if let Some(since) = context.run.current_since() {
            let (kind, why) = transition_kind(file, since);
            context.accept("registry", &value, why);
            self.transition(context, kind, Some(id), EvidenceKind::Registry);
        } else {
            context.accept("registry", &value, "names the conversation of this very process");
            self.bind(context, id, EvidenceKind::Registry);
        }
    }

    /// Whether the run goes on with a conversation, named or not, that the registry has not named yet.
    fn is_resuming(&self, run: &RunState) -> bool {
        run.resumes != Resumes::Nothing && !self.resumed
    }

    /// A conversation that another process left by its own entry, it did not leave for one of our candidates.
    fn another_process(&mut self, context: &mut Context<'_>, pid: Pid, id: AgentSessionId) {
        let departed = self.named.insert(pid, id.clone()).filter(|departed| *departed != id);
        if let Some(departed) = departed.filter(|departed| !context.run.is_in(departed)) {
            self.clears.forget_commands(&departed);
        }
        self.claim(context, id);
    }

    fn history(&mut self, context: &mut Context<'_>, entry: HistoryEntry) {
        if entry.may_clear && context.run.is_in(&entry.session) {
            let alone = !self.is_shared(context.run, &entry.session);
            let why = if alone {
                "a command in our conversation that may clear it; a new file must follow"
            } else {
                "typed in our conversation, but another process is in it too"
            };
            context.explain("history", &entry.session.0, alone, why);
        }
        self.clears.typed(entry);
    }

    /// Whether another process is in this conversation as well, so that a line of the log may be of that one.
    fn is_shared(&self, run: &RunState, id: &AgentSessionId) -> bool {
        self.named.iter().any(|(pid, named)| named == id && run.process(*pid).is_none())
    }

    fn new_file(&mut self, context: &mut Context<'_>, file: NewSessionFile) {
        let NewSessionFile { id, cwd, beginning, maker, follows } = file;
        let unbound = context.run.is_unbound();
        let began = !matches!(beginning, Beginning::Absent | Beginning::Silent);
        if self.placeholder.as_ref() == Some(&id) && (unbound || began) {
            return self.placeholder_has_a_file(context, id, beginning);
        }
        let run = &context.run;
        let known = run.is_in(&id) || run.has_departed(&id) || run.candidates.contains(&id);
        if known || !began || self.clears.has_file(&id) {
            return;
        }
        let why = match (beginning, maker) {
            (Beginning::Cleared { at }, _) if at < context.run.spawned_at => {
                "cleared before this process was started"
            }
            (Beginning::Cleared { .. }, _) if self.claimed.contains(&id) => "another process is in it",
            (_, Some(Maker::Ours)) if unbound || self.may_lead_to(context.run, beginning) => {
                return self.file_of_ours(context, id, beginning);
            }
            (Beginning::Cleared { at: cleared_at }, _) => {
                context.accept("file", &id.0, "begins with a clear that may be ours");
                let seen_at = context.now;
                return self.clears.add_file(ClearedFile { id, cwd, cleared_at, seen_at, follows });
            }
            (_, Some(maker)) if unbound => {
                context.decide(Decision::Ambiguous { candidates: vec![id.clone()] });
                &format!("begun {}", maker.doubt())
            }
            _ => "a new file, but nothing links it to this process",
        };
        context.reject("file", &id.0, why);
    }

    /// The process stayed where it registered first, although it was to continue something else.
    fn placeholder_has_a_file(
        &mut self,
        context: &mut Context<'_>,
        id: AgentSessionId,
        beginning: Beginning,
    ) {
        context.accept("file", &id.0, "the conversation the registry names has a file now");
        self.resumed = true;
        let kind = transition_kind(beginning, context.run.spawned_at).0;
        self.enter(context, id, kind, EvidenceKind::Registry);
    }

    /// Whether a file of ours that begins like this is one that the current conversation goes on in: after a clear, or where a
    /// version continues a conversation in a copy.
    fn may_lead_to(&self, run: &RunState, beginning: Beginning) -> bool {
        run.current().is_some() && (self.is_resuming(run) || matches!(beginning, Beginning::Cleared { .. }))
    }

    /// A run that continues a conversation without naming it has found it, unless another process spoke there.
    fn continued(&mut self, context: &mut Context<'_>, id: AgentSessionId, maker: Maker) {
        if context.run.resumes != Resumes::Unnamed || !context.run.is_unbound() {
            return;
        }
        let ours = maker == Maker::Ours;
        let why = format!("gone on with {}", if ours { ALONE } else { maker.doubt() });
        context.explain("file", &id.0, ours, &why);
        if ours {
            self.bind(context, id, EvidenceKind::Log);
        } else {
            context.decide(Decision::Ambiguous { candidates: vec![id] });
        }
    }

    /// It began while no other process of the agent was in this folder.
    fn file_of_ours(&mut self, context: &mut Context<'_>, id: AgentSessionId, beginning: Beginning) {
        let (kind, how) = match beginning {
            Beginning::Cleared { .. } => (TransitionKind::Clear, "cleared"),
            _ => (TransitionKind::Switch, "begun"),
        };
        context.accept("file", &id.0, &format!("{how} {ALONE}"));
        self.resumed = true;
        self.enter(context, id, kind, EvidenceKind::Log);
    }

    /// Another process is in this conversation, so it is not the one we look for.
    fn claim(&mut self, context: &mut Context<'_>, id: AgentSessionId) {
        let concerns_us = context.run.candidates.contains(&id) || self.clears.has_file(&id);
        if concerns_us {
            context.reject("claim", &id.0, "another process is in it");
        }
        self.clears.forget_file(&id);
        context.run.candidates.retain(|candidate| *candidate != id);
        self.claimed.insert(id);
        if concerns_us && context.run.current().is_none() {
            self.narrow_down(context);
        }
    }

    fn background(
        &mut self,
        context: &mut Context<'_>,
        from: &AgentSessionId,
        to: AgentSessionId,
        process: ProcessId,
    ) {
        let ours = context.run.is_in(from);
        let why = if ours {
            "goes on with our conversation in the background"
        } else {
            "goes on with another conversation"
        };
        context.explain("background", &to.0, ours, why);
        if ours {
            context.run.processes.push(process);
            self.named.insert(process.pid, to.clone());
            self.transition(context, TransitionKind::Switch, Some(to), EvidenceKind::Registry);
        }
    }

    /// Its entry is rewritten again and again, and is news once.
    fn forked(&mut self, context: &mut Context<'_>, from: &AgentSessionId, fork: Fork) {
        if context.run.is_in(from) && self.forks.insert(fork.to.clone()) {
            context.accept("background", &fork.to.0, "a copy of our conversation in the background");
            context.decide(Decision::Forked(fork));
        }
    }

    fn handed_over(&mut self, context: &mut Context<'_>, from: &AgentSessionId, to: AgentSessionId) {
        let ours = context.run.is_in(from) && !self.is_shared(context.run, from);
        if ours && !self.claimed.contains(&to) {
            let why = "the only background job begun here since the command in our conversation";
            context.accept("background", &to.0, why);
            self.transition(context, TransitionKind::Switch, Some(to), EvidenceKind::Log);
        }
    }

    fn narrow_down(&mut self, context: &mut Context<'_>) {
        match &context.run.candidates[..] {
            [] => {}
            [only] => {
                let id = only.clone();
                context.accept("file", &id.0, "all other candidates belong to other processes");
                self.bind(context, id, EvidenceKind::Log);
            }
            several => {
                let candidates = several.to_vec();
                context.decide(Decision::Ambiguous { candidates });
            }
        }
    }

    /// Into this conversation, from the one the run is in, if it is in one.
    fn enter(
        &mut self,
        context: &mut Context<'_>,
        id: AgentSessionId,
        kind: TransitionKind,
        evidence: EvidenceKind,
    ) {
        if context.run.current().is_some() {
            self.transition(context, kind, Some(id), evidence);
        } else {
            self.bind(context, id, evidence);
        }
    }
}

pub(super) fn transition_kind(file: Beginning, since: Timestamp) -> (TransitionKind, &'static str) {
    match file {
        Beginning::Absent => (TransitionKind::Clear, "changed to a conversation that has no file yet"),
        Beginning::Silent => (TransitionKind::Clear, "changed to a conversation in which nothing was said"),
        Beginning::Cleared { at } if at.after(CLEAR_SLACK) >= since => {
            (TransitionKind::Clear, "changed to a conversation that begins with this clear")
        }
        Beginning::Cleared { .. } => {
            (TransitionKind::Switch, "changed to a conversation that began with an earlier clear")
        }
        Beginning::Spoken { copied: false } => {
            (TransitionKind::Switch, "changed to an existing conversation")
        }
        Beginning::Spoken { copied: true } => (TransitionKind::Switch, "changed to a copy of a conversation"),
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
