//! The terminal modes that the program has switched on and not off again.
//!
//! Scans output for the few control sequences whose effect outlives a program, and skips everything else. When the program
//! dies without resetting them, `undo` returns the bytes that do.

use memchr::memchr;

/// DEC private modes that spoil a shell when left on, in the order in which they are undone: synchronized output first
/// (nothing shows while it is on), then input, then the screen.
const SWITCHED_ON: [u16; 15] =
    [2026, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016, 1004, 2004, 2031, 2048, 1, 66];
/// Modes that are on in a sane terminal.
const SWITCHED_OFF: [u16; 2] = [25, 7];
const ALTERNATE_SCREENS: [u16; 3] = [47, 1047, 1049];

/// Parameters beyond these belong to no sequence we know.
const MAX_PARAMETERS: usize = 16;

/// Tracks the state of a terminal by the output that went to it.
#[derive(Debug, Default)]
pub struct Modes {
    parser: Parser,
    on: Vec<u16>,
    off: Vec<u16>,
    alternate: Option<u16>,
    /// Pushed kitty keyboard flags, of the main and of the alternate screen: each has a stack of its own.
    kitty: [u16; 2],
    modify_other_keys: bool,
    keypad: bool,
    scroll_region: bool,
    styled: bool,
}

impl Modes {
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.parser.is_ground() {
                match memchr(0x1b, rest) {
                    None => return,
                    Some(at) => rest = &rest[at..],
                }
            }
            let Some((&byte, tail)) = rest.split_first() else { return };
            rest = tail;
            if let Some(sequence) = self.parser.step(byte) {
                self.apply(&sequence);
            }
        }
    }

    fn apply(&mut self, sequence: &Sequence) {
        let params = sequence.params();
        let first = params.first().copied().unwrap_or(0);
        match (sequence.prefix, sequence.last) {
            (b'?', b'h') => params.iter().for_each(|mode| self.set(*mode, true)),
            (b'?', b'l') => params.iter().for_each(|mode| self.set(*mode, false)),
            (b'>', b'u') => *self.kitty_stack() = self.kitty_stack().saturating_add(1),
            (b'<', b'u') => *self.kitty_stack() = self.kitty_stack().saturating_sub(first.max(1)),
            (b'>', b'm') if first == 4 => {
                self.modify_other_keys = params.get(1).is_some_and(|level| *level > 0);
            }
            (0, b'r') => self.scroll_region = first > 1 || params.get(1).is_some_and(|bottom| *bottom > 0),
            (0, b'm') => self.styled = params.iter().any(|style| *style != 0),
            (0x1b, b'c') => *self = Self::default(),
            (b'!', b'p') => self.soft_reset(),
            (0x1b, b'=') => self.keypad = true,
            (0x1b, b'>') => self.keypad = false,
            _ => {}
        }
    }

    fn set(&mut self, mode: u16, value: bool) {
        if ALTERNATE_SCREENS.contains(&mode) {
            self.alternate = value.then_some(mode);
        } else if SWITCHED_ON.contains(&mode) {
            remember(&mut self.on, mode, value);
        } else if SWITCHED_OFF.contains(&mode) {
            remember(&mut self.off, mode, !value);
        }
    }

    /// DECSTR leaves the screen, the mouse and the keyboard protocol as they are.
    fn soft_reset(&mut self) {
        self.on.retain(|mode| !matches!(*mode, 1 | 66));
        self.off.clear();
        self.keypad = false;
        self.scroll_region = false;
        self.styled = false;
    }

    fn kitty_stack(&mut self) -> &mut u16 {
        &mut self.kitty[usize::from(self.alternate.is_some())]
    }

    /// The bytes that give a shell its keyboard back. With the keyboard protocols on, ^C and perhaps Enter arrive as escape
    /// sequences that no shell understands; any other mode left on is a nuisance.
    pub fn undo_keyboard(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.modify_other_keys {
            out.extend_from_slice(b"\x1b[>4m");
        }
        let pushed = self.kitty[usize::from(self.alternate.is_some())];
        if pushed > 0 {
            out.extend_from_slice(format!("\x1b[<{pushed}u").as_bytes());
        }
        out
    }

    /// The bytes that bring the terminal back, empty when there is nothing to undo.
    pub fn undo(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut send = |text: String| out.extend_from_slice(text.as_bytes());
        if self.parser.in_string() {
            send("\x1b\\".into()); // ends a title or the like that was cut off
        }
        for mode in SWITCHED_ON.iter().filter(|mode| self.on.contains(mode)) {
            send(format!("\x1b[?{mode}l"));
        }
        if self.modify_other_keys {
            send("\x1b[>4m".into());
        }
        if self.keypad {
            send("\x1b>".into());
        }
        if self.scroll_region {
            send("\x1b7\x1b[r\x1b8".into()); // resetting the region homes the cursor
        }
        if let Some(mode) = self.alternate {
            if self.kitty[1] > 0 {
                send(format!("\x1b[<{}u", self.kitty[1]));
            }
            send(format!("\x1b[?{mode}l"));
        }
        if self.kitty[0] > 0 {
            send(format!("\x1b[<{}u", self.kitty[0]));
        }
        for mode in SWITCHED_OFF.iter().filter(|mode| self.off.contains(mode)) {
            send(format!("\x1b[?{mode}h"));
        }
        if self.styled {
            send("\x1b[0m".into());
        }
        out
    }
}

