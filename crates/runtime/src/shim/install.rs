//! The shims folder: a symlink per agent to the running binary.
//!
//! Promises: a file that is not one of our shims is never replaced and never removed; a shim is there or not there,
//! never half.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use memchr::memmem;

use super::resolve::{PathKind, SCRIPT_MARKER, SearchedPath};
use os::file::{create_private, read_at_most};

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
                file.write_all(&script_shim(&self.binary, name))?;
                file.set_permissions(fs::Permissions::from_mode(0o755))
            }
            made => made,
        }
    }

    fn script(&self, path: &Path) -> Vec<u8> {
        script_shim(&self.binary, &path.file_name().unwrap_or_default().to_string_lossy())
    }
}

/// What vfat, some network and some container file systems answer to symlink(2).
fn no_symlinks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP))
}

// The shell parts: the files of `shims/`, embedded, with this machine's paths filled in.
//
// A placeholder stands in single quotes, so that each file is valid shell as it is; the quotes are replaced with it.

const ENV_SH: &str = include_str!("../../../../shims/env.sh");
const ENV_FISH: &str = include_str!("../../../../shims/env.fish");
const INIT_BASH: &str = include_str!("../../../../shims/init.bash");
const INIT_ZSH: &str = include_str!("../../../../shims/init.zsh");
const INIT_FISH: &str = include_str!("../../../../shims/init.fish");
const COMPLETE_ZSH: &str = include_str!("../../../../shims/complete.zsh");
const SHIM_SH: &str = include_str!("../../../../shims/shim.sh");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What the shell parts are filled in with.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub shims: &'a Path,
    /// Where the installer puts the completions.
    pub completions: &'a Path,
    /// The folder that holds the codemie binary.
    pub bin: &'a Path,
    pub agents: &'a [&'a str],
}

/// The PATH set-up alone: what the installer writes to `env` and `env.fish`.
pub fn path_setup(shell: Shell, places: Places<'_>) -> Vec<u8> {
    fill(if shell == Shell::Fish { ENV_FISH } else { ENV_SH }, shell, places)
}

/// What `codemie init` prints; `completions` is the completion script of that shell.
pub fn init(shell: Shell, places: Places<'_>, completions: &[u8]) -> Vec<u8> {
    let aliases = match shell {
        Shell::Bash => INIT_BASH,
        Shell::Zsh => INIT_ZSH,
        Shell::Fish => INIT_FISH,
    };
    let mut script = path_setup(shell, places);
    script.push(b'\n');
    script.extend(fill(aliases, shell, places));
    script.push(b'\n');
    if shell == Shell::Zsh {
        script.extend(b"_codemie_complete() {\n");
        script.extend(completions);
        script.extend(b"\n}\n");
        script.extend(COMPLETE_ZSH.as_bytes());
    } else {
        script.extend(completions);
    }
    script
}

/// The script that stands in for a symlink.
pub fn script_shim(binary: &Path, name: &str) -> Vec<u8> {
    let script = replace(SHIM_SH.as_bytes(), b"'@CODEMIE@'", &quote(binary.as_os_str(), Shell::Bash));
    replace(&script, b"@NAME@", name.as_bytes())
}

fn fill(template: &str, shell: Shell, places: Places<'_>) -> Vec<u8> {
    let script = replace(template.as_bytes(), b"'@SHIMS@'", &quote(places.shims.as_os_str(), shell));
    let script = replace(&script, b"'@BIN@'", &quote(places.bin.as_os_str(), shell));
    let script = replace(&script, b"'@COMPLETIONS@'", &quote(places.completions.as_os_str(), shell));
    replace(&script, b"@AGENTS@", places.agents.join(" ").as_bytes())
}

/// One word in single quotes, whatever bytes it holds.
fn quote(word: &OsStr, shell: Shell) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        match (byte, shell) {
            (b'\'', Shell::Bash | Shell::Zsh) => quoted.extend(br"'\''"),
            (b'\'' | b'\\', Shell::Fish) => quoted.extend([b'\\', byte]),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len() + to.len());
    let mut rest = 0;
    for at in memmem::find_iter(text, from) {
        result.extend(&text[rest..at]);
        result.extend(to);
        rest = at + from.len();
    }
    result.extend(&text[rest..]);
    result
}

