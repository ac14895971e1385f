//! The shims folder: a symlink per agent to the running binary.
//!
//! Promises: a file that is not one of our shims is never replaced and never removed; a shim is there or not there,
//! never half.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::resolve::SCRIPT_MARKER;
use super::shell;
use os::file::create_private;
use os::file::read_at_most;

/// What stands where a shim belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShimState {
    /// Ours, and it runs this binary.
    Current,
    /// Ours, but it runs another binary, or one that is gone.
    Stale {
        target: PathBuf,
    },
    /// Somebody else's file.
    Foreign,
    Missing,
}

/// What `install` or `uninstall` did to one shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimChange {
    Created,
    Replaced,
    Unchanged,
    Removed,
    Absent,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} is not a codemie shim and is left alone; move it away and try again", path.display())]
    Foreign { path: PathBuf },
    #[error("cannot write {}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// The shims folder and the binary that its shims are to run.
#[derive(Clone, Debug)]
pub struct Shims {
    folder: PathBuf,
    binary: PathBuf,
}

impl Shims {
    /// `binary` is the canonical path of the running executable.
    pub fn new(folder: impl Into<PathBuf>, binary: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), binary: binary.into() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn state(&self, name: &str) -> Result<ShimState, Error> {
        let path = self.path(name);
        self.look(&path).map_err(|error| Error::Io { path, error })
    }

    pub fn install(&self, name: &str) -> Result<ShimChange, Error> {
        let path = self.path(name);
        let io = |error| Error::Io { path: path.clone(), error };
        create_private(&self.folder).map_err(io)?;
        match self.look(&path).map_err(io)? {
            ShimState::Current => Ok(ShimChange::Unchanged),
            ShimState::Foreign => Err(Error::Foreign { path }),
            ShimState::Missing => match self.create(&path, name) {
                // Another process was faster; the next look finds out what it made.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Foreign { path }),
                created => created.map(|()| ShimChange::Created).map_err(io),
            },
            ShimState::Stale { .. } => {
                let temporary = self.folder.join(format!(".{name}.{}", std::process::id()));
                self.create(&temporary, name).and_then(|()| fs::rename(&temporary, &path)).map_err(
                    |error| {
                        _ = fs::remove_file(&temporary);
                        io(error)
                    },
                )?;
                Ok(ShimChange::Replaced)
            }
        }
    }

    pub fn uninstall(&self, name: &str) -> Result<ShimChange, Error> {
        let path = self.path(name);
        match self.state(name)? {
            ShimState::Missing => Ok(ShimChange::Absent),
            ShimState::Foreign => Err(Error::Foreign { path }),
            ShimState::Current | ShimState::Stale { .. } => match fs::remove_file(&path) {
                Ok(()) => Ok(ShimChange::Removed),
                Err(error) => Err(Error::Io { path, error }),
            },
        }
    }

    /// Removes the folder when it is empty.
    pub fn remove_empty_folder(&self) {
        _ = fs::remove_dir(&self.folder);
    }

    fn look(&self, path: &Path) -> io::Result<ShimState> {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ShimState::Missing),
            Err(error) => return Err(error),
        };
        if meta.is_symlink() {
            let target = fs::read_link(path)?;
            return Ok(if target == self.binary {
                ShimState::Current
            } else if target.file_name() == Some(OsStr::new("codemie"))
                || target.file_name() == self.binary.file_name()
            {
                ShimState::Stale { target }
            } else {
                ShimState::Foreign
            });
        }
        if !meta.is_file() {
            return Ok(ShimState::Foreign);
        }
        let content = read_at_most(path, u64::MAX)?;
        let ours = content.starts_with(b"#!") && memchr::memmem::find(&content, SCRIPT_MARKER).is_some();
        Ok(match ours {
            true if content == self.script(path) => ShimState::Current,
            true => ShimState::Stale { target: path.to_owned() },
            false => ShimState::Foreign,
        })
    }

    /// Fails when `path` exists. A file system without symlinks gets a script instead.
    fn create(&self, path: &Path, name: &str) -> io::Result<()> {
        match symlink(&self.binary, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists && no_symlinks(&error) => {
                let mut file = fs::File::create_new(path)?;
                file.write_all(&shell::script_shim(&self.binary, name))?;
                file.set_permissions(fs::Permissions::from_mode(0o755))
            }
            made => made,
        }
    }

    fn script(&self, path: &Path) -> Vec<u8> {
        shell::script_shim(&self.binary, &path.file_name().unwrap_or_default().to_string_lossy())
    }
}