fn remember(modes: &mut Vec<u16>, mode: u16, present: bool) {
    modes.retain(|known| *known != mode);
    if present {
        modes.push(mode);
    }
}

/// A complete control sequence: `CSI prefix params last`, or `ESC last` with the prefix ESC.
#[derive(Clone, Copy, Debug, Default)]
struct Sequence {
    prefix: u8,
    params: [u16; MAX_PARAMETERS],
    count: usize,
    last: u8,
}

impl Sequence {
    fn params(&self) -> &[u16] {
        &self.params[..self.count.min(MAX_PARAMETERS)]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    /// `ESC ( B` and the like: one more byte.
    Designate,
    Csi,
    /// OSC, DCS, APC, PM, SOS: until ST (or BEL).
    String,
    StringEscape,
}

#[derive(Debug, Default)]
struct Parser {
    state: State,
    sequence: Sequence,
    digits: bool,
}

impl Parser {
    fn is_ground(&self) -> bool {
        self.state == State::Ground
    }

    fn in_string(&self) -> bool {
        matches!(self.state, State::String | State::StringEscape)
    }

    fn step(&mut self, byte: u8) -> Option<Sequence> {
        match (self.state, byte) {
            (State::String, 0x1b) => self.state = State::StringEscape,
            (State::StringEscape, b'\\') | (State::String, 0x07) | (_, 0x18 | 0x1a) => {
                self.state = State::Ground;
            }
            (State::String, _) => {}
            // Any other escape ends the string and is one itself.
            (_, 0x1b) => self.state = State::Escape,
            (State::Escape | State::StringEscape, _) => return self.after_escape(byte),
            (State::Designate, _) => self.state = State::Ground,
            (State::Csi, _) => return self.csi(byte),
            (State::Ground, _) => {}
        }
        None
    }

    fn after_escape(&mut self, byte: u8) -> Option<Sequence> {
        self.state = State::Ground;
        match byte {
            b'[' => {
                self.state = State::Csi;
                self.sequence = Sequence::default();
                self.digits = false;
            }
            b']' | b'P' | b'X' | b'^' | b'_' => self.state = State::String,
            b' '..=b'/' => self.state = State::Designate,
            _ => return Some(Sequence { prefix: 0x1b, last: byte, ..Sequence::default() }),
        }
        None
    }

