//! Which of the agent's conversations a run is in: evidence in, decisions out. Pure; the tracker does the looking.
//!
//! Evidence, strongest first: the id was `assigned`; the agent's `registry` names it for our very process (pid and start
//! time); the agent's `log` says that our conversation was cleared, and a file that begins with that clear appears. The first
//! that speaks decides, the others confirm or are turned down, and every signal is explained.
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
//! tell of a clear; it takes [`SETTLE`] longer. Two that clear in one folder at once leave two log lines and two files. Where
//! the file's clear bears the id of the last prompt before it, the file that holds that prompt says whose it is. Where it does
//! not, the transition stands, and the new conversation stays `ambiguous` until all candidates but one are claimed by other
//! processes.
//!
//! **Versions before the registry** are followed by their files, as long as no other process of the agent runs in the folder:
//! a file that begins then is ours ([`Maker`]). With others about, only what the log names can decide.
//!
//! **Held conversations.** Where the agent keeps what it writes to open, that is its registry: [`held`].
//!
//! **Agents whose processes sign nothing** are followed by what they leave in a folder: [`folder`].

mod evidence;
mod folder;
mod held;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use evidence::{
    Beginning, Decision, Evidence, Explained, HistoryEntry, NewSessionFile, RegistryEntry, Signal, Thread,
    TransitionKind, Verdict,
};
use held::Locks;

pub use traces::{Maker, Trace, Typed, Words};

use wire::AgentSessionId;
use wire::Timestamp;
use wire::{Pid, ProcessId};

/// How long after a file's first sight the log alone may decide. Why 1 s: log and file go through separate write queues,
/// and files were seen up to 0.6 s after the command; a rival's log line must be here before we take its file for ours.
pub const SETTLE: Duration = Duration::from_secs(1);

/// How much earlier than the binding of the current conversation a clear may lie and still be a fresh one: its line bears
/// the time of the key press, and the registry followed up to 0.3 s later.
const CLEAR_SLACK: Duration = Duration::from_secs(2);

/// Conversations with a command, and new files, that are remembered; the oldest go first. More than ever clear at once.
const MAX_REMEMBERED: usize = 64;

/// One run's view.
#[derive(Debug)]
pub struct Correlator {
    /// The agent's process, and those that took over from it.
    ours: Vec<ProcessId>,
    spawned_at: Timestamp,
    /// The run goes on with a conversation that nobody named yet.
    continues: bool,
    /// It goes on with one, named or not, and the registry has not named it yet.
    resuming: bool,
    /// What the registry names while that conversation is still being looked for or chosen.
    placeholder: Option<AgentSessionId>,
    current: Option<Current>,
    /// Conversations this run was in before.
    left: BTreeSet<AgentSessionId>,
    /// What the registry said of each process last.
    registry_said: BTreeMap<Pid, AgentSessionId>,
    /// Taken by other processes, now or once.
    claimed: BTreeSet<AgentSessionId>,
    /// Copies of our conversations that were told of.
    forks: BTreeSet<AgentSessionId>,
    commands: BTreeMap<AgentSessionId, Command>,
    files: Vec<NewFile>,
    /// After a transition to nobody knows where: the files one of which is ours.
    candidates: Vec<AgentSessionId>,
    locks: Locks,
    folder: folder::Folder,
}

#[derive(Clone, Debug)]
struct Current {
    id: AgentSessionId,
    since: Timestamp,
}

/// The latest command of a conversation that may have cleared it, and the latest thing typed in it at all.
#[derive(Clone, Debug)]
struct Command {
    may_clear_at: Option<Timestamp>,
    last_at: Timestamp,
    project: Option<String>,
}

#[derive(Clone, Debug)]
struct NewFile {
    id: AgentSessionId,
    cwd: Option<String>,
    cleared_at: Timestamp,
    seen_at: Timestamp,
    follows: Option<AgentSessionId>,
}

impl Command {
    /// Whether this conversation may be the one that was cleared into the file: the command came before the clear, and
    /// nothing was typed under the old id after it.
    fn may_have_made(&self, file: &NewFile) -> bool {
        let same_folder = match (&self.project, &file.cwd) {
            (Some(project), Some(cwd)) => project == cwd,
            _ => true,
        };
        same_folder
            && self.last_at <= file.cleared_at
            && self.may_clear_at.is_some_and(|at| at <= file.cleared_at)
    }
}

