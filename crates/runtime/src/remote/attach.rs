//! An attachment: the user's terminal shows a background session and types into it.
//!
//! One loop, one thread. A key goes to the host and output to the terminal in the turn of the loop in which it arrives.
//! Promises: the terminal gets its modes and settings back however the attachment ends, unless we are killed outright; memory
//! is bounded: nothing is read from the host while the terminal has not taken what came before, and no key while the host has
//! not. The host disconnects a viewer that does not keep up.
//!
//! Once the first screen is painted the terminal is handed over to a host that takes it (`pty::handoff`): that one reads the keys and
//! writes the output, and this process keeps the terminal's settings, its size and its signals.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pty::chord::{Chord, ChordFinder};
use pty::handoff::SEQUENCE_TIMEOUT;
use pty::modes::Modes;
use pty::screen::KEY_FRAME_LIMIT;
use pty::viewer::{Interest, ViewerEvent};
use pty::{Input, PtySize, Viewer};

use super::client::{Connection, RemoteError};
use super::frames;
use super::frames::{Frame, Frames};
use super::protocol::{Attach, Ended, FromHost, HandOff, HandedOver, MAX_FRAME, Refused, Size, ToHost};

/// How long the host may take to take our leave.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(200);
/// A read from the host, and from the keyboard, where more than a few bytes are a paste.
const FROM_HOST: usize = 64 * 1024;
const TYPED: usize = 16 * 1024;

/// The host sends a screen in one frame.
const _: () = assert!(KEY_FRAME_LIMIT < MAX_FRAME);

const PUSH_TITLE: &[u8] = b"\x1b[22;0t";
const POP_TITLE: &[u8] = b"\x1b[23;0t";

/// How an attachment ended. The session goes on, except after `Ended`.
#[derive(Debug)]
pub enum Outcome {
    Detached,
    Ended(Ended),
    /// The host has gone without a farewell, or sent what cannot be understood.
    HostGone(RemoteError),
    /// The terminal was closed, or another job has it.
    TerminalGone,
    /// This signal asked us to end.
    Signal(i32),
}

/// What asks for an attachment of this process's terminal, as [`Connection::open_saying`] says it.
pub fn request(read_only: bool) -> io::Result<Attach> {
    Ok(Attach { size: size_of(pty::size_of_stdout()?), read_only })
}

/// Attaches this process's terminal to a host that was sent the request. An error means that nothing was attached:
/// [`NotAttached::NoTerminal`] is known before the terminal is touched.
pub fn attach(connection: Connection, request: Attach, chord: Chord) -> Result<Outcome, NotAttached> {
    let Attach { size, read_only } = request;
    let Some(viewer) = Viewer::open()? else { return Err(NotAttached::NoTerminal) };
    let handoff = if connection.welcome.takes_terminals { Handoff::Possible } else { Handoff::Impossible };
    let (stream, frames) = connection.into_parts();
    stream.set_nonblocking(true)?;
    let detach_keys = chord.to_string();
    let mut attachment = Attachment {
        viewer,
        host: stream,
        frames,
        received: vec![0; FROM_HOST].into_boxed_slice(),
        chord: ChordFinder::new(chord),
        detach_keys,
        handoff,
        undo: None,
        modes: Modes::default(),
        size,
        read_only,
        painted: false,
        to_terminal: Pending::default(),
        to_host: Pending::default(),
        size_to_send: None,
        sequence_since: None,
    };
    // It may have changed before changes were reported.
    attachment.follow_size();
    Ok(attachment.run())
}

#[derive(Debug, thiserror::Error)]
pub enum NotAttached {
    #[error("standard input and output are no terminal, or this is a background job")]
    NoTerminal,
    #[error("{0}")]
    Remote(RemoteError),
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

fn size_of(size: PtySize) -> Size {
    Size { rows: size.rows, cols: size.cols }
}

/// Bytes on their way, filled only when empty.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    written: usize,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.is_empty() {
            self.bytes.clear();
            self.written = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes over all of them, where nothing waits.
    fn put(&mut self, bytes: Vec<u8>) {
        if self.is_empty() {
            *self = Self { bytes, written: 0 };
        } else {
            self.bytes.extend(bytes);
        }
    }

    fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }
}

/// Whose turn it is with the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handoff {
    /// Ours, for good.
    Impossible,
    /// Ours, until the first screen is painted.
    Possible,
    /// Nobody's keyboard: the host has been asked.
    Offered,
    /// The host's.
    Done,
}

struct Attachment {
    viewer: Viewer,
    host: UnixStream,
    frames: Frames,
    /// The last read from the host.
    received: Box<[u8]>,
    chord: ChordFinder,
    detach_keys: String,
    handoff: Handoff,
    /// How the terminal is given back, as far as the host knows better than we do.
    undo: Option<Vec<u8>>,
    /// Of everything that was written to the terminal.
    modes: Modes,
    size: Size,
    read_only: bool,
    painted: bool,
    to_terminal: Pending,
    to_host: Pending,
    size_to_send: Option<Size>,
    /// Since when an escape sequence is incomplete.
    sequence_since: Option<Instant>,
}

impl Attachment {
    fn run(mut self) -> Outcome {
        let outcome = loop {
            if let Some(outcome) = self.step().unwrap_or_else(|error| Some(Outcome::HostGone(error))) {
                break outcome;
            }
        };
        self.finish(&outcome);
        outcome
    }

    fn step(&mut self) -> Result<Option<Outcome>, RemoteError> {
        if let Some(outcome) = self.show_frames()? {
            return Ok(Some(outcome));
        }
        self.send_size();
        self.hand_off()?;
        let ours = matches!(self.handoff, Handoff::Impossible | Handoff::Possible);
        let interest = Interest {
            typed: ours && self.to_host.is_empty(),
            terminal_writable: !self.to_terminal.is_empty(),
            received: self.to_terminal.is_empty(),
            host_writable: !self.to_host.is_empty(),
        };
        let timeout = self.sequence_since.map(|since| SEQUENCE_TIMEOUT.saturating_sub(since.elapsed()));
        let ready = self.viewer.wait(self.host.as_fd(), interest, timeout).map_err(RemoteError::Silent)?;
        while let Some(event) = self.viewer.next_event() {
            if let Some(outcome) = self.on_event(event) {
                return Ok(Some(outcome));
            }
        }
        if ready.typed
            && let Some(outcome) = self.read_keys()?
        {
            return Ok(Some(outcome));
        }
        if self.sequence_since.is_some_and(|since| since.elapsed() >= SEQUENCE_TIMEOUT) {
            let mut keys = Vec::new();
            self.chord.time_up(&mut keys);
            self.sequence_since = None;
            self.send_keys(keys)?;
        }
        if ready.host_writable {
            self.write_host()?;
        }
        if ready.terminal_writable && self.write_terminal().is_err() {
            return Ok(Some(Outcome::TerminalGone));
        }
        if ready.received {
            self.read_host()?;
        }
        Ok(None)
    }

    /// Shows what has arrived, as far as the terminal takes it.
    fn show_frames(&mut self) -> Result<Option<Outcome>, RemoteError> {
        while self.to_terminal.is_empty() {
            match self.frames.take_next::<FromHost>()? {
                None => break,
                Some(FromHost::Output(bytes)) => self.to_terminal.put(bytes),
                Some(FromHost::KeyFrame(bytes)) => self.show_key_frame(bytes),
                Some(FromHost::Ended(ended)) => return Ok(Some(Outcome::Ended(ended))),
                Some(FromHost::Refused(Refused { message })) => return Err(RemoteError::Refused(message)),
                Some(FromHost::HandedOver(answer)) => self.follow_handoff(answer)?,
                Some(FromHost::Undo(bytes)) => self.undo = Some(bytes),
                Some(FromHost::Left) => {
                    self.handoff = Handoff::Impossible;
                    return Ok(Some(Outcome::Detached));
                }
                // Answers to questions that an attachment does not ask.
                Some(_) => {}
            }
            if self.write_terminal().is_err() {
                return Ok(Some(Outcome::TerminalGone));
            }
        }
        Ok(None)
    }

