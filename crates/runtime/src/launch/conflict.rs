//! A conversation that is to be continued while somebody writes to it: what to do about that. Pure.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use agents::live::Writer;
use format::shell;
use os::clock::{Clock, SystemClock};
use os::file::{create_private, entries, modified, open_private, read_at_most};
use os::home::Home;
use pty::process;
use pty::process::Processes;
use store::BootAndPidNs;
use types::{AgentSessionId, Pid, ProcessId, RunId, StartTime};

/// What to do if the session is running already: `--on-conflict`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Report it and do nothing.
    #[default]
    Fail,
    /// Connect to it, if it runs in the background.
    Attach,
    /// End it, then continue here.
    Takeover,
    /// Continue in a copy.
    Fork,
}

/// Somebody who writes to the conversation, or may at any moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A run of codemie's in the background.
    Background { run: RunId, wrapper: ProcessId },
    /// A run of codemie's in a terminal.
    Foreground { run: RunId, wrapper: ProcessId, terminal: Option<PathBuf> },
    /// A run of codemie's in another pid namespace, a container that shares the home: it cannot be seen from here.
    Elsewhere { run: RunId },
    /// A process of the agent's that no codemie runs.
    Bare(Writer),
    /// A process of the agent's own background service, which may work for others as well. It is never ended.
    Service(Writer),
}

impl Holder {
    /// The process that would be asked to end.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Background { wrapper, .. } | Self::Foreground { wrapper, .. } => Some(*wrapper),
            Self::Bare(writer) => Some(writer.process()),
            Self::Elsewhere { .. } | Self::Service(_) => None,
        }
    }

    /// What can be done besides ending it by hand.
    fn advice(&self, name: &str) -> String {
        let stop = format!("codemie stop {}", shell::word(name));
        match self {
            Self::Background { .. } => {
                let attach = format!("codemie attach {}", shell::word(name));
                format!(
                    "`{attach}` shows it; use --on-conflict takeover or fork to continue it here, or end it with `{stop}`"
                )
            }
            Self::Foreground { .. } => {
                format!("go there, end it with `{stop}`, or use --on-conflict takeover or fork")
            }
            Self::Elsewhere { .. } => "end it there, or use --on-conflict fork".to_owned(),
            Self::Bare(_) => "end it there, or use --on-conflict takeover or fork".to_owned(),
            Self::Service(_) => "end it with the agent's own commands, or use --on-conflict fork".to_owned(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Background { wrapper, .. } => write!(f, "in the background (pid {})", wrapper.pid),
            Self::Foreground { wrapper, terminal: Some(terminal), .. } => {
                write!(f, "in the terminal {} (pid {})", terminal.display(), wrapper.pid)
            }
            Self::Foreground { wrapper, terminal: None, .. } => {
                write!(f, "in the foreground (pid {})", wrapper.pid)
            }
            Self::Elsewhere { .. } => f.write_str("in another container that shares codemie's home"),
            Self::Bare(writer) => write!(f, "without codemie: {}", writer.what),
            Self::Service(writer) => write!(f, "in {}", writer.what),
        }
    }
}

/// How to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody writes to it.
    Continue,
    /// In a copy of the conversation; the others go on.
    Fork,
    /// By connecting to the host of this run.
    Attach(RunId),
    /// After these have ended.
    TakeOver(Vec<Holder>),
}

/// Somebody writes to the conversation, and the user has not chosen what to do about it, or chose what cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("{name} runs {holder}; {}", .holder.advice(.name))]
    Running { name: String, holder: Holder },
    #[error("{name} runs {holder}, where nothing can be connected to; {}", .holder.advice(.name))]
    NoHost { name: String, holder: Holder },
    #[error("{name} runs {holder}, which codemie does not end; {}", .holder.advice(.name))]
    NotOurs { name: String, holder: Holder },
    #[error("this command runs inside {name}; end the agent, or use --on-conflict fork")]
    Inside { name: String },
    #[error(
        "{name} is being continued by another codemie at this moment (pid {pid}); try again when it has started"
    )]
    Starting { name: String, pid: Pid },
}

/// `holders`: everybody who writes to the conversation now. `inside`: this command runs below one of them.
pub fn decide(
    wanted: OnConflict,
    name: &str,
    holders: Vec<Holder>,
    inside: bool,
) -> Result<Decision, Conflict> {
    let name = name.to_owned();
    let Some(first) = holders.first().cloned() else { return Ok(Decision::Continue) };
    match wanted {
        OnConflict::Fail => Err(Conflict::Running { name, holder: first }),
        OnConflict::Fork => Ok(Decision::Fork),
        OnConflict::Attach => {
            let host = holders.iter().find_map(|holder| match holder {
                Holder::Background { run, .. } => Some(*run),
                _ => None,
            });
            host.map(Decision::Attach).ok_or(Conflict::NoHost { name, holder: first })
        }
        OnConflict::Takeover => {
            if let Some(holder) = holders.iter().find(|holder| holder.process().is_none()).cloned() {
                return Err(Conflict::NotOurs { name, holder });
            }
            if inside { Err(Conflict::Inside { name }) } else { Ok(Decision::TakeOver(holders)) }
        }
    }
}

