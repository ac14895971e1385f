//! A conversation that one `codemie resume` is about to continue.
//!
//! From the decision until the run's START is in the store nobody else could see that it will be written to. The claim is a small
//! file, `run/resume-AGENT-ID.lock`, that names the process; it is over when that process has ended or its run is stored. So
//! nothing has to be released, and a crash blocks nobody.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use os::clock::{Clock, SystemClock};
use os::file::{create_private, entries, modified, open_private, read_at_most};
use os::home::Home;
use pty::detached;
use pty::process::Processes;
use store::Realm;
use types::{AgentSessionId, Pid, ProcessId, StartTime};

/// How long another process may look at the claim: a look takes some milliseconds, with a database that others keep locked longer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);

/// A claim of a process that cannot be seen from here counts for this long. A START takes some milliseconds.
const UNSEEN: Duration = Duration::from_secs(30);

const MAX_CLAIM: u64 = 4096;
const PREFIX: &str = "resume-";

#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    pid: Pid,
    start: StartTime,
    boot: String,
    pids: String,
}

impl Claim {
    fn process(&self) -> ProcessId {
        ProcessId { pid: self.pid, start: self.start }
    }
}

/// Why it cannot be claimed.
#[derive(Debug)]
pub enum NotClaimed {
    /// Another codemie is about to continue it.
    By(Pid),
    /// Something about the folder; then nobody else can claim it either.
    Failed(io::Error),
}

/// Claims a conversation for `own`. `has_begun` says of another process whether its run is in the store.
pub fn claim(
    home: &Home,
    agent: &str,
    conversation: &AgentSessionId,
    own: ProcessId,
    processes: &dyn Processes,
    mut has_begun: impl FnMut(ProcessId) -> bool,
) -> Result<(), NotClaimed> {
    let path = home.run().join(format!("{PREFIX}{agent}-{conversation}.lock"));
    create_private(&home.run()).map_err(NotClaimed::Failed)?;
    let mut file = locked(&path).map_err(NotClaimed::Failed)?;
    let here = Realm::here();
    if let Some(other) = current(&path, &here, processes).filter(|other| other.process() != own)
        && !has_begun(other.process())
    {
        return Err(NotClaimed::By(other.pid));
    }
    let claim = Claim { pid: own.pid, start: own.start, boot: here.boot, pids: here.pids };
    let mut write = || {
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(&claim)?)
    };
    write().map_err(NotClaimed::Failed)
}

/// The file, while nobody else reads or writes it.
fn locked(path: &Path) -> io::Result<fs::File> {
    let deadline = Instant::now() + LOOK_TIMEOUT;
    loop {
        let file = open_private(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // One that was swept after it had been opened is seen by nobody.
            Ok(()) if file.metadata()?.nlink() > 0 => return Ok(file),
            Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= deadline {
            return Err(io::Error::other(format!("{} stays locked", path.display())));
        }
        std::thread::sleep(POLL);
    }
}

/// The claim in the file, if its process may still be there.
fn current(path: &Path, here: &Realm, processes: &dyn Processes) -> Option<Claim> {
    let claim: Claim = serde_json::from_slice(&read_at_most(path, MAX_CLAIM).ok()?).ok()?;
    let lives = match (claim.boot == here.boot, claim.pids == here.pids) {
        (false, _) => false,
        (true, true) => processes.alive(claim.process()),
        (true, false) => {
            let written = modified(&fs::metadata(path).ok()?);
            SystemClock.now().since(written) < UNSEEN
        }
    };
    lives.then_some(claim)
}

/// Removes claims that are over because their process has ended.
pub fn sweep(home: &Home, processes: &dyn Processes) {
    let here = Realm::here();
    for path in entries(&home.run()).unwrap_or_default().into_iter().filter(|path| is_claim(path)) {
        let work = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        // Not while somebody writes it: a file removed between its locking and its writing would be a claim nobody sees.
        if let Some(_locked) = detached::lock(home, work)
            && current(&path, &here, processes).is_none()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_claim(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with(PREFIX) && path.extension().is_some_and(|extension| extension == "lock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::process_table::ProcessTable;

    fn process(pid: i32) -> ProcessId {
        ProcessId { pid: Pid(pid), start: StartTime(7) }
    }

    #[test]
    fn one_of_two_that_start_at_once_gets_the_conversation() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let id = AgentSessionId("22222222-2222-4222-8222-222222222222".into());
        let table = ProcessTable::new(&[(10, 7, "codemie"), (11, 7, "codemie")]);
        let take = |pid, table: &ProcessTable, begun| {
            claim(&home, "claude", &id, process(pid), table, |_| begun).map_err(|error| match error {
                NotClaimed::By(pid) => pid.0,
                NotClaimed::Failed(error) => panic!("{error}"),
            })
        };
        assert_eq!(take(10, &table, false), Ok(()));
        assert_eq!(take(10, &table, false), Ok(()), "it is its own");
        assert_eq!(take(11, &table, false), Err(10));
        assert_eq!(
            take(11, &table, true),
            Ok(()),
            "the run of the first is in the store, which decides from then on"
        );
        assert_eq!(take(10, &table, false), Err(11));
        let gone = ProcessTable::new(&[(10, 7, "codemie")]);
        assert_eq!(take(10, &gone, false), Ok(()), "the second has ended");
        let reused = ProcessTable::new(&[(10, 8, "vim"), (11, 7, "codemie")]);
        assert_eq!(take(11, &reused, false), Ok(()), "another process has the pid of the first");
    }

    #[test]
    fn claims_of_processes_that_are_gone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let id = |n: i32| AgentSessionId(format!("{n}2222222-2222-4222-8222-222222222222"));
        let table = ProcessTable::new(&[(10, 7, "codemie")]);
        for pid in [10, 11] {
            assert!(claim(&home, "codex", &id(pid), process(pid), &table, |_| false).is_ok());
        }
        sweep(&home, &table);
        let left = entries(&home.run()).unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].to_str().unwrap().contains(&id(10).0), "{left:?}");
    }
}
