//! The little that finding a binary needs of the file system, behind a seam so that the decisions are tables.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use os::file::open_regular;

pub use os::file::FileId;

/// What is at a path, symlinks followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub id: FileId,
    pub is_directory: bool,
    /// Neither a folder nor a pipe, socket or device: reading it does not block.
    pub is_regular: bool,
}

pub trait Files {
    fn stat(&self, path: &Path) -> io::Result<Seen>;
    /// Whether this process may execute it: the kernel's answer, not the mode bits'.
    fn executable(&self, path: &Path) -> bool;
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;
    /// The first bytes of a file, as many as fit.
    fn head(&self, path: &Path, buffer: &mut [u8]) -> io::Result<usize>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn stat(&self, path: &Path) -> io::Result<Seen> {
        let meta = std::fs::metadata(path)?;
        Ok(Seen {
            id: FileId { device: meta.dev(), inode: meta.ino() },
            is_directory: meta.is_dir(),
            is_regular: meta.is_file(),
        })
    }

    fn executable(&self, path: &Path) -> bool {
        accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }

    fn head(&self, path: &Path, buffer: &mut [u8]) -> io::Result<usize> {
        open_regular(path)?.read(buffer)
    }
}

/// The running codemie binary, to be recognised on PATH. Either half may be unknown; with both unknown nothing is recognised,
/// and loops are left to the depth counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnBinary {
    pub file: Option<FileId>,
    pub canonical: Option<PathBuf>,
}

impl OwnBinary {
    /// The running executable. Its inode is asked of the kernel's own link, which still answers when the file has been
    /// replaced by an upgrade; the path then says where the new one, which is us too, stands.
    pub fn of_this_process(files: &impl Files) -> Self {
        match std::env::current_exe() {
            Ok(exe) => {
                let canonical = without_deleted_mark(exe);
                let running =
                    if cfg!(target_os = "linux") { Path::new("/proc/self/exe") } else { &canonical };
                Self { file: files.stat(running).ok().map(|seen| seen.id), canonical: Some(canonical) }
            }
            Err(_) => Self::from_argv0(std::env::args_os().next(), std::env::var_os("PATH"), files),
        }
    }

    /// Without `/proc`: the first thing on PATH under the name we were called by is what the caller's execvp ran.
    fn from_argv0(argv0: Option<OsString>, path: Option<OsString>, files: &impl Files) -> Self {
        let Some(argv0) = argv0.filter(|name| !name.is_empty()) else { return Self::default() };
        let found = if argv0.as_bytes().contains(&b'/') {
            Some(PathBuf::from(argv0))
        } else {
            let path = path.unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(&argv0)).find(|file| files.executable(file))
        };
        let Some(found) = found else { return Self::default() };
        Self { file: files.stat(&found).ok().map(|seen| seen.id), canonical: files.canonicalize(&found).ok() }
    }
}

/// Linux marks the path of a running file that was unlinked or replaced.
fn without_deleted_mark(exe: PathBuf) -> PathBuf {
    match exe.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => PathBuf::from(OsStr::from_bytes(path)),
        None => exe,
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "for tests alone")]
pub mod fake {
    //! A file system that is a table.

    use super::{FileId, Files, Seen};
    use std::collections::HashMap;
    use std::io;
    use std::path::{Path, PathBuf};

    #[derive(Clone, Debug)]
    pub struct Entry {
        pub inode: u64,
        pub directory: bool,
        pub pipe: bool,
        pub executable: bool,
        pub canonical: Option<&'static str>,
        pub content: &'static [u8],
        pub error: Option<io::ErrorKind>,
    }

    pub fn program(inode: u64, content: &'static [u8]) -> Entry {
        Entry {
            inode,
            directory: false,
            pipe: false,
            executable: true,
            canonical: None,
            content,
            error: None,
        }
    }

    #[derive(Debug, Default)]
    pub struct Table(pub HashMap<&'static str, Entry>);

    impl Table {
        pub fn of(entries: &[(&'static str, Entry)]) -> Self {
            Self(entries.iter().cloned().collect())
        }

        fn entry(&self, path: &Path) -> io::Result<&Entry> {
            let entry = path.to_str().and_then(|path| self.0.get(path)).ok_or(io::ErrorKind::NotFound)?;
            entry.error.map_or(Ok(entry), |kind| Err(kind.into()))
        }
    }

    impl Files for Table {
        fn stat(&self, path: &Path) -> io::Result<Seen> {
            let entry = self.entry(path)?;
            Ok(Seen {
                id: FileId { device: 1, inode: entry.inode },
                is_directory: entry.directory,
                is_regular: !entry.directory && !entry.pipe,
            })
        }

        fn executable(&self, path: &Path) -> bool {
            self.entry(path).is_ok_and(|entry| entry.executable)
        }

        fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
            Ok(self.entry(path)?.canonical.map_or_else(|| path.to_owned(), PathBuf::from))
        }

        fn head(&self, path: &Path, buffer: &mut [u8]) -> io::Result<usize> {
            let content = self.entry(path)?.content;
            let length = content.len().min(buffer.len());
            buffer[..length].copy_from_slice(&content[..length]);
            Ok(length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::{Table, program};
    use super::*;

    #[test]
    fn a_replaced_executable_keeps_its_place() {
        assert_eq!(without_deleted_mark("/opt/codemie (deleted)".into()), Path::new("/opt/codemie"));
        assert_eq!(without_deleted_mark("/opt/codemie".into()), Path::new("/opt/codemie"));
    }

    #[test]
    fn the_running_test_knows_itself_by_inode_and_path() {
        let me = OwnBinary::of_this_process(&DiskFiles);
        let exe = std::env::current_exe().unwrap();
        assert_eq!(me.file, Some(DiskFiles.stat(&exe).unwrap().id));
        assert_eq!(me.canonical, Some(exe));
    }

    #[test]
    fn without_proc_the_name_we_were_called_by_says_who_we_are() {
        let files = Table::of(&[("/b/claude", program(7, b"\x7fELF"))]);
        let by_name = OwnBinary::from_argv0(Some("claude".into()), Some("/a:/b".into()), &files);
        assert_eq!(by_name.file, Some(FileId { device: 1, inode: 7 }));
        let by_path = OwnBinary::from_argv0(Some("/b/claude".into()), None, &files);
        assert_eq!(by_path, by_name);
        assert_eq!(OwnBinary::from_argv0(None, Some("/b".into()), &files), OwnBinary::default());
    }
}