// A conversation that one `codemie resume` is about to continue.
//
// From the decision until the run's START is in the store nobody else could see that it will be written to. The claim is a small
// file, `run/resume-AGENT-ID.lock`, that names the process; it is over when that process has ended or its run is stored. So
// nothing has to be released, and a crash blocks nobody.

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
    let here = BootAndPidNs::here();
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
fn current(path: &Path, here: &BootAndPidNs, processes: &dyn Processes) -> Option<Claim> {
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
    let here = BootAndPidNs::here();
    for path in entries(&home.run()).unwrap_or_default().into_iter().filter(|path| is_claim(path)) {
        let work = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        // Not while somebody writes it: a file removed between its locking and its writing would be a claim nobody sees.
        if let Some(_locked) = process::lock(home, work)
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
    use types::{Ids, RandomIds, StartTime};

    fn writer(background: bool) -> Writer {
        let what = if background { "a background process of Claude Code (pid 9)" } else { "claude (pid 9)" };
        Writer { pid: Pid(9), start: StartTime(1), what: what.into(), background, folder: None }
    }

    #[test]
    fn every_choice_for_everybody_who_may_write_to_a_conversation() {
        use OnConflict::{Attach, Fail, Fork, Takeover};
        let run = RandomIds.run();
        let wrapper = ProcessId { pid: Pid(4242), start: StartTime(1) };
        let background = Holder::Background { run, wrapper };
        let foreground = Holder::Foreground { run, wrapper, terminal: Some("/dev/pts/3".into()) };
        let (bare, service) = (Holder::Bare(writer(false)), Holder::Service(writer(true)));
        let elsewhere = Holder::Elsewhere { run };
        // "take over" stands for all that were there.
        let table: [(&[&Holder], [&str; 4]); 8] = [
            (&[], ["continue", "continue", "continue", "continue"]),
            (&[&background], ["fail", "attach", "take over", "fork"]),
            (&[&foreground], ["fail", "no host", "take over", "fork"]),
            (&[&bare], ["fail", "no host", "take over", "fork"]),
            (&[&service], ["fail", "no host", "not ours", "fork"]),
            (&[&elsewhere], ["fail", "no host", "not ours", "fork"]),
            (&[&foreground, &background], ["fail", "attach", "take over", "fork"]),
            (&[&bare, &service], ["fail", "no host", "not ours", "fork"]),
        ];
        for (holders, row) in table {
            let holders: Vec<Holder> = holders.iter().map(|holder| (*holder).clone()).collect();
            for (wanted, expected) in [Fail, Attach, Takeover, Fork].into_iter().zip(row) {
                let outcome = match decide(wanted, "fix-auth", holders.clone(), false) {
                    Ok(Decision::Continue) => "continue",
                    Ok(Decision::Fork) => "fork",
                    Ok(Decision::Attach(to)) if to == run => "attach",
                    Ok(Decision::TakeOver(ended)) if ended == holders => "take over",
                    Ok(other) => panic!("{other:?}"),
                    Err(Conflict::Running { .. }) => "fail",
                    Err(Conflict::NoHost { .. }) => "no host",
                    Err(Conflict::NotOurs { .. }) => "not ours",
                    Err(other) => panic!("{other:?}"),
                };
                assert_eq!(outcome, expected, "{wanted:?} {holders:?}");
            }
        }
        let inside = decide(Takeover, "x", vec![background.clone()], true);
        assert_eq!(inside, Err(Conflict::Inside { name: "x".into() }));
        assert_eq!(decide(Fork, "x", vec![background], true), Ok(Decision::Fork));
    }

    #[test]
    fn an_error_names_who_it_is_and_what_can_be_done() {
        let run = RandomIds.run();
        let wrapper = ProcessId { pid: Pid(4242), start: StartTime(1) };
        let message =
            |wanted, holder: Holder| decide(wanted, "fix auth", vec![holder], false).unwrap_err().to_string();
        let foreground = || Holder::Foreground { run, wrapper, terminal: Some("/dev/pts/3".into()) };
        for (wanted, holder, parts) in [
            (
                OnConflict::Fail,
                foreground(),
                &["in the terminal /dev/pts/3 (pid 4242)", "codemie stop 'fix auth'", "takeover"][..],
            ),
            (OnConflict::Attach, foreground(), &["/dev/pts/3", "nothing can be connected to", "go there"]),
            (
                OnConflict::Fail,
                Holder::Background { run, wrapper },
                &["in the background (pid 4242)", "attach"],
            ),
            (OnConflict::Fail, Holder::Bare(writer(false)), &["without codemie: claude (pid 9)", "takeover"]),
            (
                OnConflict::Takeover,
                Holder::Service(writer(true)),
                &["a background process of Claude Code", "does not end", "fork"],
            ),
        ] {
            let message = message(wanted, holder);
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}

#[cfg(test)]
mod claim_tests {
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
