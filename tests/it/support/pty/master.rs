//! The master side of a test's terminal: what has arrived, what is to be typed, and the thread that moves both.
use super::{Exit, Start};
use crate::support::answers::Answers;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// All that the terminal has got so far.
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) exit: Option<Exit>,
    /// Typed bytes that the PTY has not taken yet.
    pub(crate) unsent: usize,
    screen: &'a mut ScreenModel,
}

impl View<'_> {
    pub(crate) fn screen(&mut self) -> &vt100::Screen {
        self.screen.catch_up(self.bytes);
        self.screen.parser.screen()
    }

    /// The screen as text, one line per row.
    pub(crate) fn text(&mut self) -> String {
        self.screen().contents()
    }
}

/// Reads the output only when asked, so that a flood costs nothing to a test that looks at bytes.
pub(super) struct ScreenModel {
    pub(super) parser: vt100::Parser<Answers>,
    parsed: usize,
}

impl ScreenModel {
    pub(super) fn catch_up(&mut self, bytes: &[u8]) {
        self.parser.process(&bytes[self.parsed..]);
        self.parsed = bytes.len();
    }
}

pub(super) struct State {
    pub(super) bytes: Vec<u8>,
    pub(super) screen: ScreenModel,
    pub(super) outgoing: VecDeque<u8>,
    /// Nothing more is read once this many bytes have arrived.
    pub(super) stall_at: usize,
    /// Set by the thread that waits for the command; `exit` follows when the output before it has been read.
    pub(super) reaped: Option<Exit>,
    pub(super) exit: Option<Exit>,
    pub(super) closing: bool,
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) wake: OwnedFd,
}

impl Shared {
    /// A failed assertion in a waiting test poisons the lock; the state itself is sound.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command has ended. Its last output is read first, unless nobody reads any more.
    pub(super) fn reaped(&self, exit: Exit) {
        let mut state = self.lock();
        state.reaped = Some(exit);
        if state.closing {
            state.exit = Some(exit);
            self.changed.notify_all();
        }
        self.wake();
    }

    pub(super) fn wake(&self) {
        // A full pipe wakes just as well.
        let _ = rustix::io::write(&self.wake, b"w");
    }
}

impl State {
    pub(super) fn new(start: &Start) -> Self {
        let answers = Answers { enabled: start.answers, ..Answers::default() };
        let parser = vt100::Parser::new_with_callbacks(
            nonzero(start.size.ws_row),
            nonzero(start.size.ws_col),
            0,
            answers,
        );
        Self {
            bytes: Vec::new(),
            screen: ScreenModel { parser, parsed: 0 },
            outgoing: VecDeque::new(),
            stall_at: usize::MAX,
            reaped: None,
            exit: None,
            closing: false,
        }
    }

    pub(super) fn view(&mut self) -> View<'_> {
        View { bytes: &self.bytes, exit: self.exit, unsent: self.outgoing.len(), screen: &mut self.screen }
    }

    fn stalled(&self) -> bool {
        self.bytes.len() >= self.stall_at
    }

    fn take_in(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.screen.parser.callbacks().enabled {
            self.screen.catch_up(&self.bytes);
            self.outgoing.extend(self.screen.parser.callbacks_mut().replies.drain(..));
        }
    }

    /// For the message of a failed wait.
    pub(super) fn picture(&mut self) -> String {
        let text = self.view().text();
        let tail = &self.bytes[self.bytes.len().saturating_sub(1000)..];
        let tail = tail.escape_ascii();
        let (exit, count, unsent) = (self.exit, self.bytes.len(), self.outgoing.len());
        format!(
            "--- screen\n{text}\n--- last of {count} bytes\n{tail}\n--- exit {exit:?}, {unsent} typed bytes not taken"
        )
    }
}

pub(super) fn nonzero(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

/// The terminal's own thread: reads output unless stalled, writes what is typed, publishes the exit after the last output.
pub(super) fn serve(shared: &Shared, master: &OwnedFd, woken: &OwnedFd) {
    loop {
        let (stalled, reaped) = {
            let state = shared.lock();
            if state.closing {
                return;
            }
            (state.stalled(), state.reaped.filter(|_| state.exit.is_none()))
        };
        // A flood must not keep what is typed waiting, hence one chunk at a time. Once the command has ended, all that it
        // wrote: more than a PTY ever holds, and yet not without end if somebody else is still writing.
        let chunks = if stalled {
            0
        } else if reaped.is_some() {
            1024
        } else {
            1
        };
        for _ in 0..chunks {
            if !read_chunk(shared, master) {
                break;
            }
        }
        if reaped.is_some() {
            shared.lock().exit = reaped;
            shared.changed.notify_all();
        }
        write_typed(shared, master);
        wait_for_work(shared, master, woken);
    }
}

/// False when nothing is left. A read of a PTY first brings in what the other side has written, so this is exact.
fn read_chunk(shared: &Shared, master: &OwnedFd) -> bool {
    let mut chunk = vec![0; 64 * 1024];
    let Ok(count @ 1..) = retry_on_intr(|| rustix::io::read(master, &mut chunk[..])) else {
        return false;
    };
    shared.lock().take_in(&chunk[..count]);
    shared.changed.notify_all();
    true
}

fn write_typed(shared: &Shared, master: &OwnedFd) {
    let mut state = shared.lock();
    if state.outgoing.is_empty() {
        return;
    }
    let next = state.outgoing.as_slices().0;
    if let Ok(count) = rustix::io::write(master, next) {
        state.outgoing.drain(..count);
        shared.changed.notify_all();
    }
}

fn wait_for_work(shared: &Shared, master: &OwnedFd, woken: &OwnedFd) {
    let mut interest = PollFlags::empty();
    {
        let state = shared.lock();
        interest.set(PollFlags::IN, !state.stalled());
        interest.set(PollFlags::OUT, !state.outgoing.is_empty());
    }
    let mut waits = [PollFd::new(woken, PollFlags::IN), PollFd::new(master, interest)];
    let _ = poll(&mut waits, None);
    if !waits[0].revents().is_empty() {
        let _ = rustix::io::read(woken, &mut [0; 64]);
    }
}
