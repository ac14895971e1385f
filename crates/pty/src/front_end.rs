//! The pump's other side: where input for the program comes from and where its output goes.
//!
//! The user's terminal is one front end (`user_terminal`). A background host, whose viewers come and go, is another, and a
//! test with scripted input a third. A front end has to provide the five methods of [`FrontEnd`]; [`JobControl`] is what a
//! terminal shared with a shell needs beyond them, and its defaults are right for everything else.
//!
//! The pump is compiled for each front end: a call from it costs no more than a function, and nothing is boxed per byte.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use libc::c_int;
use portable_pty::PtySize;
use rustix::termios::Termios;

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
