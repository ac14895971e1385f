//! Frames to bytes and back.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{FromHost, MAX_FRAME, ToHost};

const LENGTH: usize = 4;

/// A frame that cannot be understood. The connection ends with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is longer than any frame can be")]
    TooLong(usize),
    #[error("an empty frame")]
    Empty,
    #[error("a frame of kind {0}, which this build does not know")]
    UnknownKind(u8),
    #[error("a frame of kind {0} that cannot be read: {1}")]
    Broken(u8, String),
}

/// Something that is sent as frames.
pub trait Frame: Sized {
    /// Its kind and body.
    fn encode(&self) -> (u8, Vec<u8>);

    fn decode(kind: u8, body: &[u8]) -> Result<Self, FrameError>;

    /// As it goes over the socket.
    fn to_bytes(&self) -> Vec<u8> {
        let (kind, body) = self.encode();
        let length = u32::try_from(body.len() + 1).unwrap_or(u32::MAX);
        [&length.to_le_bytes()[..], &[kind], &body].concat()
    }
}

/// Collects bytes until they are whole frames. Holds at most one frame that is not complete.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    taken: usize,
}

impl Frames {
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub fn take_next<F: Frame>(&mut self) -> Result<Option<F>, FrameError> {
        let bytes = &self.bytes[self.taken..];
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let (kind, body) = frame.split_first().ok_or(FrameError::Empty)?;
        let decoded = F::decode(*kind, body);
        self.taken += LENGTH + length;
        decoded.map(Some)
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(kind: u8, body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(|error| FrameError::Broken(kind, error.to_string()))
}

impl Frame for ToHost {
    fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Hello(body) => (1, json(body)),
            Self::Attach(body) => (2, json(body)),
            Self::Keys(bytes) => (3, bytes.clone()),
            Self::Resize(body) => (4, json(body)),
            Self::Detach => (5, Vec::new()),
            Self::State => (6, Vec::new()),
            Self::Screen => (7, Vec::new()),
            Self::Send(body) => (8, json(body)),
            Self::Wait(body) => (9, json(body)),
            Self::Stop(body) => (10, json(body)),
            Self::HandOff(body) => (11, json(body)),
            Self::Shown => (12, Vec::new()),
            Self::Answer(body) => (13, json(body)),
        }
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => Self::Hello(parse(kind, body)?),
            2 => Self::Attach(parse(kind, body)?),
            3 => Self::Keys(body.to_vec()),
            4 => Self::Resize(parse(kind, body)?),
            5 => Self::Detach,
            6 => Self::State,
            7 => Self::Screen,
            8 => Self::Send(parse(kind, body)?),
            9 => Self::Wait(parse(kind, body)?),
            10 => Self::Stop(parse(kind, body)?),
            11 => Self::HandOff(parse(kind, body)?),
            12 => Self::Shown,
            13 => Self::Answer(parse(kind, body)?),
            _ => return Err(FrameError::UnknownKind(kind)),
        })
    }
}

impl Frame for FromHost {
    fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Welcome(body) => (1, json(body)),
            Self::KeyFrame(bytes) => (2, bytes.clone()),
            Self::Output(bytes) => (3, bytes.clone()),
            Self::State(body) => (4, json(body)),
            Self::Screen(body) => (5, json(body)),
            Self::Sent(body) => (6, json(body)),
            Self::Waited(body) => (7, json(body)),
            Self::Stopped(body) => (8, json(body)),
            Self::Ended(body) => (9, json(body)),
            Self::Refused(body) => (10, json(body)),
            Self::HandedOver(body) => (11, json(body)),
            Self::Undo(bytes) => (12, bytes.clone()),
            Self::Left => (13, Vec::new()),
        }
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => Self::Welcome(parse(kind, body)?),
            2 => Self::KeyFrame(body.to_vec()),
            3 => Self::Output(body.to_vec()),
            4 => Self::State(parse(kind, body)?),
            5 => Self::Screen(parse(kind, body)?),
            6 => Self::Sent(parse(kind, body)?),
            7 => Self::Waited(parse(kind, body)?),
            8 => Self::Stopped(parse(kind, body)?),
            9 => Self::Ended(parse(kind, body)?),
            10 => Self::Refused(parse(kind, body)?),
            11 => Self::HandedOver(parse(kind, body)?),
            12 => Self::Undo(body.to_vec()),
            13 => Self::Left,
            _ => return Err(FrameError::UnknownKind(kind)),
        })
    }
}

