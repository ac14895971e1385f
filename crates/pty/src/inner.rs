//! The inner terminal: a PTY whose far side is the program's controlling terminal.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use portable_pty::{MasterPty, PtySize, native_pty_system};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use super::sys;
use super::typed_ahead::TypedAhead;
use super::wait::{Watch, wait};
use types::Pid;

/// The master side.
pub struct Inner {
    /// For sizes; its writer is never taken, because dropping that one types a newline and ^D into the program.
    pty: Box<dyn MasterPty + Send>,
    fd: OwnedFd,
    size: PtySize,
    /// Packet mode is on: reads begin with a byte for their kind.
    pub packets: bool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("fd", &self.fd).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Inner {
    /// Opens a PTY with the given size and terminal settings (`None`: the kernel's). Also returns the far side, for the
    /// monitor.
    pub fn open(size: PtySize, settings: Option<&Termios>) -> io::Result<(Self, OwnedFd)> {
        let pair = native_pty_system().openpty(size).map_err(io::Error::other)?;
        let raw = pair.master.as_raw_fd().ok_or_else(|| io::Error::other("the PTY has no descriptor"))?;
        let fd = sys::duplicate(raw)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        let far = far_side(&*pair.master, &fd)?;
        if let Some(settings) = settings {
            tcsetattr(&far, OptionalActions::Now, settings)?;
        }
        let packets = sys::packet_mode(fd.as_fd());
        Ok((Self { pty: pair.master, fd, size, packets }, far))
    }

    /// The descriptors that must stay open.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.fd.as_raw_fd(), self.pty.as_raw_fd().unwrap_or(-1)]
    }

    /// Passes a new size on; the kernel signals the program. False if the size is unchanged.
    pub fn resize(&mut self, size: PtySize) -> bool {
        let changed = size != self.size && self.pty.resize(size).is_ok();
        if changed {
            self.size = size;
        }
        changed
    }

    /// Is this process group in the foreground here?
    pub fn is_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(&self.fd).is_ok_and(|foreground| foreground.as_raw_nonzero().get() == group.0)
    }

    /// Takes the input that nobody has read. The program has ended.
    pub fn take_unread(&self) -> TypedAhead {
        let Ok(far) = far_side(&*self.pty, &self.fd) else { return TypedAhead::default() };
        if rustix::io::ioctl_fionbio(&far, true).is_err() {
            return TypedAhead::default();
        }
        let mut unread = TypedAhead::take_lines(far.as_fd());
        if let Ok(mut settings) = tcgetattr(&far) {
            settings.make_raw();
            let _ = tcsetattr(&far, OptionalActions::Now, &settings);
            unread.take_bytes(far.as_fd());
        }
        unread
    }

    /// Will the next read return a report about the queues, and no output?
    pub fn has_report(&self) -> bool {
        let mut watch = [Watch::new(self.as_fd(), false, false).or_report(true)];
        wait(&mut watch, Some(Duration::ZERO)).is_ok() && watch[0].readable
    }

    /// The settings as the program has them.
    pub fn settings(&self) -> io::Result<Termios> {
        Ok(tcgetattr(&self.fd)?)
    }
}

impl AsFd for Inner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(target_os = "linux")]
fn far_side(_pty: &dyn MasterPty, master: &OwnedFd) -> io::Result<OwnedFd> {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
    // Not by name: `/dev/pts` may be another one here.
    Ok(ioctl_tiocgptpeer(master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?)
}

#[cfg(not(target_os = "linux"))]
fn far_side(pty: &dyn MasterPty, _master: &OwnedFd) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let name = pty.tty_name().ok_or_else(|| io::Error::other("the PTY has no name"))?;
    Ok(open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?)
}
