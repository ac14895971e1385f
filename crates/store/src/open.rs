//! From a folder to an open database: made if absent, set aside if damaged, refused if newer.
//!
//! A database appears under its name only when it is complete (schema, WAL mode), so a process that finds one can use it
//! at once: opening the existing one takes no lock of its own and makes no system call that waits for the disk. Making
//! and setting aside happen under a lock on the folder, because a stale `-wal` beside a fresh database would ruin it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock};

use super::row::read_value;
use super::{Error, schema};
use os::file::create_private;
use os::file::{open_private, open_regular_with};
use os::home::Home;
use types::Timestamp;

/// Statements kept prepared: more than the longest path (transition with absorb) uses.
const STATEMENTS: usize = 96;

/// The log is moved into the database by [`super::Store::checkpoint`], off every hot path. This is the safety net
/// for a machine where that never runs: 16 MB of 4 KiB pages.
const LOG_PAGES_AT_MOST: u32 = 4096;

/// How long a writer waits for its turn in all. Fifty writers at once need some ten milliseconds each; a process that holds
/// the lock for this long is stuck.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for what need not be written now. A person who asks for a list waits for it no longer.
const HURRIED_TIMEOUT: Duration = Duration::from_millis(400);

/// How long the writes of a connection wait for those of others.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteWait(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    hurried: AtomicBool,
    /// In all writes so far.
    #[cfg(any(test, feature = "testing"))]
    waited: std::sync::Mutex<Duration>,
}

impl WriteWait {
    /// Returns whether it was hurried before.
    pub(super) fn hurry(&self, hurried: bool) -> bool {
        self.0.hurried.swap(hurried, Ordering::Relaxed)
    }

    fn limit(&self) -> Duration {
        if self.0.hurried.load(Ordering::Relaxed) { HURRIED_TIMEOUT } else { BUSY_TIMEOUT }
    }

    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "for tests alone")]
    fn note(&self, pause: Duration) {
        *self.0.waited.lock().unwrap() += pause;
    }

    /// How long all writes have waited together, by the pauses that they made.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "for tests alone")]
    pub(super) fn waited(&self) -> Duration {
        *self.0.waited.lock().unwrap()
    }
}

pub(super) fn open(home: &Home, at: Timestamp) -> Result<(Connection, WriteWait), Error> {
    let path = home.database();
    if mark_of(&path).exists() {
        examine(home, at)?;
    }
    // Again after this process or another has set a damaged database aside or made a fresh one. Each round is a step
    // of someone's towards a good one; more than a few mean that it cannot be had.
    for _ in 0..5 {
        match open_existing(&path) {
            Err(Error::Damaged(reason)) => set_aside(home, at, &reason)?,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create(home)?;
            }
            // Looked for while it was being replaced; if not, the last look below finds out.
            Err(Error::ReadOnly(_)) => {}
            other => return other,
        }
    }
    open_existing(&path)
}

/// Opens an existing database of this version, for reading alone.
pub(super) fn open_to_read(home: &Home) -> Result<(Connection, WriteWait), Error> {
    let path = home.database();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&path, flags).map_err(|error| opening(&path, error))?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    match schema::version(&conn)? {
        schema::KNOWN => Ok((conn, WriteWait::default())),
        found => Err(Error::Newer { found, known: schema::KNOWN }),
    }
}

/// Marks a database in which damage was met, so that the next process to open it examines it.
pub(super) fn suspect(path: &Path) {
    if let Err(error) = open_private(&mark_of(path)) {
        tracing::warn!(%error, "the damaged database could not be marked");
    }
}

fn mark_of(path: &Path) -> PathBuf {
    with_suffix(path, ".suspect")
}

/// Reads a suspect database through, and sets it aside if the suspicion holds.
fn examine(home: &Home, at: Timestamp) -> Result<(), Error> {
    let path = home.database();
    let found = open_existing(&path)
        .and_then(|(conn, _)| Ok(conn.query_row("PRAGMA quick_check(1)", [], read_value::<String>)?));
    match found {
        Ok(verdict) if verdict == "ok" => {}
        Ok(verdict) => {
            let reason = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            set_aside(home, at, &rusqlite::Error::SqliteFailure(reason, Some(verdict)))?;
        }
        Err(Error::Damaged(reason)) => set_aside(home, at, &reason)?,
        // Any other error is reported by the opening that follows.
        Err(_) => return Ok(()),
    }
    remove(&mark_of(&path))
}

fn open_existing(path: &Path) -> Result<(Connection, WriteWait), Error> {
    let meta = fs::metadata(path).map_err(|source| Error::look(path, source))?;
    if meta.len() == 0 {
        // An empty file is no database of ours, but SQLite would take it for a fresh one.
        return Err(Error::Damaged(rusqlite::Error::InvalidPath(path.to_owned())));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(|error| opening(path, error))?;
    let write_wait = set_up(&mut conn)?;
    let found = schema::version(&conn).map_err(|error| match error {
        Error::Sqlite(error) => opening(path, error),
        other => other,
    })?;
    match found.cmp(&schema::KNOWN) {
        std::cmp::Ordering::Greater => return Err(Error::Newer { found, known: schema::KNOWN }),
        std::cmp::Ordering::Less => schema::migrate(&mut conn, path)?,
        std::cmp::Ordering::Equal => {}
    }
    Ok((conn, write_wait))
}

/// SQLite reports "unable to open" for a folder it may not write the log into, and for a database that another process is
/// just now setting aside.
fn opening(path: &Path, error: rusqlite::Error) -> Error {
    if error.sqlite_error_code() != Some(rusqlite::ErrorCode::CannotOpen) {
        return error.into();
    }
    match fs::metadata(path) {
        Err(source) => Error::look(path, source),
        Ok(_) if accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).is_err() => {
            Error::Unreadable(format!("{}: {error}", path.display()))
        }
        Ok(_) => Error::ReadOnly(format!("{}: {error}", path.display())),
    }
}

