//! A terminal of our own for the wrapper, where the user has none.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, ExitStatus};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const SIZE: Winsize = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };

/// Runs the command to its end on a terminal that nobody sees. Its standard error stays ours, for messages.
///
/// The command is to call [`take_terminal`]: then our own end, however it comes, hangs up on it.
pub fn in_outer_terminal(command: &mut Command) -> io::Result<ExitStatus> {
    let (near, far) = pair()?;
    command.stdin(far.try_clone()?).stdout(far);
    let child = command.spawn();
    // The command's copies of the far side would keep the terminal open for ever.
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let mut child = child?;
    let mut near = File::from(near);
    let mut unseen = [0; 4096];
    // Linux ends a terminal that nobody holds any more with an error.
    while near.read(&mut unseen).is_ok_and(|count| count > 0) {}
    child.wait()
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    fcntl_setfd(&near, FdFlags::CLOEXEC)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let name = ptsname(&near, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let far = open(OsStr::from_bytes(name.as_bytes()), flags, Mode::empty())?;
    tcsetwinsize(&far, SIZE)?;
    Ok((near, far))
}

/// Makes the terminal on standard input that of a session of our own.
pub fn take_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
}
