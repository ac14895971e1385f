//! Facts that only a user's own machine has, for the dashboard there: they are in its store, not in the backend.

use super::agents::KnownAgents;
use wire::Timestamp;

/// The facts that a local dashboard shows beside the read model. Further facts of a machine (titles of conversations,
/// states of running agents) are one more method each, with nothing as their default.
pub trait LocalFacts: Send + Sync {
    /// The agents that codemie starts by their names.
    fn agents(&self) -> KnownAgents;

    /// The command that prints a new address of this dashboard.
    fn command(&self) -> &'static str;

    /// The state of each receiver; `None` where nothing is sent. It may be slow: it runs on a thread of its own.
    fn outbox(&self) -> Option<Vec<Outbox>> {
        None
    }
}

/// A receiver, and the events of the local store that it has not got yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    pub sink: String,
    pub pending: i64,
    pub dead: i64,
    pub deferred: i64,
    /// Why nothing is sent until a person does something about it.
    pub paused: Option<String>,
    /// The last failure.
    pub trouble: Option<String>,
    pub failures: i64,
    pub retry_at: Option<Timestamp>,
    pub last_delivered: Option<Timestamp>,
}
