//! Clears that no registry reports: commands in the agent's log of what was typed, and files that begin with a clear.
//!
//! Pure bookkeeping; what follows from it for the run is decided by [`registry`](super::registry).

use std::collections::{BTreeMap, BTreeSet};

use super::core::{MAX_REMEMBERED, RunState, SETTLE};
use super::signal::HistoryEntry;
use types::{AgentSessionId, Timestamp};

#[derive(Debug, Default)]
pub(super) struct ClearLog {
    commands: BTreeMap<AgentSessionId, TypedCommand>,
    files: Vec<ClearedFile>,
}

/// The latest command of a conversation that may have cleared it, and the latest thing typed in it at all.
#[derive(Clone, Debug)]
struct TypedCommand {
    may_clear_at: Option<Timestamp>,
    last_at: Timestamp,
    project: Option<String>,
}

/// A file that begins with a clear and may be ours.
#[derive(Clone, Debug)]
pub(super) struct ClearedFile {
    pub(super) id: AgentSessionId,
    pub(super) cwd: Option<String>,
    pub(super) cleared_at: Timestamp,
    pub(super) seen_at: Timestamp,
    /// The conversation that holds the prompt whose id this file's clear bears.
    pub(super) follows: Option<AgentSessionId>,
}

impl ClearedFile {
    fn settled_at(&self) -> Timestamp {
        self.seen_at.after(SETTLE)
    }
}

/// What the current conversation was cleared into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Successor {
    Known {
        id: AgentSessionId,
        why: &'static str,
    },
    /// As many files as conversations that may have cleared: ours is one of them.
    OneOf(Vec<AgentSessionId>),
}

impl TypedCommand {
    /// Whether this conversation may be the one that was cleared into the file: the command came before the clear, and
    /// nothing was typed under the old id after it.
    fn may_have_made(&self, file: &ClearedFile) -> bool {
        let same_folder = match (&self.project, &file.cwd) {
            (Some(project), Some(cwd)) => project == cwd,
            _ => true,
        };
        same_folder
            && self.last_at <= file.cleared_at
            && self.may_clear_at.is_some_and(|at| at <= file.cleared_at)
    }
}

impl ClearLog {
    pub(super) fn typed(&mut self, entry: HistoryEntry) {
        if self.commands.len() >= MAX_REMEMBERED && !self.commands.contains_key(&entry.session) {
            let oldest =
                self.commands.iter().min_by_key(|(_, command)| command.last_at).map(|(id, _)| id.clone());
            oldest.and_then(|id| self.commands.remove(&id));
        }
        let fresh = TypedCommand { may_clear_at: None, last_at: entry.at, project: None };
        let command = self.commands.entry(entry.session).or_insert(fresh);
        command.last_at = command.last_at.max(entry.at);
        command.project = entry.project.or(command.project.take());
        if entry.may_clear {
            command.may_clear_at = Some(entry.at);
        }
    }

    pub(super) fn add_file(&mut self, file: ClearedFile) {
        if self.files.len() >= MAX_REMEMBERED {
            self.files.remove(0);
        }
        self.files.push(file);
    }

    pub(super) fn has_file(&self, id: &AgentSessionId) -> bool {
        self.files.iter().any(|file| file.id == *id)
    }

    pub(super) fn forget_file(&mut self, id: &AgentSessionId) {
        self.files.retain(|file| file.id != *id);
    }

    /// Nothing typed in this conversation so far clears it any more.
    pub(super) fn forget_commands(&mut self, id: &AgentSessionId) {
        self.commands.remove(id);
    }

