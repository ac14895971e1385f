//! Everything on this machine for the local dashboard: the store's sessions, and beside them the conversations that never ran
//! through codemie, as the events that `sync --backfill --scan` would send.
//!
//! Promises: a call counts once. A scan leaves out calls that a session of the store owns; a conversation whose calls became a
//! session's since the last scan makes the whole mirror be built again. Nothing in it is ever sent: no sink reads this file.
//! It is rebuilt when it is damaged, newer, or does not fit the store, as any mirror. Nobody waits for it: a thread of its own
//! reads when a page asks, and not again before [`FRESH`].

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tokio::runtime::Handle;

use super::titles::UnwrappedTitles;
use super::{BATCH, Error, LocalMirror};
use agents::registry;
use backend::sqlite::Sqlite;
use config::prices::price_list;
use dashboard::{History, HistoryState};
use delivery::foreign::{life, session_id};
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use reader::Reader;
use runtime::launch::Origin;
use scan::{Days, ForeignSession, ForeignSessions, Scanner};

/// How long what was read is good. An unchanged tree is looked through in some milliseconds; this is for pages that are asked
/// for one after the other.
const FRESH: Duration = Duration::from_secs(5);

/// A page waits so long for the newest calls, before it shows what is known. Why 400 ms: an unchanged tree needs ten, and a
/// page that takes longer feels slow.
const PATIENCE: Duration = Duration::from_millis(400);

/// The mirror with everything.
#[derive(Debug)]
struct HistoryMirror {
    wrapped: LocalMirror,
    /// It was built again and still counted other calls than the files have: some cannot be shown, and no rebuild helps.
    differs: bool,
}

impl HistoryMirror {
    async fn open(home: &Home) -> Result<Self, Error> {
        let wrapped = LocalMirror::open_at(home, &home.history_database()).await?;
        Ok(Self { wrapped, differs: false })
    }

    fn storage(&self) -> Arc<Sqlite> {
        self.wrapped.storage()
    }

    /// Copies what is new in the store, then what is new in the agents' files.
    async fn catch_up(&mut self, var: &dyn Fn(&str) -> Option<OsString>) -> Result<(), Error> {
        // Before the scan: a call that becomes a session's in between is missing for a moment, never there twice.
        self.wrapped.catch_up().await?;
        let foreign = self.scan(var)?;
        if self.fold(foreign).await? {
            return Ok(());
        }
        tracing::info!("the history is made again: conversations are no longer what they were");
        let database = std::mem::take(&mut self.wrapped.mark.database);
        self.wrapped.start_over(database)?;
        self.wrapped.seen = None;
        self.wrapped.catch_up().await?;
        let foreign = self.scan(var)?;
        self.differs = !self.fold(foreign).await?;
        if self.differs {
            tracing::warn!("some calls of the history cannot be shown");
            let foreign = self.scan(var)?;
            self.fold(foreign).await?;
        }
        Ok(())
    }

    fn scan(&mut self, var: &dyn Fn(&str) -> Option<OsString>) -> Result<ForeignSessions, Error> {
        let prices = price_list(&self.wrapped.home.config_file());
        let scanner = Scanner {
            folder: self.wrapped.home.scans(),
            agents: registry::AGENTS,
            var,
            days: Days::of(os::zone::local()),
            prices: &prices,
            watch: None,
        };
        self.wrapped
            .store
            .read(|view| {
                let mut foreign = scanner.foreign(Some(view))?;
                // Calls that a session's conversation had before it was wrapped are of the session's project, as `usage` has them.
                for session in &mut foreign.sessions {
                    if let Some(known) =
                        view.session_by_agent_session(&session.agent, &session.conversation)?
                    {
                        session.project = known.workspace.project;
                    }
                }
                Ok(foreign)
            })
            .map_err(Error::Scan)
    }

    /// Takes in the conversations that have changed. False if the mirror holds calls that are not theirs any more.
    async fn fold(&mut self, mut foreign: ForeignSessions) -> Result<bool, Error> {
        let known = Known::read(&self.wrapped.marks)?;
        if !known.still_holds(&foreign.sessions) {
            return Ok(false);
        }
        foreign.retain(|session| known.is_new(session));
        let (mut events, mut whole) = (Vec::new(), Vec::new());
        let mut conversations = foreign.calls();
        loop {
            let next = conversations.next().transpose().map_err(|error| Error::Scan(error.into()))?;
            let last = next.is_none();
            if let Some((session, calls)) = next {
                events.extend(life(session, &calls));
                whole.push(session);
            }
            if events.len() >= BATCH || last {
                self.wrapped.ingest(std::mem::take(&mut events)).await?;
                if !self.note(&std::mem::take(&mut whole)).await? && !self.differs {
                    return Ok(false);
                }
            }
            if last {
                return Ok(true);
            }
        }
    }

    /// Remembers what was taken in. False if the mirror counts other calls for one of them than its file has.
    async fn note(&mut self, sessions: &[&ForeignSession]) -> Result<bool, Error> {
        let ids: Vec<String> = sessions.iter().map(|session| session_id(session).to_string()).collect();
        let stored = self.storage().sessions_by_id(ids.clone()).await?;
        let stored: HashMap<&str, i64> =
            stored.iter().map(|session| (&*session.id, session.numbers.api_calls)).collect();
        let mut right = true;
        for (id, session) in ids.iter().zip(sessions) {
            let calls = stored.get(&**id);
            right &= calls == Some(&session.sums.calls.api_calls);
            if calls.is_none() {
                continue;
            }
            let sql = "INSERT OR REPLACE INTO beside (session, calls, tokens) VALUES (?1, ?2, ?3)";
            self.wrapped
                .marks
                .execute(sql, params![id, session.sums.calls.api_calls, session.sums.calls.tokens()])?;
        }
        self.wrapped.beside =
            self.wrapped.marks.query_row("SELECT count(*) FROM beside", [], |row| row.get(0))?;
        Ok(right)
    }
}

