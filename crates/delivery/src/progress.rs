//! How far a sink's loop has got: what the loop reports to its driver ([`super::sender`], [`super::detached`],
//! `codemie sync`). Plain values.

use uuid::Uuid;

use store::Outgoing;
use types::Timestamp;

/// How long a loop is willing to wait for a receiver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Nobody is waiting: our own backoff counts.
    Background,
    /// Somebody is waiting: our own backoff is ignored, the receiver's `Retry-After` is not.
    Interactive,
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// These events are finished, or the cursor moved, or the next request is packed otherwise: take the next step.
    Advanced(DeliveryCount),
    Idle(Idle),
}

/// Why there is nothing to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing can be sent now. A deferred event may be due later.
    Empty { due: Option<Timestamp> },
    /// Nothing is sent until somebody changes the settings or runs `codemie sync`.
    Paused(String),
    /// The receiver failed or asked us to wait.
    Waiting { until: Timestamp, why: String },
    /// Another process is sending. `until` is when to try for the lease again.
    LeaseHeld { until: Timestamp },
    /// The settings name another address now, or other credentials than the refused ones. Pending events are for those.
    Reconfigured,
}

impl Idle {
    /// When the next step is worth taking without anybody asking for it.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Empty { due } => *due,
            Self::Waiting { until, .. } | Self::LeaseHeld { until } => Some(*until),
            Self::Paused(_) | Self::Reconfigured => None,
        }
    }
}

/// How many events are finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCount {
    pub delivered: usize,
    /// Refused for good: dead letters.
    pub refused: usize,
    /// Some of the delivered events were not accepted by the receiver, which did not say which.
    pub incomplete: bool,
}

impl DeliveryCount {
    /// For a batch that was accepted except for `rejected`.
    pub(super) fn of(events: &[Outgoing], rejected: &[(Uuid, String)]) -> Self {
        let refused = events.iter().filter(|event| rejected.iter().any(|(id, _)| *id == event.id)).count();
        Self { delivered: events.len() - refused, refused, incomplete: false }
    }

    pub fn add(&mut self, more: Self) {
        self.delivered += more.delivered;
        self.refused += more.refused;
        self.incomplete |= more.incomplete;
    }
}
