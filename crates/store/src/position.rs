//! How far each file has been read. A position moves only in the transaction that stores what was read.

use std::path::{Path, PathBuf};

use super::row::{count, uncount};
use super::row::{insert, read_row, read_value};
use super::{Error, FileId, Tx, View};
use types::row;
use types::row::RowColumns;

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Position {
        pub path: PathBuf as String => PathBuf::from,
        pub offset: u64 as i64 => uncount,
        /// What the reader of lines needs to go on from here; only it knows what it means.
        pub state: Vec<u8>,
        pub unreadable: u64 as i64 => uncount,
    }
}

impl View<'_> {
    pub fn position(&self, file: FileId) -> Result<Option<Position>, Error> {
        self.maybe(
            &Position::select("FROM position WHERE device = ?1 AND inode = ?2"),
            [file.device.cast_signed(), file.inode.cast_signed()],
            read_row,
        )
    }

    /// How many files have been read, those in this folder left out.
    pub fn files_read(&self, outside: &Path) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM position WHERE substr(path, 1, length(?1)) <> ?1";
        self.one(sql, [format!("{}/", outside.display())], read_value).map(uncount)
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
        let sql = "SELECT path, unreadable FROM position WHERE unreadable > 0 ORDER BY path";
        let files: Vec<(String, i64)> = self.all(sql, [], read_row)?;
        Ok(files.into_iter().map(|(path, lines)| (path.into(), uncount(lines))).collect())
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
        insert!(self, "INSERT OR REPLACE" into "position": {
            device: file.device.cast_signed(),
            inode: file.inode.cast_signed(),
            path: path.to_string_lossy(),
            offset: count(offset),
            state,
            unreadable: count(unreadable),
        })
        .map(drop)
    }
}
