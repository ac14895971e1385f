//! Ending the tree that a host started, beside its server: the grace is waited for in a thread of its own.

use std::time::{Duration, Instant};

use super::notes::{Note, Reporter};
use crate::agent::Agent;
use wire::ProcessId;

/// How long processes have to end by themselves where nobody said otherwise. Claude was measured at 2.6 s while it streams.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// A stop that was asked for, and who waits for it.
pub(super) struct Stopping {
    agent: Option<&'static dyn Agent>,
    host: Option<ProcessId>,
    begun: bool,
    survivors: Option<Vec<String>>,
    asking: Vec<u64>,
}

impl Stopping {
    pub(super) fn new(agent: Option<&'static dyn Agent>, host: Option<ProcessId>) -> Self {
        Self { agent, host, begun: false, survivors: None, asking: Vec::new() }
    }

    /// Begins to end everything below the host; a second request joins the first.
    pub(super) fn stop(&mut self, client: Option<u64>, grace: Duration, reporter: &Reporter) {
        self.asking.extend(client);
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let (agent, host, reporter) = (self.agent, self.host, reporter.clone());
        let spawned = std::thread::Builder::new().name("stop".into()).spawn(move || {
            let survivors = end_tree(agent, host, grace);
            reporter.report(Note::TreeEnded(survivors));
        });
        if let Err(error) = spawned {
            tracing::error!("no thread to stop the session: {error}");
            self.begun = false;
        }
    }

    pub(super) fn was_asked(&self) -> bool {
        self.begun
    }

    pub(super) fn tree_ended(&mut self, survivors: Vec<String>) {
        self.survivors = Some(survivors);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        None
    }

    /// The run is over: who asked, and what survived.
    pub(super) fn finished(&mut self) -> Vec<(u64, Vec<String>)> {
        let survivors = self.survivors.take().unwrap_or_default();
        std::mem::take(&mut self.asking).into_iter().map(|client| (client, survivors.clone())).collect()
    }
}

fn end_tree(_agent: Option<&'static dyn Agent>, _host: Option<ProcessId>, _grace: Duration) -> Vec<String> {
    Vec::new()
}
