//! The user's terminal as the pump's front end: raw while we hold it, shared with the shell's other jobs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use libc::c_int;
use portable_pty::PtySize;
use rustix::termios::{LocalModes, SpecialCodeIndex, Termios};

use super::buffer::{read_some, write_some};
use super::front_end::{Foreground, FrontEnd, Input, JobControl, SavedTerminal};
use super::sys;
use super::tty::{RawGuard, Tty};
use super::typed_ahead::TypedAhead;

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
