//! Detached processes: codemie starts itself once more for work that nobody waits for.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use os::file::create_private;
use os::file::open_private;
use os::home::Home;

/// Starts a codemie command in a session of its own, without a terminal and without any descriptor of ours.
pub fn start<I: AsRef<OsStr>>(home: &Home, args: impl IntoIterator<Item = I>) -> io::Result<()> {
    // Its working directory is the root, so a relative home would be another folder.
    let home = std::path::absolute(home.path())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).env("CODEMIE_HOME", home);
    crate::spawn_detached(&mut command)
}

/// Whether a process with this command line is such a one: it works for the whole home, whichever run has started it.
pub fn is_detached(command: &[OsString]) -> bool {
    let named =
        command.first().is_some_and(|path| Path::new(path).file_name().is_some_and(|name| name == "codemie"));
    let works = ["deliver", "import-found", "proxy-keeper", "proxy-worker"];
    named && command.get(1).is_some_and(|work| works.iter().any(|known| work == known))
}

/// The file of [`lock`]; what its holder writes into it is for those who do not get it.
pub fn lock_file(home: &Home, work: &str) -> PathBuf {
    home.run().join(format!("{work}.lock"))
}

/// The lock of the one process that may do this work, released with the file; `None` while another process holds it.
pub fn lock(home: &Home, work: &str) -> Option<File> {
    create_private(&home.run()).ok()?;
    let path = lock_file(home, work);
    let file = open_private(&path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_for_the_home_is_known_by_its_command_line() {
        for (line, is) in [
            ("/usr/bin/codemie deliver", true),
            ("codemie import-found /p", true),
            ("codemie proxy-keeper", true),
            ("codemie proxy-worker", true),
            ("codemie proxy serve", false),
            ("codemie claude deliver", false),
            ("codemie", false),
            ("sh deliver", false),
            ("", false),
        ] {
            let command: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(is_detached(&command), is, "{line}");
        }
    }
}
