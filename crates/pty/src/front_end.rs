//! The pump's other side: where input for the program comes from and where its output goes.
//!
//! The user's terminal is one front end ([`UserTerminal`]). A background host, whose viewers come and go, is another, and a
//! test with scripted input a third. A front end has to provide the five methods of [`FrontEnd`]; [`JobControl`] is what a
//! terminal shared with a shell needs beyond them, and its defaults are right for everything else.
//!
//! The pump is compiled for each front end: a call from it costs no more than a function, and nothing is boxed per byte.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use libc::c_int;
use portable_pty::PtySize;
use rustix::termios::{LocalModes, SpecialCodeIndex, Termios};

use super::buffer::{read_some, write_some};
use super::sys;
use super::tty::{RawGuard, Tty};
use super::typed_ahead::TypedAhead;

/// What a read from the front end returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// So many bytes for the program, at the beginning of the buffer.
    Bytes(usize),
    Nothing,
    /// [`FrontEnd::size`] has changed. The pump passes it on and reads again at once, so the program has the new size before
    /// the input that was typed after it. A terminal that reports changes by SIGWINCH never returns this.
    Resized,
    /// The front end is gone for good: the program's terminal is hung up.
    Gone,
}

/// Where input comes from and where output goes. No method may wait: the pump has one thread.
pub trait FrontEnd: JobControl {
    /// Readable while [`read`](Self::read) has something to return. `None`: there is no input now, nor will there be.
    ///
    /// It is asked for before every wait, so a front end may change it; one with several sources offers a descriptor that
    /// stands for all of them, such as an epoll instance or a socket of the thread that serves them.
    fn input(&self) -> Option<BorrowedFd<'_>>;

    /// Writable while [`write`](Self::write) takes something. `None`: it always takes everything; whatever it does not take
    /// is dropped.
    fn output(&self) -> Option<BorrowedFd<'_>>;

    /// The size that the program's terminal is to have.
    fn size(&self) -> io::Result<PtySize>;

    fn read(&mut self, buffer: &mut [u8]) -> Input;

    /// Takes as many of the bytes as it can now, perhaps none. An error means that it is gone for good.
    ///
    /// While it takes none the program's output is not read, and in the end the program waits. A front end that must not hold
    /// the program back takes everything and drops what it has no room for.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// Who may read the front end and change its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreground {
    /// Nobody competes for it: it is not our controlling terminal, or no terminal at all.
    Uncontested,
    /// It is our controlling terminal, and we are its foreground job.
    Ours,
    /// It is our controlling terminal, and another job is in the foreground.
    AnotherJob,
}

/// What a terminal needs that a shell gave us: raw mode that is given back, stops, typed-ahead input.
///
/// The defaults are for a front end that belongs to this process alone: it is always held, and a program that stops itself is
/// continued at once, because nobody could continue it later.
pub trait JobControl {
    /// The settings that the program's terminal begins with; `None` for the kernel's defaults.
    fn settings(&self) -> io::Result<Option<Termios>> {
        Ok(None)
    }

    /// The descriptors of this process in whose place the program gets its terminal. All others it inherits.
    fn replaced_descriptors(&self) -> Vec<RawFd> {
        vec![0, 1, 2]
    }

    /// Takes the terminal before the program is started, and the input that was typed before that.
    fn prepare(&mut self) -> io::Result<TypedAhead> {
        Ok(TypedAhead::default())
    }

    /// The terminal that the monitor has to give back if this process is killed.
    fn saved_terminal(&self) -> Option<SavedTerminal<'_>> {
        None
    }

    fn foreground(&self) -> Foreground {
        Foreground::Uncontested
    }

    /// Do we hold the terminal, in raw mode? It is read and its output is dropped only while we do.
    fn is_held(&self) -> bool {
        true
    }

    /// Is it still in the mode in which we took it? A shell that had it in between puts its own settings on it.
    fn is_undisturbed(&self) -> bool {
        true
    }

    /// Takes the terminal, unless we hold it already. We are in its foreground.
    fn take(&mut self) {}

    /// Gives the terminal back, if we hold it and are in its foreground.
    fn release(&mut self) {}

    /// Gives the terminal back although another job may be in the foreground by now.
    fn abandon(&mut self) {}

    /// The program was stopped by this signal: gives the terminal back, stops this process in the same way, and returns when
    /// it is continued.
    fn suspend(&mut self, _signal: c_int) {}

    /// Drops output that was written and is not shown yet.
    fn drop_output(&mut self) {}

    /// Gives input back at the end of the run: bytes that the program has not read, and bytes that were not passed on to it.
    fn return_input(&mut self, _unread: &TypedAhead, _unsent: &[u8]) {}
}

