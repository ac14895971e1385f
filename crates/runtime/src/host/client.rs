//! One client of a host: its socket, what it has sent so far and what it has not taken yet.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::remote::frames;
use crate::remote::frames::{Frame, FrameError, Frames};
use crate::remote::protocol::{FromHost, Refused, Size, ToHost};

/// Output that a viewer may leave untaken. A screen full of colours is some 100 KiB, so this is many screens behind: such a
/// viewer is disconnected, and sees the present screen when it attaches again.
pub(super) const MAX_UNTAKEN: usize = 4 << 20;

/// How long a connection may say nothing at first. A client says hello as soon as it is connected; and others that ask a host wait
/// longer than this for its answer, so that silent connections keep nobody out.
const HELLO: Duration = Duration::from_secs(2);

/// Frames of one client handled before the others have their turn.
const FRAMES_AT_ONCE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Asks questions.
    Asking,
    Viewing {
        size: Size,
        read_only: bool,
        /// The higher, the later it typed.
        typed: u64,
    },
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: u64,
    stream: UnixStream,
    frames: Frames,
    untaken: Vec<u8>,
    pub(super) role: Role,
    pub(super) welcomed: bool,
    /// Until when it has to say hello.
    hello_by: Instant,
    /// Its terminal is handed over to us: output does not go through its connection.
    pub(super) handed_over: bool,
    /// A descriptor that has arrived, for the frame that speaks of it.
    descriptor: Option<OwnedFd>,
    /// Nothing more is read; what it is still to get is written, then it is closed.
    pub(super) closing: bool,
    gone: bool,
}

impl Client {
    pub(super) fn new(id: u64, stream: UnixStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            id,
            stream,
            frames: Frames::default(),
            untaken: Vec::new(),
            role: Role::Asking,
            welcomed: false,
            hello_by: now + HELLO,
            handed_over: false,
            descriptor: None,
            closing: false,
            gone: false,
        })
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Until when it has to say hello; `None`: it has, or its connection ends anyway.
    pub(super) fn hello_due(&self) -> Option<Instant> {
        Some(self.hello_by).filter(|_| !self.welcomed && !self.gone && !self.closing)
    }

    /// Ends the connection of one that has said nothing for too long.
    pub(super) fn drop_if_silent(&mut self, now: Instant) {
        if self.hello_due().is_some_and(|due| due <= now) {
            tracing::info!("a connection that said no hello is closed");
            self.gone = true;
        }
    }

    /// Has it untaken frames?
    pub(super) fn lags(&self) -> bool {
        !self.untaken.is_empty()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone || self.closing && self.untaken.is_empty()
    }

    pub(super) fn is_viewer(&self) -> bool {
        matches!(self.role, Role::Viewing { .. })
    }

    pub(super) fn say(&mut self, message: &FromHost) {
        self.say_bytes(&message.to_bytes());
    }

    /// A frame that goes to several clients is made once.
    pub(super) fn say_bytes(&mut self, frame: &[u8]) {
        if self.gone {
            return;
        }
        if self.untaken.len() + frame.len() > MAX_UNTAKEN {
            tracing::info!("a viewer that does not keep up is disconnected");
            self.gone = true;
            return;
        }
        self.untaken.extend_from_slice(frame);
        self.flush();
    }

    pub(super) fn refuse(&mut self, message: String) {
        self.say(&FromHost::Refused(Refused { message }));
        self.closing = true;
    }

    pub(super) fn flush(&mut self) {
        while !self.untaken.is_empty() && !self.gone {
            match self.stream.write(&self.untaken) {
                Ok(count) => drop(self.untaken.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.gone = true,
            }
        }
    }

    /// The frames that have arrived. One that cannot be read is refused, and ends the connection; of an unknown kind, it is
    /// refused alone.
    pub(super) fn receive(&mut self) -> Vec<ToHost> {
        let mut bytes = [0; 16 * 1024];
        match frames::receive(&self.stream, &mut bytes) {
            Ok((0, _)) => self.gone = true,
            Ok((count, descriptor)) => {
                self.frames.add(&bytes[..count]);
                self.descriptor = descriptor.or(self.descriptor.take());
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.gone = true,
        }
        self.arrived()
    }

    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Ends the connection without a farewell.
    pub(super) fn drop_connection(&mut self) {
        self.gone = true;
    }

    /// Frames that were received and not handled yet.
    pub(super) fn arrived(&mut self) -> Vec<ToHost> {
        let mut received = Vec::new();
        while received.len() < FRAMES_AT_ONCE && !self.closing {
            match self.frames.take_next::<ToHost>() {
                Ok(Some(frame)) => received.push(frame),
                Ok(None) => break,
                Err(error @ FrameError::UnknownKind(_)) => {
                    let message = format!("this host was started from an older codemie and got {error}");
                    self.say(&FromHost::Refused(Refused { message }));
                }
                Err(error) => self.refuse(format!("got {error}")),
            }
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_its_time_to_say_hello_and_then_all_it_wants() {
        let begun = Instant::now();
        let client = || Client::new(1, UnixStream::pair().unwrap().0, begun).unwrap();
        let mut silent = client();
        assert_eq!(silent.hello_due(), Some(begun + HELLO));
        silent.drop_if_silent(begun + HELLO / 2);
        assert!(!silent.is_gone());
        silent.drop_if_silent(begun + HELLO);
        assert!(silent.is_gone() && silent.hello_due().is_none());
        let mut polite = client();
        polite.welcomed = true;
        assert_eq!(polite.hello_due(), None);
        polite.drop_if_silent(begun + 100 * HELLO);
        assert!(!polite.is_gone());
    }
}
