//! The user's terminal as the viewer of a program that runs elsewhere.
//!
//! Promises: it is raw until the viewer is finished or dropped, and has its settings back afterwards, also after a panic (by
//! the panic hook) and after signals that would end us, which arrive as [`ViewerEvent::End`] instead. Every key is a byte for
//! the program: ^C and ^Z, too. Nothing waits but [`Viewer::wait`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use libc::c_int;
use portable_pty::PtySize;

use super::buffer::{read_some, write_some};
use super::front_end::{Foreground, Input};
use super::signals::Signals;
use super::sys;
use super::tty::{RawGuard, Tty};
use super::wait::{Watch, wait};

/// How long the last bytes may take on a terminal that takes nothing.
const LAST_BYTES: Duration = Duration::from_millis(500);

/// Signals that would end us with the terminal in raw mode.
const ENDING: [c_int; 9] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];
/// There is no way to stop and come back: the program would be shown on a screen that a shell has written on meanwhile.
const IGNORED: [c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// What a signal means to a viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewerEvent {
    /// Ask for the [size](Viewer::size).
    Resized,
    /// We were stopped and are continued, raw again.
    Continued,
    /// Another job has the terminal.
    LostTerminal,
    /// We are to end of this signal.
    End(c_int),
}

/// What to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest {
    pub typed: bool,
    pub terminal_writable: bool,
    pub received: bool,
    pub host_writable: bool,
}

/// What there is. The terminal is readable also when it is gone.
pub type Ready = Interest;

#[derive(Debug)]
pub struct Viewer {
    tty: Tty,
    raw: Option<RawGuard>,
    signals: Signals,
}

/// To be handed over.
impl AsFd for Viewer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tty.as_fd()
    }
}

impl Viewer {
    /// Takes the terminal. `None` unless standard input and output are one terminal, and we are its foreground job.
    pub fn open() -> io::Result<Option<Self>> {
        let Some(tty) = Tty::on_stdio() else { return Ok(None) };
        let mut signals = Signals::prepare()?;
        // A signal between the handlers and raw mode must find both or neither.
        sys::hold_signals();
        let raw = signals
            .catch(ENDING.into_iter().chain([libc::SIGWINCH, libc::SIGCONT]))
            .and_then(|()| IGNORED.into_iter().try_for_each(sys::ignore))
            .and_then(|()| tty.raw());
        sys::release_signals();
        Ok(Some(Self { tty, raw: Some(raw?), signals }))
    }

    pub fn size(&self) -> io::Result<PtySize> {
        self.tty.size()
    }

    /// Waits until there is something of interest, a signal, or the time is up. Signals are always of interest.
    pub fn wait(
        &self,
        host: BorrowedFd<'_>,
        interest: Interest,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        let mut watches = [
            Watch::new(self.signals.as_fd(), true, false),
            Watch::new(self.tty.as_fd(), interest.typed, interest.terminal_writable),
            Watch::new(host, interest.received, interest.host_writable),
        ];
        wait(&mut watches, timeout)?;
        let [_, terminal, host] = watches;
        Ok(Ready {
            typed: terminal.readable,
            terminal_writable: terminal.writable,
            received: host.readable,
            host_writable: host.writable,
        })
    }

    /// Waits until something was typed, the terminal takes what is to be written, a signal has arrived, or the time is up.
    pub fn wait_alone(&self, interest: Interest, timeout: Option<Duration>) -> io::Result<Ready> {
        let mut watches = [
            Watch::new(self.signals.as_fd(), true, false),
            Watch::new(self.tty.as_fd(), interest.typed, interest.terminal_writable),
        ];
        wait(&mut watches, timeout)?;
        let [_, terminal] = watches;
        let (typed, terminal_writable) = (terminal.readable, terminal.writable);
        Ok(Ready { typed, terminal_writable, ..Ready::default() })
    }

    /// The next signal that has arrived.
    pub fn next_event(&mut self) -> Option<ViewerEvent> {
        let caught = self.signals.next()?;
        Some(match caught.signal {
            libc::SIGWINCH => ViewerEvent::Resized,
            libc::SIGCONT => self.continued(),
            signal => ViewerEvent::End(signal),
        })
    }

    /// A shell that had the terminal in between has put its own settings on it.
    fn continued(&mut self) -> ViewerEvent {
        if self.tty.foreground() == Foreground::AnotherJob {
            return ViewerEvent::LostTerminal;
        }
        if !self.raw.as_ref().is_some_and(RawGuard::holds) {
            // The first settings are the ones to give back in the end.
            self.raw = None;
            self.raw = self.tty.raw().ok();
        }
        ViewerEvent::Continued
    }

    /// Reads once what was typed.
    pub fn read(&mut self, buffer: &mut [u8]) -> Input {
        read_some(&self.tty, buffer).unwrap_or(Input::Gone)
    }

    /// Writes what the terminal takes now, perhaps nothing.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_some(&self.tty, bytes)
    }

    /// Writes the last bytes, as far as the terminal takes them within half a second, and gives it back.
    pub fn finish(mut self, last: &[u8]) {
        let deadline = Instant::now() + LAST_BYTES;
        let mut remaining = last;
        while !remaining.is_empty() && self.tty.foreground() != Foreground::AnotherJob {
            let left = deadline.saturating_duration_since(Instant::now());
            match write_some(&self.tty, remaining) {
                Ok(0) if left.is_zero() => break,
                Ok(0) => {
                    let mut writable = [Watch::new(self.tty.as_fd(), false, true)];
                    if wait(&mut writable, Some(left)).is_err() {
                        break;
                    }
                }
                Ok(count) => remaining = &remaining[count..],
                Err(_) => break,
            }
        }
        self.raw = None;
    }
}

impl Drop for Viewer {
    /// What is started next has these signals as we had them.
    fn drop(&mut self) {
        for signal in IGNORED.into_iter().filter(|signal| !sys::was_ignored(*signal)) {
            let _ = sys::set_default(signal);
        }
    }
}