    fn csi(&mut self, byte: u8) -> Option<Sequence> {
        match byte {
            b'0'..=b'9' => {
                if !self.digits {
                    self.digits = true;
                    self.sequence.count += 1;
                }
                if let Some(param) = self.sequence.params.get_mut(self.sequence.count - 1) {
                    *param = param.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                }
            }
            b';' | b':' => {
                if !self.digits {
                    self.sequence.count += 1;
                }
                self.digits = false;
            }
            // The prefixes (`?`, `>`, `<`, `=`) and the intermediate bytes (`!`, ` `, `$`): the last one counts.
            b'<'..=b'?' | b' '..=b'/' => self.sequence.prefix = byte,
            0x40..=0x7e => {
                self.state = State::Ground;
                self.sequence.last = byte;
                return Some(self.sequence);
            }
            _ => {} // control characters inside a sequence are executed by the terminal, not part of it
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(output: &str) -> String {
        let mut modes = Modes::default();
        modes.feed(output.as_bytes());
        String::from_utf8(modes.undo()).unwrap()
    }

    #[test]
    fn only_modes_that_are_still_on_are_undone() {
        for (output, expected) in [
            ("", ""),
            ("plain \x1b[1;31mred\x1b[0m text", ""),
            ("\x1b[1mbold", "\x1b[0m"),
            ("\x1b[?2004h", "\x1b[?2004l"),
            ("\x1b[?2004h\x1b[?2004l", ""),
            ("\x1b[?1000;1006h", "\x1b[?1000l\x1b[?1006l"),
            ("\x1b[?25l", "\x1b[?25h"),
            ("\x1b[?25l\x1b[?25h", ""),
            ("\x1b[?2026h\x1b[?1004h", "\x1b[?2026l\x1b[?1004l"),
            ("\x1b[>1u", "\x1b[<1u"),
            ("\x1b[>1u\x1b[>7u\x1b[<u", "\x1b[<1u"),
            ("\x1b[<5u", ""),
            ("\x1b[>4;2m", "\x1b[>4m"),
            ("\x1b[>4;2m\x1b[>4m", ""),
            ("\x1b[?1049h\x1b[>7u", "\x1b[<1u\x1b[?1049l"),
            ("\x1b[>1u\x1b[?1049h\x1b[>7u", "\x1b[<1u\x1b[?1049l\x1b[<1u"),
            ("\x1b=", "\x1b>"),
            ("\x1b[2;10r", "\x1b7\x1b[r\x1b8"),
            ("\x1b[2;10r\x1b[r", ""),
            ("\x1b[?2004h\x1b[?1049h\x1bc", ""),
            ("\x1b[?2004h\x1b[?25l\x1b=\x1b[!p", "\x1b[?2004l"),
            ("\x1b]0;a title that was cut of", "\x1b\\"),
            ("\x1b]0;title [?2004h inside\x07", ""),
            ("\x1b]8;;http://x\x1b\\\x1b[?2004h", "\x1b[?2004l"),
            ("\x1b]0;cut by an escape\x1b[?2004h", "\x1b[?2004l"),
            ("\x1b(B\x1b[?7l", "\x1b[?7h"),
            ("\x1b[?9999h\x1b[200~\x1b[c\x1b[>0q\x1b[?u", ""),
            ("\x1b[;;;;;;;;;;;;;;;;;;;;1m", ""),
        ] {
            assert_eq!(undo(output), expected, "after {output:?}");
        }
    }

    #[test]
    fn undo_keyboard_resets_keyboard_protocols_alone() {
        for (output, expected) in [
            ("\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?2004h\x1b=\x1b[1m", ""),
            ("\x1b[>1u\x1b[>4;2m", "\x1b[>4m\x1b[<1u"),
            ("\x1b[>1u\x1b[?1049h\x1b[>7u\x1b[>7u", "\x1b[<2u"),
            ("\x1b[>1u\x1b[<u", ""),
        ] {
            let mut modes = Modes::default();
            modes.feed(output.as_bytes());
            assert_eq!(String::from_utf8(modes.undo_keyboard()).unwrap(), expected, "after {output:?}");
        }
    }

    #[test]
    fn sequences_are_recognised_byte_by_byte() {
        let output = b"text\x1b[?1049h\x1b[>7u\x1b]0;t\x1b\\\x1b[?1003;1006h\x1b[?25l";
        let mut whole = Modes::default();
        whole.feed(output);
        let mut single = Modes::default();
        for byte in output {
            single.feed(&[*byte]);
        }
        assert_eq!(whole.undo(), single.undo());
        assert!(!whole.undo().is_empty());
    }

    #[test]
    fn arbitrary_bytes_are_survived_and_a_reset_clears_all_modes() {
        const ALPHABET: &[u8] = b"\x1b[]?><=;:0123456789hlumrpc\\\x07\x18P!";
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut modes = Modes::default();
        for _ in 0..200_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            modes.feed(&[ALPHABET[usize::try_from(state).unwrap() % ALPHABET.len()]]);
        }
        modes.feed(b"\x18\x1bc");
        assert!(modes.undo().is_empty());
    }
}
