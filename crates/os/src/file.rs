//! Files and folders that others may have made: their identity, and how to open, read and list them without waiting or
//! unbounded memory.

use std::fs::{self, DirBuilder};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use types::Timestamp;

/// Device and inode. A deleted file's inode is given to a later one, so code that stores this for long stores a second mark as well.
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

    pub fn is_settled(&self, now: Timestamp) -> bool {
        is_settled(Timestamp::from(self.changed), now)
    }
}

/// Whether a change of a file that changed at `changed` would have another time now. A time in the future is no reason to wait
/// for it.
pub fn is_settled(changed: Timestamp, now: Timestamp) -> bool {
    now < changed || now.since(changed) >= TICK
}

/// When a file was written last.
pub fn modified(meta: &fs::Metadata) -> Timestamp {
    meta.modified().map_or(Timestamp(0), Timestamp::from)
}

/// Opens for reading what others may have put at `path`.
///
/// A pipe, a device, a socket or a folder is an error, at once: opening or reading one could wait for ever, and with it the
/// tracker, a command or the start of an agent. Files of our own folders are opened the same way; it costs one `fstat`.
pub fn open_regular(path: &Path) -> io::Result<fs::File> {
    open_regular_with(fs::File::options().read(true), path)
}

/// The same with other rights than reading: to append, to create, to lock.
#[expect(clippy::disallowed_methods, reason = "the one place that opens files by name")]
pub fn open_regular_with(options: &mut fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    // Neither waits for the other end of a pipe nor makes a terminal ours; a regular file does not notice.
    let opened = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    // The kernel's errors for a socket, and for a pipe that nobody reads.
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO | libc::EISDIR) => not_regular(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// A file of our own to write to or to lock, made for the user alone if it is not there; what is in it stays.
pub fn open_private(path: &Path) -> io::Result<fs::File> {
    open_regular_with(fs::File::options().write(true).create(true).truncate(false).mode(0o600), path)
}

pub fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")
}

/// All of a regular file, if that is no more than `most` bytes.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_large(most));
    }
    // One read instead of many; a file that grows meanwhile, or has no length (/proc), is read to its end all the same.
    bounded(file, most, usize::try_from(length).unwrap_or_default())
}

/// The first bytes of a regular file, `most` at the most.
pub fn head(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last bytes of a regular file, `most` at the most.
pub fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(most)))?;
    bounded(file, most, usize::try_from(length.min(most)).unwrap_or_default())
}

/// Opens what the user named, whatever it is: a pipe is as good as a file.
#[expect(clippy::disallowed_methods, reason = "the user named it and may interrupt it")]
pub fn open_named(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

fn bounded(file: fs::File, most: u64, expected: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(expected.saturating_add(1))?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large(most));
    }
    Ok(bytes)
}

pub fn too_large(most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {most} bytes"))
}

/// As [`read_at_most`], for UTF-8 text.
pub fn text_at_most(path: &Path, most: u64) -> io::Result<String> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(read_at_most(path, most)?).map_err(invalid)
}

/// The paths in a folder; none if it does not exist.
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

/// `mkdir -p` with mode 0700 for every folder that had to be made.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// For tests: a pipe in the place of a file, which nobody writes to. By mkfifo(1), because macOS has no `mkfifoat` before 13 and
/// rustix wraps no other call for it.
#[doc(hidden)]
pub fn make_pipe(path: &Path) -> io::Result<()> {
    let made = std::process::Command::new("mkfifo").args(["-m", "700"]).arg(path).status()?;
    if made.success() { Ok(()) } else { Err(io::Error::other(format!("mkfifo: {made}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        assert_eq!(text_at_most(&at("file"), 5).unwrap(), "12345");
        assert_eq!(head(&at("file"), 3).unwrap(), b"123");
        assert_eq!(read_at_most(&at("file"), 4).unwrap_err().to_string(), "it is larger than 4 bytes");
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert!(open_regular(&at("link")).is_ok());
        assert_eq!(open_regular(&at("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(
            !read_at_most(Path::new("/proc/self/stat"), u64::MAX).unwrap().is_empty(),
            "no length, yet text"
        );

        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        make_pipe(&at("pipe")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for other in [at("zero"), at("pipe"), at("socket"), folder.path().to_owned()] {
            let refused = [
                open_regular(&other).map(drop),
                read_at_most(&other, u64::MAX).map(drop),
                head(&other, 1).map(drop),
                open_regular_with(fs::File::options().append(true).create(true), &other).map(drop),
            ];
            for error in refused.map(Result::unwrap_err) {
                assert_eq!(error.to_string(), "it is not a regular file", "{}", other.display());
            }
        }
    }
}
