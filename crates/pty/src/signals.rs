//! Signals as bytes in a pipe, so that one loop can wait for them together with the terminal.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

use libc::c_int;

use super::sys;
use super::sys::{Caught, Sender};

/// Signals that reach the program when a process sends them to us: all that would end us with the terminal in raw mode, and
/// those that are lost on us.
const FORWARDED: [c_int; 21] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGIO,
    libc::SIGABRT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGPIPE,
    libc::SIGURG,
];

#[cfg(target_os = "linux")]
const FORWARDED_HERE: [c_int; 2] = [libc::SIGPWR, libc::SIGSTKFLT];
#[cfg(not(target_os = "linux"))]
const FORWARDED_HERE: [c_int; 0] = [];

/// The above and the real-time signals.
pub fn forwarded() -> impl Iterator<Item = c_int> {
    FORWARDED.into_iter().chain(FORWARDED_HERE).chain(sys::real_time_signals())
}

/// The caught signals of this process. There is one at a time.
#[derive(Debug)]
pub struct Signals {
    caught: Vec<c_int>,
    reader: UnixStream,
    /// Kept open for the handler, which knows it by number.
    writer: UnixStream,
}

impl Signals {
    /// Makes the pipe, so that what can fail for want of descriptors fails before anything is started.
    pub fn prepare() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { caught: Vec::new(), reader, writer })
    }

    /// Catches the given signals, except those that the caller had ignored: they stay ignored. SIGCHLD is always
    /// caught, for an ignored one would make the kernel throw exit statuses away.
    pub fn catch(&mut self, signals: impl IntoIterator<Item = c_int>) -> io::Result<()> {
        sys::wake_through(self.writer.as_fd());
        for signal in signals {
            if signal == libc::SIGCHLD || !sys::was_ignored(signal) {
                sys::catch(signal)?;
                self.caught.push(signal);
            }
        }
        Ok(())
    }

    /// The descriptors that must stay open.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.reader.as_raw_fd(), self.writer.as_raw_fd()]
    }

    /// The next signal that has arrived, if any.
    pub fn next(&mut self) -> Option<Caught> {
        let mut note = [0; 2];
        loop {
            match self.reader.read(&mut note) {
                Ok(2) => {
                    return Some(Caught { signal: c_int::from(note[0]), sender: Sender::decode(note[1]) });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

impl Drop for Signals {
    /// The number of the pipe may be a file's next; and what comes now is for us alone.
    fn drop(&mut self) {
        sys::stop_waking(self.writer.as_fd());
        for signal in &self.caught {
            let _ = match *signal {
                // Rust's runtime has it ignored: a message that nobody reads must not end us.
                libc::SIGPIPE => sys::ignore(libc::SIGPIPE),
                signal => sys::set_default(signal),
            };
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
