//! A local store's events in a backend of their own, so that one set of queries and pages serves both.
//!
//! The mirror is a file beside the store and can be rebuilt at any time. New events are copied when a page is looked at. If
//! the mirror no longer fits the store (sessions were pruned, the store was replaced, a newer codemie made the file, it is
//! damaged), it is rebuilt from the first event on. To copy an event twice is harmless, as it is for any receiver, so the
//! mark of how far copying got may lag behind.
//!
//! [`history`] is a second mirror, in which the conversations that never ran through codemie are beside the sessions.

pub mod history;
pub mod titles;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use backend::sqlite::Sqlite;
use backend::storage::Storage;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use reader::Reader;
use reader::token::Owner;
use scan;
use store::{self, Outgoing, Store};
use types::Event;
use types::event::Field;

/// Events copied in one transaction.
const BATCH: usize = 5000;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the store: {0}")]
    Store(#[from] store::Error),
    #[error("the copy for the dashboard: {0}")]
    Storage(#[from] reader::Error),
    #[error("the copy for the dashboard: {0}")]
    Mark(#[from] rusqlite::Error),
    #[error(transparent)]
    Scan(scan::Error),
    #[error("the copy for the dashboard, {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl Error {
    /// Whether the mirror itself cannot be used. Errors of the store are none of the mirror's, and one that is only busy or
    /// full may be in use by another dashboard.
    fn is_of_the_mirror(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull};
        match self {
            Self::Store(_)
            | Self::Scan(_)
            | Self::Storage(
                reader::Error::Unavailable(_) | reader::Error::Full(_) | reader::Error::ReadOnly(_),
            ) => false,
            Self::Mark(error) => {
                !matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | DiskFull))
            }
            Self::Storage(_) | Self::File { .. } => true,
        }
    }
}

/// How far a store has been copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Which file the store is: a new store is another file.
    database: String,
    /// The last change that was copied.
    change: i64,
    /// The last of the events that are kept back.
    kept_back: i64,
}

/// This user's store as a backend that the dashboard reads.
#[derive(Debug)]
pub struct LocalMirror {
    home: Home,
    /// Sessions in the mirror that are not of the store.
    beside: i64,
    store: Store,
    storage: Arc<Sqlite>,
    /// The same file, for the mark.
    marks: Connection,
    mark: Mark,
    /// The store's version at the last look.
    seen: Option<i64>,
    /// The numbers of sessions in the store and in the mirror, if they differ even after a rebuild.
    differing: Option<(i64, i64)>,
}

impl LocalMirror {
    /// Opens the mirror and brings it up to date; it is rebuilt if it cannot be used.
    pub async fn open(home: &Home) -> Result<Self, Error> {
        Self::open_at(home, &home.dashboard_database()).await
    }

    async fn open_at(home: &Home, path: &Path) -> Result<Self, Error> {
        match Self::try_open(home, path).await {
            Err(error) if error.is_of_the_mirror() => {
                tracing::warn!(%error, "the dashboard's copy is made again");
                remove(path)?;
                Self::try_open(home, path).await
            }
            opened => opened,
        }
    }

    async fn try_open(home: &Home, path: &Path) -> Result<Self, Error> {
        let store = Store::open(home, SystemClock.now())?;
        let storage = Arc::new(Sqlite::open(path)?);
        let marks = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        marks.busy_timeout(std::time::Duration::from_secs(10))?;
        marks.execute_batch(
            "CREATE TABLE IF NOT EXISTS copy (
               one INTEGER PRIMARY KEY CHECK (one = 1), database TEXT NOT NULL, change INTEGER NOT NULL,
               kept_back INTEGER NOT NULL) STRICT;
             CREATE TABLE IF NOT EXISTS beside (
               session TEXT PRIMARY KEY, calls INTEGER NOT NULL, tokens INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        )?;
        let beside = marks.query_row("SELECT count(*) FROM beside", [], |row| row.get(0))?;
        let mark = marks
            .query_row("SELECT database, change, kept_back FROM copy", [], |row| {
                Ok(Mark { database: row.get(0)?, change: row.get(1)?, kept_back: row.get(2)? })
            })
            .optional()?
            .unwrap_or_default();
        let home = home.clone();
        let mut mirror = Self { home, beside, store, storage, marks, mark, seen: None, differing: None };
        mirror.catch_up().await?;
        Ok(mirror)
    }

    pub fn storage(&self) -> Arc<Sqlite> {
        self.storage.clone()
    }

