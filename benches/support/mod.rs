//! What the benchmarks of terminals share: a terminal with a program on it, and quantiles.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

/// A terminal with one program on it.
pub struct Terminal {
    pub master: File,
    pub child: Child,
}

impl Terminal {
    pub fn open(mut command: Command) -> Self {
        let (master, slave) = open_pty();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().expect("the program starts");
        Self { master, child }
    }

    /// Reads until the marker has come by.
    pub fn wait_for(&mut self, marker: &[u8]) {
        let mut seen = Vec::new();
        let mut chunk = [0; 4096];
        while !seen.windows(marker.len()).any(|window| window == marker) {
            let count = self.master.read(&mut chunk).expect("the program speaks");
            seen.extend_from_slice(&chunk[..count]);
        }
    }

    pub fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn open_pty() -> (File, OwnedFd) {
    let size = portable_pty::PtySize { rows: 40, cols: 120, pixel_width: 960, pixel_height: 800 };
    let pair = portable_pty::native_pty_system().openpty(size).expect("a PTY");
    let fd = pair.master.as_raw_fd().expect("a descriptor");
    // SAFETY: dup of an open descriptor.
    let master = unsafe { OwnedFd::from_raw_fd(libc::dup(fd)) };
    let path = pair.master.tty_name().expect("a name");
    let slave: OwnedFd = File::options().read(true).write(true).open(path).expect("the far side").into();
    let mut settings = tcgetattr(&slave).unwrap();
    settings.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &settings).unwrap();
    tcsetwinsize(&slave, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 960, ws_ypixel: 800 }).unwrap();
    (master.into(), slave)
}

pub fn quantile(sorted: &[Duration], q: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let at = ((sorted.len() - 1) as f64 * q) as usize;
    sorted[at].as_secs_f64()
}
