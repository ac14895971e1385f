//! What a file is, whatever it is called; and what is in a folder.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// Device and inode. A deleted file's inode is given to a later one, so who keeps this for long keeps a second mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// How far the times of files may lie behind the clock: kernels take them from one that goes on tick by tick.
pub const TICK: Duration = Duration::from_millis(20);

/// Length and time of change, to see whether a file is worth reading again: what is rewritten in place may keep its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub length: u64,
    changed: (i64, i64),
}

impl Stamp {
    pub fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self { length: meta.len(), changed: (meta.mtime(), meta.mtime_nsec()) })
    }

    /// Whether a further change would have another time. One from the future is no reason to wait for it.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let changed =
            Timestamp(self.changed.0.saturating_mul(1000).saturating_add(self.changed.1 / 1_000_000));
        now < changed || now.since(changed) >= TICK
    }
}

/// What is in a folder; nothing in one that does not exist.
pub fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// There is no such folder.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
