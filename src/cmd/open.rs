//! The store as a command finds it: open, and with every session ended that vanished since the last one looked.

use crate::agent::{self, Agent};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::home::Home;
use crate::log;
use crate::store::Store;
use crate::track;

/// Made if there is none.
pub(super) fn open(home: &Home) -> anyhow::Result<Store> {
    let config =
        Config::load(Some(&home.config_file()), |name| std::env::var_os(name), &agent::ALL.map(Agent::name));
    // A log that cannot be written is done without.
    let _ = log::start(home, Some(&config.log_level));
    let mut store = Store::open(home, SystemClock.now())?;
    recover(&mut store, home);
    Ok(store)
}

/// Ends what vanished. What cannot be recovered now is recovered by a later command; this one can still answer.
pub(super) fn recover(store: &mut Store, home: &Home) {
    if let Err(error) = track::recover(store, home) {
        tracing::warn!("not recovered: {error}");
    }
}

/// For a question that an absent store answers as well: none is made for it.
pub(super) fn open_existing(home: &Home) -> anyhow::Result<Option<Store>> {
    if home.database().exists() { open(home).map(Some) } else { Ok(None) }
}
