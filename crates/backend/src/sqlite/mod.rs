//! Events in one SQLite file: one thread writes, several connections read, and one more is kept for tokens, so that a
//! batch of events never waits for a page.
//!
//! The writer takes all batches that wait into one transaction, each in a savepoint of its own, and answers them after
//! the commit: one fsync for many. The file is the owner's alone.

mod schema;
mod write;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row, params, params_from_iter};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};

use super::intake::Intake;
use super::read::{EachRow, SqlDatabase};
use super::sql::{Columns, Dialect, Query, TOKEN_COLUMNS, Value, json, token};
use super::storage::{Ingested, Storage};
use os::file::open_private;
use reader::Touched;
use reader::token::{Owner, Token, TokenHash};
use reader::{Answer, Error, Tokens};
use types::Event;
use types::Timestamp;

/// Connections that read for pages; further pages wait.
const READERS: usize = 4;
/// Batches that may wait for the writer before the next sender has to wait too.
const QUEUE: usize = 64;
/// At most so many batches are one transaction: the first should not wait long for the last.
const AT_ONCE: usize = 32;
/// Batches that a live feed may lag behind before it misses some.
pub(super) const FEED: usize = 256;

/// One piece of work for the writer: it gets the connection, or the reason why there is none.
struct Job(Box<dyn FnOnce(Result<&Connection, Error>) -> Done + Send>);

/// The result of a job.
struct Done {
    /// Whether what it wrote is to be committed.
    keep: bool,
    /// Called with the result of the commit.
    answer: Box<dyn FnOnce(Result<(), Error>)>,
}

#[derive(Debug)]
pub struct Sqlite {
    file: Arc<File>,
    writer: mpsc::Sender<Job>,
    pages: Readers,
    /// A connection of its own for tokens and health checks, so that they never wait for pages.
    tokens_and_health: Readers,
    feed: broadcast::Sender<Arc<[Touched]>>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl Sqlite {
    /// Statements that delete all events, for a caller that can deliver them again.
    pub const FORGET_EVENTS: &str = schema::FORGET_EVENTS;

    /// Opens the file, made if it is not there, and brings it to the schema of this version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        // Made beforehand, because SQLite would make it readable for others; its log and index take over the mode.
        let failed = |error| Error::Open(format!("{}: {error}", path.display()));
        open_private(path).map_err(failed)?;
        let mut conn = connect(path)?;
        schema::migrate(&mut conn)?;
        let file = Arc::new(File::of(path).map_err(failed)?);
        let (writer, jobs) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().name("backend writer".to_owned());
        thread.spawn(move || write_all(&conn, jobs)).map_err(|error| Error::Open(error.to_string()))?;
        Ok(Self {
            file,
            writer,
            pages: Readers::new(path, READERS),
            tokens_and_health: Readers::new(path, 1),
            feed: broadcast::Sender::new(FEED),
        })
    }

    /// Runs a piece of work on the writer's connection, in its own savepoint; answered after the commit.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, outcome) = oneshot::channel();
        let job = Job(Box::new(move |conn| match conn.and_then(work) {
            Ok(value) => {
                let answer = |commit: Result<(), Error>| drop(sender.send(commit.map(|()| value)));
                Done { keep: true, answer: Box::new(answer) }
            }
            Err(error) => Done { keep: false, answer: Box::new(|_| drop(sender.send(Err(error)))) },
        }));
        let gone = || Error::Unavailable("the writer has ended".to_owned());
        self.writer.send(job).await.map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }
}

/// The free space that the largest batch needs, in bytes.
const LEAST_FREE: u64 = 16 << 20;

/// The file that was opened.
#[derive(Debug)]
struct File {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl File {
    fn of(path: &Path) -> std::io::Result<Self> {
        let there = path.metadata()?;
        Ok(Self { path: path.to_owned(), device_and_inode: (there.dev(), there.ino()) })
    }