impl Correlator {
    pub fn new(agent: ProcessId, spawned_at: Timestamp) -> Self {
        Self {
            ours: vec![agent],
            spawned_at,
            continues: false,
            resuming: false,
            placeholder: None,
            current: None,
            left: BTreeSet::new(),
            registry_said: BTreeMap::new(),
            claimed: BTreeSet::new(),
            forks: BTreeSet::new(),
            commands: BTreeMap::new(),
            files: Vec::new(),
            candidates: Vec::new(),
            locks: Locks::default(),
            folder: folder::Folder::default(),
        }
    }

    /// The arguments continue a conversation without naming it (`--continue`, the picker at the start).
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.continues = true;
        self.resuming()
    }

    /// The arguments continue a conversation.
    #[must_use]
    pub fn resuming(mut self) -> Self {
        self.resuming = true;
        self
    }

    pub fn current(&self) -> Option<&AgentSessionId> {
        self.current.as_ref().map(|current| &current.id)
    }

    /// A further process is this run's agent: the launcher was a script, or handed over.
    pub fn adopt(&mut self, process: ProcessId) {
        self.ours.push(process);
    }

    /// When, after `now`, a [`Signal::Tick`] may change something.
    pub fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let by_current = self
            .current()
            .into_iter()
            .flat_map(|current| self.files.iter().map(settled_at).chain(self.locks.wake_at(current)));
        by_current.filter(|at| *at > now).chain(self.folder.wake_at(now)).min()
    }

    pub fn feed(&mut self, now: Timestamp, signal: Signal) -> Verdict {
        let mut verdict = Verdict::default();
        match signal {
            Signal::Assigned(id) => self.assigned(now, id, &mut verdict),
            Signal::Registry { entry, file } => self.registry(now, entry, file, &mut verdict),
            Signal::History(entry) => self.history(now, entry, &mut verdict),
            Signal::NewFile(file) => self.new_file(now, file, &mut verdict),
            Signal::GoneOnWith { id, maker } => self.gone_on_with(now, id, maker, &mut verdict),
            Signal::Background { from, to, process, forked: false } => {
                self.background(now, &from, to, process, &mut verdict);
            }
            Signal::Background { from, to, process, forked: true } => {
                self.forked(now, &from, to, process, &mut verdict);
            }
            Signal::HandedOver { from, to } => self.handed_over(now, &from, to, &mut verdict),
            Signal::Held { id, thread } => self.held(now, id, thread, Evidence::Registry, &mut verdict),
            Signal::Released(id) => self.released(now, &id, &mut verdict),
            Signal::Marked { id, thread } => self.held(now, id, thread, Evidence::Log, &mut verdict),
            Signal::Turns(open) => self.locks.turns(open),
            Signal::Trace(trace) => self.trace(now, trace, &mut verdict),
            Signal::Tick => {}
        }
        self.decide_by_locks(now, &mut verdict);
        self.decide_by_log(now, &mut verdict);
        self.decide_by_traces(now, &mut verdict);
        verdict
    }

    fn assigned(&mut self, now: Timestamp, id: AgentSessionId, verdict: &mut Verdict) {
        let first = self.current.is_none() && self.left.is_empty();
        let why =
            if first { "the id stands in the arguments" } else { "the run is already in a conversation" };
        verdict.explain(now, "assigned", &id.0, first, why);
        if first {
            self.bind(now, id, Evidence::Assigned, verdict);
        }
    }

    fn registry(&mut self, now: Timestamp, entry: RegistryEntry, file: Beginning, verdict: &mut Verdict) {
        let value = format!("{} by pid {}", entry.session, entry.pid);
        let Some(ours) = self.ours.iter().find(|process| process.pid == entry.pid) else {
            return self.another_process(now, entry.pid, entry.session, verdict);
        };
        if let Some(why) = entry.why_not_of(*ours, self.spawned_at) {
            return verdict.explain(now, "registry", &value, false, why);
        }
        let (pid, id) = (entry.pid, entry.session);
        if self.resuming && file == Beginning::Absent && self.current() != Some(&id) {
            if self.placeholder.as_ref() != Some(&id) {
                let why = "has no file, and this run goes on with a conversation that has one";
                verdict.explain(now, "registry", &value, false, why);
                self.placeholder = Some(id);
            }
            return;
        }
        self.resuming = false;
        let said = self.registry_said.insert(pid, id.clone());
        if said.as_ref() == Some(&id) {
            return;
        }
        if self.current() == Some(&id) {
            return verdict.explain(now, "registry", &value, true, "confirms the conversation bound");
        }
        if said.is_none() && self.left.contains(&id) {
            let why =
                "names a conversation this run has left; this version does not keep its entry up to date";
            return verdict.explain(now, "registry", &value, false, why);
        }
        if let Some(current) = self.current.clone() {
            let (kind, why) = transition_kind(file, current.since);
            verdict.explain(now, "registry", &value, true, why);
            self.move_on(now, kind, Some(id), Evidence::Registry, verdict);
        } else {
            verdict.explain(now, "registry", &value, true, "names the conversation of this very process");
            self.bind(now, id, Evidence::Registry, verdict);
        }
    }

    /// What it left by its own entry, it did not leave for one of our candidates.
    fn another_process(&mut self, now: Timestamp, pid: Pid, id: AgentSessionId, verdict: &mut Verdict) {
        let left = self.registry_said.insert(pid, id.clone()).filter(|left| *left != id);
        if let Some(left) = left.filter(|left| self.current() != Some(left)) {
            self.commands.remove(&left);
        }
        self.claim(now, id, verdict);
    }

    fn history(&mut self, now: Timestamp, entry: HistoryEntry, verdict: &mut Verdict) {
        if entry.may_clear && self.current() == Some(&entry.session) {
            let alone = !self.shared(&entry.session);
            let why = if alone {
                "a command in our conversation that may clear it; a new file must follow"
            } else {
                "typed in our conversation, but another process is in it too"
            };
            verdict.explain(now, "history", &entry.session.0, alone, why);
        }
        if self.commands.len() >= MAX_REMEMBERED && !self.commands.contains_key(&entry.session) {
            let oldest =
                self.commands.iter().min_by_key(|(_, command)| command.last_at).map(|(id, _)| id.clone());
            oldest.and_then(|id| self.commands.remove(&id));
        }
        let fresh = Command { may_clear_at: None, last_at: entry.at, project: None };
        let command = self.commands.entry(entry.session).or_insert(fresh);
        command.last_at = command.last_at.max(entry.at);
        command.project = entry.project.or(command.project.take());
        if entry.may_clear {
            command.may_clear_at = Some(entry.at);
        }
    }

    /// Another process is in this conversation as well, so that the log's word on it may be about that one.
    fn shared(&self, id: &AgentSessionId) -> bool {
        let others = |pid: &Pid| !self.ours.iter().any(|process| process.pid == *pid);
        self.registry_said.iter().any(|(pid, said)| said == id && others(pid))
    }

    fn new_file(&mut self, now: Timestamp, file: NewSessionFile, verdict: &mut Verdict) {
        let NewSessionFile { id, cwd, beginning, maker, follows } = file;
        let unbound = self.current.is_none() && self.left.is_empty();
        let began = !matches!(beginning, Beginning::Absent | Beginning::Silent);
        if self.placeholder.as_ref() == Some(&id) && (unbound || began) {
            return self.placeholder_has_a_file(now, id, beginning, verdict);
        }
        let known = self.current() == Some(&id) || self.left.contains(&id) || self.candidates.contains(&id);
        if known || !began || self.files.iter().any(|file| file.id == id) {
            return;
        }
        let why = match (beginning, maker) {
            (Beginning::Cleared { at }, _) if at < self.spawned_at => {
                "cleared before this process was started"
            }
            (Beginning::Cleared { .. }, _) if self.claimed.contains(&id) => "another process is in it",
            (_, Some(Maker::Ours)) if unbound || self.may_lead_to(beginning) => {
                return self.file_of_ours(now, id, beginning, verdict);
            }
            (Beginning::Cleared { at: cleared_at }, _) => {
                verdict.explain(now, "file", &id.0, true, "begins with a clear that may be ours");
                if self.files.len() >= MAX_REMEMBERED {
                    self.files.remove(0);
                }
                return self.files.push(NewFile { id, cwd, cleared_at, seen_at: now, follows });
            }
            (_, Some(_)) if unbound => {
                verdict.decisions.push(Decision::Ambiguous { candidates: vec![id.clone()] });
                "began after our start, but another process of the agent may have begun it"
            }
            _ => "a new file, but nothing links it to this process",
        };
        verdict.explain(now, "file", &id.0, false, why);
    }

    /// The process stayed where it registered first, although it was to continue something else.
    fn placeholder_has_a_file(
        &mut self,
        now: Timestamp,
        id: AgentSessionId,
        beginning: Beginning,
        verdict: &mut Verdict,
    ) {
        verdict.explain(now, "file", &id.0, true, "the conversation the registry names has a file now");
        self.resuming = false;
        self.enter_by(now, id, transition_kind(beginning, self.spawned_at).0, Evidence::Registry, verdict);
    }

    /// Whether a file of ours that begins like this is one that the current conversation goes on in: after a clear, or where a
    /// version continues a conversation in a copy.
    fn may_lead_to(&self, beginning: Beginning) -> bool {
        self.current.is_some() && (self.resuming || matches!(beginning, Beginning::Cleared { .. }))
    }

    /// A run that continues a conversation without naming it has found it, unless another process spoke there.
    fn gone_on_with(&mut self, now: Timestamp, id: AgentSessionId, maker: Maker, verdict: &mut Verdict) {
        if !self.continues || self.current.is_some() || !self.left.is_empty() {
            return;
        }
        let ours = maker == Maker::Ours;
        let why = if ours {
            "gone on with when no other process of the agent was in this folder"
        } else {
            "gone on with, but another process of the agent may have done it"
        };
        verdict.explain(now, "file", &id.0, ours, why);
        if ours {
            self.bind(now, id, Evidence::Log, verdict);
        } else {
            verdict.decisions.push(Decision::Ambiguous { candidates: vec![id] });
        }
    }

    /// It began while no other process of the agent was in this folder.
    fn file_of_ours(
        &mut self,
        now: Timestamp,
        id: AgentSessionId,
        beginning: Beginning,
        verdict: &mut Verdict,
    ) {
        let (kind, why) = match beginning {
            Beginning::Cleared { .. } => {
                (TransitionKind::Clear, "cleared when no other process of the agent was in this folder")
            }
            _ => (TransitionKind::Switch, "began when no other process of the agent was in this folder"),
        };
        verdict.explain(now, "file", &id.0, true, why);
        self.resuming = false;
        self.enter_by(now, id, kind, Evidence::Log, verdict);
    }

    /// Into this conversation, from the one the run is in, if it is in one.
    fn enter_by(
        &mut self,
        now: Timestamp,
        id: AgentSessionId,
        kind: TransitionKind,
        evidence: Evidence,
        verdict: &mut Verdict,
    ) {
        if self.current.is_some() {
            self.move_on(now, kind, Some(id), evidence, verdict);
        } else {
            self.bind(now, id, evidence, verdict);
        }
    }

    /// Another process is in this conversation, so it is not the one we look for.
    fn claim(&mut self, now: Timestamp, id: AgentSessionId, verdict: &mut Verdict) {
        let concerns_us = self.candidates.contains(&id) || self.files.iter().any(|file| file.id == id);
        if concerns_us {
            verdict.explain(now, "claim", &id.0, false, "another process is in it");
        }
        self.files.retain(|file| file.id != id);
        self.candidates.retain(|candidate| *candidate != id);
        self.claimed.insert(id);
        if concerns_us && self.current.is_none() {
            self.narrow_down(now, verdict);
        }
    }

    fn background(
        &mut self,
        now: Timestamp,
        from: &AgentSessionId,
        to: AgentSessionId,
        process: ProcessId,
        verdict: &mut Verdict,
    ) {
        let ours = self.current() == Some(from);
        let why = if ours {
            "goes on with our conversation in the background"
        } else {
            "goes on with another conversation"
        };
        verdict.explain(now, "background", &to.0, ours, why);
        if ours {
            self.adopt(process);
            self.registry_said.insert(process.pid, to.clone());
            self.move_on(now, TransitionKind::Switch, Some(to), Evidence::Registry, verdict);
        }
    }

    /// Its entry is rewritten again and again, and is news once.
    fn forked(
        &mut self,
        now: Timestamp,
        from: &AgentSessionId,
        to: AgentSessionId,
        process: ProcessId,
        verdict: &mut Verdict,
    ) {
        if self.current() == Some(from) && self.forks.insert(to.clone()) {
            verdict.explain(now, "background", &to.0, true, "a copy of our conversation in the background");
            verdict.decisions.push(Decision::Forked { to, process });
        }
    }

    fn handed_over(
        &mut self,
        now: Timestamp,
        from: &AgentSessionId,
        to: AgentSessionId,
        verdict: &mut Verdict,
    ) {
        if self.current() == Some(from) && !self.shared(from) && !self.claimed.contains(&to) {
            let why = "the only background job begun here since the command in our conversation";
            verdict.explain(now, "background", &to.0, true, why);
            self.move_on(now, TransitionKind::Switch, Some(to), Evidence::Log, verdict);
        }
    }

    /// The log's own word: our conversation was cleared, and a file that begins with it is there.
    fn decide_by_log(&mut self, now: Timestamp, verdict: &mut Verdict) {
        while let Some(current) = self.current.clone() {
            let settled: Vec<&NewFile> = self.files.iter().filter(|file| settled_at(file) <= now).collect();
            let shared = self.shared(&current.id);
            // That names our conversation alone, so nothing has to be waited for.
            let next = self.files.iter().find(|file| !shared && file.follows.as_ref() == Some(&current.id));
            if let Some(next) = next {
                let to = next.id.clone();
                verdict.explain(now, "file", &to.0, true, "its clear bears the id of a prompt of ours");
                self.move_on(now, TransitionKind::Clear, Some(to), Evidence::Log, verdict);
                continue;
            }
            let Some(command) = self.commands.get(&current.id).filter(|_| !shared) else { return };
            let mine: Vec<&NewFile> =
                settled.into_iter().filter(|file| command.may_have_made(file)).collect();
            let sole: Vec<&NewFile> =
                mine.iter().copied().filter(|file| self.rivals(file, &current.id).is_empty()).collect();
            let rivals: BTreeSet<&AgentSessionId> =
                mine.iter().flat_map(|file| self.rivals(file, &current.id)).collect();
            if let [only] = sole[..] {
                let to = only.id.clone();
                verdict.explain(
                    now,
                    "file",
                    &to.0,
                    true,
                    "the only clear since the command in our conversation",
                );
                self.move_on(now, TransitionKind::Clear, Some(to), Evidence::Log, verdict);
            } else if !mine.is_empty() && mine.len() > rivals.len() {
                // As many files as conversations that may have cleared: ours is one of them.
                let candidates: Vec<AgentSessionId> = mine.iter().map(|file| file.id.clone()).collect();
                self.move_on(now, TransitionKind::Clear, None, Evidence::Log, verdict);
                self.files.retain(|file| !candidates.contains(&file.id));
                self.candidates = candidates;
                self.narrow_down(now, verdict);
            } else {
                return;
            }
        }
    }

    /// Other conversations that may have been cleared into this file.
    fn rivals(&self, file: &NewFile, ours: &AgentSessionId) -> Vec<&AgentSessionId> {
        let rivals = self.commands.iter().filter(|(id, command)| {
            *id != ours && **id != file.id && !self.left.contains(*id) && command.may_have_made(file)
        });
        rivals.map(|(id, _)| id).collect()
    }

    fn narrow_down(&mut self, now: Timestamp, verdict: &mut Verdict) {
        match &self.candidates[..] {
            [] => {}
            [only] => {
                let id = only.clone();
                verdict.explain(now, "file", &id.0, true, "all other candidates belong to other processes");
                self.bind(now, id, Evidence::Log, verdict);
            }
            several => verdict.decisions.push(Decision::Ambiguous { candidates: several.to_vec() }),
        }
    }

    fn bind(&mut self, now: Timestamp, id: AgentSessionId, evidence: Evidence, verdict: &mut Verdict) {
        self.enter(now, id.clone());
        verdict.decisions.push(Decision::Bind { id, evidence });
    }

    fn move_on(
        &mut self,
        now: Timestamp,
        kind: TransitionKind,
        to: Option<AgentSessionId>,
        evidence: Evidence,
        verdict: &mut Verdict,
    ) {
        if let Some(current) = self.current.take() {
            self.commands.remove(&current.id);
            self.left.insert(current.id);
        }
        if let Some(id) = &to {
            self.enter(now, id.clone());
        }
        verdict.decisions.push(Decision::Transition { kind, to, evidence });
    }

    fn enter(&mut self, now: Timestamp, id: AgentSessionId) {
        self.files.retain(|file| file.id != id);
        self.candidates.clear();
        self.left.remove(&id);
        self.placeholder = None;
        self.folder.entered(&id);
        self.current = Some(Current { id, since: now });
    }
}

fn settled_at(file: &NewFile) -> Timestamp {
    file.seen_at.after(SETTLE)
}

fn transition_kind(file: Beginning, since: Timestamp) -> (TransitionKind, &'static str) {
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
mod tests;
