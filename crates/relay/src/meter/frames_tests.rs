use std::io::Write;

use flate2::Compression as Level;
use flate2::write::DeflateEncoder;

use super::*;

#[derive(Default)]
struct Seen(Vec<u8>);

impl Messages for Seen {
    fn payload(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn message_ends(&mut self) {
        self.0.push(b'|');
    }
}

/// A frame: its first byte, its payload, and the mask of a client.
pub(in crate::meter) fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut frame = vec![first];
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..126 => frame.push(masked | u8::try_from(length).unwrap()),
        length @ 126..0x1_0000 => {
            frame.push(masked | 0x7e);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            frame.push(masked | 0x7f);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(mask.into_iter().flatten());
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask.map_or(0, |mask| mask[at % 4])));
    frame
}

/// Compresses messages as a sender does: flushed, without the tail.
#[derive(Debug)]
pub(in crate::meter) struct Deflate {
    encoder: DeflateEncoder<Vec<u8>>,
    takeover: bool,
}

impl Deflate {
    pub(in crate::meter) fn new(takeover: bool) -> Self {
        Self { encoder: DeflateEncoder::new(Vec::new(), Level::default()), takeover }
    }

    pub(in crate::meter) fn message(&mut self, text: &[u8]) -> Vec<u8> {
        if !self.takeover {
            *self = Self::new(false);
        }
        self.encoder.write_all(text).unwrap();
        self.encoder.flush().unwrap();
        let mut bytes = std::mem::take(self.encoder.get_mut());
        assert_eq!(bytes.split_off(bytes.len() - 4), TAIL);
        bytes
    }
}

fn read(compression: Compression, bytes: &[u8], size: usize) -> (String, Option<Unread>) {
    let (mut direction, mut seen) = (Direction::new(compression), Seen::default());
    bytes.chunks(size).for_each(|piece| direction.read(piece, &mut seen));
    (String::from_utf8_lossy(&seen.0).into_owned(), direction.broken())
}

const MASK: Option<[u8; 4]> = Some([1, 2, 3, 200]);

#[test]
fn messages_are_put_together_for_every_chunking() {
    let long = "long ".repeat(60);
    let huge = "huge ".repeat(14_000);
    for mask in [None, MASK] {
        let stream = [
            frame(0x81, b"one", mask),
            frame(0x82, b"", mask),
            frame(0x01, b"tw", mask),
            frame(0x89, b"ping", mask),
            frame(0x00, b"", mask),
            frame(0x8a, b"pong", mask),
            frame(0x80, b"o", mask),
            frame(0x81, long.as_bytes(), mask),
            frame(0x81, huge.as_bytes(), mask),
            frame(0x88, &[3, 232], mask),
        ]
        .concat();
        let expected = format!("one||two|{long}|{huge}|");
        for size in (1..400).chain([4096, stream.len()]) {
            assert_eq!(read(Compression::None, &stream, size), (expected.clone(), None), "{size}");
        }
    }
}

#[test]
fn compressed_messages_are_read_with_and_without_takeover() {
    let text = "a text that repeats, a text that repeats, a text that repeats";
    for (compression, takeover) in [(Compression::Takeover, true), (Compression::EachAlone, false)] {
        let mut deflate = Deflate::new(takeover);
        let mut stream = Vec::new();
        for _ in 0..3 {
            let packed = deflate.message(text.as_bytes());
            stream.extend(frame(0xc1, &packed, MASK));
        }
        // Not compressed, though it could be.
        stream.extend(frame(0x81, b"plain", MASK));
        let packed = deflate.message(text.as_bytes());
        stream.extend(frame(0x41, &packed[..3], None));
        stream.extend(frame(0x89, b"", None));
        stream.extend(frame(0x80, &packed[3..], None));
        stream.extend(frame(0xc1, &deflate.message(b""), None));
        let expected = format!("{text}|{text}|{text}|plain|{text}||");
        for size in 1..=stream.len() {
            assert_eq!(read(compression, &stream, size), (expected.clone(), None), "{compression:?} {size}");
        }
    }
}

#[test]
fn a_message_may_end_its_compression() {
    let mut encoder = DeflateEncoder::new(Vec::new(), Level::default());
    encoder.write_all(b"whole").unwrap();
    // A final block, and the empty one that RFC 7692 has behind it.
    let mut packed = encoder.finish().unwrap();
    packed.push(0);
    let stream =
        [frame(0xc1, &packed, None), frame(0xc1, &Deflate::new(true).message(b"next"), None)].concat();
    for size in 1..=stream.len() {
        assert_eq!(read(Compression::EachAlone, &stream, size), ("whole|next|".to_owned(), None));
    }
}

#[test]
fn what_is_no_frame_stops_the_reading() {
    let mut long_ping = frame(0x89, &[b'x'; 126], None);
    long_ping.extend(frame(0x81, b"x", None));
    for (name, stream, unread) in [
        ("a text", b"HTTP/1.1 200 OK".to_vec(), Unread::Form),
        ("compressed and not agreed", frame(0xc1, b"x", None), Unread::Form),
        ("a reserved bit", frame(0xa1, b"x", None), Unread::Form),
        ("a reserved opcode", frame(0x83, b"x", None), Unread::Form),
        ("a continuation of nothing", frame(0x80, b"x", None), Unread::Form),
        ("a message inside of one", [frame(0x01, b"", None), frame(0x81, b"x", None)].concat(), Unread::Form),
        ("a ping in parts", frame(0x09, b"", None), Unread::Form),
        ("a long ping", long_ping, Unread::Form),
    ] {
        assert_eq!(read(Compression::None, &stream, 1), (String::new(), Some(unread)), "{name}");
    }
    let garbage = frame(0xc1, &[0xff; 20], None);
    assert_eq!(read(Compression::Takeover, &garbage, 3).1, Some(Unread::Compression));
    let endless = [0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'x'];
    assert_eq!(read(Compression::None, &endless, 4), ("x".to_owned(), None), "a length is only a number");
}

#[test]
fn a_message_that_grows_without_end_stops_the_reading() {
    let zeros = vec![0_u8; 1 << 20];
    let mut deflate = Deflate::new(true);
    let first = frame(0x41, &deflate.message(&zeros), None);
    let next: Vec<u8> = [deflate.message(&zeros), TAIL.to_vec()].concat();
    let mut direction = Direction::new(Compression::Takeover);
    let mut seen = Nobody;
    direction.read(&first, &mut seen);
    direction.read(&frame(0x00, &TAIL, None), &mut seen);
    for _ in 0..8 {
        direction.read(&frame(0x00, &next, None), &mut seen);
    }
    assert_eq!(direction.broken(), Some(Unread::TooLong));
}

struct Nobody;

impl Messages for Nobody {
    fn payload(&mut self, _bytes: &[u8]) {}
    fn message_ends(&mut self) {}
}
