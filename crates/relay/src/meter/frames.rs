//! One direction of a WebSocket (RFC 6455): the payload of its messages in pieces, decompressed, and their ends.

use std::io::{self, Write};

use super::Unread;
use super::unpack::{Inflate, Wrapping};

/// Who is told of messages.
pub(super) trait Messages {
    fn payload(&mut self, bytes: &[u8]);
    fn message_ends(&mut self);
}

/// No message is longer, decompressed: a request with pictures has some ten megabytes. (Less in tests, which are slow.)
const LONGEST: u64 = if cfg!(test) { 8 << 20 } else { 256 << 20 };
/// The longest header: two bytes, eight of a length, four of a mask.
const HEADER: usize = 14;
/// RFC 7692, 7.2.2: what a sender cuts off behind each compressed message.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// How the messages of one direction are compressed, as the handshake settled it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Compression {
    #[default]
    None,
    /// A message refers to those before it.
    Takeover,
    EachAlone,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes of the header are there.
    Header(usize),
    Payload {
        left: u64,
        mask: Option<[u8; 4]>,
        /// The byte of the mask that is next.
        turn: usize,
        is_control: bool,
        is_last: bool,
    },
}

/// A message that has begun, perhaps in several frames.
#[derive(Clone, Copy, Debug)]
struct Message {
    is_compressed: bool,
    length: u64,
}

#[derive(Debug)]
pub(super) struct Direction {
    state: State,
    header: [u8; HEADER],
    message: Option<Message>,
    compression: Compression,
    /// Made when the first compressed message comes.
    inflate: Option<Inflate>,
    broken: Option<Unread>,
}

impl Direction {
    pub(super) fn new(compression: Compression) -> Self {
        Self {
            state: State::Header(0),
            header: [0; HEADER],
            message: None,
            compression,
            inflate: None,
            broken: None,
        }
    }

    /// Why nothing is read any more, if so.
    pub(super) fn broken(&self) -> Option<Unread> {
        self.broken
    }

    pub(super) fn read(&mut self, mut bytes: &[u8], into: &mut impl Messages) {
        while self.broken.is_none() && !bytes.is_empty() {
            let used = match self.state {
                State::Header(have) => {
                    self.header[have] = bytes[0];
                    self.header_grows(have + 1, into).map(|()| 1)
                }
                State::Payload { left, mask, turn, is_control, is_last } => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let read =
                        if is_control { Ok(()) } else { self.unmask(&bytes[..length], mask, turn, into) };
                    read.and_then(|()| {
                        let left = left - length as u64;
                        self.state =
                            State::Payload { left, mask, turn: (turn + length) % 4, is_control, is_last };
                        if left == 0 { self.frame_ends(is_control, is_last, into) } else { Ok(()) }
                    })
                    .map(|()| length)
                }
            };
            match used {
                Ok(used) => bytes = &bytes[used..],
                Err(why) => self.broken = Some(why),
            }
        }
    }

    fn header_grows(&mut self, have: usize, into: &mut impl Messages) -> Result<(), Unread> {
        self.state = State::Header(have);
        let [first, second, ..] = self.header;
        let length_bytes = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let is_masked = second & 0x80 != 0;
        if have < 2 || have < 2 + length_bytes + if is_masked { 4 } else { 0 } {
            return Ok(());
        }
        let long = self.header[2..2 + length_bytes].iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        let left = if length_bytes == 0 { u64::from(second & 0x7f) } else { long };
        let mask = &self.header[2 + length_bytes..];
        let mask = is_masked.then(|| [mask[0], mask[1], mask[2], mask[3]]);

        let (is_last, is_compressed, opcode) = (first & 0x80 != 0, first & 0x40 != 0, first & 0x0f);
        let is_control = opcode >= 8;
        let is_valid = first & 0x30 == 0
            && (!is_compressed || self.compression != Compression::None)
            && match opcode {
                0 => self.message.is_some() && !is_compressed,
                1 | 2 => self.message.is_none(),
                8..=10 => is_last && !is_compressed && left < 126,
                _ => false,
            };
        if !is_valid {
            return Err(Unread::Form);
        }
        if matches!(opcode, 1 | 2) {
            self.message = Some(Message { is_compressed, length: 0 });
        }
        self.state = State::Payload { left, mask, turn: 0, is_control, is_last };
        if left == 0 { self.frame_ends(is_control, is_last, into) } else { Ok(()) }
    }

    fn unmask(
        &mut self,
        bytes: &[u8],
        mask: Option<[u8; 4]>,
        turn: usize,
        into: &mut impl Messages,
    ) -> Result<(), Unread> {
        let Some(mask) = mask else { return self.payload(bytes, into) };
        let mut plain = [0; 4096];
        let mut turn = turn;
        for piece in bytes.chunks(plain.len()) {
            for (to, from) in plain.iter_mut().zip(piece) {
                *to = from ^ mask[turn % 4];
                turn += 1;
            }
            self.payload(&plain[..piece.len()], into)?;
        }
        Ok(())
    }

    fn payload(&mut self, bytes: &[u8], into: &mut impl Messages) -> Result<(), Unread> {
        let Some(message) = &mut self.message else { return Err(Unread::Form) };
        let mut into = Bounded { into, length: &mut message.length };
        let read = if message.is_compressed {
            let inflate = self.inflate.get_or_insert_with(|| Inflate::new(Wrapping::None));
            inflate.read(bytes, &mut into)
        } else {
            into.write_all(bytes)
        };
        let too_long = message.length > LONGEST;
        read.map_err(|_| if too_long { Unread::TooLong } else { Unread::Compression })
    }

    fn frame_ends(
        &mut self,
        is_control: bool,
        is_last: bool,
        into: &mut impl Messages,
    ) -> Result<(), Unread> {
        self.state = State::Header(0);
        if is_control || !is_last {
            return Ok(());
        }
        if self.message.is_some_and(|message| message.is_compressed) {
            self.payload(&TAIL, into)?;
            if self.compression == Compression::EachAlone
                && let Some(inflate) = &mut self.inflate
            {
                inflate.reset();
            }
        }
        self.message = None;
        into.message_ends();
        Ok(())
    }
}

struct Bounded<'a, M> {
    into: &'a mut M,
    length: &'a mut u64,
}

impl<M: Messages> Write for Bounded<'_, M> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.length = self.length.saturating_add(bytes.len() as u64);
        if *self.length > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.into.payload(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
pub(super) mod tests;