/// The user's terminal as the monitor knows it, for the case that the wrapper is killed.
#[derive(Clone, Copy, Debug)]
pub struct SavedTerminal<'a> {
    pub tty: BorrowedFd<'a>,
    pub settings: &'a Termios,
}

// The user's terminal as the pump's front end: raw while we hold it, shared with the shell's other jobs.

#[derive(Debug)]
pub struct UserTerminal {
    tty: Tty,
    /// While we hold it.
    raw: Option<RawGuard>,
}

impl UserTerminal {
    pub fn new(tty: Tty) -> Self {
        Self { tty, raw: None }
    }
}

impl FrontEnd for UserTerminal {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tty.as_fd())
    }

    fn output(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tty.as_fd())
    }

    fn size(&self) -> io::Result<PtySize> {
        self.tty.size()
    }

    fn read(&mut self, buffer: &mut [u8]) -> Input {
        read_some(&self.tty, buffer).unwrap_or(Input::Gone)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_some(&self.tty, bytes)
    }
}

impl JobControl for UserTerminal {
    fn settings(&self) -> io::Result<Option<Termios>> {
        self.tty.settings().map(Some)
    }

    fn replaced_descriptors(&self) -> Vec<RawFd> {
        self.tty.inherited()
    }

    fn prepare(&mut self) -> io::Result<TypedAhead> {
        let mut ahead = TypedAhead::take_lines(self.tty.as_fd());
        // Raw before the program can ask the terminal anything: the answers must not be echoed.
        let raw = self.raw.insert(self.tty.raw()?);
        if raw.saved().local_modes.contains(LocalModes::ICANON) {
            ahead.take_bytes(self.tty.as_fd());
            ahead.split_lines(raw.saved().special_codes[SpecialCodeIndex::VEOF]);
        }
        Ok(ahead)
    }

    fn saved_terminal(&self) -> Option<SavedTerminal<'_>> {
        let raw = self.raw.as_ref()?;
        Some(SavedTerminal { tty: self.tty.as_fd(), settings: raw.saved() })
    }

    fn foreground(&self) -> Foreground {
        self.tty.foreground()
    }

    fn is_held(&self) -> bool {
        self.raw.is_some()
    }

    fn is_undisturbed(&self) -> bool {
        self.raw.as_ref().is_some_and(RawGuard::holds)
    }

    fn take(&mut self) {
        if self.raw.is_none() {
            // The settings found now are the ones to give back.
            self.raw = self.tty.raw().ok();
        }
    }

    fn release(&mut self) {
        self.raw = None;
    }

    fn abandon(&mut self) {
        if let Some(raw) = self.raw.take() {
            raw.leave();
        }
    }

    fn suspend(&mut self, signal: c_int) {
        self.release();
        stop_by(signal);
    }

    fn drop_output(&mut self) {
        self.tty.drop_output();
    }

    fn return_input(&mut self, unread: &TypedAhead, unsent: &[u8]) {
        let Some(raw) = &self.raw else { return };
        let mut late = TypedAhead { partial: unsent.to_vec(), ..TypedAhead::default() };
        // Typing a zero shows whether the kernel lets us type. It is read back behind the keys that were typed before it.
        if (unread.is_empty() && late.is_empty()) || sys::type_into(self.tty.as_fd(), 0).is_err() {
            return;
        }
        late.take_bytes(self.tty.as_fd());
        // Keys typed meanwhile may stand behind it.
        if let Some(at) = late.partial.iter().rposition(|byte| *byte == 0) {
            late.partial.remove(at);
        }
        let _ = unread.type_into(self.tty.as_fd(), raw.saved());
        self.raw = None;
        for key in late.partial {
            let _ = sys::type_into(self.tty.as_fd(), key);
        }
    }
}

/// Stops this process the way the program was stopped. The gentle stops go to our whole group, because the shell waits
/// for all of it (`sh -c 'codemie claude'`), and are dropped by the kernel if nobody could ever continue us.
fn stop_by(signal: c_int) {
    if signal == libc::SIGSTOP {
        return sys::stop_self();
    }
    let _ = sys::set_default(signal);
    sys::signal_own_group(signal);
    let _ = match signal {
        libc::SIGTSTP | libc::SIGTTIN if sys::was_ignored(signal) => sys::ignore(signal),
        libc::SIGTSTP | libc::SIGTTIN => sys::catch(signal),
        libc::SIGTTOU => sys::ignore(signal),
        _ => Ok(()),
    };
}