    /// When the next file has settled, after `now`.
    pub(super) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.files.iter().map(ClearedFile::settled_at).filter(|at| *at > now).min()
    }

    /// What `current` was cleared into, if that can be known or narrowed down by now. It must be a conversation that no
    /// other process is in.
    pub(super) fn successor(
        &self,
        now: Timestamp,
        current: &AgentSessionId,
        run: &RunState,
    ) -> Option<Successor> {
        // That names our conversation alone, so nothing has to be waited for.
        if let Some(next) = self.files.iter().find(|file| file.follows.as_ref() == Some(current)) {
            let why = "its clear bears the id of a prompt of ours";
            return Some(Successor::Known { id: next.id.clone(), why });
        }
        let command = self.commands.get(current)?;
        let settled = self.files.iter().filter(|file| file.settled_at() <= now);
        let mine: Vec<&ClearedFile> = settled.filter(|file| command.may_have_made(file)).collect();
        let rivals: Vec<BTreeSet<&AgentSessionId>> =
            mine.iter().map(|file| self.rivals(file, current, run)).collect();
        let mut sole = mine.iter().zip(&rivals).filter(|(_, rivals)| rivals.is_empty());
        if let (Some((only, _)), None) = (sole.next(), sole.next()) {
            let why = "the only clear since the command in our conversation";
            return Some(Successor::Known { id: only.id.clone(), why });
        }
        let all_rivals: BTreeSet<_> = rivals.into_iter().flatten().collect();
        (mine.len() > all_rivals.len())
            .then(|| Successor::OneOf(mine.iter().map(|file| file.id.clone()).collect()))
    }

    /// Other conversations that may have been cleared into this file.
    fn rivals(&self, file: &ClearedFile, ours: &AgentSessionId, run: &RunState) -> BTreeSet<&AgentSessionId> {
        let rivals = self.commands.iter().filter(|(id, command)| {
            *id != ours && **id != file.id && !run.has_departed(id) && command.may_have_made(file)
        });
        rivals.map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Pid, ProcessId, StartTime};

    fn id(name: &str) -> AgentSessionId {
        AgentSessionId(name.to_owned())
    }

    fn typed(session: &str, at: i64) -> HistoryEntry {
        HistoryEntry { session: id(session), at: Timestamp(at), project: None, may_clear: true }
    }

    fn file(name: &str, cleared_at: i64, follows: Option<&str>) -> ClearedFile {
        let cleared_at = Timestamp(cleared_at);
        ClearedFile { id: id(name), cwd: None, cleared_at, seen_at: cleared_at, follows: follows.map(id) }
    }

    fn run() -> RunState {
        RunState::new(ProcessId { pid: Pid(1), start: StartTime(1) }, Timestamp(0))
    }

    /// The run is in `a`. Commands are conversation and time, files are name, time and the conversation they follow.
    #[test]
    fn the_successor_is_known_by_its_prompt_or_by_being_the_only_one() {
        type Case = (
            &'static str,
            &'static [(&'static str, i64)],
            &'static [(&'static str, i64, Option<&'static str>)],
            Option<&'static str>,
        );
        let cases: &[Case] = &[
            ("no command", &[], &[("b", 10, None)], None),
            ("a command and no file", &[("a", 9)], &[], None),
            ("a command and its file", &[("a", 9)], &[("b", 10, None)], Some("b")),
            ("a file from before the command", &[("a", 11)], &[("b", 10, None)], None),
            ("a file not settled yet", &[("a", 9)], &[("b", 600, None)], None),
            ("a file that names our prompt, unsettled", &[], &[("b", 600, Some("a"))], Some("b")),
            ("a file that names another's prompt", &[], &[("b", 10, Some("x"))], None),
            ("two commands and one file", &[("a", 9), ("x", 9)], &[("b", 10, None)], None),
            ("two of each", &[("a", 9), ("x", 9)], &[("b", 10, None), ("c", 10, None)], Some("b or c")),
            ("a rival later than the file", &[("a", 9), ("x", 11)], &[("b", 10, None)], Some("b")),
        ];
        for (what, commands, files, expected) in cases {
            let mut log = ClearLog::default();
            for (session, at) in *commands {
                log.typed(typed(session, *at));
            }
            for (name, at, follows) in *files {
                log.add_file(file(name, *at, *follows));
            }
            let found = log.successor(Timestamp(1500), &id("a"), &run()).map(|found| match found {
                Successor::Known { id, .. } => id.0,
                Successor::OneOf(ids) => ids.iter().map(|id| id.0.as_str()).collect::<Vec<_>>().join(" or "),
            });
            assert_eq!(found.as_deref(), *expected, "{what}");
        }
    }

    #[test]
    fn the_next_look_is_due_when_a_file_settles() {
        let mut log = ClearLog::default();
        log.add_file(file("b", 100, None));
        log.add_file(file("c", 300, None));
        assert_eq!(log.wake_at(Timestamp(200)), Some(Timestamp(1100)));
        assert_eq!(log.wake_at(Timestamp(1100)), Some(Timestamp(1300)));
        assert_eq!(log.wake_at(Timestamp(1300)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut log = ClearLog::default();
        for n in 0..1000 {
            log.typed(typed(&format!("x{n}"), 1000 + n));
            log.add_file(file(&format!("y{n}"), 1000 + n, None));
        }
        assert!(log.commands.len() <= MAX_REMEMBERED);
        assert!(log.files.len() <= MAX_REMEMBERED);
        assert!(log.commands.contains_key(&id("x999")) && log.has_file(&id("y999")), "the oldest go first");
    }
}
