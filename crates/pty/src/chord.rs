//! The keys that a viewer presses to leave a program, found among everything that is typed. Pure.
//!
//! A key arrives as a byte, or as an escape sequence where the program switched on kitty's keyboard protocol or xterm's
//! `modifyOtherKeys`. Promises: keys that are not the chord come out unchanged and in order, whatever the pieces they arrive
//! in; nothing is held back but the beginning of a chord, and an escape sequence that may become a key of it. Text that is
//! pasted between marks is never a chord. The first key pressed twice is passed on once.

use std::fmt;
use std::str::FromStr;

/// A key sequence of terminals is shorter. A longer one is passed on as it comes.
const LONGEST_SEQUENCE: usize = 64;
/// Keys of a chord with everything that is reported when they are let go.
const LONGEST_HELD: usize = 1024;

const SHIFT: u32 = 1;
const CTRL: u32 = 4;
/// Caps lock and num lock change no key here.
const LOCKS: u32 = 64 | 128;

/// One key: a printable ASCII character, perhaps with Ctrl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    ctrl: bool,
    /// With Ctrl, a lower-case letter or one of `@[\]^_?` or space.
    letter: u8,
}

impl Key {
    /// By the byte that a terminal sends for it by default.
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b' '..=b'~' => Some(Self { ctrl: false, letter: byte }),
            0 => Some(Self { ctrl: true, letter: b' ' }),
            0x7f => Some(Self { ctrl: true, letter: b'?' }),
            0x01..=0x1a => Some(Self { ctrl: true, letter: byte | 0x60 }),
            0x1c..=0x1f => Some(Self { ctrl: true, letter: byte | 0x40 }),
            _ => None,
        }
    }

    /// `codes`: the code point of the key, of the key with Shift, and of the key in that place on an American keyboard, as
    /// far as the terminal reports them.
    fn is(self, codes: [Option<u32>; 3], modifiers: u32) -> bool {
        let [code, shifted, base] = codes;
        let modifiers = modifiers & !LOCKS;
        let letter = Some(u32::from(self.letter));
        let wanted = if self.ctrl { CTRL } else { 0 };
        if modifiers == wanted {
            return code == letter || base == letter;
        }
        // Ctrl-Shift-B is not Ctrl-B, but Shift is needed to type `_` or `D`.
        let upper = code.and_then(char::from_u32).filter(char::is_ascii_lowercase);
        let shifted = shifted.or(upper.map(|code| u32::from(code.to_ascii_uppercase())));
        modifiers == wanted | SHIFT && shifted == letter && (!self.ctrl || !self.letter.is_ascii_alphabetic())
    }
}

/// One or more keys, pressed one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chord(Vec<Key>);

/// A key that no agent uses and that shells know as "quit", and `d` as in screen and tmux.
impl Default for Chord {
    fn default() -> Self {
        Self(vec![Key { ctrl: true, letter: b'\\' }, Key { ctrl: false, letter: b'd' }])
    }
}

impl FromStr for Chord {
    type Err = String;

    /// `ctrl-\ d`, `ctrl-b d`, `ctrl-p ctrl-q`; a comma may stand for the space.
    fn from_str(text: &str) -> Result<Self, String> {
        let words = text.split([' ', ',']).filter(|word| !word.is_empty());
        let keys = words.map(key).collect::<Result<Vec<_>, _>>()?;
        match keys.first() {
            None => Err("names no key".to_owned()),
            // Whoever types that letter would leave.
            Some(first) if !first.ctrl => Err("must begin with a key like ctrl-b".to_owned()),
            Some(_) => Ok(Self(keys)),
        }
    }
}

fn key(word: &str) -> Result<Key, String> {
    let lower = word.to_ascii_lowercase();
    let (ctrl, letter) = match lower.strip_prefix("ctrl-") {
        Some("space") => (true, b' '),
        Some(letter) => match letter.as_bytes() {
            [letter @ (b'a'..=b'z' | b'@' | b'\\' | b']' | b'^' | b'_' | b'?')] => (true, *letter),
            // Ctrl-[ is Escape, with which every other sequence begins.
            _ => return Err(format!("has no key {word:?}; keys are written like ctrl-b, ctrl-\\ or d")),
        },
        None => match word.as_bytes() {
            [letter @ b'!'..=b'~'] => (false, *letter),
            _ => return Err(format!("has no key {word:?}; keys are written like ctrl-b, ctrl-\\ or d")),
        },
    };
    // Both are the byte zero.
    Ok(Key { ctrl, letter: if ctrl && letter == b'@' { b' ' } else { letter } })
}

