//! Processes that a test makes up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use pty::process::{OpenFile, Processes, Running};
use types::{Pid, StartTime};

#[derive(Debug, Default)]
pub struct ProcessTable {
    processes: BTreeMap<Pid, Entry>,
    /// Holders of every lock that is asked for.
    pub holders: Vec<Pid>,
}

#[derive(Debug)]
struct Entry {
    start: StartTime,
    parent: Pid,
    command: Vec<OsString>,
    open: Vec<OpenFile>,
}

impl ProcessTable {
    /// Pid, start time and command line of each; the parent of all is 1.
    pub fn new(processes: &[(i32, u64, &str)]) -> Self {
        let entry = |(pid, start, line): &(i32, u64, &str)| {
            let command = line.split_whitespace().map(OsString::from).collect();
            let (start, parent, open) = (StartTime(*start), Pid(1), Vec::new());
            (Pid(*pid), Entry { start, parent, command, open })
        };
        Self { processes: processes.iter().map(entry).collect(), holders: Vec::new() }
    }

    pub fn open(&mut self, pid: i32, path: &Path, writes: bool) -> &mut Self {
        let file = OpenFile { path: path.into(), writes, handle: path.into() };
        self.processes.get_mut(&Pid(pid)).unwrap().open.push(file);
        self
    }

    pub fn adopt(&mut self, pid: i32, parent: i32) -> &mut Self {
        self.processes.get_mut(&Pid(pid)).unwrap().parent = Pid(parent);
        self
    }
}

impl Processes for ProcessTable {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        self.processes.get(&pid).map(|entry| entry.start)
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        self.processes.get(&pid).map(|entry| entry.parent)
    }

    fn children(&self, pid: Pid) -> Vec<Pid> {
        let below = self.processes.iter().filter(|(_, entry)| entry.parent == pid);
        below.map(|(pid, _)| *pid).collect()
    }

    fn open_files(&self, pid: Pid) -> Vec<OpenFile> {
        self.processes.get(&pid).map(|entry| entry.open.clone()).unwrap_or_default()
    }

    fn lock_holders(&self, _file: &Path) -> Vec<Pid> {
        self.holders.clone()
    }

    fn command(&self, pid: Pid) -> Vec<OsString> {
        self.processes.get(&pid).map(|entry| entry.command.clone()).unwrap_or_default()
    }

    fn running(&self, wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
        let listed = self.processes.iter().filter(|(_, entry)| wanted(&entry.command));
        let running = listed.map(|(pid, entry)| Running {
            pid: *pid,
            parent: entry.parent,
            command: entry.command.clone(),
            folder: None,
            age: Duration::from_mins(1),
        });
        Some(running.collect())
    }
}
