//! What a file is, whatever it is called; and what is in a folder.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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
    changed: SystemTime,
}

impl Stamp {
    pub fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self { length: meta.len(), changed: meta.modified().ok()? })
    }

    /// Whether a further change would have another time. One from the future is no reason to wait for it.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let changed = Timestamp::from(self.changed);
        now < changed || now.since(changed) >= TICK
    }
}

/// When a file was written last.
pub fn modified(meta: &fs::Metadata) -> Timestamp {
    meta.modified().map_or(Timestamp(0), Timestamp::from)
}

/// All of a file that somebody else has put there. What could be read for ever, or waited for (a device, a pipe), is an error,
/// and so is a file of more than `most` bytes.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no regular file"));
    }
    // Should it have become a pipe since, it is not waited for.
    bounded(fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path), most)
}

/// All of what was opened, whatever it is, if that is no more than `most` bytes.
pub fn bounded(file: io::Result<fs::File>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let told = format!("it is larger than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, told));
    }
    Ok(bytes)
}

/// The same of a text.
pub fn text_at_most(path: &Path, most: u64) -> io::Result<String> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(read_at_most(path, most)?).map_err(invalid)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_too_large_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        assert_eq!(text_at_most(&at("file"), 5).unwrap(), "12345");
        assert!(read_at_most(&at("file"), 4).is_err());
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        for endless in [at("zero"), at("pipe"), folder.path().to_owned()] {
            assert!(read_at_most(&endless, u64::MAX).is_err(), "{}", endless.display());
        }
    }
}
