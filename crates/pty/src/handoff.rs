//! A viewer's terminal in the hands of the process that runs the program.
//!
//! A viewer that reads keys and passes them on is a process between the key and the program, and one more between the program
//! and the screen. One that hands its terminal over is none: whoever runs the program reads it and writes to it, and the viewer
//! only keeps its settings, its size and its signals.
//!
//! Promises: nothing waits; the terminal is read and written only while it is raw, as its viewer made it, and while the viewer
//! is in its foreground and not stopped. So a shell that takes it loses no key to the program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::termios::{OutputModes, tcgetattr};
use types::Pid;

use super::buffer::{read_some, write_some};
use super::chord::{Chord, ChordFinder};
use super::front_end::Input;
use super::modes::Modes;
use super::process::JobStatus;
use super::tty::is_raw;

/// The rest of an escape sequence follows its beginning at once. tmux waits as long for it.
pub const SEQUENCE_TIMEOUT: Duration = Duration::from_millis(10);

/// How long a viewer in the foreground is taken to stay there, as far as output is concerned.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A read from the keyboard, where more than a few bytes are a paste.
const TYPED: usize = 16 * 1024;

/// What a read returned; the keys themselves are appended to the buffer that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Perhaps none, where the beginning of a chord or of a sequence is held back.
    Keys,
    /// The chord is complete: the viewer wants to leave.
    Chord,
    /// It is not raw any more: its viewer does not have it now.
    Withdrawn,
    Gone,
}

#[derive(Debug)]
pub struct HandedTerminal {
    fd: Arc<OwnedFd>,
    chord: ChordFinder,
    /// Since when an escape sequence is incomplete.
    held_since: Option<Instant>,
    /// Of everything that was written to the terminal.
    modes: Modes,
    /// The last byte written is a whole character, or ends a sequence.
    ends_in_ascii: bool,
    unwritten: Vec<u8>,
    viewer: JobStatus,
    /// When the viewer was last seen in the foreground.
    seen: Instant,
}

impl HandedTerminal {
    /// `viewer`: the process that hands it over; `modes`: of what was written to it so far.
    pub fn new(fd: OwnedFd, viewer: Pid, chord: Chord, modes: Modes) -> io::Result<Self> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !is_ours(fd.as_fd()) {
            return refuse("it is no terminal in raw mode");
        }
        if !fcntl_getfl(&fd)?.contains(OFlags::NONBLOCK) {
            return refuse("it would make its user wait");
        }
        let chord = ChordFinder::new(chord);
        Ok(Self {
            fd: Arc::new(fd),
            chord,
            held_since: None,
            modes,
            ends_in_ascii: false,
            unwritten: Vec::new(),
            viewer: JobStatus::of(viewer)?,
            seen: Instant::now(),
        })
    }

    /// To wait until it takes more.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// How much it has not taken.
    pub fn unwritten(&self) -> usize {
        self.unwritten.len()
    }

    /// Whether its viewer has it no more, or it is gone.
    pub fn is_withdrawn(&self) -> bool {
        !is_ours(self.fd.as_fd()) || !self.viewer.is_in_foreground()
    }

    /// The same for output, of which a shell may get a little: the viewer is not looked at for every piece.
    fn may_be_written(&mut self) -> bool {
        if self.seen.elapsed() >= LOOK_AGAIN {
            if self.is_withdrawn() {
                return false;
            }
            self.seen = Instant::now();
        }
        is_ours(self.fd.as_fd())
    }

    /// For a moment in which nobody may write to it yet.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.unwritten.extend_from_slice(bytes);
    }

    /// Writes what the terminal takes now and keeps the rest.
    pub fn show(&mut self, bytes: &[u8]) {
        if !self.unwritten.is_empty() {
            self.keep(bytes);
            return self.flush();
        }
        let count = self.write(bytes);
        self.keep(&bytes[count..]);
    }

    pub fn flush(&mut self) {
        let unwritten = std::mem::take(&mut self.unwritten);
        let count = self.write(&unwritten);
        self.unwritten = unwritten;
        self.unwritten.drain(..count);
    }

    /// Nothing is written to one that is gone or withdrawn: whoever reads it, or handed it over, learns so.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() && self.may_be_written() {
            match write_some(&*self.fd, &bytes[written..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    self.modes.feed(&bytes[written..written + count]);
                    written += count;
                    self.ends_in_ascii = bytes[written - 1].is_ascii();
                }
            }
        }
        written
    }

    /// Reads once what was typed.
    pub fn read(&mut self, keys: &mut Vec<u8>) -> Typed {
        if self.is_withdrawn() {
            let there = tcgetattr(&*self.fd).is_ok();
            return if there { Typed::Withdrawn } else { Typed::Gone };
        }
        let mut typed = [0; TYPED];
        let count = match read_some(&*self.fd, &mut typed) {
            Ok(Input::Bytes(count)) => count,
            Ok(Input::Nothing | Input::Resized) => return Typed::Keys,
            Ok(Input::Gone) | Err(_) => return Typed::Gone,
        };
        let left = self.chord.feed(&typed[..count], self.modes.encodes_keys(), keys);
        self.held_since = self.chord.holds_sequence().then(Instant::now);
        if left { Typed::Chord } else { Typed::Keys }
    }

    /// Until when an escape sequence is held back that may be a key by itself.
    pub fn held_until(&self) -> Option<Instant> {
        self.held_since.map(|since| since + SEQUENCE_TIMEOUT)
    }

    /// Appends the keys that were held back, once nothing has followed for long enough.
    pub fn time_up(&mut self, now: Instant, keys: &mut Vec<u8>) {
        if self.held_until().is_some_and(|until| now >= until) {
            self.chord.time_up(keys);
            self.held_since = None;
        }
    }

    /// Whether something else may be written now without getting into a sequence or a character of the program's.
    pub fn is_between_sequences(&self) -> bool {
        self.unwritten.is_empty() && self.ends_in_ascii && self.modes.unfinished() == 0
    }

    /// Gives it back: what it has not taken, and the bytes that undo everything, that included.
    pub fn into_rest(mut self) -> (Vec<u8>, Vec<u8>) {
        self.modes.feed(&self.unwritten);
        (self.unwritten, self.modes.undo())
    }

    /// The bytes that undo what was written to it.
    pub fn undo(&self) -> Vec<u8> {
        self.modes.undo()
    }
}

impl AsFd for HandedTerminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Raw as a viewer makes it. A shell's line editor wants signals of keys and line ends; other programs' raw modes are told
/// from ours by what stands between them: the shell's.
fn is_ours(fd: BorrowedFd<'_>) -> bool {
    tcgetattr(fd).is_ok_and(|now| is_raw(&now) && !now.output_modes.contains(OutputModes::OPOST))
}
