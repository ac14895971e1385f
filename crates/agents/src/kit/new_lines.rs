//! The lines that were added to a file since the last look.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use os::file::open_regular;

/// A file that grew by more than this is read from its end: it is written at the pace of a user.
const MOST: u64 = 1024 * 1024;

/// How far a file was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewLines(u64);

impl NewLines {
    /// What is in it by now is not new.
    pub(crate) fn behind(path: &Path) -> Self {
        Self(std::fs::metadata(path).map_or(0, |meta| meta.len()))
    }

    /// The new whole lines; a torn last one waits. Nothing where the file cannot be read.
    pub(crate) fn read(&mut self, path: &Path) -> Vec<u8> {
        let Ok(mut file) = open_regular(path) else { return Vec::new() };
        let length = file.metadata().map_or(0, |meta| meta.len());
        if length < self.0 {
            self.0 = 0; // it was cut or rewritten
        }
        let from = self.0.max(length.saturating_sub(MOST));
        let mut bytes = Vec::new();
        if length == from
            || file.seek(SeekFrom::Start(from)).is_err()
            || file.take(MOST).read_to_end(&mut bytes).is_err()
        {
            return Vec::new();
        }
        bytes.truncate(memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1));
        self.0 = from + bytes.len() as u64;
        bytes
    }
}
