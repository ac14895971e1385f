//! Ending the tree that a host started, beside its server: the grace is waited for in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::notes::{Note, Reporter};
use crate::launch::note;
use crate::launch::stop::{is_shared, tree_of};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pty::process::{Processes, SystemProcesses, tree};
use store::{self, Store};
use types::LIMIT_EVIDENCE;
use types::{Pid, ProcessId, RunId, SessionId};

pub(super) use crate::launch::stop::GRACE;

/// A stop that was asked for, and who waits for it.
pub(super) struct Stopping {
    home: Home,
    /// The program's name.
    agent: String,
    host: Option<ProcessId>,
    program: Option<Pid>,
    begun: Arc<AtomicBool>,
    survivors: Option<Vec<String>>,
    asking: Vec<u64>,
}

impl Stopping {
    /// `begun` is set once the run is being stopped: it ends as stopped, however its program ends.
    pub(super) fn new(home: Home, agent: String, host: Option<ProcessId>, begun: Arc<AtomicBool>) -> Self {
        Self { home, agent, host, program: None, begun, survivors: None, asking: Vec::new() }
    }

    pub(super) fn started(&mut self, program: Pid) {
        self.program = Some(program);
    }

    /// Ends everything because a limit is reached, and notes which one for `explain`.
    pub(super) fn stop_at_limit(&mut self, of: (SessionId, RunId), why: &'static str, reporter: &Reporter) {
        let begins = !self.begun.load(Ordering::Relaxed);
        if begins {
            let home = self.home.clone();
            // Beside: a store that is locked must not delay the end.
            let noted = std::thread::Builder::new().name("limit".into()).spawn(move || {
                if let Err(error) = note_limit(&home, of, why) {
                    tracing::warn!("not noted that {why}: {error}");
                }
            });
            drop(noted);
        }
        self.stop(None, GRACE, reporter);
    }

    /// Begins to end everything below the host; a second request joins the first.
    pub(super) fn stop(&mut self, client: Option<u64>, grace: Duration, reporter: &Reporter) {
        self.asking.extend(client);
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (home, agent) = (self.home.clone(), self.agent.clone());
        let (host, program, reporter) = (self.host, self.program, reporter.clone());
        let spawned = std::thread::Builder::new().name("stop".into()).spawn(move || {
            let survivors = end_tree(&home, &agent, host, program, grace);
            reporter.report(Note::TreeEnded(survivors));
        });
        if let Err(error) = spawned {
            tracing::error!("no thread to stop the session: {error}");
            self.begun.store(false, Ordering::Relaxed);
        }
    }

    /// Collects the exit status of processes whose parents have ended: the host has adopted them.
    pub(super) fn reap(&self) {
        let monitor = self.program.and_then(|program| SystemProcesses.parent(program));
        if let Some(monitor) = monitor {
            tree::reap_adopted(&SystemProcesses, &[monitor]);
        }
    }

    /// The tree is being ended, and it is not known yet what survives.
    pub(super) fn is_going_on(&self) -> bool {
        self.begun.load(Ordering::Relaxed) && self.survivors.is_none()
    }

    pub(super) fn tree_ended(&mut self, survivors: Vec<String>) {
        self.survivors = Some(survivors);
    }

    /// The run is over: who asked, and what survived.
    pub(super) fn finished(&mut self) -> Vec<(u64, Vec<String>)> {
        let survivors = self.survivors.take().unwrap_or_default();
        std::mem::take(&mut self.asking).into_iter().map(|client| (client, survivors.clone())).collect()
    }
}

fn note_limit(home: &Home, (session, run): (SessionId, RunId), why: &str) -> Result<(), store::Error> {
    let now = SystemClock.now();
    let evidence = note(now, LIMIT_EVIDENCE, format!("{why}: the session was stopped"));
    Store::open(home, now)?.write(|tx| tx.note_evidence(session, run, &evidence))
}

/// Ends everything below the host but what the agent shares with others. The monitor is spared: it reports how the program
/// ended, and leaves by itself.
fn end_tree(
    home: &Home,
    agent: &str,
    host: Option<ProcessId>,
    program: Option<Pid>,
    grace: Duration,
) -> Vec<String> {
    let Some(host) = host else { return vec!["the host itself, which cannot be identified".to_owned()] };
    let shared = is_shared(agent);
    let mut tree = tree_of(home, host, &shared);
    if let Some(monitor) = program.and_then(|program| SystemProcesses.parent(program)) {
        tree = tree.sparing(monitor);
    }
    let survivors = tree::end(&mut tree, &SystemProcesses, &shared, grace);
    survivors.iter().map(ToString::to_string).collect()
}
