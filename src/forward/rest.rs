//! What a run or a command leaves unsent: a process apart from everything finishes it, and whichever codemie command
//! comes next starts one again if need be.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::backoff;
use super::drain::{Drain, Mode, Step};
use super::sink::{Sinks, settle};
use crate::clock::{Clock, SystemClock};
use crate::home::Home;
use crate::store::{Error, Store};
use crate::terminal;

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
        let known = |row: &crate::store::SinkRow| {
            targets
                .iter()
                .any(|target| target.name == row.name && row.target.as_ref() == Some(&target.fingerprint))
        };
        let rows = store.read(|view| view.sinks())?;
        if rows.iter().filter(|row| known(row)).count() < targets.len() {
            store.write(|tx| settle(tx, &targets))?;
        }
        store.read(|view| {
            for row in view.sinks()? {
                let still = !backoff::left(row.retry_at, now, backoff::LONGEST).is_zero();
                let held = row.lease_until.is_some_and(|until| until > now);
                let ours = targets.iter().any(|target| target.name == row.name);
                if ours && row.paused.is_none() && !still && !held && view.something_waits(&row)? {
                    return Ok(Self::Some);
                }
            }
            Ok(Self::None)
        })
    }
}

/// Starts the process apart.
pub fn leave_rest(home: &Home) {
    if let Err(error) = start(home) {
        tracing::warn!("what is left waits for the next command: {error}");
    }
}

fn start(home: &Home) -> io::Result<()> {
    // Its folder is the root, so a relative home would be another.
    let home = std::path::absolute(home.path())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).env("CODEMIE_HOME", home);
    terminal::spawn_apart(&mut command)
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
    runtime.block_on(join_all(drains.into_iter().map(|drain| finish(drain, deadline))));
    Ok(())
}

async fn finish(mut drain: Drain, deadline: Instant) {
    loop {
        let until = match drain.run(&SystemClock).await {
            Ok(Step::Moved(_)) => continue,
            Ok(Step::Empty { due: Some(until) } | Step::Waits { until, .. } | Step::Held { until }) => until,
            Ok(Step::Empty { due: None } | Step::Paused(_)) => return,
            Err(error) => {
                tracing::warn!(sink = drain.name(), "nothing is sent: {error}");
                return;
            }
        };
        let wake = Instant::now() + until.since(SystemClock.now());
        if wake > deadline {
            return;
        }
        tokio::time::sleep_until(wake.into()).await;
    }
}