    /// Writing to a deleted file succeeds, and is lost.
    fn check(&self) -> Result<(), Error> {
        let unavailable = |error: std::io::Error| Error::Unavailable(error.to_string());
        let now = Self::of(&self.path).map_err(unavailable)?;
        if now.device_and_inode != self.device_and_inode {
            return Err(Error::Unavailable("another file stands in its place".to_owned()));
        }
        let space = rustix::fs::statvfs(&self.path).map_err(|error| unavailable(error.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < LEAST_FREE { Err(Error::Full(format!("{free} bytes are left"))) } else { Ok(()) }
    }
}

/// Connections that read, made when they are needed.
#[derive(Debug)]
struct Readers {
    path: PathBuf,
    free: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    fn new(path: &Path, connections: usize) -> Self {
        Self { path: path.to_owned(), free: Arc::new(Semaphore::new(connections)), idle: Arc::default() }
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.free.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Error::Unavailable("closing".to_owned()))?;
        let (idle, path) = (self.idle.clone(), self.path.clone());
        let task = tokio::task::spawn_blocking(move || {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let conn = kept.map_or_else(|| connect(&path), Ok)?;
            let outcome = work(&conn);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
            drop(permit);
            outcome
        });
        task.await.map_err(|error| Error::Failed(error.to_string()))?
    }
}

fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(10))?;
        conn.set_prepared_statement_cache_capacity(64);
        conn.pragma_update(None, "journal_mode", "wal")?;
        // A batch that was answered survives a power cut.
        conn.pragma_update(None, "synchronous", "full")?;
        conn.pragma_update(None, "wal_autocheckpoint", 4096)?;
        conn.pragma_update(None, "cache_size", -32_768)?;
        conn.pragma_update(None, "temp_store", "memory")?;
        Ok(conn)
    };
    open().map_err(|error: rusqlite::Error| Error::Open(format!("{}: {error}", path.display())))
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
pub(super) fn failed(error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, ReadOnly};
    match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => Error::Unavailable(error.to_string()),
        Some(DiskFull) => Error::Full(error.to_string()),
        Some(ReadOnly) => Error::ReadOnly(error.to_string()),
        _ => Error::Failed(error.to_string()),
    }
}

/// The writer's thread: it ends when the last sender is gone.
fn write_all(conn: &Connection, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < AT_ONCE
            && let Ok(next) = jobs.try_recv()
        {
            batch.push(next);
        }
        write_together(conn, batch);
    }
}

/// All of them in one transaction, or none: if it ends for one job, it ends for all.
fn write_together(conn: &Connection, batch: Vec<Job>) {
    let mut together = run(conn, "BEGIN IMMEDIATE");
    let done: Vec<Done> = batch
        .into_iter()
        .map(|Job(job)| {
            if let Err(error) = &together {
                return job(Err(error.clone()));
            }
            let (done, ended) = in_savepoint(conn, job);
            together = ended;
            done
        })
        .collect();
    let committed = together.and_then(|()| run(conn, "COMMIT"));
    if committed.is_err() && !conn.is_autocommit() {
        let _ = conn.execute_batch("ROLLBACK");
    }
    for Done { answer, .. } in done {
        answer(committed.clone());
    }
}

/// A failure is temporary: a transaction that could not be begun or ended is not the fault of a job in it.
fn run(conn: &Connection, sql: &str) -> Result<(), Error> {
    conn.execute_batch(sql).map_err(|error| match failed(error) {
        Error::Failed(text) => Error::Unavailable(text),
        error => error,
    })
}

