//! The detached process: sends the pending events that a run or a command could not wait for. Whichever codemie command comes
//! next starts one again if events are pending and nobody is sending ([`needs_delivery`]).
//!
//! Promise: there is one such process per receiver at a time, however many runs end, and a receiver that is away keeps nobody
//! from the others.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::configured::Sinks;
use super::configured::register;
use super::drain::{Drain, is_unattended};
use super::sender::Pace;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pty::process;
use store::{Error, SinkRow, Store};

/// How long the process tries. Long enough for a receiver that restarts; one that is away for longer is left to the next
/// command.
const DETACHED_TIMEOUT: Duration = Duration::from_mins(1);

/// The hidden command that the process runs.
pub const COMMAND: &str = "deliver";

/// Whether events are pending that could be sent now and that nobody is sending. Also makes the configured receivers known
/// to the store. Costs a few queries.
pub fn needs_delivery(store: &mut Store, sinks: &Sinks) -> Result<bool, Error> {
    let now = SystemClock.now();
    let targets = sinks.targets();
    let is_configured =
        |row: &SinkRow| targets.iter().any(|to| to.name == row.name && row.leads_to(&to.fingerprint));
    let known = store.read(|view| view.sinks())?;
    if known.iter().filter(|row| is_configured(row)).count() < targets.len() {
        store.write(|tx| register(tx, &targets))?;
    }
    store.read(|view| {
        for row in view.sinks()? {
            if is_configured(&row) && is_unattended(&row, now) && view.something_waits(&row)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// Starts the process.
pub fn spawn_delivery(home: &Home) {
    if let Err(error) = process::start(home, [COMMAND]) {
        tracing::warn!("pending events wait for the next command: {error}");
    }
}

/// The process itself: sends until nothing is pending, no receiver can be reached, or the time is up.
pub fn deliver_pending(sinks: &Sinks) -> Result<(), Error> {
    let deadline = Instant::now() + DETACHED_TIMEOUT;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("nothing is sent: {error}");
            return Ok(());
        }
    };
    let drains = Drain::open_all(sinks, Pace::Background)?;
    runtime.block_on(join_all(drains.into_iter().map(|drain| serve(drain, &sinks.home, deadline))));
    Ok(())
}

/// Sends to one receiver, unless another detached process does so already.
async fn serve(mut drain: Drain, home: &Home, deadline: Instant) {
    let name = drain.name();
    loop {
        let Some(alone) = process::lock(home, &format!("deliver-{name}")) else { return };
        let wanted = match send_until(&mut drain, deadline).await {
            Ok(()) => {
                drop(alone);
                // A process that found us at work has ended, and relies on us to send its events.
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

/// Sends until nothing is pending or what is pending cannot be sent before the deadline.
async fn send_until(drain: &mut Drain, deadline: Instant) -> Result<(), Error> {
    loop {
        let Some(until) = drain.run(&SystemClock).await?.until() else { return Ok(()) };
        let wake = Instant::now() + until.since(SystemClock.now());
        if wake > deadline {
            return Ok(());
        }
        tokio::time::sleep_until(wake.into()).await;
    }
}
