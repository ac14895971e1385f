//! The one truth: a SQLite database that any number of codemie processes read and write at once.
//!
//! This crate holds rows and keeps what must hold between them; what a session may do is decided in `session`.
//!
//! # For callers
//!
//! ```text
//! Store::open(&home, now) -> Result<Store, Error>       made if absent; Error::{Newer, ReadOnly, Full, Busy, …}
//! store.write(|tx| …)     -> Result<T, E>               one transaction; an Err takes everything back
//! store.read(|view| …)    -> Result<T, E>               one consistent look; every query of View is on Tx too
//! store.in_a_hurry(|store| …)                           writes in it wait a fraction of a second for others, then fail
//! store.make_durable()    -> Result<i64, Error>         before sending: changes up to this survive a power cut
//! store.checkpoint()      -> Result<(), Error>          off the hot path: log into database
//! ```
//!
//! Queries are on [`View`], small writes on [`Tx`], each in the file of what it is about; changes of a session's life are made
//! by `session::lifecycle` on a [`Tx`].
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

mod address;
mod bill;
mod breakdown;
mod budget;
mod chain;
mod error;
mod evidence;
mod imported;
pub mod old;
mod open;
mod opening;
mod outbox;
mod outgoing;
mod position;
mod proxied;
mod pruned;
mod query;
mod quota;
mod read_model;
mod recent_tools;
mod record;
mod request;
mod row;
mod run;
mod schema;
pub mod session;
mod session_list;
mod session_row;
mod sink;
mod spending;
mod total;
mod undelivered;

use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use pricing::PriceList;
use rusqlite::{Connection, OptionalExtension, Params, Row, TransactionBehavior};

use agents::meter::record::Record;
use config::prices::price_list;
use os::home::Home;
use row::{read_row, read_value};
use types::Timestamp;

pub use address::Fingerprint;
pub use agents::meter::tail::FileId;
pub use bill::BilledCalls;
pub use breakdown::{ModelSum, ToolSum};
pub use budget::{Hold, OwnPriceUse, Spent, SpentBy};
pub use chain::ChainSpent;
#[cfg(any(test, feature = "testing"))]
pub use chain::chain_queries;
pub use error::Error;
pub use evidence::Incident;
pub use opening::OpeningRow;
pub use outbox::EventRow;
pub use outgoing::Outgoing;
pub use position::Position;
pub use proxied::{ProxyColumns, Seen};
pub use pruned::PrunedSession;
pub use query::{Labelled, SessionQuery, Show, Sort};
pub use quota::{QuotaRow, QuotaUseRow};
pub use read_model::{EventMark, RecordNumbers, SeqSpan, ToolCount, Whose};
pub use recent_tools::{Step, StepKind, ToolRow};
pub use record::{Priced, RecordKind, RecordRow, StoredRecord};
pub use request::{CLAIMED, Claim, NewRequest, PLACE, REMEMBERED, RequestRow};
pub use run::{BootAndPidNs, EnvSnapshot, NewRun, RunRow};
pub use session_list::{ListedSession, RunProcesses};
pub use session_row::{Exit, Phase, SessionRow, Workspace};
pub use sink::{SinkCount, SinkRow};
pub use types::PicoDollars;
pub use undelivered::{Fate, UndeliveredEvent};

/// An open database. One per thread.
#[derive(Debug)]
pub struct Store {
    conn: Connection,
    write_wait: open::WriteWait,
    /// Holds the prices of the user's own.
    settings: PathBuf,
    #[cfg(any(test, feature = "testing"))]
    pub faults: Faults,
}

impl Store {
    /// Opens the database of this home, making it if there is none. A damaged one is set aside and remembered as an
    /// incident. `at` dates that.
    pub fn open(home: &Home, at: Timestamp) -> Result<Self, Error> {
        Ok(Self::over(home, open::open(home, at)?))
    }

    /// Opens the database of this home to read it, as it is: nothing is made, brought to another version or repaired, and nobody
    /// is waited for.
    pub fn open_to_read(home: &Home) -> Result<Self, Error> {
        Ok(Self::over(home, open::open_to_read(home)?))
    }

    fn over(home: &Home, (conn, write_wait): (Connection, open::WriteWait)) -> Self {
        Self {
            conn,
            write_wait,
            settings: home.config_file(),
            #[cfg(any(test, feature = "testing"))]
            faults: Faults::default(),
        }
    }