impl fmt::Display for Chord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.0.iter().enumerate() {
            let gap = if at == 0 { "" } else { " " };
            match (key.ctrl, key.letter) {
                (true, b' ') => write!(f, "{gap}ctrl-space")?,
                (true, letter) => write!(f, "{gap}ctrl-{}", char::from(letter))?,
                (false, letter) => write!(f, "{gap}{}", char::from(letter))?,
            }
        }
        Ok(())
    }
}

/// Where the input stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    Csi,
    /// `ESC O x`.
    Ss3,
    /// An answer of the terminal, up to ST or BEL.
    String,
    StringEscape,
    /// Bytes of a mouse report in the oldest form, still to come.
    Mouse(u8),
}

/// What a complete unit of input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// One of the chord's keys, or none of them.
    Pressed(Option<Key>),
    /// A key was let go, or a modifier moved: neither begins nor breaks a chord.
    Moved,
    /// The mouse, the focus, an answer of the terminal.
    Report,
}

/// Finds the chord in typed bytes.
#[derive(Debug)]
pub struct ChordFinder {
    chord: Chord,
    state: State,
    /// The unit so far, and how much of it was passed on already.
    unit: Vec<u8>,
    passed: usize,
    /// How many keys of the chord were pressed, and their bytes.
    pressed: usize,
    held: Vec<u8>,
    in_paste: bool,
}

impl ChordFinder {
    pub fn new(chord: Chord) -> Self {
        Self {
            chord,
            state: State::Ground,
            unit: Vec::new(),
            passed: 0,
            pressed: 0,
            held: Vec::new(),
            in_paste: false,
        }
    }

    /// Takes typed bytes and appends to `out` what is for the program. True: the chord is complete, and what follows it is
    /// dropped. `encoded`: keys may arrive as escape sequences.
    pub fn feed(&mut self, bytes: &[u8], encoded: bool, out: &mut Vec<u8>) -> bool {
        for byte in bytes {
            if self.state == State::Csi && *byte < 0x20 {
                // It was cut off; this is another key.
                self.state = State::Ground;
                self.complete(Unit::Pressed(None), out);
            }
            self.unit.push(*byte);
            if let Some(unit) = self.step(*byte) {
                self.state = State::Ground;
                if self.complete(unit, out) {
                    return true;
                }
            } else if self.unit.len() > LONGEST_SEQUENCE || self.state == State::String {
                self.pass_unit(out);
            }
        }
        // Without the protocols no sequence is a key of the chord, and Escape must arrive at once.
        if self.holds_sequence() && !encoded && self.held.is_empty() {
            self.pass_unit(out);
            if self.state == State::Escape {
                self.begin_unit();
            }
        }
        false
    }

    /// Is an escape sequence held back that may be a key by itself? Then [`time_up`](Self::time_up) is due soon.
    pub fn holds_sequence(&self) -> bool {
        self.unit.len() > self.passed
    }

    /// Whether nothing at all is held back, and the next byte begins a key.
    pub fn is_between_keys(&self) -> bool {
        self.unit.is_empty() && self.held.is_empty() && !self.in_paste
    }

    /// Nothing followed: it was Escape, or Alt and a key.
    pub fn time_up(&mut self, out: &mut Vec<u8>) {
        if self.holds_sequence() {
            self.release(out);
            self.pass_unit(out);
            self.begin_unit();
        }
    }

    fn begin_unit(&mut self) {
        self.state = State::Ground;
        self.unit.clear();
        self.passed = 0;
    }