// What a call of an agent by its own name runs, given what stands on PATH.

/// What a shell without aliases of its own would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// codemie, by whichever shim comes first.
    Wrapped(PathBuf),
    /// The agent itself; codemie knows nothing of it.
    Bare(PathBuf),
    Nothing,
}

impl Reach {
    /// `places` is a survey of PATH, in its order.
    pub fn of(places: &[SearchedPath]) -> Self {
        places
            .iter()
            .find_map(|SearchedPath { path, kind }| match kind {
                PathKind::SameFile | PathKind::OtherCopy | PathKind::ScriptShim => {
                    Some(Self::Wrapped(path.clone()))
                }
                PathKind::Real => Some(Self::Bare(path.clone())),
                PathKind::NotFound
                | PathKind::NotExecutable
                | PathKind::Directory
                | PathKind::Unreachable(_) => None,
            })
            .unwrap_or(Self::Nothing)
    }
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
        put(&world, |path| fs::write(path, super::script_shim(Path::new("/opt/codemie"), "claude")).unwrap());
        assert_eq!(world.shims.state("claude").unwrap(), ShimState::Current);
        put(&world, |path| fs::write(path, super::script_shim(Path::new("/old/codemie"), "claude")).unwrap());
        assert_eq!(world.shims.install("claude").unwrap(), ShimChange::Replaced);
        assert!(world.folder.path().join("home/shims/claude").is_symlink());
    }
}

#[cfg(test)]
mod shell_tests {
    use super::*;

    fn places<'a>() -> Places<'a> {
        Places {
            shims: Path::new("/it's \\ a/shims"),
            completions: Path::new("/it's \\ a/completions"),
            bin: Path::new("/opt/bin"),
            agents: &["claude", "codex"],
        }
    }

    #[test]
    fn every_placeholder_is_filled_in() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(init(shell, places(), b"# completions")).unwrap();
            assert!(!script.contains('@'), "{script}");
            assert!(script.contains("in claude codex"), "{script}");
            assert!(script.contains("# completions"), "{script}");
        }
        let shim = String::from_utf8(script_shim(Path::new("/opt/codemie"), "claude")).unwrap();
        assert!(shim.contains("codemie='/opt/codemie'\n"), "{shim}");
        assert!(shim.contains("exec \"$codemie\" claude \"$@\""), "{shim}");
        assert!(!shim.contains("@NAME@"), "{shim}");
    }

    #[test]
    fn paths_are_quoted_as_each_shell_wants_it() {
        let word = OsStr::from_bytes(b"it's \\ \xff");
        assert_eq!(quote(word, Shell::Bash), b"'it'\\''s \\ \xff'");
        assert_eq!(quote(word, Shell::Fish), b"'it\\'s \\\\ \xff'");
    }

    #[test]
    fn the_script_shim_is_recognised_by_its_head() {
        let shim = script_shim(Path::new("/opt/codemie"), "claude");
        assert!(memmem::find(&shim[..64], super::super::resolve::SCRIPT_MARKER).is_some());
    }
}

#[cfg(test)]
mod status_tests {
    use super::*;

    #[test]
    fn the_first_that_can_be_run_is_what_is_run() {
        let at = |path: &str, kind| SearchedPath { path: path.into(), kind };
        let places = [
            at("/none/claude", PathKind::NotFound),
            at("/text/claude", PathKind::NotExecutable),
            at("/shims/claude", PathKind::SameFile),
            at("/real/claude", PathKind::Real),
        ];
        assert_eq!(Reach::of(&places), Reach::Wrapped("/shims/claude".into()));
        assert_eq!(Reach::of(&places[..2]), Reach::Nothing);
        assert_eq!(Reach::of(&places[3..]), Reach::Bare("/real/claude".into()));
    }
}
