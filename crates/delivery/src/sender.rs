//! The sender of a run, or of any other process that lives long enough: a thread that delivers lifecycle events at once and
//! metered ones every `sync.interval`.
//!
//! Promises: [`Sender::hint`] never waits. The thread sleeps until a hint or a due time, so it does not wake while nothing is
//! pending. Each receiver has a loop of its own, so a receiver that hangs does not keep the others waiting.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::watch;
use uuid::Uuid;

use super::configured::Sinks;
use super::detached::spawn_delivery;
use super::drain::Drain;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use store::Outgoing;
use types::Timestamp;

/// How soon a store that was busy or full is tried again.
const STORE_RETRY: Duration = Duration::from_secs(2);

/// That new events were committed, and how urgent they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A session started, was bound, or ended.
    Now,
    /// Something was metered.
    Soon,
}

/// How many hints of each kind there were. Counters, because a loop may be busy when a hint comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hints {
    now: u64,
    soon: u64,
    /// No more hints will come: send what is pending and stop.
    ending: bool,
}

/// What a loop does about hints that are new to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    SendNow,
    SendSoon,
    Sleep,
}

impl Hints {
    /// What to do, if `known` was the state at the last look.
    fn since(self, known: Self) -> Reaction {
        if self.ending || self.now != known.now {
            Reaction::SendNow
        } else if self.soon != known.soon {
            Reaction::SendSoon
        } else {
            Reaction::Sleep
        }
    }
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Sender {
    hints: watch::Sender<Hints>,
    /// Whether events are still pending, once per receiver, after the end was announced.
    pending: Receiver<bool>,
    receivers: usize,
    exit_timeout: Duration,
}

impl Sender {
    /// Starts the thread. `None`: there is no thread to be had, and pending events are sent by a later command.
    pub fn start(sinks: Sinks) -> Option<Self> {
        let (hints, watched) = watch::channel(Hints::default());
        let (report, pending) = channel();
        let (receivers, exit_timeout) = (sinks.targets().len(), sinks.delivery.exit_timeout);
        let thread = pty::without_signals(|| {
            std::thread::Builder::new().name("sender".into()).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => runtime.block_on(serve_all(&sinks, watched, &report)),
                    Err(error) => tracing::error!("no sender: {error}"),
                }
            })
        });
        match thread {
            Ok(_) => Some(Self { hints, pending, receivers, exit_timeout }),
            Err(error) => {
                tracing::error!("no thread for the sender: {error}");
                None
            }
        }
    }

    /// Never waits.
    pub fn hint(&self, hint: Hint) {
        self.hints.send_modify(|hints| match hint {
            Hint::Now => hints.now += 1,
            Hint::Soon => hints.soon += 1,
        });
    }

    /// Everything has been committed. Waits until it is sent, at most as long as is configured, and not for a receiver in
    /// backoff. Returns whether events are still pending.
    pub fn finish(self) -> bool {
        self.hints.send_modify(|hints| hints.ending = true);
        let deadline = Instant::now() + self.exit_timeout;
        let mut any = false;
        for _ in 0..self.receivers {
            match self.pending.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(pending) => any |= pending,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return true,
            }
        }
        any
    }
}

/// Runs a loop per receiver. Each reports in the end whether events are still pending.
async fn serve_all(sinks: &Sinks, mut hints: watch::Receiver<Hints>, report: &std::sync::mpsc::Sender<bool>) {
    let drains = loop {
        match Drain::open_all(sinks, Pace::Background) {
            Ok(drains) => break drains,
            // The store may be busy or full for a while; the tracker does not give up either.
            Err(error) => tracing::warn!("nothing is sent yet: {error}"),
        }
        if hints.borrow_and_update().ending {
            return;
        }
        if let Ok(Err(_)) = tokio::time::timeout(STORE_RETRY, hints.wait_for(|hints| hints.ending)).await {
            return; // the handle was dropped
        }
    };
    let interval = sinks.delivery.interval;
    join_all(drains.into_iter().map(async |drain| {
        let pending = if drain.must_finish() {
            have_sent(drain, &sinks.home, hints.clone()).await
        } else {
            serve(drain, &sinks.home, hints.clone(), interval).await
        };
        let _ = report.send(pending);
    }))
    .await;
}

/// For a receiver that counts duplicates: the end of the run would cut a request off here, so a detached process sends.
/// Returns whether events are still pending.
async fn have_sent(mut drain: Drain, home: &Home, mut hints: watch::Receiver<Hints>) -> bool {
    let mut known = Hints::default();
    loop {
        let latest = *hints.borrow_and_update();
        if latest.since(known) == Reaction::SendNow {
            let pending = drain.count().is_ok_and(|count| count.pending > 0);
            if latest.ending {
                return pending;
            }
            if pending {
                spawn_delivery(home);
            }
        }
        known = latest;
        if hints.changed().await.is_err() {
            return true;
        }
    }
}

/// One receiver's loop. Returns whether events are still pending.
async fn serve(mut drain: Drain, home: &Home, mut hints: watch::Receiver<Hints>, interval: Duration) -> bool {
    let mut known = Hints::default();
    loop {
        known = Hints { ending: hints.borrow_and_update().ending, ..known };
        let idle = drain.run(&SystemClock).await.unwrap_or_else(|error| {
            tracing::warn!(sink = drain.name(), "nothing is sent: {error}");
            Idle::Waiting { until: SystemClock.now().after(STORE_RETRY), why: error.to_string() }
        });
        if known.ending {
            return idle != Idle::Empty { due: None };
        }
        if idle == Idle::Reconfigured {
            // This run knows the old settings only; a process that starts now reads the new ones.
            spawn_delivery(home);
        }
        // A hint that comes meanwhile makes the loop try again: another process may have found the receiver back.
        let mut wake = idle.until().map(instant);
        loop {
            let latest = *hints.borrow_and_update();
            let reaction = latest.since(known);
            known = latest;
            match reaction {
                Reaction::SendNow => break,
                Reaction::SendSoon => {
                    let soon = Instant::now() + interval;
                    wake = Some(wake.map_or(soon, |wake| wake.min(soon)));
                }
                Reaction::Sleep => {}
            }
            let changed = match wake {
                Some(wake) => match tokio::time::timeout_at(wake.into(), hints.changed()).await {
                    Ok(changed) => changed,
                    Err(_) => break,
                },
                None => hints.changed().await,
            };
            if changed.is_err() {
                return true;
            }
        }
    }
}

fn instant(at: Timestamp) -> Instant {
    Instant::now() + at.since(SystemClock.now())
}

// How far a sink's loop has got: what the loop reports to its driver ([`super::sender`], [`super::detached`],
// `codemie sync`). Plain values.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_new_hint_decides() {
        let hints = |now, soon, ending| Hints { now, soon, ending };
        let known = hints(3, 5, false);
        for (latest, expected) in [
            (known, Reaction::Sleep),
            (hints(3, 6, false), Reaction::SendSoon),
            (hints(4, 5, false), Reaction::SendNow),
            (hints(4, 6, false), Reaction::SendNow),
            (hints(3, 5, true), Reaction::SendNow),
        ] {
            assert_eq!(latest.since(known), expected, "{latest:?}");
        }
    }
}
