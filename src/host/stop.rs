//! Ending the tree that a host started, beside its server: the grace is waited for in a thread of its own.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::notes::{Note, Reporter};
use crate::agent::Agent;
use terminal::process::tree::{self, Tree};
use terminal::process::{Processes, SystemProcesses};
use wire::ProcessId;

/// How long processes have to end by themselves where nobody said otherwise. Claude was measured at 2.6 s while it streams.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// A stop that was asked for, and who waits for it.
pub(super) struct Stopping {
    agent: Option<&'static dyn Agent>,
    host: Option<ProcessId>,
    begun: Arc<AtomicBool>,
    survivors: Option<Vec<String>>,
    asking: Vec<u64>,
}

impl Stopping {
    /// `begun` is set once the run is being stopped: it ends as stopped, however its program ends.
    pub(super) fn new(
        agent: Option<&'static dyn Agent>,
        host: Option<ProcessId>,
        begun: Arc<AtomicBool>,
    ) -> Self {
        Self { agent, host, begun, survivors: None, asking: Vec::new() }
    }

    /// Begins to end everything below the host; a second request joins the first.
    pub(super) fn stop(&mut self, client: Option<u64>, grace: Duration, reporter: &Reporter) {
        self.asking.extend(client);
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (agent, host, reporter) = (self.agent, self.host, reporter.clone());
        let spawned = std::thread::Builder::new().name("stop".into()).spawn(move || {
            let survivors = end_tree(agent, host, grace);
            reporter.report(Note::TreeEnded(survivors));
        });
        if let Err(error) = spawned {
            tracing::error!("no thread to stop the session: {error}");
            self.begun.store(false, Ordering::Relaxed);
        }
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

/// Ends everything below the host but what the agent shares with others. The monitor is spared: it reports how the program
/// ended, and leaves by itself.
fn end_tree(agent: Option<&'static dyn Agent>, host: Option<ProcessId>, grace: Duration) -> Vec<String> {
    let Some(host) = host else { return vec!["the host itself, which cannot be identified".to_owned()] };
    let shared = |command: &[OsString]| agent.is_some_and(|agent| agent.is_shared_daemon(command));
    let mut tree = Tree::without(host, &SystemProcesses, &shared);
    for monitor in SystemProcesses.children(host.pid) {
        if SystemProcesses.command(monitor) == SystemProcesses.command(host.pid) {
            tree = tree.sparing(monitor);
        }
    }
    let survivors = tree::end(&mut tree, &SystemProcesses, &shared, grace);
    survivors.iter().map(ToString::to_string).collect()
}
