//! The file that an import reads, twice: what it is, then what is in it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use os::file::{modified, not_regular, open_named, open_regular, too_large};
use types::Timestamp;

pub(super) struct Source {
    /// As links resolve.
    pub(super) path: PathBuf,
    /// Its time of change, which stands in where an entry has none.
    pub(super) written: Timestamp,
    file: File,
    most: u64,
}

impl Source {
    /// A path that the user named. A pipe is copied to a temporary file. A device that is no terminal is refused: it could be
    /// read for ever.
    pub(super) fn named(path: &Path, most: u64) -> io::Result<Self> {
        let file = open_named(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_file() {
            return Self::of(path, file, most);
        }
        if kind.is_dir()
            || kind.is_block_device()
            || (kind.is_char_device() && !rustix::termios::isatty(&file))
        {
            return Err(not_regular());
        }
        let mut copy = tempfile::tempfile()?;
        if io::copy(&mut file.take(most + 1), &mut copy)? > most {
            return Err(too_large(most));
        }
        Self::of(path, copy, most)
    }

    /// A path that was found in a folder, where anybody may have put it: only a regular file is read, and no pipe is waited for.
    pub(super) fn found(path: &Path, most: u64) -> io::Result<Self> {
        Self::of(path, open_regular(path)?, most)
    }

    fn of(path: &Path, file: File, most: u64) -> io::Result<Self> {
        let meta = file.metadata()?;
        if meta.len() > most {
            return Err(too_large(most));
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { path, written: modified(&meta), file, most })
    }

    /// From its beginning; no more than is allowed, should it have grown.
    pub(super) fn read(&self) -> io::Result<impl Read> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        Ok(file.take(self.most))
    }
}