// Bytes over a socket with a descriptor beside them.

/// Sends the beginning of the bytes with the descriptor: how many went. A process that does not expect one does not get it.
pub fn send(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !beside.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::empty())?)
}

/// Receives bytes, and the last of the descriptors that came with them. No program that is started here gets it.
pub fn receive(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let received = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(buffer)], &mut beside, flags)?;
    let mut last = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            last = descriptors.last().or(last);
        }
    }
    Ok((received.bytes, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::protocol::{Attach, Hello, Refused, SendRequest, Size};

    fn all() -> Vec<ToHost> {
        vec![
            ToHost::Hello(Hello { version: 1 }),
            ToHost::Attach(Attach { size: Size { rows: 24, cols: 80 }, read_only: true }),
            ToHost::Keys(b"\x1b[A\xff".to_vec()),
            ToHost::Detach,
            ToHost::Send(SendRequest { text: "hä\n".into(), idempotency_key: None, timeout_ms: 1 }),
        ]
    }

    #[test]
    fn frames_arrive_as_they_were_whatever_the_pieces() {
        let bytes: Vec<u8> = all().iter().flat_map(Frame::to_bytes).collect();
        for size in [1, 2, 3, 7, 1000] {
            let mut frames = Frames::default();
            let mut arrived = Vec::new();
            for piece in bytes.chunks(size) {
                frames.add(piece);
                while let Some(frame) = frames.take_next::<ToHost>().unwrap() {
                    arrived.push(frame);
                }
            }
            assert_eq!(arrived, all(), "pieces of {size}");
        }
    }

    #[test]
    fn bad_frames_are_errors_and_unknown_fields_are_passed_over() {
        let next = |bytes: &[u8]| {
            let mut frames = Frames::default();
            frames.add(bytes);
            frames.take_next::<FromHost>()
        };
        assert_eq!(next(b"\0\0"), Ok(None));
        assert_eq!(next(b"\0\0\0\0"), Err(FrameError::Empty));
        assert_eq!(next(b"\xff\xff\xff\xff"), Err(FrameError::TooLong(0xffff_ffff)));
        assert_eq!(next(b"\x01\0\0\0\x63"), Err(FrameError::UnknownKind(99)));
        assert!(matches!(next(b"\x02\0\0\0\x0a{"), Err(FrameError::Broken(10, _))));
        let refused = FromHost::Refused(Refused { message: "no".into() });
        let body = br#"{"message":"no","later":1}"#;
        let mut bytes = u32::try_from(body.len() + 1).unwrap().to_le_bytes().to_vec();
        bytes.push(10);
        bytes.extend_from_slice(body);
        assert_eq!(next(&bytes), Ok(Some(refused)));
    }

    /// A host outlives the build it was started from, so what its frames look like must never change.
    #[test]
    fn frames_of_the_first_build_are_understood_and_still_sent_like_that() {
        fn check<F: Frame>(kind: u8, body: &[u8], line: &str) {
            let length = u32::try_from(body.len() + 1).unwrap().to_le_bytes();
            let bytes = [&length[..], &[kind], body].concat();
            let mut frames = Frames::default();
            frames.add(&bytes);
            let frame = frames.take_next::<F>().unwrap().unwrap();
            assert_eq!(frame.to_bytes(), bytes, "{line}");
        }
        let recorded = include_str!("../../../../tests/fixtures/frames/version-1.txt");
        for line in recorded.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.splitn(3, ' ');
            let (direction, kind) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
            let body = words.next().unwrap_or_default().as_bytes();
            match direction {
                "to" => check::<ToHost>(kind, body, line),
                _ => check::<FromHost>(kind, body, line),
            }
        }
    }
}

#[cfg(test)]
mod descriptors_tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn descriptor_arrives_with_its_bytes_or_is_dropped_by_who_does_not_expect_it() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(send(&near, b"here", writer.as_fd()).unwrap(), 4);
        let mut bytes = [0; 16];
        let (count, descriptor) = receive(&far, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"here");
        std::fs::File::from(descriptor.unwrap()).write_all(b"x").unwrap();
        send(&near, b"again", writer.as_fd()).unwrap();
        assert_eq!(far.read(&mut bytes).unwrap(), 5);
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x", "nobody holds the other end any more");
        near.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(receive(&far, &mut bytes).unwrap().0, 0);
    }
}
