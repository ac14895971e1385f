//! What an agent does at this moment, as its screen, its session file and its own registry show it.
//!
//! Everything here reads; the readings of several sources are weighed in the module `live` of the crate `runtime`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::Var;
use super::dialog::ScreenDialog;
use pty::process::Processes;
use pty::screen::ScreenView;
use types::{AgentSessionId, Pid, ProcessId, StartTime, Timestamp};

/// The part of an [`Agent`](super::Agent) that knows what it looks like while it runs. The defaults know nothing, so the state of
/// such an agent is unknown.
pub trait Live {
    /// What the screen shows. Pure: the same screen always has the same reading.
    fn read_screen(&self, _screen: &ScreenView) -> ScreenReading {
        ScreenReading::default()
    }

    /// What a line of the conversation's file says about its turns; `None`: nothing.
    fn read_turn(&self, _line: &[u8]) -> Option<TurnMark> {
        None
    }

    /// Whether [`read_turn`](Self::read_turn) shows where turns end.
    fn marks_turns(&self) -> bool {
        false
    }

    /// How long after it became idle the answer of its last turn may still be on its way to the conversation's file. The least that is
    /// waited for is measured where it is used; this is for an agent that takes longer.
    fn answers_within(&self) -> Duration {
        Duration::ZERO
    }

    /// What the agent itself publishes about the process `pid`, or about a process below it.
    fn published(&self, _var: Var<'_>, _pid: Pid, _processes: &dyn Processes) -> Option<Published> {
        None
    }

    /// The arguments that begin a conversation with this prompt, or continue one with it; `None`: it cannot be given so.
    fn prompt_arguments(&self, _prompt: &str) -> Option<Vec<OsString>> {
        None
    }

    /// Processes that write to a conversation at this moment, wrapped or not, background processes of the agent's own included.
    fn writers(
        &self,
        _var: Var<'_>,
        _conversation: &AgentSessionId,
        _processes: &dyn Processes,
    ) -> Vec<Writer> {
        Vec::new()
    }

    /// Whether a process with this command line is a daemon that the agent shares between its sessions, or works for others:
    /// `stop` leaves it alone.
    fn is_shared_daemon(&self, _command: &[OsString]) -> bool {
        false
    }
}

/// What a screen shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenReading {
    /// `None`: nothing that is known.
    pub shown: Option<Shown>,
    /// What the agent reports by a control sequence: its title, or a sequence of its own.
    pub reported: Option<Shown>,
    /// Where prompts are typed, if it can be seen and takes keys: not while a dialog covers it.
    pub composer: Option<Composer>,
    /// What is asked, where `shown` is a dialog or a question.
    pub dialog: Option<ScreenDialog>,
}

/// What an agent is seen to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Before a conversation can go on: trust, update, login, a menu.
    Dialog(String),
    /// In the middle of a turn: a permission or a question.
    NeedsInput(String),
    Working(String),
    /// The composer is there, and nothing on the screen says that the agent works. No proof of idleness by itself.
    Quiet,
}

/// The place where prompts are typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composer {
    /// What stands in it; empty where only a placeholder does. A long text may be shown as a short token of the agent's own.
    pub text: String,
}

/// What a line of a conversation's file says about its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnMark {
    pub at: Option<Timestamp>,
    pub kind: TurnKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// A prompt of the user; with its text.
    Prompt(String),
    /// The agent is at work on a turn: an answer that is not the last one, a tool.
    Goes,
    /// A text of the agent's, which may be the last of its turn: nothing in the line says whether it is.
    Speaks,
    /// A turn is over, and what was answered stands before its mark; interrupted ones too.
    Ended,
}

/// What an agent publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub status: PublishedStatus,
    pub since: Option<Timestamp>,
    pub conversation: Option<AgentSessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishedStatus {
    Idle,
    Busy,
    /// In the middle of a turn it waits for the user; for what, in the agent's words.
    Waiting(String),
    /// A dialog is open that belongs to no turn.
    Dialog(String),
}

/// A process that writes to a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    pub pid: Pid,
    /// With the pid it is this process and no later one.
    pub start: StartTime,
    /// For people: `claude (pid 4243)`, `a background process of Claude Code`.
    pub what: String,
    /// It belongs to the agent's own daemon: nobody's terminal, and ending it may end work for others.
    pub background: bool,
    pub folder: Option<PathBuf>,
}

impl Writer {
    pub fn process(&self) -> ProcessId {
        ProcessId { pid: self.pid, start: self.start }
    }
}
