//! A home folder of its own for a test, and commands that know no other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) const CODEMIE: &str = env!("CARGO_BIN_EXE_codemie");

/// Where the tools of the machine are.
pub(crate) const TOOLS: &str = "/usr/local/bin:/usr/bin:/bin";

/// The folder has a space and a quote in its name, because somebody's has.
pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
    home: PathBuf,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        // Beside the binary, so that a hard link to it can be made.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let home = folder.path().join("it's home");
        fs::create_dir(&home).unwrap();
        Self { folder, home }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// A place outside the home folder.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// An executable `/bin/sh` script.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.file(name, &format!("#!/bin/sh\n{body}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// PATH of the named folders in the home folder.
    pub(crate) fn search(&self, folders: &[&str]) -> OsString {
        std::env::join_paths(folders.iter().map(|name| self.path(name))).unwrap()
    }

    /// A command in the home folder that sees nothing of the tester's own environment.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", TOOLS)
            .env("LANG", "C.UTF-8")
            .current_dir(&self.home)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn codemie(&self, args: &[&str]) -> Command {
        let mut command = self.command(CODEMIE);
        command.args(args);
        command
    }

    /// Everything in the home folder: name, type, mode, content.
    pub(crate) fn tree(&self) -> BTreeMap<PathBuf, Entry> {
        let mut tree = BTreeMap::new();
        walk(&self.home, &self.home, &mut tree);
        tree
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    mode: u32,
    content: Content,
}

#[derive(PartialEq, Eq)]
enum Content {
    Folder,
    Link(PathBuf),
    File(Vec<u8>),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder => f.write_str("folder"),
            Self::Link(target) => write!(f, "-> {}", target.display()),
            Self::File(bytes) if bytes.len() > 4096 => write!(f, "{} bytes", bytes.len()),
            Self::File(bytes) => write!(f, "{:?}", bytes.escape_ascii().to_string()),
        }
    }
}

fn walk(root: &Path, folder: &Path, tree: &mut BTreeMap<PathBuf, Entry>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_symlink() {
            Content::Link(fs::read_link(&path).unwrap())
        } else if meta.is_dir() {
            walk(root, &path, tree);
            Content::Folder
        } else {
            Content::File(fs::read(&path).unwrap())
        };
        tree.insert(path.strip_prefix(root).unwrap().to_owned(), Entry { mode: meta.mode(), content });
    }
}

/// What a command printed, as text, and its exit code.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn output_of(command: &mut Command) -> CommandOutput {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    CommandOutput {
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Those of `shells` that this machine has; a missing one is named, because a silent skip looks like a pass.
pub(crate) fn present<'a>(shells: &[&'a [&'a str]]) -> Vec<&'a [&'a str]> {
    let here = |name: &str| std::env::split_paths(TOOLS).any(|folder| folder.join(name).is_file());
    let (found, missing): (Vec<&[&str]>, Vec<_>) = shells.iter().partition(|shell| here(shell[0]));
    for shell in missing {
        println!("left out: {} is not installed", shell[0]);
    }
    assert!(!found.is_empty(), "no shell at all");
    found
}