    fn pass_unit(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.unit[self.passed..]);
        if self.unit.len() > LONGEST_SEQUENCE {
            self.unit.truncate(2); // how it began is all that matters now
        }
        self.passed = self.unit.len();
    }

    /// The chord is not completed: its keys are for the program.
    fn release(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
        self.pressed = 0;
    }

    /// True: the chord is complete.
    fn complete(&mut self, unit: Unit, out: &mut Vec<u8>) -> bool {
        let mut bytes = std::mem::take(&mut self.unit);
        let passed = std::mem::take(&mut self.passed);
        bytes.drain(..passed);
        let keys = &self.chord.0;
        match unit {
            Unit::Moved if passed == 0 && self.pressed > 0 && self.held.len() < LONGEST_HELD => {
                self.held.append(&mut bytes);
            }
            Unit::Moved | Unit::Report => out.append(&mut bytes),
            Unit::Pressed(Some(key)) if passed == 0 && keys.get(self.pressed) == Some(&key) => {
                self.pressed += 1;
                self.held.append(&mut bytes);
                return self.pressed == keys.len();
            }
            Unit::Pressed(Some(key)) if passed == 0 && keys.first() == Some(&key) => {
                if self.pressed == 1 {
                    self.held.clear();
                    self.pressed = 0;
                    out.append(&mut bytes);
                } else {
                    self.release(out);
                    self.pressed = 1;
                    self.held.append(&mut bytes);
                }
            }
            Unit::Pressed(_) => {
                self.release(out);
                out.append(&mut bytes);
            }
        }
        false
    }

    fn step(&mut self, byte: u8) -> Option<Unit> {
        match (self.state, byte) {
            (State::Ground, 0x1b) => self.state = State::Escape,
            (State::Ground, _) => return Some(self.pressed_key(Key::from_byte(byte))),
            (State::Escape, b'[') => self.state = State::Csi,
            (State::Escape, b'O') => self.state = State::Ss3,
            (State::Escape, b']' | b'P' | b'_' | b'^' | b'X') => self.state = State::String,
            (State::Escape, 0x1b) => {} // Alt and a sequence
            // Alt and a key, or the end of an SS3 key.
            (State::Escape | State::Ss3, _) => return Some(Unit::Pressed(None)),
            (State::Csi, b'M') if self.is_bare_csi() => self.state = State::Mouse(3),
            (State::Csi, 0x40..=0x7e) => return Some(self.csi_key()),
            (State::String, 0x07) | (State::StringEscape, b'\\') | (State::Mouse(1), _) => {
                return Some(Unit::Report);
            }
            (State::String, 0x1b) => self.state = State::StringEscape,
            (State::Csi | State::String, _) => {}
            (State::StringEscape, _) => self.state = State::String,
            (State::Mouse(more), _) => self.state = State::Mouse(more - 1),
        }
        None
    }

    fn pressed_key(&self, key: Option<Key>) -> Unit {
        if self.in_paste { Unit::Pressed(None) } else { Unit::Pressed(key) }
    }

    /// `ESC [` and one byte.
    fn is_bare_csi(&self) -> bool {
        self.unit.ends_with(b"\x1b[M")
    }

    fn csi_key(&mut self) -> Unit {
        let start = self.unit.iter().rposition(|byte| *byte == 0x1b).map_or(0, |at| at + 2);
        let Some((last, params)) = self.unit.get(start..).and_then(<[u8]>::split_last) else {
            return Unit::Report;
        };
        let fields = parameters(params);
        let field =
            |at: usize, part: usize| fields.get(at).and_then(|parts| parts.get(part).copied().flatten());
        let (codes, modifiers) = match (params.first(), last) {
            // Answers, and the mouse in the form of SGR.
            (Some(b'?' | b'<' | b'>' | b'='), _)
            | (_, b'R' | b'c' | b'n' | b't' | b'y')
            | (None, b'I' | b'O') => return Unit::Report,
            (_, b'~') if field(0, 0) == Some(200) => {
                self.in_paste = true;
                return Unit::Pressed(None);
            }
            (_, b'~') if field(0, 0) == Some(201) => {
                self.in_paste = false;
                return Unit::Pressed(None);
            }
            (_, b'~') if field(0, 0) == Some(27) => ([field(2, 0), None, None], field(1, 0)),
            (_, b'u') => ([field(0, 0), field(0, 1), field(0, 2)], field(1, 0)),
            (_, _) => {
                let is_release = field(1, 1) == Some(3);
                return if is_release { Unit::Moved } else { Unit::Pressed(None) };
            }
        };
        // Released, or a modifier, which is a key of its own in kitty's protocol.
        let is_modifier =
            codes[0].is_some_and(|code| (57441..=57454).contains(&code) || (57358..=57360).contains(&code));
        if field(1, 1) == Some(3) || is_modifier {
            return Unit::Moved;
        }
        let modifiers = modifiers.unwrap_or(1).saturating_sub(1);
        let pressed = self.chord.0.iter().copied().find(|key| key.is(codes, modifiers));
        self.pressed_key(pressed)
    }
}

