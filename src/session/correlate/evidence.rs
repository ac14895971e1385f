//! What is seen, and what follows from it: the words between the tracker, which looks, and the correlator, which decides.

use std::collections::BTreeSet;

use super::traces::{Maker, Trace};
use wire::AgentSessionId;
pub use wire::EvidenceKind as Evidence;
use wire::Timestamp;
pub use wire::TransitionKind;
use wire::{Pid, ProcessId, StartTime};

/// How the file of a conversation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// There is no file.
    Absent,
    /// Nothing was said in it yet.
    Silent,
    /// With a `/clear`, made at that time.
    Cleared { at: Timestamp },
    /// With a conversation, own or copied from another.
    Spoken { copied: bool },
}

/// What the agent says of one of its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEntry {
    pub pid: Pid,
    pub start: Option<StartTime>,
    pub started_at: Option<Timestamp>,
    pub session: AgentSessionId,
    pub cwd: Option<String>,
    pub version: Option<String>,
    /// A conversation that runs without a terminal.
    pub background: bool,
}

impl RegistryEntry {
    /// Why it is not of this process, which was started no earlier than `spawned_at`. A pid alone is no proof: entries of
    /// killed processes stay behind, and pids come again.
    pub fn why_not_of(&self, process: ProcessId, spawned_at: Timestamp) -> Option<&'static str> {
        match (self.start, self.started_at) {
            (Some(start), _) if start == process.start => None,
            (Some(_), _) => Some("left behind by an earlier process with this pid"),
            (None, Some(at)) if at >= spawned_at => None,
            (None, Some(_)) => Some("written before this process was started"),
            (None, None) => Some("does not say when its process started"),
        }
    }
}

/// One line of the agent's log of what was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The conversation in which it was typed, so the old one for a clear.
    pub session: AgentSessionId,
    pub at: Timestamp,
    pub project: Option<String>,
    /// It was a command that may have begun a new conversation.
    pub may_clear: bool,
}

/// What a conversation is that a process of ours may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// Nothing of it is written yet.
    Unwritten,
    /// The user's own, begun in this run.
    Fresh,
    /// The user's own, with a history: resumed, or copied from another.
    Continued { forked: bool },
    /// Begun by the agent for a purpose of its own: a sub-agent, a review.
    Helper,
}

/// A session file that was not there when the run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSessionFile {
    pub id: AgentSessionId,
    pub cwd: Option<String>,
    pub beginning: Beginning,
    /// Who can have made it; `None` where our process registers, which says more.
    pub maker: Option<Maker>,
    /// The conversation that holds the prompt whose id this file's clear bears: the same process made both.
    pub follows: Option<AgentSessionId>,
}

/// Something seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The id stands in the arguments: chosen by codemie, or by the user (`--session-id`, `--resume ID`).
    Assigned(AgentSessionId),
    /// The registry's word on a living process, ours or not, together with how the file of the conversation it names begins
    /// at this moment.
    Registry {
        entry: RegistryEntry,
        file: Beginning,
    },
    History(HistoryEntry),
    /// A session file appeared or its beginning became readable.
    NewFile(NewSessionFile),
    /// Somebody spoke in a conversation that was there before this run.
    GoneOnWith {
        id: AgentSessionId,
        maker: Maker,
    },
    /// A background process was started to go on with conversation `from` as `to`. `forked`: with a copy of it, and who was
    /// in it stays there.
    Background {
        from: AgentSessionId,
        to: AgentSessionId,
        process: ProcessId,
        forked: bool,
    },
    /// Conversation `from` was given to the agent's background service, which goes on with it as `to` when it is asked to.
    HandedOver {
        from: AgentSessionId,
        to: AgentSessionId,
    },
    /// A process of ours has taken the right to write to this conversation, or has begun to write to it.
    Held {
        id: AgentSessionId,
        thread: Thread,
    },
    /// What was held, and nothing written in it, is not held any more: given up, or its process is gone.
    Released(AgentSessionId),
    /// A conversation that bears our own mark, by which only processes of this run can have begun it.
    Marked {
        id: AgentSessionId,
        thread: Thread,
    },
    /// Where the model is at work now, of the conversations held.
    Turns(BTreeSet<AgentSessionId>),
    /// Left in a folder by some process of the agent.
    Trace(Trace),
    /// Time passed ([`Correlator::wake_at`]).
    Tick,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Bind {
        id: AgentSessionId,
        evidence: Evidence,
    },
    /// The current conversation is over for this run. `to` is `None` while nobody knows which one followed; a `Bind` comes
    /// when it is known.
    Transition {
        kind: TransitionKind,
        to: Option<AgentSessionId>,
        evidence: Evidence,
    },
    Ambiguous {
        candidates: Vec<AgentSessionId>,
    },
    /// A copy of the current conversation goes on in a process of its own; the run stays where it is.
    Forked {
        to: AgentSessionId,
        process: ProcessId,
    },
}

/// A signal, and what was made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub at: Timestamp,
    /// `assigned`, `registry`, `lock`, `history`, `log`, `originator`, `file`, `prompt`, `claim`, `background`.
    pub kind: &'static str,
    pub value: String,
    pub accepted: bool,
    pub why: &'static str,
}

/// Decisions in the order in which they are to be carried out, and the explanations to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub decisions: Vec<Decision>,
    pub explained: Vec<Explained>,
}

impl Verdict {
    pub(super) fn explain(
        &mut self,
        at: Timestamp,
        kind: &'static str,
        value: &str,
        accepted: bool,
        why: &'static str,
    ) {
        self.explained.push(Explained { at, kind, value: value.to_owned(), accepted, why });
    }
}
