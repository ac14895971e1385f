//! How far each file has been read. A position moves only in the transaction that stores what was read.

use std::path::{Path, PathBuf};

use rusqlite::params;

use super::spelling::{count, uncount};
use super::{Error, FileId, Tx, View};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub path: PathBuf,
    pub offset: u64,
    /// What the reader of lines needs to go on from here; only it knows what it means.
    pub state: Vec<u8>,
    pub unreadable: u64,
}

impl View<'_> {
    pub fn position(&self, file: FileId) -> Result<Option<Position>, Error> {
        self.maybe(
            "SELECT path, offset, state, unreadable FROM position WHERE device = ?1 AND inode = ?2",
            [file.device.cast_signed(), file.inode.cast_signed()],
            |row| {
                Ok(Position {
                    path: row.get::<_, String>(0)?.into(),
                    offset: uncount(row.get(1)?),
                    state: row.get(2)?,
                    unreadable: uncount(row.get(3)?),
                })
            },
        )
    }

    /// How many files have been read, those in this folder left out.
    pub fn files_read(&self, outside: &Path) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM position WHERE substr(path, 1, length(?1)) <> ?1";
        self.one(sql, [format!("{}/", outside.display())], |row| row.get(0).map(uncount))
    }

    /// Whether lines of this file could not be read. Files are looked up once per view: a list asks for many.
    pub fn has_unreadable_lines(&self, file: &Path) -> Result<bool, Error> {
        if self.damaged_files.get().is_none() {
            let files = self.unreadable()?.into_iter().map(|(path, _)| path).collect();
            let _ = self.damaged_files.set(files);
        }
        Ok(self.damaged_files.get().is_some_and(|files| files.contains(file)))
    }

    /// Files with lines that could not be read, and how many.
    pub fn unreadable(&self) -> Result<Vec<(PathBuf, u64)>, Error> {
        self.all("SELECT path, unreadable FROM position WHERE unreadable > 0 ORDER BY path", [], |row| {
            Ok((row.get::<_, String>(0)?.into(), uncount(row.get(1)?)))
        })
    }
}

impl Tx<'_> {
    pub fn set_position(
        &self,
        file: FileId,
        path: &Path,
        offset: u64,
        state: &[u8],
        unreadable: u64,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT OR REPLACE INTO position VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                file.device.cast_signed(),
                file.inode.cast_signed(),
                path.to_string_lossy(),
                count(offset),
                state,
                count(unreadable)
            ],
        )
        .map(drop)
    }
}