    /// Hands the terminal over once everything is painted, and no key is half typed.
    fn hand_off(&mut self) -> Result<(), RemoteError> {
        let is_quiet = self.painted && self.to_terminal.is_empty() && self.to_host.is_empty();
        if self.handoff != Handoff::Possible || !is_quiet || !self.chord.is_between_keys() {
            return Ok(());
        }
        let frame = ToHost::HandOff(HandOff { detach_keys: self.detach_keys.clone() }).to_bytes();
        match frames::send(&self.host, &frame, self.viewer.as_fd()) {
            Ok(count) => {
                self.handoff = Handoff::Offered;
                self.to_host.add(&frame[count..]);
            }
            // Tried again with the next event.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) if is_broken(&error) => self.handoff = Handoff::Impossible,
            Err(error) => return Err(RemoteError::Silent(error)),
        }
        Ok(())
    }

    /// The answer, or the terminal is given back to us.
    fn follow_handoff(&mut self, answer: HandedOver) -> Result<(), RemoteError> {
        if !answer.taken {
            self.handoff = Handoff::Impossible;
            return Ok(());
        }
        self.handoff = Handoff::Done;
        self.to_host.add(&ToHost::Shown.to_bytes());
        self.write_host()
    }

    /// What gives the terminal back.
    fn undo(&self) -> Vec<u8> {
        self.undo.clone().unwrap_or_else(|| self.modes.undo())
    }

    /// A key frame is for an empty screen. What the shell has left on this one goes to its scrollback: the cursor stands
    /// below it, so that many line feeds bring its row to the top.
    fn show_key_frame(&mut self, frame: Vec<u8>) {
        if self.painted {
            let undo = self.undo();
            self.undo = None;
            self.modes = Modes::default();
            self.to_terminal.add(&undo);
            self.to_terminal.add(b"\x1b[0m");
        } else {
            self.to_terminal.add(PUSH_TITLE);
            self.to_terminal.add(&vec![b'\n'; usize::from(self.size.rows.saturating_sub(1))]);
        }
        self.painted = true;
        self.to_terminal.add(b"\x1b[H\x1b[J");
        self.to_terminal.put(frame);
    }

    fn on_event(&mut self, event: ViewerEvent) -> Option<Outcome> {
        match event {
            ViewerEvent::Resized => self.follow_size(),
            // A shell had the terminal meanwhile. The host may not have looked in that time, so it is asked for the whole screen,
            // and gets the terminal anew.
            ViewerEvent::Continued if self.handoff == Handoff::Done => {
                self.follow_size();
                self.size_to_send = None;
                self.handoff = Handoff::Possible;
                let attach = Attach { size: self.size, read_only: self.read_only };
                self.to_host.add(&ToHost::Attach(attach).to_bytes());
            }
            ViewerEvent::Continued => {
                // A shell has switched off what disturbed it.
                let modes =
                    [self.modes.undo_keyboard(), self.modes.set_main_keyboard(), self.modes.set()].concat();
                if self.modes.unfinished() == 0 && self.to_terminal.is_empty() {
                    self.to_terminal.add(&modes);
                }
                self.follow_size();
            }
            ViewerEvent::LostTerminal => return Some(Outcome::TerminalGone),
            ViewerEvent::End(signal) => return Some(Outcome::Signal(signal)),
        }
        None
    }

    fn follow_size(&mut self) {
        if let Ok(size) = self.viewer.size()
            && size_of(size) != self.size
        {
            self.size = size_of(size);
            self.size_to_send = Some(self.size);
        }
    }

    /// Only the last of several sizes, once the host takes it.
    fn send_size(&mut self) {
        if self.to_host.is_empty()
            && let Some(size) = self.size_to_send.take()
        {
            self.to_host.add(&ToHost::Resize(size).to_bytes());
        }
    }

