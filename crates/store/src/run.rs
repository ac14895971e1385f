//! Runs of the wrapper: who they are, which session each is in, which are still going on.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::row::{insert, read_row, read_value};
use super::{Error, Tx, View};
use os::file::text_at_most;
use types::row::RowColumns;
use types::{Pid, ProcessId, RunId, StartTime, Timestamp, row};

row! {
    /// Where a pid means something: since this boot, in this pid namespace. Another boot's process is gone; one of another
    /// namespace (a container sharing the home) cannot be judged from here.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct BootAndPidNs {
        pub boot: String,
        pub pids: String,
    }
}

impl BootAndPidNs {
    /// Of this process. Empty where the system does not show it: then pid and start time alone decide.
    pub fn here() -> Self {
        let boot = text_at_most(Path::new("/proc/sys/kernel/random/boot_id"), 64).unwrap_or_default();
        let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self { boot: boot.trim().to_owned(), pids: pids.to_string_lossy().into_owned() }
    }
}

/// The environment variables that decide where the agent's files are, as they were; `None`: it was not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EnvSnapshot(BTreeMap<String, Option<String>>);

impl EnvSnapshot {
    fn noted(json: Option<String>) -> Self {
        json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
    }

    /// A value that is not UTF-8 is left out; a recovery then reads the variable from its own environment.
    pub fn note(&mut self, name: &str, value: Option<&OsStr>) {
        match value.map(OsStr::to_str) {
            None => drop(self.0.insert(name.to_owned(), None)),
            Some(Some(value)) => drop(self.0.insert(name.to_owned(), Some(value.to_owned()))),
            Some(None) => {}
        }
    }

    /// The outer `None`: the variable was not noted.
    pub fn get(&self, name: &str) -> Option<Option<OsString>> {
        self.0.get(name).map(|value| value.as_ref().map(OsString::from))
    }
}

#[derive(Clone, Debug)]
pub struct NewRun {
    pub id: RunId,
    pub realm: BootAndPidNs,
    pub wrapper: ProcessId,
    /// Its agent's calls go through the proxy.
    pub proxied: bool,
}

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RunRow from "run" {
        pub n: i64,
        pub id: RunId,
        pub realm: BootAndPidNs [row],
        pub wrapper: ProcessId = "wrapper_pid, wrapper_start" [row],
        pub agent: Option<Pid> = "agent_pid",
        pub started_at: Timestamp,
        pub ended_at: Option<Timestamp>,
        /// The session it is in, or was in last.
        pub session: Option<i64>,
        pub surroundings: EnvSnapshot as Option<String> => EnvSnapshot::noted,
        /// Its agent's calls go through the proxy.
        pub proxied: bool,
    }
}

impl RunRow {
    /// Its process is one of the agent's own background service, and stands where a wrapper's does elsewhere.
    pub fn is_agents_own(&self) -> bool {
        self.agent == Some(self.wrapper.pid)
    }
}

impl View<'_> {
    pub fn run(&self, id: RunId) -> Result<Option<RunRow>, Error> {
        self.maybe(&RunRow::select("FROM run WHERE id = ?1"), [id], read_row)
    }

    pub fn run_number(&self, n: i64) -> Result<Option<RunRow>, Error> {
        self.maybe(&RunRow::select("FROM run WHERE n = ?1"), [n], read_row)
    }

    /// All runs that have not ended, whether their processes live or not.
    pub fn live_runs(&self) -> Result<Vec<RunRow>, Error> {
        self.all(&RunRow::select("FROM run WHERE ended_at IS NULL ORDER BY n"), [], read_row)
    }

    pub fn live_runs_in(&self, session: i64) -> Result<Vec<RunRow>, Error> {
        self.all(
            &RunRow::select("FROM run WHERE ended_at IS NULL AND session = ?1 ORDER BY n"),
            [session],
            read_row,
        )
    }
}

impl Tx<'_> {
    pub fn insert_run(&self, run: &NewRun, at: Timestamp) -> Result<i64, Error> {
        insert!(self, "run": {
            id: run.id,
            boot: run.realm.boot,
            pids: run.realm.pids,
            wrapper_pid: run.wrapper.pid,
            wrapper_start: run.wrapper.start,
            started_at: at,
            proxied: run.proxied,
        })?;
        Ok(self.last_inserted())
    }

    /// Of a session that any run not led through the proxy is in, not all calls are seen there.
    pub fn put_run_in(&self, run: i64, session: i64, at: Timestamp) -> Result<(), Error> {
        self.execute("UPDATE run SET session = ?2 WHERE n = ?1", [run, session])?;
        let proxied: bool = self.one("SELECT proxied FROM run WHERE n = ?1", [run], read_value)?;
        if proxied {
            self.execute("INSERT OR IGNORE INTO stay VALUES (?1, ?2, ?3)", params![run, at, session])?;
        } else {
            self.execute("UPDATE session SET proxied = 0 WHERE n = ?1 AND proxied = 1", [session])?;
        }
        Ok(())
    }

    pub fn end_run(&self, run: i64, at: Timestamp) -> Result<(), Error> {
        self.execute("UPDATE run SET ended_at = ?2 WHERE n = ?1", params![run, at]).map(drop)
    }

    pub fn set_surroundings(&self, run: RunId, surroundings: &EnvSnapshot) -> Result<(), Error> {
        let json = serde_json::to_string(surroundings).unwrap_or_default();
        self.execute("UPDATE run SET surroundings = ?2 WHERE id = ?1", params![run, json]).map(drop)
    }

    /// The agent has been spawned. `start` is not known of one that has ended already.
    pub fn set_agent_process(&self, run: RunId, pid: Pid, start: Option<StartTime>) -> Result<(), Error> {
        self.execute(
            "UPDATE run SET agent_pid = ?2, agent_start = ?3 WHERE id = ?1",
            params![run, pid, start],
        )
        .map(drop)
    }
}
