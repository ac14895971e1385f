//! The store as commands read it: open, and with every session ended that vanished since the last command.

use std::time::{Duration, Instant};

use anyhow::bail;

use delivery::{self, Sinks};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use os::log;
use runtime::launch::{Origin, named_run, settings};
use runtime::track;
use store::{self, Store, View};

/// Longer than a START takes on a loaded machine (more than 0.5 s was seen with six busy processes on two cores); a run of another
/// home is not waited for longer.
const START_TIMEOUT: Duration = Duration::from_secs(2);
const START_POLL: Duration = Duration::from_millis(5);

/// An open store and the upkeep that goes with answering questions from it. A command catches up once; a caller that stays
/// opens it once and catches up when it is due.
#[derive(Debug)]
pub struct OpenStore {
    store: Store,
    home: Home,
    /// Where events are sent; `None`: nowhere.
    sinks: Option<Sinks>,
    caught_up: Option<Instant>,
}

impl OpenStore {
    /// Makes the store if there is none, and starts the log. A run that `origin` lies in is in it by then.
    pub fn open(home: &Home, origin: &Origin) -> anyhow::Result<Self> {
        let config = settings(Some(home), origin);
        // A log that cannot be written is done without.
        let _ = log::start(home, Some(&config.log_level));
        let mut store = Store::open(home, SystemClock.now())?;
        await_own_run(&mut store, origin)?;
        let sinks = Sinks::of(home, &config.delivery);
        Ok(Self { store, home: home.clone(), sinks, caught_up: None })
    }

    /// Ends sessions that vanished, and has a detached process send pending events. Another process that keeps the store locked
    /// is not waited for: what is not done now is done by a later command.
    pub fn catch_up(&mut self) {
        self.store.in_a_hurry(|store| recover(store, &self.home));
        if let Some(sinks) = &self.sinks {
            send_leftovers(&mut self.store, sinks);
        }
        self.caught_up = Some(Instant::now());
    }

    /// The same, unless the last time is less than `interval` ago.
    pub fn catch_up_every(&mut self, interval: Duration) {
        if self.caught_up.is_none_or(|last| last.elapsed() >= interval) {
            self.catch_up();
        }
    }

    /// One look at the store.
    pub fn read<T, E: From<store::Error>>(
        &mut self,
        work: impl FnOnce(&View<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.store.read(work)
    }

    /// For writes of the caller's own.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    pub fn into_store(self) -> Store {
        self.store
    }
}

/// The store for one command, caught up; made if there is none.
pub fn open(home: &Home) -> anyhow::Result<Store> {
    let mut opened = OpenStore::open(home, &Origin::of_this_process())?;
    opened.catch_up();
    Ok(opened.into_store())
}

/// The store for one command, or `None` if there is none: for commands that need not make one.
pub fn open_existing(home: &Home) -> anyhow::Result<Option<Store>> {
    let folder = home.path();
    if folder.exists() && !folder.is_dir() {
        bail!("{} is not a folder; set CODEMIE_HOME to one", folder.display());
    }
    let inside_a_run = || named_run(&Origin::of_this_process()).is_some();
    if home.may_have_database() || inside_a_run() { open(home).map(Some) } else { Ok(None) }
}

/// Has a detached process send what an earlier run or command could not.
pub fn send_leftovers(store: &mut Store, sinks: &Sinks) {
    match delivery::needs_delivery(store, sinks) {
        Ok(true) => delivery::spawn_delivery(&sinks.home),
        Ok(false) => {}
        Err(error) => tracing::warn!("not looked for events to be sent: {error}"),
    }
}

/// Ends sessions that vanished. What cannot be recovered now is recovered by a later command; this one can still answer.
pub fn recover(store: &mut Store, home: &Home) {
    if let Err(error) = track::recover(store, home) {
        tracing::warn!("not recovered: {error}");
    }
}

/// A session is stored beside its agent's start. A question from inside the agent within the first milliseconds must not be
/// answered with "no such session".
fn await_own_run(store: &mut Store, origin: &Origin) -> Result<(), store::Error> {
    let Some(run) = named_run(origin) else { return Ok(()) };
    let deadline = Instant::now() + START_TIMEOUT;
    while store.read(|view| view.run(run))?.is_none() && Instant::now() < deadline {
        std::thread::sleep(START_POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store with a session whose run has vanished, locked by another process.
    #[test]
    fn a_locked_store_is_read_without_waiting_for_its_writer() {
        use store::session::lifecycle::ConversationStart;
        use store::session::testing::World;
        let mut world = World::new();
        let (_, vanished) = world.start(ConversationStart::Fresh);
        let writer = world.another();
        writer.sql().execute_batch("BEGIN IMMEDIATE").unwrap();
        let origin = Origin::given([], world.home.path().to_owned());
        let mut opened = OpenStore::open(&world.home, &origin).unwrap();
        opened.catch_up();
        let waited = opened.store.waited();
        assert!(waited > Duration::ZERO, "there was something to write");
        assert!(waited < Duration::from_secs(1), "{waited:?}");
        let active = |opened: &mut OpenStore| {
            opened.read(|view| view.session(vanished.session)).unwrap().unwrap().is_active()
        };
        assert!(active(&mut opened), "it can be read, as it was");
        writer.sql().execute_batch("ROLLBACK").unwrap();
        opened.catch_up();
        assert!(!active(&mut opened), "ended by the next command");
    }

    #[test]
    fn a_caller_that_stays_catches_up_when_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Origin::given([], folder.path().to_owned());
        let mut opened = OpenStore::open(&Home::at(folder.path()), &origin).unwrap();
        assert!(opened.caught_up.is_none(), "opening alone ends nothing");
        opened.catch_up_every(Duration::from_hours(1));
        let first = opened.caught_up.expect("the first time is always due");
        opened.catch_up_every(Duration::from_hours(1));
        assert_eq!(opened.caught_up, Some(first));
        opened.catch_up_every(Duration::ZERO);
        assert_ne!(opened.caught_up, Some(first));
        assert_eq!(opened.read(|view| view.list(&store::SessionQuery::default())).unwrap().len(), 0);
    }
}
