//! The read model of this machine, for its dashboard: a [`Reader`] over the local store.
//!
//! ```text
//! entry      a session: its life from its events, and what its records count for
//! index      all of them in memory, and the sums over them by quarter of an hour
//! list       which sessions, in which order
//! detail     one session: its events and tools are read when they are asked for
//! history    beside the store's sessions, the conversations that never ran through codemie
//! ```
//!
//! Nothing is copied to a file. The first answer reads the store once; then each look reads the sessions that have new or revised
//! events, whole, and forgets those that were pruned. `docs/design/19-dashboard.md` has the measurements behind that.
//!
//! Promises: an answer is of one moment of the store. Numbers are those of records, added up once. A reader keeps no writer waiting.

mod detail;
mod entry;
mod history;
mod index;
mod list;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use os::clock::{Clock, SystemClock};
use reader::{
    ActivityBucket, Answer, By, Counted, Error, Facets, Health, HourRow, Origin, Page, Reader, SeriesRow,
    Session, SessionDetail, SessionFilter, SessionPage, SpendingRow, TimelinePage, TimelinePosition, Touched,
    UsageFilter, UsagePage,
};
use scan::ForeignSessions;
use store::{EventMark, Store, Whose};
use tokio::sync::{Semaphore, broadcast};
use types::{EventKind, Timestamp};

use detail::Sources;
use entry::{ModelNames, read_entries};
use index::Index;

pub use history::{HistoryError, HistoryScan};

/// Changes that a live page may lag behind before it misses some.
const FEED: usize = 256;

/// Answers that are worked on at once; others wait. Each takes memory for a moment, which the allocator keeps by thread: with the nine
/// of an overview side by side a dashboard of 10,000 sessions grew from 68 to 198 MB, with four to 141.
const AT_ONCE: usize = 4;

/// Where more than one in so many of the sessions have changed, as after a backfill or an import, all are read in passing: one that is
/// looked up by itself costs as much as some of those.
const ONE_IN: usize = 4;

/// The store's sessions in memory, shared by all that answer from them.
pub struct LocalSessions {
    follower: Mutex<Follower>,
    /// `None` until they have been read once.
    index: RwLock<Option<Arc<Index>>>,
    /// For what is asked of single sessions.
    store: Mutex<Store>,
    feed: broadcast::Sender<Arc<[Touched]>>,
    turns: Arc<Semaphore>,
}

impl fmt::Debug for LocalSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSessions").finish_non_exhaustive()
    }
}

/// How far the store has been read.
#[derive(Debug)]
struct Follower {
    store: Store,
    models: ModelNames,
    mark: EventMark,
    /// The store's version at the last look.
    seen: Option<i64>,
    /// Sessions of the store that have no events.
    silent: i64,
}

/// What one look found.
struct Found {
    mark: EventMark,
    entries: Vec<entry::Entry>,
    /// The sessions with new events, each with its latest.
    changed: Vec<(i64, EventKind)>,
    sessions: i64,
}

impl LocalSessions {
    /// Two connections to one store: one to follow it, one for what is asked of single sessions.
    pub fn new(follower: Store, details: Store) -> Arc<Self> {
        let follower = Follower {
            store: follower,
            models: ModelNames::default(),
            mark: EventMark::default(),
            seen: None,
            silent: 0,
        };
        Arc::new(Self {
            follower: Mutex::new(follower),
            index: RwLock::default(),
            store: Mutex::new(details),
            feed: broadcast::Sender::new(FEED),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        })
    }

    /// The sessions of the store alone.
    pub fn reader(self: &Arc<Self>) -> LocalReader {
        LocalReader { sessions: self.clone(), history: None }
    }

    /// Reads what is new in the store, and returns how many sessions were read. Costs a look at a counter if nothing is.
    pub fn catch_up(&self) -> Result<usize, store::Error> {
        self.bring_up_to_date(&mut self.follower())
    }

