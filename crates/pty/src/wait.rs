//! Waiting for several descriptors at once: poll(2), or select(2) where poll refuses terminals (macOS).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// One descriptor, the events to wait for, and after `wait` the events that are there.
#[derive(Debug)]
pub struct Watch<'a> {
    pub fd: BorrowedFd<'a>,
    pub read: bool,
    pub write: bool,
    /// Wait for a report about a PTY's queues, which comes before its bytes. Only where there is packet mode.
    urgent: bool,
    /// A read will not block: there are bytes, or the other side is gone.
    pub readable: bool,
    pub writable: bool,
}

impl<'a> Watch<'a> {
    pub fn new(fd: BorrowedFd<'a>, read: bool, write: bool) -> Self {
        Self { fd, read, write, urgent: false, readable: false, writable: false }
    }

    /// Also waits for a report about a PTY's queues, whether or not its bytes are wanted.
    #[must_use]
    pub fn or_report(mut self, wanted: bool) -> Self {
        self.urgent = wanted;
        self
    }

    #[cfg(not(any(target_os = "macos", feature = "portable")))]
    fn is_wanted(&self) -> bool {
        self.read || self.write || self.urgent
    }
}

/// Waits until one of the watches is ready, a signal came, or the time is up.
pub fn wait(watches: &mut [Watch<'_>], timeout: Option<Duration>) -> io::Result<()> {
    platform::wait(watches, timeout)
}

#[cfg(not(any(target_os = "macos", feature = "portable")))]
mod platform {
    use std::io;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::Watch;

    /// More than the loops ever watch.
    const MOST: usize = 8;

    pub(super) fn wait(watches: &mut [Watch<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let nothing = || PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::empty());
        let mut fds: [PollFd<'_>; MOST] = std::array::from_fn(|_| nothing());
        let mut count = 0;
        // A descriptor nobody waits for stays out: poll reports a hang-up on it all the same, at once and for ever.
        for watch in watches.iter().filter(|watch| watch.is_wanted()) {
            fds[count] = PollFd::from_borrowed_fd(watch.fd, wanted(watch));
            count += 1;
        }
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds[..count], timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for (watch, fd) in watches.iter_mut().filter(|watch| watch.is_wanted()).zip(&fds) {
            let got = fd.revents();
            let gone = got.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
            let reported = watch.urgent && got.contains(PollFlags::PRI);
            watch.readable = reported || watch.read && (gone || got.contains(PollFlags::IN));
            watch.writable = watch.write && (gone || got.contains(PollFlags::OUT));
        }
        Ok(())
    }

    fn wanted(watch: &Watch<'_>) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, watch.read);
        flags.set(PollFlags::OUT, watch.write);
        flags.set(PollFlags::PRI, watch.urgent);
        flags
    }
}

#[cfg(any(target_os = "macos", feature = "portable"))]
mod platform {
    use std::io;
    use std::time::Duration;

    use super::Watch;
    use crate::sys;

    pub(super) fn wait(watches: &mut [Watch<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let mut ready = [(false, false); 8];
        let wanted = watches.iter().map(|watch| (watch.fd, watch.read, watch.write, watch.urgent));
        match sys::select(wanted, timeout, &mut ready) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        for (watch, (readable, writable)) in watches.iter_mut().zip(ready) {
            watch.readable = (watch.read || watch.urgent) && readable;
            watch.writable = watch.write && writable;
        }
        Ok(())
    }
}