/// Sets up a connection; none of it touches the disk.
fn set_up(conn: &mut Connection) -> Result<WriteWait, Error> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Without it every new value of a parameter may change the plan, and SQLite parses a prepared statement again for each: ten
    // times what a look-up by its key costs. No table was ever analysed, so there is nothing that a value could change.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let (write_wait, mut waited) = (WriteWait::default(), Duration::ZERO);
    let handled = write_wait.clone();
    conn.busy_handler(Some(move |round: i32| {
        if round == 0 {
            waited = Duration::ZERO;
        }
        let pause = pause(round);
        waited += pause;
        #[cfg(any(test, feature = "testing"))]
        handled.note(pause);
        std::thread::sleep(pause);
        waited < handled.limit()
    }))?;
    conn.execute_batch(&format!(
        "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {LOG_PAGES_AT_MOST};"
    ))?;
    Ok(write_wait)
}

/// A transaction here takes well under a millisecond, so the first looks are close together; later ones make room.
/// The pid spreads processes that began to wait in the same instant.
fn pause(round: i32) -> Duration {
    let spread = u64::from(std::process::id() % 16) * 25;
    Duration::from_micros(match round {
        ..8 => 200 + spread,
        8..64 => 1_000 + spread * 4,
        _ => 5_000 + spread * 16,
    })
}

/// Makes a complete database beside the place and moves it there.
fn create(home: &Home) -> Result<(), Error> {
    create_private(home.path()).map_err(|source| Error::io(home.path(), source))?;
    let _lock = lock(home.path())?;
    create_locked(home)
}

fn create_locked(home: &Home) -> Result<(), Error> {
    let path = home.database();
    if path.exists() {
        return Ok(());
    }
    // The folder may be another tool's of the same name, made without care; it holds our paths and names from now on.
    // Its owner's own rights stay as they are: a folder that was made read-only is refused, not opened.
    if let Ok(folder) = fs::metadata(home.path()) {
        let _ = fs::set_permissions(home.path(), Permissions::from_mode(folder.mode() & 0o700));
    }
    let draft = with_suffix(&path, ".new");
    for stale in beside(&path).chain(beside(&draft)).chain([draft.clone()]) {
        remove(&stale)?;
    }
    open_regular_with(OpenOptions::new().write(true).create_new(true).mode(0o600), &draft)
        .map_err(|source| Error::io(&draft, source))?;
    {
        let mut conn = Connection::open(&draft)?;
        conn.query_row("PRAGMA journal_mode = WAL", [], read_value::<String>)?;
        schema::create(&mut conn)?;
        conn.close().map_err(|(_, error)| error)?;
    }
    fs::rename(&draft, &path).map_err(|source| Error::io(&path, source))?;
    Ok(())
}

/// Moves a damaged database out of the way under a dated name, with its log, and begins a fresh one that records the incident.
/// Another process may have done so already; what it began is left alone.
fn set_aside(home: &Home, at: Timestamp, reason: &rusqlite::Error) -> Result<(), Error> {
    let path = home.database();
    let identity = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let damaged = identity(&path);
    let _lock = lock(home.path())?;
    if identity(&path) != damaged || (!mark_of(&path).exists() && open_existing(&path).is_ok()) {
        return Ok(());
    }
    let aside = free_name(&path, at);
    for (from, to) in std::iter::once((path.clone(), aside.clone())).chain(beside(&path).zip(beside(&aside)))
    {
        match fs::rename(&from, &to) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(Error::io(&from, source)),
            _ => {}
        }
    }
    tracing::error!(database = %path.display(), set_aside = %aside.display(), %reason, "the database is damaged");
    create_locked(home)?;
    open_existing(&path)?.0.execute(
        "INSERT INTO incident (at, kind, detail) VALUES (?1, 'damaged', ?2)",
        (at.0, format!("{reason}; set aside as {}", aside.display())),
    )?;
    Ok(())
}

fn free_name(path: &Path, at: Timestamp) -> PathBuf {
    let date: String = at.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let name = with_suffix(path, &format!(".damaged-{date}"));
    (2..)
        .map(|n| with_suffix(&name, &format!("-{n}")))
        .try_fold(name.clone(), |name, next| if name.exists() { Ok(next) } else { Err(name) })
        .err()
        .unwrap_or(name)
}

/// The log and its index.
fn beside(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    [with_suffix(path, "-wal"), with_suffix(path, "-shm")].into_iter()
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::io(path, source)),
        _ => Ok(()),
    }
}

/// The folder itself is what is locked: no file of its own, and gone with the process.
fn lock(folder: &Path) -> Result<File, Error> {
    #[expect(clippy::disallowed_methods, reason = "a folder, which nobody reads")]
    let file = File::open(folder).map_err(|source| Error::io(folder, source))?;
    // A file system without locks has no second machine's process here either; go on.
    let _ = flock(&file, FlockOperation::LockExclusive);
    Ok(file)
}
