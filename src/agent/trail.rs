//! What an agent leaves behind while it runs, as the tracker follows it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::meter::form::Form;
use crate::meter::line::Lines;
use crate::process::{ProcessId, Processes};
use crate::session::correlate::Signal;
use crate::session::id::AgentSessionId;

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

/// Whose changes are whose, as far as a run knows its own files. Changes that are not its own can wait for a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Territory {
    /// What only this run changes, each with everything below it.
    pub own: Vec<PathBuf>,
    /// Folders that all runs write to. What is this run's own in them is watched by itself, so only what appears or vanishes
    /// there is worth a report: fifty runs must not wake each other with every line they write.
    pub shared: Vec<PathBuf>,
    /// Those of them where what appears for others means nothing to this run before its next look at everything.
    pub ignored: Vec<PathBuf>,
}

/// One run's view of the agent's own files. Reads only; never writes.
pub trait Trail: Send {
    /// Folders and files whose changes are worth a look.
    fn watched(&self) -> Vec<PathBuf>;

    /// `None`: it cannot be told whose a change is.
    fn territory(&self) -> Option<Territory> {
        None
    }

    /// What can be seen now that the last look did not see. `agent` is the process that codemie started.
    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Seen;

    /// The same for a change of this run's own files alone: what it costs need not grow with the number of runs.
    fn look_at_own(&mut self, agent: ProcessId, processes: &dyn Processes) -> Seen {
        self.look(agent, processes)
    }

    /// The files of a conversation: its own first, each with its sub-agents'. Those that exist.
    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf>;

    /// How such a file is written.
    fn form(&self, _file: &Path) -> Form {
        Form::Lines
    }

    /// A reader for such a file, with what an earlier one remembered.
    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send>;
}
