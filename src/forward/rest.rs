//! What a run or a command leaves unsent: a process apart from everything finishes it, and whichever codemie command
//! comes next starts one again if need be.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::drain::{Drain, Mode, Rest, keep_still};
use super::lease;
use super::sink::{Sinks, settle};
use crate::detached;
use crate::home::Home;
use crate::store::{Error, SinkRow, Store};
use system::clock::{Clock, SystemClock};
use wire::Timestamp;

/// How long the process apart tries. Long enough for a receiver that restarts; what is away for longer is left to the
/// next command.
const PATIENCE: Duration = Duration::from_mins(1);

/// The hidden command that the process apart is.
pub const COMMAND: &str = "deliver";

/// Whether there is something to be sent that nobody sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    None,
    Some,
}

impl Leftovers {
    /// Makes the configured receivers known, and looks. Costs some queries.
    pub fn look(store: &mut Store, sinks: &Sinks) -> Result<Self, Error> {
        let now = SystemClock.now();
        let targets = sinks.targets();
        let leads =
            |row: &SinkRow| targets.iter().any(|to| to.name == row.name && row.leads_to(&to.fingerprint));
        if store.read(|view| view.sinks())?.iter().filter(|row| leads(row)).count() < targets.len() {
            store.write(|tx| settle(tx, &targets))?;
        }
        store.read(|view| {
            for row in view.sinks()? {
                if leads(&row) && is_idle(&row, now) && view.something_waits(&row)? {
                    return Ok(Self::Some);
                }
            }
            Ok(Self::None)
        })
    }
}

/// Starts the process apart.
pub fn leave_rest(home: &Home) {
    if let Err(error) = detached::start(home, [COMMAND]) {
        tracing::warn!("what is left waits for the next command: {error}");
    }
}

/// The process apart: sends until nothing is left, the receivers cannot be had, or the time is up.
pub fn finish_rest(sinks: &Sinks) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("nothing is sent: {error}");
            return Ok(());
        }
    };
    let drains = sinks.drains(Mode::Usual)?;
    runtime.block_on(join_all(drains.into_iter().map(|drain| finish(drain, &sinks.home, deadline))));
    Ok(())
}

/// One process is enough for a receiver, however many runs end while it is away; and its being away keeps nobody from the
/// others.
async fn finish(mut drain: Drain, home: &Home, deadline: Instant) {
    let name = drain.name();
    loop {
        let Some(alone) = detached::lock(home, &format!("deliver-{name}")) else { return };
        let wanted = match send_rest(&mut drain, deadline).await {
            Ok(()) => {
                drop(alone);
                // Whoever came meanwhile went away again, and relies on this one.
                Instant::now() < deadline && drain.is_wanted(SystemClock.now()).unwrap_or(false)
            }
            Err(error) => {
                tracing::warn!(sink = name, "nothing is sent: {error}");
                false
            }
        };
        if !wanted {
            return;
        }
    }
}

async fn send_rest(drain: &mut Drain, deadline: Instant) -> Result<(), Error> {
    loop {
        let until = match drain.run(&SystemClock).await? {
            Rest::Empty { due: Some(until) } | Rest::Waits { until, .. } | Rest::Held { until } => until,
            Rest::Empty { due: None } | Rest::Paused(_) | Rest::Replaced => return Ok(()),
        };
        let wake = Instant::now() + until.since(SystemClock.now());
        if wake > deadline {
            return Ok(());
        }
        tokio::time::sleep_until(wake.into()).await;
    }
}

/// Whether it may be sent to now, and nobody does.
pub(super) fn is_idle(row: &SinkRow, now: Timestamp) -> bool {
    row.paused.is_none() && keep_still(row, now, Mode::Usual).is_none() && !lease::is_held(row, now)
}
