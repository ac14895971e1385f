//! Agents that hold the files they write to, open or locked (Codex): a conversation that a process of ours holds is its own for
//! certain.
//!
//! A conversation newly held is the one the user is in now, unless the agent began it for itself. What it is stands in its
//! file's first line; a new, empty conversation has no file before the first prompt, and to wait for that would be to wait for
//! the user. Measured on Codex 0.166.0:
//! - sub-agents, reviews and forks have their file some 10 to 20 ms after they are held, resumed ones at once; so one
//!   without a file after [`NEW`] is a new, empty one (`clear`);
//! - new conversations are refused while the model is at work in the present one, so a conversation held then waits for its file;
//! - sub-agents may be at work, and begin further ones, while the present conversation waits for the user: then [`NEW`] might
//!   be too short, and [`BESIDE_HELPERS`] passes first;
//! - the thread that makes up a title, and side conversations, are neither held nor written;
//! - a mark in the environment is inherited by agents that the model starts, so in a turn it is no evidence;
//! - coming back to a conversation held before gives it up and takes it again.

use std::collections::BTreeSet;
use std::time::Duration;

use super::core::{Context, Rules, RunState};
use super::signal::{Signal, Thread};
use types::{AgentSessionId, EvidenceKind, Timestamp, TransitionKind};

/// How long a conversation may be held without a file before it is taken for a new, empty one. Why 75 ms: four times what
/// was measured, and half of what a transition may take.
pub const NEW: Duration = Duration::from_millis(75);

/// The same while sub-agents are at work.
pub const BESIDE_HELPERS: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct HeldRules {
    /// Held, but nobody knows yet what it is.
    waiting: Vec<Waiting>,
    /// Where the model is at work.
    turns: BTreeSet<AgentSessionId>,
}

#[derive(Clone, Debug)]
struct Waiting {
    id: AgentSessionId,
    evidence: EvidenceKind,
    since: Timestamp,
}

impl Rules for HeldRules {
    fn feed(&mut self, context: &mut Context<'_>, signal: Signal) {
        match signal {
            Signal::Held { id, thread } => self.held(context, id, thread, EvidenceKind::Registry),
            Signal::Marked { id, thread } => self.held(context, id, thread, EvidenceKind::Log),
            Signal::Released(id) => self.released(context, &id),
            Signal::Turns(open) => self.turns = open,
            _ => {}
        }
    }

    /// A conversation that has been held for long enough without a file is a new, empty one.
    fn decide(&mut self, context: &mut Context<'_>) {
        let Some(delay) = context.run.current().and_then(|current| self.delay(current)) else { return };
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.since.after(delay) <= context.now)
        {
            let Waiting { id, evidence, .. } = self.waiting.remove(at);
            context.accept("lock", &id.0, "held by this very process since, and nothing is written in it");
            self.transition(context, TransitionKind::Clear, Some(id), evidence);
        }
    }

    fn wake_at(&self, run: &RunState, now: Timestamp) -> Option<Timestamp> {
        let delay = self.delay(run.current()?)?;
        self.waiting.iter().map(|waiting| waiting.since.after(delay)).min().filter(|at| *at > now)
    }
}

impl HeldRules {
    /// How long a conversation must have been held to be taken for a new one; `None`: for ever.
    fn delay(&self, current: &AgentSessionId) -> Option<Duration> {
        if self.turns.contains(current) {
            None
        } else if self.turns.is_empty() {
            Some(NEW)
        } else {
            Some(BESIDE_HELPERS)
        }
    }

    fn held(
        &mut self,
        context: &mut Context<'_>,
        id: AgentSessionId,
        thread: Thread,
        evidence: EvidenceKind,
    ) {
        let marked = evidence == EvidenceKind::Log;
        let source = if marked { "originator" } else { "lock" };
        if thread == Thread::Helper {
            self.waiting.retain(|waiting| waiting.id != id);
            return context.reject(source, &id.0, "held by this very process, but it is a sub-agent's");
        }
        if context.run.is_in(&id) {
            if thread == Thread::Unwritten || marked {
                context.accept(source, &id.0, "confirms the conversation bound");
            }
            return;
        }
        if marked && context.run.has_departed(&id) {
            return; // a mark stays in the file when the conversation is left
        }
        let Some(current) = context.run.current() else {
            let why = if marked { "bears the mark of this run" } else { "held by this very process" };
            context.accept(source, &id.0, why);
            return self.bind(context, id, evidence);
        };
        if marked && self.turns.contains(current) {
            let why = "bears the mark of this run, but may be of an agent started inside";
            return context.reject(source, &id.0, why);
        }
        let (kind, why) = match thread {
            Thread::Unwritten => {
                if !self.waiting.iter().any(|waiting| waiting.id == id) {
                    self.waiting.push(Waiting { id, evidence, since: context.now });
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
        context.accept(source, &id.0, why);
        self.waiting.retain(|waiting| waiting.id != id);
        self.transition(context, kind, Some(id), evidence);
    }

    /// A new conversation stays held until the run ends or is in another; a sub-agent's may be given up before it has a file,
    /// and a conversation that a process held when it died nobody is in.
    fn released(&mut self, context: &mut Context<'_>, id: &AgentSessionId) {
        let waiting = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id != *id);
        if self.waiting.len() < waiting {
            context.reject("lock", &id.0, "given up before anything was written in it");
        }
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
