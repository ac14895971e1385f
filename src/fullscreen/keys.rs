//! Typed bytes as keys. What a terminal sends beyond that (reports, unknown sequences) is passed over.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Letter(char),
    /// A letter of a text that was pasted: it is text, and never a command.
    Pasted(char),
    /// Control with a small letter.
    Control(char),
    Enter,
    Escape,
    Backspace,
    Delete,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
}

/// Changes a text that somebody types; false for a key that does not.
pub fn edit(text: &mut String, key: Key) -> bool {
    match key {
        Key::Letter(letter) | Key::Pasted(letter) => text.push(letter),
        Key::Backspace => drop(text.pop()),
        Key::Control('u') => text.clear(),
        Key::Control('w') => {
            let kept = text.trim_end().rfind(' ').map_or(0, |space| space + 1);
            text.truncate(kept);
        }
        _ => return false,
    }
    true
}

/// No sequence is longer; what goes on is none.
const LONGEST: usize = 64;

/// Bytes that were typed and are not keys yet.
#[derive(Debug, Default)]
pub(super) struct KeyReader {
    bytes: VecDeque<u8>,
    /// No more bytes belong to what is there.
    complete: bool,
    /// The terminal has announced a pasted text, and not its end.
    pasting: bool,
}

impl KeyReader {
    pub(super) fn add(&mut self, typed: &[u8]) {
        self.bytes.extend(typed);
        self.complete = false;
    }

    /// What is there is all of it: an Escape is an Escape.
    pub(super) fn time_up(&mut self) {
        self.complete = true;
    }

