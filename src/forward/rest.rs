//! What a run or a command leaves unsent: a process apart from everything finishes it, and whichever codemie command
//! comes next starts one again if need be.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::fs::{FlockOperation, flock};

use super::drain::{Drain, Mode, Step, keep_still};
use super::lease;
use super::sink::{Sinks, Target, settle};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::home::{Home, create_private};
use crate::store::{Error, SinkRow, Store};
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
        let rows = store.read(|view| view.sinks())?;
        if rows.iter().filter(|row| leads_to(row, &targets)).count() < targets.len() {
            store.write(|tx| settle(tx, &targets))?;
        }
        store.read(|view| {
            for row in view.sinks()? {
                if leads_to(&row, &targets) && is_idle(&row, now) && view.something_waits(&row)? {
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

/// The process apart: sends until nothing is left, the receivers cannot be had, or the time is up. One at a time is enough
/// for a home, however many runs end while its receiver is away.
pub fn finish_rest(sinks: &Sinks) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let Some(alone) = alone(&sinks.home) else { return Ok(()) };
        send_rest(sinks, deadline)?;
        drop(alone);
        // Whoever came meanwhile went away again, and relies on this one.
        if Instant::now() >= deadline || !is_any_behind(sinks)? {
            return Ok(());
        }
    }
}

/// Whether something has come that can be sent now, and nobody sends. What is deferred is no reason to go on, nor are
/// receivers that were set up since with other addresses or credentials than this process knows.
fn is_any_behind(sinks: &Sinks) -> Result<bool, Error> {
    let (now, targets) = (SystemClock.now(), sinks.targets());
    Store::open(&sinks.home, now)?.read(|view| {
        for row in view.sinks()? {
            if leads_to(&row, &targets) && is_idle(&row, now) && view.is_behind(&row.name)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// Whether a sink leads where one of these does.
fn leads_to(row: &SinkRow, targets: &[Target]) -> bool {
    targets.iter().any(|target| target.name == row.name && row.target.as_ref() == Some(&target.fingerprint))
}

/// Whether it may be sent to now, and nobody does.
fn is_idle(row: &SinkRow, now: Timestamp) -> bool {
    row.paused.is_none() && keep_still(row, now, Mode::Usual).is_none() && !lease::is_held(row, now)
}

/// The right to be the process apart; `None` while another is.
fn alone(home: &Home) -> Option<File> {
    create_private(&home.run()).ok()?;
    let path = home.run().join("deliver.lock");
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

fn send_rest(sinks: &Sinks, deadline: Instant) -> Result<(), Error> {
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
            Ok(Step::Empty { due: None } | Step::Paused(_) | Step::Replaced) => return,
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