    fn bring_up_to_date(&self, follower: &mut Follower) -> Result<usize, store::Error> {
        let version = follower.store.version()?;
        if follower.seen == Some(version) {
            return Ok(0);
        }
        let begun = self.known().is_some();
        let at = SystemClock.now();
        let Follower { store, models, mark, .. } = &mut *follower;
        let found = store.read(|view| {
            let sessions = view.session_count()?;
            let now = view.event_mark()?;
            if !begun {
                let entries = read_entries(view, Whose::All, models, at)?;
                return Ok::<_, store::Error>(Found { mark: now, entries, changed: Vec::new(), sessions });
            }
            let changed = view.changed_sessions(*mark)?;
            let mut entries = Vec::with_capacity(changed.len());
            if usize::try_from(sessions).is_ok_and(|all| changed.len().saturating_mul(ONE_IN) > all) {
                entries = read_entries(view, Whose::All, models, at)?;
                entries.retain(|entry| entry.number.is_some_and(|number| changed.contains_key(&number)));
            } else {
                for session in changed.keys() {
                    entries.extend(read_entries(view, Whose::Session(*session), models, at)?);
                }
            }
            Ok(Found { mark: now, entries, changed: changed.into_iter().collect(), sessions })
        })?;
        let read = found.entries.len();
        let known = self.change(|index| {
            for entry in found.entries {
                index.put(Arc::new(entry));
            }
            i64::try_from(index.len()).unwrap_or(i64::MAX)
        });
        follower.mark = found.mark;
        // Before anything else can fail: the changes up to the mark are not seen again.
        let index = self.known().unwrap_or_default();
        let touched = found.changed.into_iter().filter_map(|(number, kind)| {
            Some(Touched { session: index.id(number)?.to_string(), latest: kind.known()? })
        });
        let touched: Vec<Touched> = touched.collect();
        if !touched.is_empty() {
            let _ = self.feed.send(touched.into());
        }
        if found.sessions - known != follower.silent {
            let there = follower.store.read(|view| view.numbers_with_events())?;
            let there: HashSet<i64> = there.into_iter().collect();
            let left = self.change(|index| {
                let gone: Vec<i64> = index.numbers().filter(|number| !there.contains(number)).collect();
                for number in gone {
                    index.remove(number);
                }
                i64::try_from(index.len()).unwrap_or(i64::MAX)
            });
            follower.silent = found.sessions - left;
        }
        follower.seen = Some(version);
        Ok(read)
    }

    /// As of the last look; reads the store if there was none.
    fn current(&self) -> Result<Arc<Index>, store::Error> {
        if let Some(index) = self.known() {
            return Ok(index);
        }
        // Several pages may ask at once: one reads, the others wait for it.
        let mut follower = self.follower();
        if let Some(index) = self.known() {
            return Ok(index);
        }
        self.bring_up_to_date(&mut follower)?;
        Ok(self.known().unwrap_or_default())
    }

    /// Readers that have the index in hand keep it as it was.
    fn change<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(index.get_or_insert_default()))
    }

    fn known(&self) -> Option<Arc<Index>> {
        self.index.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn follower(&self) -> MutexGuard<'_, Follower> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers from what is known of this machine.
#[derive(Clone, Debug)]
pub struct LocalReader {
    sessions: Arc<LocalSessions>,
    /// With all other conversations of the machine, as of one moment.
    history: Option<Arc<Machine>>,
}

/// Everything on this machine at one moment. The store's sessions are of that moment, too: a call that has become one of theirs since
/// would count twice.
struct Machine {
    indexes: [Arc<Index>; 2],
    /// The calls of the second one's.
    foreign: Mutex<ForeignSessions>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

fn unavailable(error: impl fmt::Display) -> Error {
    Error::Unavailable(error.to_string())
}

impl LocalReader {
    /// Work for a thread that may take its time.
    fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&[Arc<Index>], &Sources<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let Self { sessions, history } = self.clone();
        Box::pin(async move {
            let turn = sessions.turns.clone().acquire_owned().await.map_err(unavailable)?;
            let task = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                let store = &sessions.store;
                if let Some(machine) = &history {
                    return work(&machine.indexes, &Sources { store, foreign: Some(&machine.foreign) });
                }
                let index = sessions.current().map_err(unavailable)?;
                work(&[index], &Sources { store, foreign: None })
            });
            task.await.map_err(|error| Error::Failed(error.to_string()))?
        })
    }
}

