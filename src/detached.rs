//! Detached processes: codemie starts itself once more for work that nobody waits for.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use crate::home::Home;
use system::file::create_private;
use system::file::open_private;

/// Starts a codemie command in a session of its own, without a terminal and without any descriptor of ours.
pub fn start<I: AsRef<OsStr>>(home: &Home, args: impl IntoIterator<Item = I>) -> io::Result<()> {
    // Its working directory is the root, so a relative home would be another folder.
    let home = std::path::absolute(home.path())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).env("CODEMIE_HOME", home);
    terminal::spawn_detached(&mut command)
}

/// The lock of the one process that may do this work, released with the file; `None` while another process holds it.
pub fn lock(home: &Home, work: &str) -> Option<File> {
    create_private(&home.run()).ok()?;
    let path = home.run().join(format!("{work}.lock"));
    let file = open_private(&path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}
