//! The files an agent writes while it runs, as the tracker follows them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Var;
use crate::correlate::{Method, Signal};
use crate::meter::form::Form;
use crate::meter::line::Lines;
use crate::meter::title::Title;
use os::watch::WatchScope;
use pty::process::Processes;
use types::AgentSessionId;
use types::ProcessId;

/// The result of one look.
#[derive(Debug, Default)]
pub struct Observation {
    pub signals: Vec<Signal>,
    /// The agent itself, where codemie started only its launcher.
    pub adopted: Option<ProcessId>,
    /// The version that the agent reports.
    pub version: Option<String>,
    /// The folder that the agent reports to work in.
    pub folder: Option<PathBuf>,
    /// Something was half written: look again in a moment.
    pub torn: bool,
    /// Look again after this time at the latest, even if no change is reported.
    pub again: Option<Duration>,
}

impl Observation {
    pub fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
    }
}

/// The part of an [`Agent`](super::Agent) that follows a run.
pub trait Observe {
    /// How to follow a run in `folder`; `None` where the environment does not name the place of its files.
    fn observer(&self, _var: Var<'_>, _folder: &Path) -> Option<Box<dyn Observer>> {
        None
    }
}

/// One run's view of the agent's own files. Reads only; never writes.
pub trait Observer: Send {
    /// The kind of evidence it looks for.
    fn method(&self) -> Method;

    /// The arguments have the first conversation begin in this file, which does not exist yet. Once it names its conversation, that
    /// is [`Signal::Assigned`].
    fn assign(&mut self, _file: &Path) {}

    /// Folders and files whose changes are worth a look.
    fn watched(&self) -> Vec<PathBuf>;

    /// Which changes are whose. `None`: the run of a change cannot be known.
    fn watch_scope(&self) -> Option<WatchScope> {
        None
    }

    /// What is new since the last look. `agent` is the process that codemie started.
    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Observation;

    /// The same for a change of this run's own files alone: what it costs need not grow with the number of runs.
    fn look_at_own(&mut self, agent: ProcessId, processes: &dyn Processes) -> Observation {
        self.look(agent, processes)
    }

    /// The existing session files of a conversation: its own first, each with its sub-agents'.
    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf>;

    /// The title that the agent keeps apart from the conversation's own lines; `None` where there is none, or none that was not
    /// given before.
    fn title(&mut self, _id: &AgentSessionId) -> Option<Title> {
        None
    }

    /// How a session file is written.
    fn form(&self, _file: &Path) -> Form {
        Form::Lines
    }

    /// A reader for a session file; `state` is what an earlier one remembered.
    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send>;
}