/// What vfat, some network and some container file systems answer to symlink(2).
fn no_symlinks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        folder: tempfile::TempDir,
        shims: Shims,
    }

    fn world() -> World {
        let folder = tempfile::tempdir().unwrap();
        let shims = Shims::new(folder.path().join("home/shims"), "/opt/codemie");
        World { folder, shims }
    }

    fn put(world: &World, make: impl FnOnce(&Path)) {
        create_private(world.shims.folder()).unwrap();
        make(&world.shims.path("claude"));
    }

    #[test]
    fn installs_once_and_takes_away_what_it_made() {
        let world = world();
        assert_eq!(world.shims.state("claude").unwrap(), ShimState::Missing);
        assert_eq!(world.shims.install("claude").unwrap(), ShimChange::Created);
        assert_eq!(world.shims.install("claude").unwrap(), ShimChange::Unchanged);
        assert_eq!(fs::read_link(world.shims.path("claude")).unwrap(), Path::new("/opt/codemie"));
        assert_eq!(world.shims.uninstall("claude").unwrap(), ShimChange::Removed);
        assert_eq!(world.shims.uninstall("claude").unwrap(), ShimChange::Absent);
        world.shims.remove_empty_folder();
        assert!(!world.shims.folder().exists());
    }

    #[test]
    fn a_shim_of_an_earlier_installation_is_replaced_without_leaving_anything() {
        let world = world();
        put(&world, |path| symlink("/old/bin/codemie", path).unwrap());
        assert_eq!(
            world.shims.state("claude").unwrap(),
            ShimState::Stale { target: "/old/bin/codemie".into() },
            "dangling, yet ours"
        );
        assert_eq!(world.shims.install("claude").unwrap(), ShimChange::Replaced);
        assert_eq!(world.shims.state("claude").unwrap(), ShimState::Current);
        assert_eq!(fs::read_dir(world.shims.folder()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_somebody_else_is_neither_replaced_nor_removed() {
        type Make = fn(&Path);
        let cases: [(&str, Make); 5] = [
            ("a program", |path| fs::write(path, b"\x7fELF").unwrap()),
            ("a script", |path| fs::write(path, b"#!/bin/sh\nexec mise\n").unwrap()),
            ("a symlink elsewhere", |path| symlink("/usr/lib/claude/cli.js", path).unwrap()),
            ("a folder", |path| fs::create_dir(path).unwrap()),
            ("the marker in a text", |path| fs::write(path, SCRIPT_MARKER).unwrap()),
        ];
        for (what, make) in cases {
            let world = world();
            put(&world, make);
            let before = fs::symlink_metadata(world.shims.path("claude")).unwrap().modified().unwrap();
            assert!(matches!(world.shims.install("claude"), Err(Error::Foreign { .. })), "{what}");
            assert!(matches!(world.shims.uninstall("claude"), Err(Error::Foreign { .. })), "{what}");
            let after = fs::symlink_metadata(world.shims.path("claude")).unwrap().modified().unwrap();
            assert_eq!(before, after, "{what}");
        }
    }

    #[test]
    fn a_script_shim_is_ours() {
        let world = world();
        put(&world, |path| fs::write(path, shell::script_shim(Path::new("/opt/codemie"), "claude")).unwrap());
        assert_eq!(world.shims.state("claude").unwrap(), ShimState::Current);
        put(&world, |path| fs::write(path, shell::script_shim(Path::new("/old/codemie"), "claude")).unwrap());
        assert_eq!(world.shims.install("claude").unwrap(), ShimChange::Replaced);
        assert!(world.folder.path().join("home/shims/claude").is_symlink());
    }
}
