//! What an agent's observer sees and the correlator judges.

use std::collections::BTreeSet;

use super::traces::{Maker, Trace};
use types::AgentSessionId;
use types::Timestamp;
use types::{Pid, ProcessId, StartTime};

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

/// What the agent's registry holds of one of its processes.
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

/// The kind of a conversation that a process of ours may write to.
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

/// Something seen, by the method that it is evidence for. `Assigned`, `Called` and `Tick` are for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The id stands in the arguments: chosen by codemie, or by the user (`--session-id`, `--resume ID`).
    Assigned(AgentSessionId),
    /// Registry: an entry of a living process, ours or not, together with how the file of the conversation it names begins
    /// at this moment.
    Registry { entry: RegistryEntry, file: Beginning },
    /// Registry: a line of the log of what was typed.
    History(HistoryEntry),
    /// Registry: a session file appeared or its beginning became readable.
    NewFile(NewSessionFile),
    /// Registry: somebody spoke in a conversation that was there before this run.
    Continued { id: AgentSessionId, maker: Maker },
    /// Registry: a background process was started to go on with conversation `from` as `to`. `forked`: with a copy of it, and who was
    /// in it stays there. `begun_at`: when the process began, by its own account.
    Background {
        from: AgentSessionId,
        to: AgentSessionId,
        process: ProcessId,
        forked: bool,
        begun_at: Option<Timestamp>,
    },
    /// Registry: conversation `from` was given to the agent's background service, which goes on with it as `to` when it is asked to.
    HandedOver { from: AgentSessionId, to: AgentSessionId },
    /// Held: a process of ours has taken the right to write to this conversation, or has begun to write to it.
    Held { id: AgentSessionId, thread: Thread },
    /// Held: a conversation in which nothing is written is not held any more: given up, or its process is gone.
    Released(AgentSessionId),
    /// Held: a conversation that bears our own mark, by which only processes of this run can have begun it.
    Marked { id: AgentSessionId, thread: Thread },
    /// Held: the conversations, of those held, in which the model is at work now.
    Turns(BTreeSet<AgentSessionId>),
    /// Folder: left there by some process of the agent.
    Trace(Trace),
    /// Process log: the conversation that our process has in front now, and how its file begins at this moment.
    Front { id: AgentSessionId, file: Beginning },
    /// A process asked the model in this conversation, through the proxy of this very run: the request's own headers name it, and the
    /// system names the process.
    Called { id: AgentSessionId, pid: Pid },
    /// Time passed ([`Correlator::wake_at`](super::Correlator::wake_at)).
    Tick,
}

impl Signal {
    /// Who can have made what it reports, where that is what makes it evidence.
    pub fn maker(&mut self) -> Option<&mut Maker> {
        match self {
            Self::NewFile(file) => file.maker.as_mut(),
            Self::Continued { maker, .. }
            | Self::Trace(Trace::Begun { maker, .. } | Trace::Entered { maker, .. }) => Some(maker),
            _ => None,
        }
    }
}