/// The conversations that were taken in, each with the number of its calls and its tokens.
#[derive(Debug, Default)]
struct Known(HashMap<String, (i64, i64)>);

impl Known {
    fn read(marks: &Connection) -> Result<Self, Error> {
        let mut statement = marks.prepare_cached("SELECT session, calls, tokens FROM beside")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        Ok(Self(rows.collect::<Result<_, _>>()?))
    }

    /// Whether no conversation is gone and none has lost calls: to a session of the store, or with its file.
    fn still_holds(&self, found: &[ForeignSession]) -> bool {
        let found: HashMap<String, i64> = found
            .iter()
            .map(|session| (session_id(session).to_string(), session.sums.calls.api_calls))
            .collect();
        self.0.iter().all(|(id, (calls, _))| found.get(id).is_some_and(|now| now >= calls))
    }

    fn is_new(&self, session: &ForeignSession) -> bool {
        self.0.get(&session_id(session).to_string())
            != Some(&(session.sums.calls.api_calls, session.sums.calls.tokens()))
    }
}

/// The history of this machine, read by a thread of its own.
#[derive(Debug)]
pub struct HistoryFeed {
    progress: Mutex<ReadingProgress>,
    changed: Condvar,
    titles: UnwrappedTitles,
}

#[derive(Debug)]
struct ReadingProgress {
    storage: Option<Arc<Sqlite>>,
    state: HistoryState,
    wanted: bool,
    read_at: Option<Instant>,
}

impl HistoryFeed {
    /// Starts the thread; it does nothing until somebody asks.
    pub fn start(home: Home, runtime: Handle) -> std::io::Result<Arc<Self>> {
        let progress =
            ReadingProgress { storage: None, state: HistoryState::Reading, wanted: false, read_at: None };
        let titles = UnwrappedTitles::default();
        let feed = Arc::new(Self { progress: Mutex::new(progress), changed: Condvar::new(), titles });
        let thread = std::thread::Builder::new().name("history".to_owned());
        let of_thread = feed.clone();
        thread.spawn(move || of_thread.read(&home, &runtime))?;
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
        let reader = progress.storage.clone().map(|storage| storage as Arc<dyn Reader>);
        History { reader, state: progress.state.clone() }
    }

    /// The titles of its conversations that never ran through codemie, as of the last reading.
    pub fn titles(&self) -> &UnwrappedTitles {
        &self.titles
    }

    fn locked(&self) -> MutexGuard<'_, ReadingProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, home: &Home, runtime: &Handle) {
        let mut mirror = None;
        loop {
            let waited = self.changed.wait_while(self.locked(), |progress| !progress.wanted);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let outcome = runtime.block_on(brought_up_to_date(&mut mirror, home));
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
    fn take(&mut self, outcome: Result<Arc<Sqlite>, Error>) {
        match outcome {
            Ok(storage) => (self.storage, self.state) = (Some(storage), HistoryState::UpToDate),
            Err(error) => {
                tracing::warn!(%error, "the history is not up to date");
                self.state = HistoryState::Failed(error.to_string());
            }
        }
    }
}

async fn brought_up_to_date(mirror: &mut Option<HistoryMirror>, home: &Home) -> Result<Arc<Sqlite>, Error> {
    // After an error it is opened again, and rebuilt if it is damaged.
    let mut open = match mirror.take() {
        Some(open) => open,
        None => HistoryMirror::open(home).await?,
    };
    open.catch_up(&own_var).await?;
    let storage = open.storage();
    *mirror = Some(open);
    Ok(storage)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use types::CallSums;
    use types::{AgentSessionId, Timestamp};
    use usage::DatedSums;

    fn conversation(name: &str, calls: i64, tokens: i64) -> ForeignSession {
        ForeignSession {
            agent: "claude".into(),
            conversation: AgentSessionId(name.into()),
            project: None,
            repository: None,
            branch: None,
            version: None,
            file: "/f".into(),
            sums: DatedSums {
                calls: CallSums { api_calls: calls, input: tokens, ..CallSums::default() },
                first: Timestamp(1),
                last: Timestamp(2),
                ..DatedSums::default()
            },
            models: BTreeSet::new(),
            unpriced_models: BTreeSet::new(),
        }
    }

    #[test]
    fn conversations_that_lost_calls_are_noticed_and_new_calls_are_taken_in() {
        let id = |name| session_id(&conversation(name, 0, 0)).to_string();
        let known = Known(HashMap::from([(id("a"), (3, 90)), (id("b"), (1, 10))]));
        let b = || conversation("b", 1, 10);
        for (found, holds, new) in [
            (vec![conversation("a", 3, 90), b()], true, 0),
            (vec![conversation("a", 4, 95), b()], true, 1),
            (vec![conversation("a", 3, 95), b()], true, 1),
            (vec![conversation("a", 3, 90), b(), conversation("c", 1, 1)], true, 1),
            (vec![conversation("a", 2, 60), b()], false, 1),
            (vec![b()], false, 0),
        ] {
            assert_eq!(known.still_holds(&found), holds, "{found:?}");
            assert_eq!(found.iter().filter(|session| known.is_new(session)).count(), new, "{found:?}");
        }
        assert!(Known::default().still_holds(&[b()]));
    }
}
