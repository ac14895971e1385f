//! Agents whose processes each write a log of their own, which names the conversation in front.

use std::path::{Path, PathBuf};

use super::new_lines::NewLines;
use crate::correlate::{Beginning, Method, Signal};
use crate::meter::line::Lines;
use crate::observe::{Observation, Observer};
use os::file::entries;
use pty::process::Processes;
use types::{AgentSessionId, Pid, ProcessId};

/// How an agent of this kind writes.
#[derive(Debug)]
pub(crate) struct ProcessLogFormat {
    /// The folder of the logs, below the agent's own.
    pub(crate) logs: &'static str,
    /// Whether a log is that of a process, by its name.
    pub(crate) is_of: fn(&str, Pid) -> bool,
    /// The conversation that a line of the log puts in front.
    pub(crate) front: fn(&[u8]) -> Option<AgentSessionId>,
    /// The existing files of a conversation, from the agent's own folder.
    pub(crate) files: fn(&Path, &AgentSessionId) -> Vec<PathBuf>,
    /// How a conversation's file begins, and the conversation that it names.
    pub(crate) beginning: fn(&Path) -> (Beginning, Option<AgentSessionId>),
    pub(crate) lines: fn(Option<&str>) -> Box<dyn Lines + Send>,
}

/// Follows one run by the log of its process.
#[derive(Debug)]
pub(crate) struct ProcessLogObserver {
    format: &'static ProcessLogFormat,
    /// The agent's own folder.
    root: PathBuf,
    log: Option<(PathBuf, NewLines)>,
    /// The file in which the first conversation is to begin, until it does.
    assigned: Option<PathBuf>,
}

impl ProcessLogObserver {
    pub(crate) fn new(format: &'static ProcessLogFormat, root: PathBuf) -> Self {
        Self { format, root, log: None, assigned: None }
    }

    fn logs(&self) -> PathBuf {
        self.root.join(self.format.logs)
    }

    /// The log of our process, or of one below it that a launcher started.
    fn find_log(&mut self, agent: ProcessId, processes: &dyn Processes) -> Option<ProcessId> {
        let logs = entries(&self.logs()).unwrap_or_default();
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let of = |pid| logs.iter().find(|log| name(log).is_some_and(|name| (self.format.is_of)(&name, pid)));
        let (pid, log) = processes.family(agent.pid).into_iter().find_map(|pid| Some((pid, of(pid)?)))?;
        self.log = Some((log.clone(), NewLines::default()));
        processes.identify(pid).filter(|process| *process != agent)
    }

    fn beginning(&self, id: &AgentSessionId) -> Beginning {
        let files = (self.format.files)(&self.root, id);
        files.first().map_or(Beginning::Absent, |file| (self.format.beginning)(file).0)
    }
}

impl Observer for ProcessLogObserver {
    fn method(&self) -> Method {
        Method::ProcessLog
    }

    fn assign(&mut self, file: &Path) {
        self.assigned = Some(file.to_owned());
    }

    fn watched(&self) -> Vec<PathBuf> {
        let assigned = self.assigned.as_ref().and_then(|file| file.parent()).map(Path::to_owned);
        let log = self.log.as_ref().map(|(log, _)| log.clone());
        [self.root.clone(), self.logs()].into_iter().chain(assigned).chain(log).collect()
    }

    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Observation {
        let mut seen = Observation::default();
        let begun = self.assigned.as_ref().and_then(|file| (self.format.beginning)(file).1);
        if let Some(id) = begun {
            self.assigned = None;
            seen.signals.push(Signal::Assigned(id));
        }
        if self.log.is_none() {
            seen.adopted = self.find_log(agent, processes);
        }
        let new = self.log.as_mut().map(|(log, lines)| lines.read(log)).unwrap_or_default();
        for id in new.split(|byte| *byte == b'\n').filter_map(self.format.front) {
            let file = self.beginning(&id);
            seen.signals.push(Signal::Front { id, file });
        }
        seen
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        (self.format.files)(&self.root, id)
    }

    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send> {
        (self.format.lines)(state)
    }
}