/// The result of the job, and whether the transaction around it is still open.
fn in_savepoint(
    conn: &Connection,
    job: Box<dyn FnOnce(Result<&Connection, Error>) -> Done + Send>,
) -> (Done, Result<(), Error>) {
    if let Err(error) = run(conn, "SAVEPOINT job") {
        return (job(Err(error.clone())), Err(error));
    }
    let done = job(Ok(conn));
    // A full disk, among others, makes SQLite roll back everything by itself; the next savepoint would begin a new one.
    if conn.is_autocommit() {
        let why = "another batch of the same transaction failed, and took it along";
        return (done, Err(Error::Unavailable(why.to_owned())));
    }
    let ended = run(conn, if done.keep { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" });
    (done, ended)
}

/// A row of SQLite for the read model.
pub(super) struct RowColumns<'a>(pub(super) &'a Row<'a>);

impl Columns for RowColumns<'_> {
    fn int(&self, column: &str) -> Result<Option<i64>, Error> {
        self.0.get(column).map_err(failed)
    }

    fn text(&self, column: &str) -> Result<Option<String>, Error> {
        self.0.get(column).map_err(failed)
    }

    fn float(&self, column: &str) -> Result<Option<f64>, Error> {
        self.0.get(column).map_err(failed)
    }

    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(column).map_err(failed)
    }
}

/// Reads with a prepared statement, each row in order.
fn read_rows(
    conn: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    each: &mut dyn FnMut(&dyn Columns) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut statement = conn.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(values).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        each(&RowColumns(row))?;
    }
    Ok(())
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::Int(value) => value.to_sql(),
            Self::Text(value) => value.to_sql(),
            // Lists are unfolded by json_each.
            Self::Ints(values) => Ok(json(values).into()),
            Self::Texts(values) => Ok(json(values).into()),
        }
    }
}

impl SqlDatabase for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn rows(&self, query: Query, mut each: EachRow) -> Answer<'_, ()> {
        Box::pin(self.pages.read(move |conn| {
            // SQLite's own spelling of numbered parameters; no text of ours holds another dollar.
            let sql = query.sql.replace('$', "?");
            read_rows(conn, &sql, params_from_iter(query.values), &mut *each)
        }))
    }

    fn listen(&self) -> broadcast::Receiver<Arc<[Touched]>> {
        self.feed.subscribe()
    }
}

impl Storage for Sqlite {
    fn ingest(&self, owner: &Owner, batch: Vec<Event>, now: Timestamp) -> Answer<'_, Ingested> {
        let owner = owner.clone();
        Box::pin(async move {
            let mut intake = Intake::new(batch, now);
            let work = move |conn: &Connection| {
                write::ingest(conn, &owner, &mut intake, now)?;
                Ok(intake.finish())
            };
            let (ingested, touched) = self.write(work).await?;
            if !touched.is_empty() {
                let _ = self.feed.send(touched.into());
            }
            Ok(ingested)
        })
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let file = self.file.clone();
            self.tokens_and_health.read(move |_| file.check()).await?;
            // With the batches that wait, if there are any: one fsync for all.
            let touch = "UPDATE owner SET name = name WHERE n = 0";
            self.write(|conn| conn.execute(touch, []).map(drop).map_err(failed)).await
        })
    }

    fn add_token(&self, token: Token) -> Answer<'_, bool> {
        Box::pin(self.write(move |conn| {
            let Token { name, role, owner, hash, created_at, revoked_at } = &token;
            let added = conn.execute(
                "INSERT INTO token (name, role, hash, created_at, revoked_at, owner) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO NOTHING",
                params![name, role.as_str(), hash.0, created_at, revoked_at, owner.as_str()],
            );
            Ok(added.map_err(failed)? > 0)
        }))
    }

    fn revoke_token(&self, name: &str, now: Timestamp) -> Answer<'_, bool> {
        let name = name.to_owned();
        Box::pin(self.write(move |conn| {
            let revoked = conn.execute(
                "UPDATE token SET revoked_at = ?2 WHERE name = ?1 AND revoked_at IS NULL",
                params![name, now],
            );
            Ok(revoked.map_err(failed)? > 0)
        }))
    }
}

