//! The store as a command finds it: open, and with every session ended that vanished since the last one looked.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::forward::{self, Leftovers, Sinks};
use crate::home::Home;
use crate::launch::{Origin, enclosing_run, settings};
use crate::log;
use crate::store::{self, Store};
use crate::track;
use system::clock::{Clock, SystemClock};

/// Longer than a START takes on a loaded machine; a run of another home is not waited for longer.
const BESIDE_THE_START: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);

/// Made if there is none.
pub(super) fn open(home: &Home) -> anyhow::Result<Store> {
    let config = settings(Some(home), &Origin::of_this_process());
    // A log that cannot be written is done without.
    let _ = log::start(home, Some(&config.log_level));
    let mut store = Store::open(home, SystemClock.now())?;
    await_own_run(&mut store)?;
    recover(&mut store, home);
    if let Some(sinks) = Sinks::of(home, &config.delivery) {
        send_leftovers(&mut store, &sinks);
    }
    Ok(store)
}

/// What an earlier run or command could not send is sent beside this one, by a detached process.
pub(super) fn send_leftovers(store: &mut Store, sinks: &Sinks) {
    match Leftovers::look(store, sinks) {
        Ok(Leftovers::Some) => forward::leave_rest(&sinks.home),
        Ok(Leftovers::None) => {}
        Err(error) => tracing::warn!("not looked for what is to be sent: {error}"),
    }
}

/// A session is stored beside its agent's start. Whoever asks from inside the agent within the first milliseconds is not
/// to hear that there is none.
fn await_own_run(store: &mut Store) -> Result<(), store::Error> {
    let Some(run) = enclosing_run(&Origin::of_this_process()) else { return Ok(()) };
    let deadline = Instant::now() + BESIDE_THE_START;
    while store.read(|view| view.run(run))?.is_none() && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Ends what vanished. What cannot be recovered now is recovered by a later command; this one can still answer.
pub(super) fn recover(store: &mut Store, home: &Home) {
    if let Err(error) = track::recover(store, home) {
        tracing::warn!("not recovered: {error}");
    }
}

/// For a question that an absent store answers as well: none is made for it.
pub(super) fn open_existing(home: &Home) -> anyhow::Result<Option<Store>> {
    let folder = home.path();
    if folder.exists() && !folder.is_dir() {
        bail!("{} is not a folder; set CODEMIE_HOME to one", folder.display());
    }
    if home.may_have_database() || enclosing_run(&Origin::of_this_process()).is_some() {
        open(home).map(Some)
    } else {
        Ok(None)
    }
}
