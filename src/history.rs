//! The history of this machine for the local dashboard: a thread that scans when a page asks, and not again before [`FRESH`].
//!
//! Promises: nobody waits for it longer than [`PATIENCE`]. A page gets what is known, and says so while more is being read.

pub mod titles;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agents::registry;
use dashboard::{History, HistoryState};
use os::clock::{Clock, SystemClock};
use os::home::own_var;
use reader::Reader;
use report::read_model::{HistoryError, HistoryScan, LocalReader};
use runtime::launch::Origin;

use titles::UnwrappedTitles;

/// How long what was read is good. An unchanged tree is looked through in some milliseconds; this is for pages that are asked
/// for one after the other.
const FRESH: Duration = Duration::from_secs(5);

/// A page waits so long for the newest calls, before it shows what is known. Why 400 ms: an unchanged tree needs ten, and a
/// page that takes longer feels slow.
const PATIENCE: Duration = Duration::from_millis(400);

/// The history of this machine, read by a thread of its own.
#[derive(Debug)]
pub struct HistoryFeed {
    progress: Mutex<ReadingProgress>,
    changed: Condvar,
    titles: UnwrappedTitles,
}

#[derive(Debug)]
struct ReadingProgress {
    reader: Option<LocalReader>,
    state: HistoryState,
    wanted: bool,
    read_at: Option<Instant>,
}

impl HistoryFeed {
    /// Starts the thread; it does nothing until somebody asks.
    pub fn start(scan: HistoryScan) -> std::io::Result<Arc<Self>> {
        let progress =
            ReadingProgress { reader: None, state: HistoryState::Reading, wanted: false, read_at: None };
        let titles = UnwrappedTitles::default();
        let feed = Arc::new(Self { progress: Mutex::new(progress), changed: Condvar::new(), titles });
        let thread = std::thread::Builder::new().name("history".to_owned());
        let of_thread = feed.clone();
        thread.spawn(move || of_thread.read(scan))?;
        Ok(feed)
    }

    /// What is known, after a moment for what is new.
    pub fn ask(&self) -> History {
        let mut progress = self.locked();
        if !progress.wanted && progress.read_at.is_none_or(|at| at.elapsed() >= FRESH) {
            (progress.wanted, progress.state) = (true, HistoryState::Reading);
            self.changed.notify_all();
        }
        let waited = self.changed.wait_timeout_while(progress, PATIENCE, |progress| progress.wanted);
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let reader = progress.reader.clone().map(|reader| Arc::new(reader) as Arc<dyn Reader>);
        History { reader, state: progress.state.clone() }
    }

    /// The titles of its conversations that never ran through codemie, as of the last reading.
    pub fn titles(&self) -> &UnwrappedTitles {
        &self.titles
    }

    fn locked(&self) -> MutexGuard<'_, ReadingProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, mut scan: HistoryScan) {
        loop {
            let waited = self.changed.wait_while(self.locked(), |progress| !progress.wanted);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let outcome = scan.read(&own_var);
            // The numbers can be shown before the titles are read.
            self.locked().take(outcome);
            self.titles.refresh(registry::AGENTS, &Origin::of_this_process(), SystemClock.now());
            let mut progress = self.locked();
            (progress.wanted, progress.read_at) = (false, Some(Instant::now()));
            self.changed.notify_all();
        }
    }
}

impl ReadingProgress {
    fn take(&mut self, outcome: Result<LocalReader, HistoryError>) {
        match outcome {
            Ok(reader) => (self.reader, self.state) = (Some(reader), HistoryState::UpToDate),
            Err(error) => {
                tracing::warn!(%error, "the history is not up to date");
                self.state = HistoryState::Failed(error.to_string());
            }
        }
    }
}
