//! Agents that keep what they write to open (Codex): what a process of ours holds is its own conversation for certain.
//!
//! A conversation newly held is the one the user is in now, unless the agent began it for itself. What it is stands in its
//! file's first line; a new, empty conversation has no file before the first prompt, and to wait for that would be to wait for
//! the user. Measured on Codex 0.166.0:
//! - sub-agents, reviews and forks have their file some 10 to 20 ms after they are held, resumed ones at once; so one
//!   without a file after [`NEW`] is a new, empty one (`clear`);
//! - new conversations are refused while the model is at work in the present one, so what is held then waits for its file;
//! - sub-agents may be at work, and begin further ones, while the present conversation waits for the user: then [`NEW`] might
//!   be too short, and [`BESIDE_HELPERS`] passes first;
//! - the thread that makes up a title, and side conversations, are neither held nor written;
//! - a mark in the environment is inherited by agents that the model starts, so it tells of nothing new in a turn;
//! - coming back to a conversation held before gives it up and takes it anew.

use std::collections::BTreeSet;
use std::time::Duration;

use super::evidence::{Evidence, Thread, TransitionKind, Verdict};
use super::{AgentSessionId, Correlator, Timestamp};

/// How long a conversation may be held without a file before it is taken for a new, empty one. Why 75 ms: four times what
/// was measured, and half of what a transition may take.
pub const NEW: Duration = Duration::from_millis(75);

/// The same while sub-agents are at work.
pub const BESIDE_HELPERS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Held, but nobody knows what it is.
    waiting: Vec<Waiting>,
    /// Where the model is at work.
    open: BTreeSet<AgentSessionId>,
}

#[derive(Clone, Debug)]
struct Waiting {
    id: AgentSessionId,
    evidence: Evidence,
    since: Timestamp,
}

impl Locks {
    pub(super) fn turns(&mut self, open: BTreeSet<AgentSessionId>) {
        self.open = open;
    }

    /// How long what is held must have been so to be taken for a new conversation; `None`: for ever.
    fn patience(&self, current: &AgentSessionId) -> Option<Duration> {
        if self.open.contains(current) {
            None
        } else if self.open.is_empty() {
            Some(NEW)
        } else {
            Some(BESIDE_HELPERS)
        }
    }

    pub(super) fn wake_at(&self, current: &AgentSessionId) -> Option<Timestamp> {
        let patience = self.patience(current)?;
        self.waiting.iter().map(|waiting| waiting.since.after(patience)).min()
    }
}

impl Correlator {
    pub(super) fn held(
        &mut self,
        now: Timestamp,
        id: AgentSessionId,
        thread: Thread,
        evidence: Evidence,
        verdict: &mut Verdict,
    ) {
        let kind = if evidence == Evidence::Log { "originator" } else { "lock" };
        if thread == Thread::Helper {
            self.locks.waiting.retain(|waiting| waiting.id != id);
            let why = "held by this very process, but it is a sub-agent's";
            return verdict.explain(now, kind, &id.0, false, why);
        }
        if self.current() == Some(&id) {
            if thread == Thread::Unwritten || evidence == Evidence::Log {
                verdict.explain(now, kind, &id.0, true, "confirms the conversation bound");
            }
            return;
        }
        if evidence == Evidence::Log && self.left.contains(&id) {
            return; // a mark stays in the file when the conversation is left
        }
        if self.current().is_none() {
            let why = match evidence {
                Evidence::Log => "bears the mark of this run",
                _ => "held by this very process",
            };
            verdict.explain(now, kind, &id.0, true, why);
            return self.bind(now, id, evidence, verdict);
        }
        if evidence == Evidence::Log
            && self.current().is_some_and(|current| self.locks.open.contains(current))
        {
            let why = "bears the mark of this run, but may be of an agent started inside";
            return verdict.explain(now, kind, &id.0, false, why);
        }
        let (to, why) = match thread {
            Thread::Unwritten => {
                if !self.locks.waiting.iter().any(|waiting| waiting.id == id) {
                    self.locks.waiting.push(Waiting { id, evidence, since: now });
                }
                return;
            }
            Thread::Fresh => (TransitionKind::Clear, "held by this very process since, and begun empty"),
            Thread::Continued { forked: true } => {
                (TransitionKind::Switch, "held by this very process since, and a copy of another")
            }
            Thread::Continued { forked: false } => {
                (TransitionKind::Switch, "held by this very process since, and existed before")
            }
            Thread::Helper => return,
        };
        verdict.explain(now, kind, &id.0, true, why);
        self.locks.waiting.retain(|waiting| waiting.id != id);
        self.move_on(now, to, Some(id), evidence, verdict);
    }

    /// A new conversation stays held until the run ends or is in another; a sub-agent's may be given up before it has a file,
    /// and what a process held when it died nobody is in.
    pub(super) fn released(&mut self, now: Timestamp, id: &AgentSessionId, verdict: &mut Verdict) {
        let waiting = self.locks.waiting.len();
        self.locks.waiting.retain(|waiting| waiting.id != *id);
        if self.locks.waiting.len() < waiting {
            verdict.explain(now, "lock", &id.0, false, "given up before anything was written in it");
        }
    }

    /// What has been held for long enough without a file is a new, empty conversation.
    pub(super) fn decide_by_locks(&mut self, now: Timestamp, verdict: &mut Verdict) {
        let Some(patience) = self.current().and_then(|current| self.locks.patience(current)) else { return };
        while let Some(at) =
            self.locks.waiting.iter().position(|waiting| waiting.since.after(patience) <= now)
        {
            let Waiting { id, evidence, .. } = self.locks.waiting.remove(at);
            let why = "held by this very process since, and nothing is written in it";
            verdict.explain(now, "lock", &id.0, true, why);
            self.move_on(now, TransitionKind::Clear, Some(id), evidence, verdict);
        }
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