    /// Whether the next byte may belong to those that are there.
    pub(super) fn is_inside_sequence(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next key; `None`: there is none, or only a part of one.
    pub(super) fn next(&mut self) -> Option<Key> {
        loop {
            let bytes: Vec<u8> = self.bytes.iter().copied().take(LONGEST).collect();
            let (length, key) = match parse(&bytes, self.complete) {
                Parsed::Key(length, key) => (length, Some(key)),
                Parsed::Nothing(length) => (length, None),
                Parsed::Paste(length, begins) => {
                    self.pasting = begins;
                    (length, None)
                }
                Parsed::Incomplete => return None,
            };
            self.bytes.drain(..length);
            match key {
                Some(Key::Letter(letter)) if self.pasting => return Some(Key::Pasted(letter)),
                // Terminals keep it out of what they paste: somebody wants to leave.
                Some(key @ Key::Control('c')) => {
                    self.pasting = false;
                    return Some(key);
                }
                Some(_) if self.pasting => {}
                Some(key) => return Some(key),
                None => {}
            }
        }
    }
}

enum Parsed {
    Key(usize, Key),
    /// So many bytes mean nothing here.
    Nothing(usize),
    /// A pasted text begins, or ends.
    Paste(usize, bool),
    Incomplete,
}

fn parse(bytes: &[u8], complete: bool) -> Parsed {
    let Some(&first) = bytes.first() else { return Parsed::Incomplete };
    match first {
        b'\r' | b'\n' => Parsed::Key(1, Key::Enter),
        b'\t' => Parsed::Key(1, Key::Tab),
        0x7f | 0x08 => Parsed::Key(1, Key::Backspace),
        0x1b => escape(bytes, complete),
        1..=26 => Parsed::Key(1, Key::Control(char::from(first + b'a' - 1))),
        0..0x20 => Parsed::Nothing(1),
        _ => letter(bytes, complete),
    }
}

fn letter(bytes: &[u8], complete: bool) -> Parsed {
    let length = match bytes[0] {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Parsed::Nothing(1),
    };
    match bytes.get(..length).map(std::str::from_utf8) {
        Some(Ok(text)) => match text.chars().next() {
            Some(letter) if !letter.is_control() => Parsed::Key(length, Key::Letter(letter)),
            _ => Parsed::Nothing(length),
        },
        Some(Err(_)) => Parsed::Nothing(1),
        None if complete => Parsed::Nothing(bytes.len()),
        None => Parsed::Incomplete,
    }
}

fn escape(bytes: &[u8], complete: bool) -> Parsed {
    let incomplete = || if complete { Parsed::Key(1, Key::Escape) } else { Parsed::Incomplete };
    match bytes.get(1) {
        None => incomplete(),
        Some(b'[' | b'O') => {
            let Some(end) = bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
                return if bytes.len() == LONGEST { Parsed::Nothing(LONGEST) } else { incomplete() };
            };
            let (parameters, last) = (&bytes[2..2 + end], bytes[2 + end]);
            let length = 3 + end;
            let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
            let key = match (last, number) {
                (b'A', _) => Key::Up,
                (b'B', _) => Key::Down,
                (b'C', _) => Key::Right,
                (b'D', _) => Key::Left,
                (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
                (b'F', _) | (b'~', b"4" | b"8") => Key::End,
                (b'~', b"3") => Key::Delete,
                (b'~', b"5") => Key::PageUp,
                (b'~', b"6") => Key::PageDown,
                (b'~', b"200") => return Parsed::Paste(length, true),
                (b'~', b"201") => return Parsed::Paste(length, false),
                (b'M', b"") if bytes[1] == b'O' => Key::Enter,
                _ => return Parsed::Nothing(length),
            };
            Parsed::Key(length, key)
        }
        // Two Escapes are two; one with a letter is Alt, which means nothing here.
        Some(0x1b) => Parsed::Key(1, Key::Escape),
        Some(_) => Parsed::Nothing(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pieces: &[&[u8]], time_up: bool) -> Vec<Key> {
        let mut reader = KeyReader::default();
        let mut keys = Vec::new();
        for piece in pieces {
            reader.add(piece);
            keys.extend(std::iter::from_fn(|| reader.next()));
        }
        if time_up {
            reader.time_up();
            keys.extend(std::iter::from_fn(|| reader.next()));
        }
        keys
    }

    #[test]
    fn bytes_are_keys_however_they_are_cut() {
        use Key::{
            Backspace, Control, Delete, Down, End, Enter, Escape, Home, Letter, PageDown, PageUp, Pasted,
            Tab, Up,
        };
        for (typed, expected) in [
            (&b"aB\r"[..], &[Letter('a'), Letter('B'), Enter][..]),
            ("ö語😀".as_bytes(), &[Letter('ö'), Letter('語'), Letter('😀')]),
            (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", &[Up, Down, PageUp, PageDown]),
            (b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1b[3~", &[Home, End, Home, End, Delete]),
            (b"\x1b[1;5A", &[Up]),
            (b"\x03\x13\x7f\x08\t", &[Control('c'), Control('s'), Backspace, Backspace, Tab]),
            (b"\x1b[?1;2cx", &[Letter('x')]),
            (b"a\x1b[200~sy\r\x1b[A\x1b[201~b", &[Letter('a'), Pasted('s'), Pasted('y'), Letter('b')]),
            (b"\x1b[200~s\x03q", &[Pasted('s'), Control('c'), Letter('q')]),
            (b"\x1bxy", &[Letter('y')]),
            (b"\xffa\xc3", &[Letter('a')]),
            (b"\x1b\x1b", &[Escape, Escape]),
            (b"\x00a", &[Letter('a')]),
        ] {
            assert_eq!(keys(&[typed], true), expected, "{typed:?}");
            let single: Vec<&[u8]> = typed.chunks(1).collect();
            assert_eq!(keys(&single, true), expected, "{typed:?} byte by byte");
        }
    }

    #[test]
    fn a_text_is_typed_and_mended() {
        use Key::{Backspace, Control, Enter, Letter, Pasted};
        let mut text = String::new();
        for (key, expected) in [
            (Letter('ö'), "ö"),
            (Pasted('n'), "ön"),
            (Backspace, "ö"),
            (Letter(' '), "ö "),
            (Letter('b'), "ö b"),
            (Control('w'), "ö "),
            (Control('w'), ""),
            (Backspace, ""),
            (Letter('x'), "x"),
            (Control('u'), ""),
        ] {
            assert!(edit(&mut text, key));
            assert_eq!(text, expected, "{key:?}");
        }
        assert!(!edit(&mut text, Enter) && !edit(&mut text, Control('c')));
    }

    #[test]
    fn an_escape_is_known_by_the_silence_after_it() {
        assert_eq!(keys(&[b"\x1b"], false), []);
        assert_eq!(keys(&[b"\x1b"], true), [Key::Escape]);
        let endless = [b"\x1b[".to_vec(), vec![b'1'; 500], b"a".to_vec()].concat();
        assert!(!keys(&[&endless], true).is_empty(), "it ends all the same");
    }
}
