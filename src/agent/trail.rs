//! What an agent leaves behind while it runs, as the tracker follows it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Var;
use crate::meter::form::Form;
use crate::meter::line::Lines;
use crate::session::correlate::Signal;
use terminal::process::Processes;
use wire::AgentSessionId;
use wire::ProcessId;

/// What one look brought.
#[derive(Debug, Default)]
pub struct Seen {
    pub signals: Vec<Signal>,
    /// The agent proper, where what codemie started was only its launcher.
    pub adopted: Option<ProcessId>,
    /// The version the agent says it is.
    pub version: Option<String>,
    /// Where the agent says it works.
    pub folder: Option<PathBuf>,
    /// Something was half written: look again in a moment.
    pub torn: bool,
    /// Look again after this time at the latest, whether a change is told or not.
    pub again: Option<Duration>,
}

impl Seen {
    pub fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
    }
}

/// The part of an [`Agent`](super::Agent) that follows a run.
pub trait Follow {
    /// How to follow a run in `folder`; `None` where the environment does not name the place of its files.
    fn trail(&self, _var: Var<'_>, _folder: &Path) -> Option<Box<dyn Trail>> {
        None
    }
}

/// One run's view of the agent's own files. Reads only; never writes.
pub trait Trail: Send {
    /// Folders and files whose changes are worth a look.
    fn watched(&self) -> Vec<PathBuf>;

    /// Of what is watched, what only this run changes, each with everything below it. Changes elsewhere are other runs' and can
    /// wait for a moment. `None`: it cannot be told whose a change is.
    fn own(&self) -> Option<Vec<PathBuf>> {
        None
    }

    /// What can be seen now that the last look did not see. `agent` is the process that codemie started.
    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Seen;

    /// The files of a conversation: its own first, each with its sub-agents'. Those that exist.
    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf>;

    /// How such a file is written.
    fn form(&self, _file: &Path) -> Form {
        Form::Lines
    }

    /// A reader for such a file, with what an earlier one remembered.
    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send>;
}