    /// Does what may as well be done another time: its writes wait for those of others for a fraction of a second, and fail then
    /// ([`Error::Busy`]).
    pub fn in_a_hurry<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.write_wait.hurry(true);
        let value = work(self);
        self.write_wait.hurry(before);
        value
    }

    /// One write transaction. It has the database to itself from the first line of `work`, so what it reads stays true.
    /// Its log lines are written once it is committed.
    pub fn write<T, E: From<Error>>(&mut self, work: impl FnOnce(&Tx<'_>) -> Result<T, E>) -> Result<T, E> {
        let transaction =
            self.conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Error::from)?;
        let tx = Tx {
            view: View {
                conn: &transaction,
                settings: &self.settings,
                damaged_files: OnceCell::new(),
                prices: OnceCell::new(),
                #[cfg(any(test, feature = "testing"))]
                faults: &self.faults,
            },
            log_lines: RefCell::default(),
        };
        let value = work(&tx)?;
        let lines = tx.log_lines.into_inner();
        transaction.commit().map_err(Error::from)?;
        for line in lines {
            line();
        }
        Ok(value)
    }

    /// Whether anything could be written now. Nothing is: what is read-only refuses the attempt, and a lock is waited for.
    pub fn try_to_write(&mut self) -> Result<(), Error> {
        let transaction = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("UPDATE outbox SET change = change", [])?;
        Ok(transaction.rollback()?)
    }

    /// One consistent look at the database; writers are not kept waiting by it.
    pub fn read<T, E: From<Error>>(&mut self, work: impl FnOnce(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        let transaction =
            self.conn.transaction_with_behavior(TransactionBehavior::Deferred).map_err(Error::from)?;
        work(&View {
            conn: &transaction,
            settings: &self.settings,
            damaged_files: OnceCell::new(),
            prices: OnceCell::new(),
            #[cfg(any(test, feature = "testing"))]
            faults: &self.faults,
        })
    }

    /// Makes everything committed so far survive a power cut, and returns up to which change of the outbox that is. A
    /// sender calls this before it sends and sends nothing beyond: a `seq` or `rev` that may have left the machine is
    /// then never given to anything else. Costs one fsync, or nothing when nothing was added since.
    pub fn make_durable(&mut self) -> Result<i64, Error> {
        let (change, durable): (i64, i64) =
            self.conn.query_row("SELECT change, durable FROM outbox", [], read_row)?;
        if durable >= change {
            return Ok(durable);
        }
        self.conn.execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON")?;
        let marked =
            self.write(|tx| tx.one("UPDATE outbox SET durable = change RETURNING change", [], read_value));
        self.conn.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA fullfsync = OFF")?;
        marked
    }

    /// Moves the log into the database and begins a new log at once, so that neither the move, nor the new log's first
    /// fsync, nor the reading of a long log falls to the next start of an agent. Others in the middle of something are
    /// not waited for. Called when a run has ended, off every hot path.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        self.write(|tx| tx.execute("UPDATE outbox SET logs = logs + 1", []).map(drop))
    }

    /// A number that changes whenever another connection has written. Costs a look at shared memory.
    pub fn version(&self) -> Result<i64, Error> {
        Ok(self.conn.query_row("PRAGMA data_version", [], read_value)?)
    }

    /// How long writes have waited for those of others.
    #[cfg(any(test, feature = "testing"))]
    pub fn waited(&self) -> std::time::Duration {
        self.write_wait.waited()
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn sql(&self) -> &Connection {
        &self.conn
    }

    /// How long the log is: whether a checkpoint is worth it.
    pub fn log_bytes(&self) -> u64 {
        let path = self.conn.path().map(|path| format!("{path}-wal"));
        path.and_then(|path| std::fs::metadata(path).ok()).map_or(0, |meta| meta.len())
    }
}

/// What can be asked. Queries are spread over this crate's files, each beside the rows it reads.
#[derive(Debug)]
pub struct View<'c> {
    conn: &'c Connection,
    settings: &'c Path,
    /// Files with lines that could not be read; looked up once per view, when first asked for.
    damaged_files: OnceCell<HashSet<PathBuf>>,
    /// Read once per view, when the first call is priced.
    prices: OnceCell<PriceList>,
    #[cfg(any(test, feature = "testing"))]
    faults: &'c Faults,
}

/// What can be asked and written, inside one transaction.
pub struct Tx<'c> {
    view: View<'c>,
    log_lines: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl<'c> Deref for Tx<'c> {
    type Target = View<'c>;

    fn deref(&self) -> &View<'c> {
        &self.view
    }
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl Tx<'_> {
    /// A line for the log file, written once the transaction is committed, and not at all if it is not.
    pub fn log_after_commit(&self, line: impl FnOnce() + 'static) {
        self.log_lines.borrow_mut().push(Box::new(line));
    }

    fn execute(&self, sql: &str, params: impl Params) -> Result<usize, Error> {
        #[cfg(any(test, feature = "testing"))]
        self.faults.pass()?;
        self.noted(self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute(params)))
    }

    fn last_inserted(&self) -> i64 {
        self.conn.last_insert_rowid()
    }
}

impl View<'_> {
    /// A record with what it cost by the prices in force: the user's own before the table's. For those who have read no settings.
    pub fn priced(&self, record: Record) -> Priced {
        Priced::by(self.prices.get_or_init(|| price_list(self.settings)), record)
    }

    /// Damage met in the middle of work leaves a mark, so that the next to open looks closely: opening alone would
    /// not meet it.
    fn noted<T>(&self, outcome: rusqlite::Result<T>) -> Result<T, Error> {
        outcome.map_err(|error| {
            let error = Error::from(error);
            if let (Error::Damaged(_), Some(path)) = (&error, self.conn.path()) {
                open::suspect(path.as_ref());
            }
            error
        })
    }

    /// Exactly one row.
    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        #[cfg(any(test, feature = "testing"))]
        self.faults.pass()?;
        self.noted(self.conn.prepare_cached(sql).and_then(|mut statement| statement.query_one(params, read)))
    }

    fn maybe<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        #[cfg(any(test, feature = "testing"))]
        self.faults.pass()?;
        self.noted(
            self.conn
                .prepare_cached(sql)
                .and_then(|mut statement| statement.query_row(params, read).optional()),
        )
    }

    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        #[cfg(any(test, feature = "testing"))]
        self.faults.pass()?;
        self.noted(
            self.conn
                .prepare_cached(sql)
                .and_then(|mut statement| statement.query_map(params, read)?.collect()),
        )
    }
}

/// Lets a test break off a transaction before its n-th statement.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Default)]
pub struct Faults {
    left: std::cell::Cell<Option<u32>>,
}

#[cfg(any(test, feature = "testing"))]
impl Faults {
    pub fn after(&self, statements: u32) {
        self.left.set(Some(statements));
    }

    pub fn none(&self) {
        self.left.set(None);
    }

    fn pass(&self) -> Result<(), Error> {
        match self.left.get() {
            Some(0) => Err(Error::Full),
            Some(left) => {
                self.left.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