impl Tokens for Sqlite {
    fn tokens(&self) -> Answer<'_, Vec<Token>> {
        let sql = format!("SELECT {TOKEN_COLUMNS} FROM token ORDER BY created_at, name");
        Box::pin(self.tokens_and_health.read(move |conn| {
            let mut tokens = Vec::new();
            read_rows(conn, &sql, [], &mut |row| token(row).map(|token| tokens.push(token)))?;
            Ok(tokens)
        }))
    }

    fn token(&self, hash: TokenHash) -> Answer<'_, Option<Token>> {
        let sql = format!("SELECT {TOKEN_COLUMNS} FROM token WHERE hash = ?1");
        Box::pin(self.tokens_and_health.read(move |conn| {
            let mut found = None;
            read_rows(conn, &sql, [&hash.0], &mut |row| token(row).map(|token| found = Some(token)))?;
            Ok(found)
        }))
    }

    fn end_pass(&self, signature: [u8; 32], until: Timestamp, now: Timestamp) -> Answer<'_, ()> {
        Box::pin(self.write(move |conn| {
            conn.execute("DELETE FROM ended_pass WHERE until < ?1", [now]).map_err(failed)?;
            let sql = "INSERT INTO ended_pass (signature, until) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            conn.execute(sql, params![signature, until]).map(drop).map_err(failed)
        }))
    }

    fn pass_ended(&self, signature: [u8; 32]) -> Answer<'_, bool> {
        Box::pin(self.tokens_and_health.read(move |conn| {
            let mut select =
                conn.prepare_cached("SELECT 1 FROM ended_pass WHERE signature = ?1").map_err(failed)?;
            select.exists([signature]).map_err(failed)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that runs a statement, and where its answer arrives.
    fn job(sql: &'static str) -> (Job, oneshot::Receiver<Result<(), Error>>) {
        let (sender, outcome) = oneshot::channel();
        let job =
            Job(Box::new(move |conn| match conn.and_then(|conn| conn.execute_batch(sql).map_err(failed)) {
                Ok(()) => Done { keep: true, answer: Box::new(|commit| drop(sender.send(commit))) },
                Err(error) => Done { keep: false, answer: Box::new(|_| drop(sender.send(Err(error)))) },
            }));
        (job, outcome)
    }

    /// Which of the jobs got a success, and how many rows there are after them.
    fn outcome(statements: &[&'static str]) -> (Vec<bool>, i64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        std::fs::File::create(&path).unwrap();
        let conn = connect(&path).unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        conn.pragma_update(None, "max_page_count", 20).unwrap();
        let (jobs, outcomes): (Vec<_>, Vec<_>) = statements.iter().map(|sql| job(sql)).unzip();
        write_together(&conn, jobs);
        assert!(conn.is_autocommit());
        let succeeded = outcomes.into_iter().map(|mut outcome| outcome.try_recv().unwrap().is_ok()).collect();
        (succeeded, conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap())
    }

    #[test]
    fn a_job_that_was_rolled_back_gets_no_success() {
        let (small, wrong) =
            ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1); INSERT INTO nowhere VALUES (1)");
        let large = "INSERT INTO t VALUES (zeroblob(1000000))";
        for (statements, succeeded, rows) in [
            (&[small, small][..], &[true, true][..], 2),
            (&[small, wrong, small], &[true, false, true], 2),
            // SQLite gives up the whole transaction when it is full.
            (&[small, large, small], &[false, false, false], 0),
            (&[large], &[false], 0),
        ] {
            assert_eq!(outcome(statements), (succeeded.to_vec(), rows), "{statements:?}");
        }
    }

    #[tokio::test]
    async fn tokens_and_health_do_not_wait_for_pages() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Sqlite::open(&folder.path().join("x.db")).unwrap();
        let readers = u32::try_from(READERS).unwrap();
        let _pages = storage.pages.free.clone().acquire_many_owned(readers).await.unwrap();
        storage.ready().await.unwrap();
        assert_eq!(storage.token(TokenHash::of("x")).await.unwrap(), None);
        assert!(storage.tokens().await.unwrap().is_empty());
    }
}