    fn read_keys(&mut self) -> Result<Option<Outcome>, RemoteError> {
        let mut typed = [0; TYPED];
        let count = match self.viewer.read(&mut typed) {
            Input::Bytes(count) => count,
            Input::Gone => return Ok(Some(Outcome::TerminalGone)),
            Input::Nothing | Input::Resized => return Ok(None),
        };
        let mut keys = Vec::with_capacity(count);
        let detached = self.chord.feed(&typed[..count], self.modes.encodes_keys(), &mut keys);
        self.sequence_since = self.chord.holds_sequence().then(Instant::now);
        self.send_keys(keys)?;
        Ok(detached.then_some(Outcome::Detached))
    }

    fn send_keys(&mut self, keys: Vec<u8>) -> Result<(), RemoteError> {
        if keys.is_empty() || self.read_only {
            return Ok(());
        }
        // A size that changed before a key was pressed arrives before it.
        self.send_size();
        self.to_host.add(&ToHost::Keys(keys).to_bytes());
        self.write_host()
    }

    fn write_host(&mut self) -> Result<(), RemoteError> {
        while !self.to_host.is_empty() {
            match self.host.write(self.to_host.unwritten()) {
                Ok(count) => self.to_host.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // What it has sent before it ended is still to be read.
                Err(error) if is_broken(&error) => self.to_host = Pending::default(),
                Err(error) => return Err(RemoteError::Silent(error)),
            }
        }
        Ok(())
    }

    fn write_terminal(&mut self) -> io::Result<()> {
        while !self.to_terminal.is_empty() {
            match self.viewer.write(self.to_terminal.unwritten())? {
                0 => break,
                count => {
                    self.modes.feed(&self.to_terminal.unwritten()[..count]);
                    self.to_terminal.written += count;
                }
            }
        }
        Ok(())
    }

    fn read_host(&mut self) -> Result<(), RemoteError> {
        match self.host.read(&mut self.received) {
            Ok(0) => Err(RemoteError::Closed),
            Ok(count) => {
                self.frames.add(&self.received[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(())
            }
            Err(error) if is_broken(&error) => Err(RemoteError::Closed),
            Err(error) => Err(RemoteError::Silent(error)),
        }
    }

    /// Says good-bye to the host and gives the terminal back.
    fn finish(mut self, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Ended(_) | Outcome::HostGone(_)) {
            self.leave();
        }
        let mut last = self.undo();
        last.extend_from_slice(b"\x1b[?25h");
        if self.painted {
            last.extend_from_slice(POP_TITLE);
            // The cursor is anywhere on the agent's screen. An agent that has ended has left it where a shell goes on.
            if !matches!(outcome, Outcome::Ended(_)) {
                last.extend_from_slice(format!("\x1b[{};1H", self.size.rows.max(1)).as_bytes());
            }
            last.extend_from_slice(b"\r\n");
        }
        self.viewer.finish(&last);
    }

    /// The keys before the chord, and the good-bye; a host that is stuck is left without.
    fn leave(&mut self) {
        self.to_host.add(&ToHost::Detach.to_bytes());
        let _ = self.host.set_nonblocking(false);
        let _ = self.host.set_write_timeout(Some(LEAVE_TIMEOUT));
        let said = self.host.write_all(self.to_host.unwritten());
        if self.handoff == Handoff::Done && said.is_ok() {
            self.await_return();
        }
    }

    /// The host has let go of the terminal when it says how to give it back, or has gone.
    fn await_return(&mut self) {
        let until = Instant::now() + LEAVE_TIMEOUT;
        loop {
            match self.frames.take_next::<FromHost>() {
                Ok(Some(FromHost::Undo(bytes))) => self.undo = Some(bytes),
                Ok(Some(_)) => {}
                Ok(None) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let _ = self.host.set_read_timeout(Some(left.max(Duration::from_millis(1))));
                    if left.is_zero() || self.read_host().is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

fn is_broken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