    /// Copies new events and returns how many there were. Costs a look at a counter if there are none.
    pub async fn catch_up(&mut self) -> Result<usize, Error> {
        let version = self.store.version()?;
        if self.seen == Some(version) {
            return Ok(0);
        }
        let database = identity(&self.home.database());
        let (last, in_store) = self
            .store
            .read(|view| Ok::<_, store::Error>((view.last_change()?, view.sessions_with_events()?)))?;
        if self.mark.database != database || self.mark.change > last {
            self.start_over(database)?;
        }
        let mut copied = self.copy_up_to(last).await?;
        let numbers = (in_store, self.storage.health(0).await?.sessions - self.beside);
        if numbers.0 != numbers.1 && self.differing != Some(numbers) {
            // Events that are kept back are copied up to now, so numbers of a moment ago prove nothing.
            if self.store.version()? != version {
                return Ok(copied);
            }
            tracing::info!(there = numbers.0, here = numbers.1, "the dashboard's copy is made again");
            let database = std::mem::take(&mut self.mark.database);
            self.start_over(database)?;
            copied = self.copy_up_to(last).await?;
            let now = (numbers.0, self.storage.health(0).await?.sessions - self.beside);
            self.differing = (now.0 != now.1).then_some(now);
        }
        self.seen = Some(version);
        Ok(copied)
    }

    /// Copies the events up to a change, and those that are kept back.
    async fn copy_up_to(&mut self, last: i64) -> Result<usize, Error> {
        let (begun_at, mut copied) = (self.mark.change, 0);
        loop {
            let after = self.mark.change;
            let batch = self.store.read(|view| view.changed(after, last, BATCH))?;
            let Some(change) = batch.iter().filter_map(|event| event.change).max() else { break };
            copied += batch.len();
            self.ingest(batch).await?;
            self.mark.change = change;
            self.save()?;
        }
        // A revision of an event that is kept back takes a number that no event has.
        let unseen = i64::try_from(copied).unwrap_or(i64::MAX) < last - begun_at;
        self.mark.change = last;
        loop {
            let after = self.mark.kept_back;
            let batch = self.store.read(|view| view.kept_back(after, BATCH))?;
            let Some(n) = batch.iter().map(|event| event.n).max() else { break };
            copied += batch.len();
            self.ingest(batch).await?;
            self.mark.kept_back = n;
            self.save()?;
        }
        if unseen {
            let mut revised = self.store.read(|view| view.kept_back_revised())?;
            while !revised.is_empty() {
                let more = revised.split_off(revised.len().min(BATCH));
                self.ingest(std::mem::replace(&mut revised, more)).await?;
            }
        }
        self.save()?;
        Ok(copied)
    }

    /// Stores events in the form in which they are sent, but without the names of machine and user.
    async fn ingest(&self, batch: Vec<Outgoing>) -> Result<(), Error> {
        let acceptable = |event: &Event| {
            let acceptable = event.attributes.is_acceptable();
            if !acceptable {
                tracing::warn!(id = %event.id, "an event cannot be shown");
            }
            acceptable
        };
        let events = batch.into_iter().map(|outgoing| outgoing.event).filter(acceptable).collect();
        let outcome = self.storage.ingest(&Owner::default(), events, SystemClock.now()).await?;
        for rejected in outcome.rejected {
            tracing::warn!(id = rejected.id, reason = rejected.error, "an event cannot be shown");
        }
        Ok(())
    }

    fn save(&self) -> Result<(), Error> {
        let Mark { database, change, kept_back } = &self.mark;
        let sql = "INSERT OR REPLACE INTO copy (one, database, change, kept_back) VALUES (1, ?1, ?2, ?3)";
        self.marks.execute(sql, params![database, change, kept_back])?;
        Ok(())
    }

    /// Removes all events in one transaction: readers of the pages see all of them or none.
    fn start_over(&mut self, database: String) -> Result<(), Error> {
        let forget = format!("BEGIN IMMEDIATE; {} DELETE FROM beside; COMMIT", Sqlite::FORGET_EVENTS);
        self.marks.execute_batch(&forget)?;
        self.beside = 0;
        self.mark = Mark { database, ..Mark::default() };
        self.save()
    }
}

fn identity(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| String::new(), |meta| format!("{}:{}", meta.dev(), meta.ino()))
}