/// `92:124;5:1` as numbers; an empty field is none.
fn parameters(params: &[u8]) -> Vec<Vec<Option<u32>>> {
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    params
        .split(|byte| *byte == b';')
        .map(|field| field.split(|byte| *byte == b':').map(number).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chord(text: &str) -> Chord {
        text.parse().unwrap()
    }

    /// What comes out, and `<detach>` where the chord is complete.
    fn typed(chord_text: &str, pieces: &[&str], encoded: bool) -> String {
        let mut finder = ChordFinder::new(chord(chord_text));
        let mut out = Vec::new();
        for piece in pieces {
            if finder.feed(piece.as_bytes(), encoded, &mut out) {
                out.extend_from_slice(b"<detach>");
                break;
            }
        }
        finder.time_up(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn chords_are_read_as_people_write_them() {
        for (text, shown) in [
            ("ctrl-\\ d", "ctrl-\\ d"),
            ("Ctrl-B d", "ctrl-b d"),
            ("ctrl-p,ctrl-q", "ctrl-p ctrl-q"),
            ("ctrl-] D", "ctrl-] D"),
            (" ctrl-a  ctrl-a d ", "ctrl-a ctrl-a d"),
            ("ctrl-@ x", "ctrl-space x"),
            ("ctrl-space x", "ctrl-space x"),
            ("ctrl-_", "ctrl-_"),
        ] {
            assert_eq!(chord(text).to_string(), shown, "{text}");
        }
        for text in
            ["", " ", "d", "d ctrl-b", "ctrl-", "ctrl-bb", "ctrl-[ d", "alt-b d", "ctrl-b é", "ctrl-1 x"]
        {
            assert!(text.parse::<Chord>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_chord_is_found_in_every_encoding() {
        for (typed_bytes, expected) in [
            ("abc\x1cd", "abc<detach>"),
            ("\x1b[92;5ud", "<detach>"),
            ("\x1b[92;5u\x1b[100u", "<detach>"),
            // Event types, and keys that are let go.
            ("\x1b[92;5:1u\x1b[92;5:3u\x1b[57442;1:3u\x1b[100;1:1u", "<detach>"),
            // The shifted key and the key of an American keyboard; caps lock, num lock.
            ("\x1b[92:124;5ud", "<detach>"),
            ("\x1b[1092::92;5u\x1b[1074::100;1u", "<detach>"),
            ("\x1b[92;69u\x1b[100;129u", "<detach>"),
            ("\x1b[27;5;92~d", "<detach>"),
            ("\x1b[27;5;92~\x1b[27;1;100~", "<detach>"),
            // With text after the modifiers.
            ("\x1b[92;5u\x1b[100;1;100u", "<detach>"),
            // Mouse, focus and answers in between break nothing.
            ("\x1c\x1b[<35;10;5Md", "\x1b[<35;10;5M<detach>"),
            ("\x1c\x1b[M !!d", "\x1b[M !!<detach>"),
            ("\x1c\x1b[I\x1b[?62c\x1b]11;rgb:0/0/0\x07d", "\x1b[I\x1b[?62c\x1b]11;rgb:0/0/0\x07<detach>"),
            // Others are passed on.
            ("\x1cx", "\x1cx"),
            ("\x1c\x1b[A", "\x1c\x1b[A"),
            ("\x1c\x1bd", "\x1c\x1bd"),
            ("\x1b[92;5ux", "\x1b[92;5ux"),
            ("\x1b[92;5u\x1b[92;5:3ux", "\x1b[92;5u\x1b[92;5:3ux"),
            ("\x1b[92;6ud", "\x1b[92;6ud"),
            ("\x1b[100;5u\x1b[92u", "\x1b[100;5u\x1b[92u"),
            ("d\x1b[Dé中", "d\x1b[Dé中"),
            // The first key twice is the first key once.
            ("\x1c\x1cd", "\x1cd"),
            ("\x1b[92;5u\x1b[92;5:3u\x1b[92;5ud", "\x1b[92;5ud"),
            ("\x1c\x1c\x1cd", "\x1c<detach>"),
            ("\x1cx\x1cd", "\x1cx<detach>"),
            // Pasted text is text.
            ("\x1b[200~a\x1cd\x1b[201~", "\x1b[200~a\x1cd\x1b[201~"),
            ("\x1b[200~a\x1cd\x1b[201~\x1cd", "\x1b[200~a\x1cd\x1b[201~<detach>"),
            ("\x1b", "\x1b"),
            ("\x1c\x1b", "\x1c\x1b"),
            ("\x1c\x1b[9", "\x1c\x1b[9"),
            ("\x1bOA\x1b\x1b[A\x1c", "\x1bOA\x1b\x1b[A"),
        ] {
            assert_eq!(typed("ctrl-\\ d", &[typed_bytes], true), expected, "{typed_bytes:?}");
        }
    }

    #[test]
    fn other_chords_are_found_too() {
        for (keys, typed_bytes, expected) in [
            ("ctrl-b d", "\x02d", "<detach>"),
            ("ctrl-p ctrl-q", "\x10\x11", "<detach>"),
            ("ctrl-p ctrl-q", "\x1b[112;5u\x1b[113;5u", "<detach>"),
            ("ctrl-p ctrl-q", "\x10q", "\x10q"),
            ("ctrl-p ctrl-p", "\x10\x10", "<detach>"),
            ("ctrl-]", "a\x1d", "a<detach>"),
            ("ctrl-a ctrl-b d", "\x01\x02\x01\x02d", "\x01\x02<detach>"),
            ("ctrl-b D", "\x1b[98;5u\x1b[100:68;2u", "<detach>"),
            ("ctrl-b D", "\x1b[98;5u\x1b[100;2u", "<detach>"),
            ("ctrl-b D", "\x1b[98;5ud", "\x1b[98;5ud"),
            ("ctrl-_ d", "\x1b[45:95;6ud", "<detach>"),
            ("ctrl-b d", "\x1b[98:66;6ud", "\x1b[98:66;6ud"),
            ("ctrl-space d", "\0d", "<detach>"),
            ("ctrl-space d", "\x1b[32;5ud", "<detach>"),
        ] {
            assert_eq!(typed(keys, &[typed_bytes], true), expected, "{keys} {typed_bytes:?}");
        }
    }

    #[test]
    fn pieces_make_no_difference() {
        for text in [
            "abc\x1cd",
            "\x1b[92;5:1u\x1b[92;5:3u\x1b[100;1:1u",
            "\x1b[27;5;92~d",
            "\x1b[A\x1b[200~x\x1cd\x1b[201~\x1cx\x1b[92;5ux",
            "\x1b]11;rgb:0000/0000/0000\x1b\\é中\x1b[M !!",
        ] {
            let whole = typed("ctrl-\\ d", &[text], true);
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(typed("ctrl-\\ d", &letters, true), whole, "{text:?}");
        }
    }

    #[test]
    fn escape_is_held_only_where_it_may_begin_a_key() {
        let mut finder = ChordFinder::new(chord("ctrl-\\ d"));
        let mut out = Vec::new();
        finder.feed(b"\x1b", false, &mut out);
        assert_eq!((&out[..], finder.holds_sequence()), (&b"\x1b"[..], false));
        assert!(finder.feed(b"\x1cd", false, &mut out), "the next key is not part of the Escape before");
        let mut finder = ChordFinder::new(chord("ctrl-\\ d"));
        out.clear();
        finder.feed(b"\x1b[2", false, &mut out);
        assert_eq!(out, b"\x1b[2");
        finder.feed(b"00~\x1c", false, &mut out);
        finder.feed(b"d\x1b[201~", false, &mut out);
        assert_eq!(
            out, b"\x1b[200~\x1cd\x1b[201~",
            "a paste is recognised although its beginning was passed on"
        );
        out.clear();
        finder.feed(b"\x1b", true, &mut out);
        assert!(out.is_empty() && finder.holds_sequence());
        finder.time_up(&mut out);
        assert_eq!((&out[..], finder.holds_sequence()), (&b"\x1b"[..], false));
        out.clear();
        assert!(finder.feed(b"\x1cd", true, &mut out), "the next key is not part of the Escape before");
    }

    #[test]
    fn no_bytes_are_lost_or_held_without_bound() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut finder = ChordFinder::new(chord("ctrl-] ctrl-] ctrl-] ctrl-] ctrl-] ctrl-]"));
        let (mut typed, mut out) = (Vec::new(), Vec::new());
        for _ in 0..50_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let byte = b"\x1b\x1b[]O?<;:019~uM\x07\\a\xff"[usize::try_from(state >> 8).unwrap() % 19];
            typed.push(byte);
            assert!(!finder.feed(&[byte], state & 1 == 0, &mut out));
            assert!(typed.len() - out.len() <= LONGEST_SEQUENCE + 1);
        }
        finder.time_up(&mut out);
        assert_eq!(typed, out);
    }
}
