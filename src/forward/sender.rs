//! The sender of a run: a thread beside the tracker that sends at once what matters at once, and the rest now and then.
//!
//! It sleeps until it is told something: with nothing to send it does not wake. Each receiver has a loop of its own, so
//! that one that hangs does not keep the others waiting.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::watch;

use super::drain::{Drain, Idle, Pace};
use super::rest::leave_rest;
use super::sink::Sinks;
use crate::home::Home;
use system::clock::{Clock, SystemClock};
use wire::Timestamp;

/// How soon a store that was busy or full is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(2);

/// What the tracker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A session began, is known, or ended.
    Now,
    /// Something was metered.
    Soon,
}

/// How often each was said; a counter, because a loop may be busy when it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    now: u64,
    soon: u64,
    ending: bool,
}

/// The tracker's end of it.
#[derive(Debug)]
pub struct Sender {
    told: watch::Sender<Told>,
    /// Whether something is left, once per receiver, when it was told of the end.
    left: Receiver<bool>,
    receivers: usize,
    exit_timeout: Duration,
}

impl Sender {
    /// Starts the thread. `None`: there is none to be had, and what waits is sent by a later command.
    pub fn start(sinks: Sinks) -> Option<Self> {
        let (told, hear) = watch::channel(Told::default());
        let (tell, left) = channel();
        let (receivers, exit_timeout) = (sinks.targets().len(), sinks.delivery.exit_timeout);
        let thread = terminal::without_signals(|| {
            std::thread::Builder::new().name("sender".into()).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => runtime.block_on(send(&sinks, hear, &tell)),
                    Err(error) => tracing::error!("no sender: {error}"),
                }
            })
        });
        match thread {
            Ok(_) => Some(Self { told, left, receivers, exit_timeout }),
            Err(error) => {
                tracing::error!("no thread for the sender: {error}");
                None
            }
        }
    }

    /// Never waits.
    pub fn hint(&self, hint: Hint) {
        self.told.send_modify(|told| match hint {
            Hint::Now => told.now += 1,
            Hint::Soon => told.soon += 1,
        });
    }

    /// All has been committed. Waits for it to be sent, at most as long as is configured, and not for a receiver that is
    /// not to be asked now; true if something is left.
    pub fn finish(self) -> bool {
        self.told.send_modify(|told| told.ending = true);
        let deadline = Instant::now() + self.exit_timeout;
        let mut rest = false;
        for _ in 0..self.receivers {
            match self.left.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(left) => rest |= left,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return true,
            }
        }
        rest
    }
}

/// All receivers' loops, each of which says in the end whether something is left for it.
async fn send(sinks: &Sinks, mut hear: watch::Receiver<Told>, tell: &std::sync::mpsc::Sender<bool>) {
    let drains = loop {
        match sinks.drains(Pace::Background) {
            Ok(drains) => break drains,
            // Busy or full, as it may be for a while: the tracker does not give up either.
            Err(error) => tracing::warn!("nothing is sent yet: {error}"),
        }
        if hear.borrow_and_update().ending {
            return;
        }
        if let Ok(Err(_)) = tokio::time::timeout(STORE_AGAIN, hear.wait_for(|told| told.ending)).await {
            return; // nobody speaks any more
        }
    };
    let interval = sinks.delivery.interval;
    join_all(drains.into_iter().map(async |drain| {
        let left = if drain.must_finish() {
            have_it_sent(drain, &sinks.home, hear.clone()).await
        } else {
            serve(drain, &sinks.home, hear.clone(), interval).await
        };
        let _ = tell.send(left);
    }))
    .await;
}

/// A receiver that counts what it gets twice is not told from here, where the end of the run cuts a request off: a process
/// apart does it. Whether something is left for it in the end.
async fn have_it_sent(mut drain: Drain, home: &Home, mut hear: watch::Receiver<Told>) -> bool {
    let mut known = Told::default();
    loop {
        let told = *hear.borrow_and_update();
        if told.ending || told.now != known.now {
            let waits = drain.count().is_ok_and(|count| count.pending > 0);
            if told.ending {
                return waits;
            }
            if waits {
                leave_rest(home);
            }
        }
        known = told;
        if hear.changed().await.is_err() {
            return true;
        }
    }
}

/// One receiver's loop; whether something is left for it in the end.
async fn serve(mut drain: Drain, home: &Home, mut hear: watch::Receiver<Told>, interval: Duration) -> bool {
    let mut known = Told::default();
    loop {
        known = Told { ending: hear.borrow_and_update().ending, ..known };
        let rest = drain.run(&SystemClock).await.unwrap_or_else(|error| {
            tracing::warn!(sink = drain.name(), "nothing is sent: {error}");
            Idle::Waiting { until: after(STORE_AGAIN), why: error.to_string() }
        });
        if known.ending {
            return rest != Idle::Empty { due: None };
        }
        let mut wake = match &rest {
            Idle::Empty { due } => due.map(instant),
            Idle::Paused(_) => None,
            // This run knows the old ones only. A process that starts now knows the new.
            Idle::Reconfigured => {
                leave_rest(home);
                None
            }
            // Whoever speaks meanwhile makes it look again: somebody may have found the receiver back.
            Idle::Waiting { until, .. } | Idle::LeaseHeld { until } => Some(instant(*until)),
        };
        loop {
            let told = *hear.borrow_and_update();
            if told.ending || told.now != known.now {
                known = told;
                break;
            }
            if told.soon != known.soon {
                let soon = Instant::now() + interval;
                wake = Some(wake.map_or(soon, |wake| wake.min(soon)));
            }
            known = told;
            let changed = match wake {
                Some(wake) => match tokio::time::timeout_at(wake.into(), hear.changed()).await {
                    Ok(changed) => changed,
                    Err(_) => break,
                },
                None => hear.changed().await,
            };
            if changed.is_err() {
                return true;
            }
        }
    }
}

fn after(time: Duration) -> Timestamp {
    SystemClock.now().after(time)
}

fn instant(at: Timestamp) -> Instant {
    Instant::now() + at.since(SystemClock.now())
}
