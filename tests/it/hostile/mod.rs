//! What others can put in front of codemie: pipes in the place of files, endless and odd text, names that are no names.

mod output;
mod pipes;
mod setup;
mod strings;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::{CODEMIE, Sandbox};

/// A named pipe that nobody ever writes to: a program that opens it for reading in the usual way waits for ever.
fn pipe(sandbox: &Sandbox, name: &str) -> PathBuf {
    let path = sandbox.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    make_pipe(&path);
    path
}

fn make_pipe(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
}

/// codemie with a bound on its time, so that one that waits for ever fails its test (exit 124) instead of keeping it.
fn bounded(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command("/usr/bin/timeout");
    command.args(["--signal=KILL", "30", CODEMIE]).args(args);
    command
}

/// The source files of codemie.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src"), root.join("crates")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 100);
    files
}
