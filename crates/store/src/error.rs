//! What can be wrong with the store: one variant for each case that a caller decides on.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the database was written by a newer codemie (its schema is {found}, this one knows {known}); update codemie"
    )]
    Newer { found: i64, known: i64 },
    #[error("the database is damaged: {0}; codemie sets it aside and begins a fresh one at its next start")]
    Damaged(rusqlite::Error),
    #[error("the database cannot be written: {0}; check the permissions of the folder")]
    ReadOnly(String),
    #[error("the database cannot be read: {0}; check the permissions of the folder")]
    Unreadable(String),
    #[error("the disk is full; free some space and the session goes on being recorded")]
    Full,
    #[error("the database stayed locked by another process; try again")]
    Busy,
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the database holds what codemie never writes: {0}")]
    Inconsistent(String),
    #[error("the database: {0}")]
    Sqlite(rusqlite::Error),
}

impl Error {
    /// Whether the same call may succeed later: another process writes, or the disk is full or fails, but the call is valid.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Busy | Self::Full => true,
            Self::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure),
            _ => false,
        }
    }

    /// An error of the file system while only looking, in the same words as those of SQLite.
    pub fn look(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Unreadable(format!("{}: {source}", path.display())),
            _ => Self::io(path, source),
        }
    }

    /// An error of the file system while writing, in the same words as those of SQLite.
    pub fn io(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly(format!("{}: {source}", path.display()))
            }
            _ => Self::Io { path: path.to_owned(), source },
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        // The index of the log could not be made as large as it must be.
        if error
            .sqlite_error()
            .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
        {
            return Self::Full;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged(error),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(error.to_string()),
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::Sqlite(error),
        }
    }
}