fn remove(path: &Path) -> Result<(), Error> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(&name) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::File { path: name.into(), source });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reader::{Page, Session, SessionFilter};
    use store::session::lifecycle::{self, ConversationStart, RunStart, Transition};
    use store::session::prune::prune;
    use store::session::state::{Ending, Exit};
    use store::session::testing::{World, binding};
    use types::SessionId;
    use types::Status;
    use types::TransitionKind;

    async fn shown(mirror: &LocalMirror) -> Vec<Session> {
        mirror.storage().sessions(SessionFilter::default(), Page::first(100)).await.unwrap().sessions
    }

    async fn names(mirror: &LocalMirror) -> Vec<String> {
        shown(mirror).await.iter().map(|session| session.name().to_owned()).collect()
    }

    fn end(world: &mut World, run: types::RunId) {
        let at = world.wait(1000);
        world.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
    }

    fn name(world: &mut World, id: SessionId) -> String {
        world.session(id).name
    }

    #[tokio::test]
    async fn events_are_copied_once_and_revisions_replace_them() {
        let mut world = World::new();
        let (run, started) = world.start(ConversationStart::Fresh);
        let mut mirror = LocalMirror::open(&world.home).await.unwrap();
        assert_eq!(shown(&mirror).await[0].status(), Status::Active);
        assert_eq!(mirror.catch_up().await.unwrap(), 0, "nothing new");
        let at = world.wait(500);
        let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("b")), workspace: None };
        world.bind(started.session, "a").unwrap();
        world.store.write(|tx| lifecycle::transition(tx, at, &world.ids, run, &change)).unwrap();
        assert!(mirror.catch_up().await.unwrap() >= 3);
        let chain = mirror.storage().session(&started.session.to_string()).await.unwrap().unwrap().chain;
        assert_eq!(chain.len(), 2, "the chain is there");
        assert!(chain[0].complete() && chain[1].status() == Status::Active);
        end(&mut world, run);
        mirror.catch_up().await.unwrap();
        let all = shown(&mirror).await;
        assert!(all.iter().all(Session::complete), "{all:?}");
    }

    #[tokio::test]
    async fn events_that_a_newer_codemie_has_added_count_as_received() {
        let mut world = World::new();
        let (run, started) = world.start(ConversationStart::Fresh);
        world.bind(started.session, "a").unwrap();
        end(&mut world, run);
        let newer = Connection::open(world.home.database()).unwrap();
        let sql = "UPDATE event SET type = 'forecast', attributes = '{\"window\":\"5h\"}' WHERE type = 'session.bound'";
        assert_eq!(newer.execute(sql, []).unwrap(), 1);
        let mirror = LocalMirror::open(&world.home).await.unwrap();
        assert!(shown(&mirror).await[0].complete(), "no seq is missing");
    }

    #[tokio::test]
    async fn the_demo_is_shown_though_it_is_never_sent() {
        let mut world = World::new();
        let begin =
            RunStart { agent: "demo".into(), local_only: true, ..world.begin(ConversationStart::Fresh) };
        world.start_as(&begin);
        let mirror = LocalMirror::open(&world.home).await.unwrap();
        assert_eq!(shown(&mirror).await[0].life.agent, "demo");
    }

    #[tokio::test]
    async fn pruned_sessions_leave_the_mirror() {
        let mut world = World::new();
        let (old, first) = world.start(ConversationStart::Fresh);
        end(&mut world, old);
        let before = world.wait(1000);
        let (_, second) = world.start(ConversationStart::Fresh);
        let mut mirror = LocalMirror::open(&world.home).await.unwrap();
        assert_eq!(names(&mirror).await.len(), 2);
        assert_eq!(prune(&mut world.store, &world.home, before, None, false).unwrap().len(), 1);
        mirror.catch_up().await.unwrap();
        let left = name(&mut world, second.session);
        assert_eq!(names(&mirror).await, std::slice::from_ref(&left), "{} is gone", first.session);
        drop(mirror);
        let mirror = LocalMirror::open(&world.home).await.unwrap();
        assert_eq!(names(&mirror).await, [left]);
    }

    #[tokio::test]
    async fn a_mirror_that_cannot_be_used_is_rebuilt() {
        let mut world = World::new();
        let (_, started) = world.start(ConversationStart::Fresh);
        let path = world.home.dashboard_database();
        let expected = name(&mut world, started.session);
        let damage: [&dyn Fn(); 3] = [
            &|| fs::write(&path, b"this is no database, but long enough to be looked at as one").unwrap(),
            &|| {
                let newer = Connection::open(&path).unwrap();
                newer.pragma_update(None, "user_version", 9999).unwrap();
            },
            &|| {
                let foreign = Connection::open(&path).unwrap();
                foreign.execute_batch("UPDATE copy SET database = 'another', change = 5000").unwrap();
            },
        ];
        for (n, damage) in damage.iter().enumerate() {
            drop(LocalMirror::open(&world.home).await.unwrap());
            damage();
            let mirror = LocalMirror::open(&world.home).await.unwrap();
            assert_eq!(names(&mirror).await, std::slice::from_ref(&expected), "damage {n}");
        }
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