impl Reader for LocalReader {
    fn sessions(&self, filter: SessionFilter, page: Page) -> Answer<'_, SessionPage> {
        self.answer(move |indexes, _| Ok(list::sessions(indexes, filter, &page)))
    }

    fn count_sessions(&self, filter: SessionFilter, most: i64) -> Answer<'_, Counted> {
        self.answer(move |indexes, _| Ok(list::count(indexes, filter, most)))
    }

    fn chained(&self, ids: Vec<String>, reopened: Vec<String>) -> Answer<'_, Vec<String>> {
        self.answer(move |indexes, _| Ok(list::chained(indexes, ids, reopened)))
    }

    fn session(&self, id: &str) -> Answer<'_, Option<SessionDetail>> {
        let id = id.to_owned();
        self.answer(move |indexes, sources| detail::detail(indexes, sources, &id))
    }

    fn sessions_by_id(&self, ids: Vec<String>) -> Answer<'_, Vec<Session>> {
        self.answer(move |indexes, _| {
            let found = ids.iter().filter_map(|id| indexes.iter().find_map(|index| index.get(id)));
            Ok(found.map(|entry| entry.session.clone()).collect())
        })
    }

    fn timeline(&self, id: &str, after: TimelinePosition, limit: usize) -> Answer<'_, TimelinePage> {
        let id = id.to_owned();
        self.answer(move |indexes, sources| detail::timeline(indexes, sources, &id, after, limit))
    }

    fn activity(
        &self,
        id: &str,
        from: Timestamp,
        to: Timestamp,
        parts: usize,
    ) -> Answer<'_, Vec<ActivityBucket>> {
        let id = id.to_owned();
        self.answer(move |indexes, sources| detail::activity(indexes, sources, &id, (from, to), parts))
    }

    fn usage(&self, by: By, filter: UsageFilter, rows: Range<usize>) -> Answer<'_, UsagePage> {
        self.answer(move |indexes, _| Ok(index::usage(indexes, by, &filter, rows)))
    }

    fn series(&self, by: By, filter: UsageFilter) -> Answer<'_, Vec<SeriesRow>> {
        self.answer(move |indexes, _| Ok(index::series(indexes, by, &filter)))
    }

    fn hours(&self, filter: UsageFilter) -> Answer<'_, Vec<HourRow>> {
        self.answer(move |indexes, _| Ok(index::hours(indexes, &filter)))
    }

    fn spending(&self) -> Answer<'_, Vec<SpendingRow>> {
        self.answer(|indexes, _| Ok(index::spending(indexes)))
    }

    fn health(&self, limit: usize) -> Answer<'_, Health> {
        self.answer(move |indexes, _| Ok(health(indexes, limit)))
    }

    fn facets(&self) -> Answer<'_, Facets> {
        self.answer(|indexes, _| Ok(index::facets(indexes)))
    }

    fn live(&self) -> broadcast::Receiver<Arc<[Touched]>> {
        self.sessions.feed.subscribe()
    }
}

fn health(indexes: &[Arc<Index>], limit: usize) -> Health {
    let all = || indexes.iter().flat_map(|index| index.entries()).map(|entry| &entry.session);
    let mut gaps: Vec<&Session> = all().filter(|session| session.missing_count() > 0).collect();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let gap_count = count(gaps.len());
    // All of one look were received at once.
    gaps.sort_by(|one, two| (two.last_at, &two.id).cmp(&(one.last_at, &one.id)));
    // What is here came from here.
    let here = all().fold(None, |here: Option<Origin>, session| {
        let mut here = here.unwrap_or(Origin {
            machine: None,
            user: None,
            first_received_at: session.first_at,
            last_received_at: session.last_at,
            events: 0,
        });
        here.first_received_at = here.first_received_at.min(session.first_at);
        here.last_received_at = here.last_received_at.max(session.last_at);
        here.events += session.seqs.count();
        Some(here)
    });
    Health {
        gaps: gaps.into_iter().take(limit.min(Page::MOST)).cloned().collect(),
        gap_count,
        origins: here.into_iter().collect(),
        sessions: count(all().count()),
        active: count(all().filter(|session| session.status() == types::Status::Active).count()),
    }
}

#[cfg(test)]
mod tests;
