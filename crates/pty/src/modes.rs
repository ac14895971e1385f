//! The terminal modes that the program has switched on and not off again.
//!
//! Scans output for the few control sequences whose effect outlives a program, and skips everything else. When the program
//! dies without resetting them, `undo` returns the bytes that do. `set` returns the bytes that switch them on in another
//! terminal, for a viewer that comes later.
//!
//! Where a sequence ends is decided as the screen model's parser decides it, so that both agree on what is unfinished.

use memchr::memchr;

/// DEC private modes that spoil a shell when left on, in the order in which they are undone: synchronized output first
/// (nothing shows while it is on), then input, then the screen.
const SWITCHED_ON: [u16; 16] =
    [SYNCHRONIZED, 9, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016, 1004, 2004, 2031, 2048, 1, 66];
/// Modes that are on in a sane terminal.
const SWITCHED_OFF: [u16; 2] = [CURSOR, 7];
const ALTERNATE_SCREENS: [u16; 3] = [47, 1047, 1049];
const SYNCHRONIZED: u16 = 2026;
const BRACKETED_PASTE: u16 = 2004;
const CURSOR: u16 = 25;
const ORIGIN: u16 = 6;

/// Parameters beyond these belong to no sequence we know. The screen model's parser has as many.
const MAX_PARAMETERS: usize = 32;

/// Terminals keep eight entries or more of the keyboard stack and drop the oldest beyond; a program pushes one or two.
const MAX_PUSHED: usize = 32;

/// The beginning of a string sequence: enough to know a command mark.
const STRING_BEGINNING: usize = 5;

/// Tracks the state of a terminal by the output that went to it.
#[derive(Clone, Debug, Default)]
pub struct Modes {
    parser: Parser,
    /// In the order in which they were switched on: of the mouse modes most terminals obey the last.
    on: Vec<u16>,
    off: Vec<u16>,
    alternate: Option<u16>,
    /// Of the main and of the alternate screen: each has a stack of its own.
    kitty: [KittyKeyboard; 2],
    /// The level; 0 is off.
    modify_other_keys: u16,
    keypad: bool,
    /// Cell addresses begin at the scroll region.
    origin: bool,
    scroll_region: bool,
    styled: bool,
    /// The shape of the cursor; 0 is the terminal's own.
    cursor_shape: u16,
    /// The last mark of `OSC 133`, by which shells divide their output into prompts and commands.
    command_mark: Option<u8>,
}

impl Modes {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.advance(bytes, |_| false);
    }

    /// The same up to the end of a sequence that repeats a character more than `most` times (REP): how many bytes that is.
    /// `None`: there was none, and all is taken.
    pub fn feed_to_repetition(&mut self, bytes: &[u8], most: u16) -> Option<usize> {
        let is_long = |sequence: &Sequence| {
            (sequence.prefix, sequence.last) == (0, b'b') && sequence.params().first() > Some(&most)
        };
        self.advance(bytes, is_long)
    }

    fn advance(&mut self, bytes: &[u8], is_last: impl Fn(&Sequence) -> bool) -> Option<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.parser.is_ground() {
                rest = &rest[memchr(0x1b, rest)?..];
            }
            let (&byte, tail) = rest.split_first()?;
            rest = tail;
            if let Some(sequence) = self.parser.step(byte) {
                self.apply(&sequence);
                if is_last(&sequence) {
                    return Some(bytes.len() - rest.len());
                }
            }
        }
        None
    }

    fn apply(&mut self, sequence: &Sequence) {
        let params = sequence.params();
        let first = params.first().copied().unwrap_or(0);
        match (sequence.prefix, sequence.last) {
            (b'?', b'h') => params.iter().for_each(|mode| self.switch(*mode, true)),
            (b'?', b'l') => params.iter().for_each(|mode| self.switch(*mode, false)),
            (b'>', b'u') => self.kitty().push(first),
            (b'<', b'u') => self.kitty().pop(first.max(1)),
            (b'=', b'u') => self.kitty().change(first, params.get(1).copied().unwrap_or(1)),
            (b'>', b'm') if first == 4 => self.modify_other_keys = params.get(1).copied().unwrap_or(0),
            (0, b'r') => self.scroll_region = first > 1 || params.get(1).is_some_and(|bottom| *bottom > 0),
            (0, b'm') => self.styled = params.iter().any(|style| *style != 0),
            (b' ', b'q') => self.cursor_shape = first,
            (0x1b, b'c') => *self = Self::default(),
            (b'!', b'p') => self.soft_reset(),
            (0x1b, b'=') => self.keypad = true,
            (0x1b, b'>') => self.keypad = false,
            (b']', mark) => self.command_mark = Some(mark),
            _ => {}
        }
    }

    fn switch(&mut self, mode: u16, value: bool) {
        if ALTERNATE_SCREENS.contains(&mode) {
            self.alternate = value.then_some(mode);
        } else if SWITCHED_ON.contains(&mode) {
            remember(&mut self.on, mode, value);
        } else if SWITCHED_OFF.contains(&mode) {
            remember(&mut self.off, mode, !value);
        } else if mode == ORIGIN {
            self.origin = value;
        }
    }

    /// DECSTR leaves the screen, the mouse and the keyboard protocol as they are.
    fn soft_reset(&mut self) {
        self.on.retain(|mode| !matches!(*mode, 1 | 66));
        self.off.clear();
        self.keypad = false;
        self.origin = false;
        self.scroll_region = false;
        self.styled = false;
    }

    fn kitty(&mut self) -> &mut KittyKeyboard {
        &mut self.kitty[usize::from(self.alternate.is_some())]
    }

    /// The mode by which the program went to the alternate screen, while it is there.
    pub fn alternate(&self) -> Option<u16> {
        self.alternate
    }

    pub fn bracketed_paste(&self) -> bool {
        self.on.contains(&BRACKETED_PASTE)
    }

    pub fn cursor_visible(&self) -> bool {
        !self.off.contains(&CURSOR)
    }

    /// Do keys arrive as escape sequences that else are single bytes?
    pub fn encodes_keys(&self) -> bool {
        self.modify_other_keys > 0 || self.kitty[usize::from(self.alternate.is_some())].flags() > 0
    }

    /// How many of the last bytes belong to a control sequence that has not ended.
    pub fn unfinished(&self) -> usize {
        self.parser.length
    }

    /// The bytes that give a shell its keyboard back. With the keyboard protocols on, ^C and perhaps Enter arrive as escape
    /// sequences that no shell understands; any other mode left on is a nuisance.
    pub fn undo_keyboard(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.modify_other_keys > 0 {
            out.extend_from_slice(b"\x1b[>4m");
        }
        self.kitty[usize::from(self.alternate.is_some())].undo(&mut out);
        out
    }

    /// The bytes that bring the terminal back, empty when there is nothing to undo.
    pub fn undo(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.parser.in_string() {
            out.extend_from_slice(b"\x1b\\"); // ends a title or the like that was cut off
        }
        for mode in SWITCHED_ON.iter().filter(|mode| self.on.contains(mode)) {
            private_mode(&mut out, *mode, 'l');
        }
        if self.modify_other_keys > 0 {
            out.extend_from_slice(b"\x1b[>4m");
        }
        if self.keypad {
            out.extend_from_slice(b"\x1b>");
        }
        if self.origin {
            private_mode(&mut out, ORIGIN, 'l');
        }
        if self.scroll_region {
            out.extend_from_slice(b"\x1b7\x1b[r\x1b8"); // resetting the region homes the cursor
        }
        if let Some(mode) = self.alternate {
            self.kitty[1].undo(&mut out);
            private_mode(&mut out, mode, 'l');
        }
        self.kitty[0].undo(&mut out);
        for mode in SWITCHED_OFF.iter().filter(|mode| self.off.contains(mode)) {
            private_mode(&mut out, *mode, 'h');
        }
        if self.cursor_shape > 0 {
            out.extend_from_slice(b"\x1b[0 q");
        }
        if self.styled {
            out.extend_from_slice(b"\x1b[0m");
        }
        // A prompt or a command that is still open would swallow the shell's own marks.
        if self.command_mark.is_some_and(|mark| mark != b'D') {
            out.extend_from_slice(b"\x1b]133;D\x1b\\");
        }
        out
    }

    /// The same for somebody who saw the output some time ago: what programs switch on and off with every frame (cursor,
    /// synchronized output, styles, scroll region, the middle of a sequence) is undone whether it is on or not. So the bytes
    /// change rarely.
    pub fn undo_lasting(&self) -> Vec<u8> {
        let mut lasting = self.clone();
        lasting.parser = Parser::default();
        lasting.on.retain(|mode| *mode != SYNCHRONIZED);
        lasting.off.clear();
        (lasting.origin, lasting.scroll_region, lasting.styled) = (false, false, false);
        let mut out = b"\x1b\\".to_vec();
        private_mode(&mut out, SYNCHRONIZED, 'l');
        private_mode(&mut out, ORIGIN, 'l');
        out.extend_from_slice(b"\x1b7\x1b[r\x1b8");
        out.extend(lasting.undo());
        for mode in SWITCHED_OFF {
            private_mode(&mut out, mode, 'h');
        }
        out.extend_from_slice(b"\x1b[0m");
        out
    }

    /// The bytes that give a terminal in its first state the main screen's keyboard stack. They go out while it shows the
    /// main screen; [`set`](Self::set) follows on the screen that the program is on.
    pub fn set_main_keyboard(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.kitty[0].set(&mut out);
        out
    }

    /// The bytes that switch on, in a terminal in its first state, everything but the screen, the scroll region and the
    /// style, which stand in the screen model, and the command marks, which belong to text that is not drawn again.
    pub fn set(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.alternate.is_some() {
            self.kitty[1].set(&mut out);
        }
        for mode in self.on.iter().filter(|mode| **mode != SYNCHRONIZED) {
            private_mode(&mut out, *mode, 'h');
        }
        if self.modify_other_keys > 0 {
            out.extend_from_slice(format!("\x1b[>4;{}m", self.modify_other_keys).as_bytes());
        }
        if self.keypad {
            out.extend_from_slice(b"\x1b=");
        }
        for mode in &self.off {
            private_mode(&mut out, *mode, 'l');
        }
        if self.cursor_shape > 0 {
            out.extend_from_slice(format!("\x1b[{} q", self.cursor_shape).as_bytes());
        }
        // Last, for nothing is shown from here on.
        if self.on.contains(&SYNCHRONIZED) {
            private_mode(&mut out, SYNCHRONIZED, 'h');
        }
        out
    }
}

fn private_mode(out: &mut Vec<u8>, mode: u16, last: char) {
    out.extend_from_slice(format!("\x1b[?{mode}{last}").as_bytes());
}

/// One screen's flags of the kitty keyboard protocol.
#[derive(Clone, Debug, Default)]
struct KittyKeyboard {
    /// Set without a push.
    base: u16,
    pushed: Vec<u16>,
}

impl KittyKeyboard {
    fn push(&mut self, flags: u16) {
        if self.pushed.len() == MAX_PUSHED {
            self.pushed.remove(0);
        }
        self.pushed.push(flags);
    }

    fn pop(&mut self, count: u16) {
        self.pushed.truncate(self.pushed.len().saturating_sub(usize::from(count)));
    }

    /// `how`: 1 replaces, 2 adds, 3 takes away.
    fn change(&mut self, flags: u16, how: u16) {
        let now = self.pushed.last_mut().unwrap_or(&mut self.base);
        match how {
            1 => *now = flags,
            2 => *now |= flags,
            3 => *now &= !flags,
            _ => {}
        }
    }

    fn flags(&self) -> u16 {
        self.pushed.last().copied().unwrap_or(self.base)
    }

    fn undo(&self, out: &mut Vec<u8>) {
        if !self.pushed.is_empty() {
            out.extend_from_slice(format!("\x1b[<{}u", self.pushed.len()).as_bytes());
        }
        if self.base > 0 {
            out.extend_from_slice(b"\x1b[=0u");
        }
    }

    fn set(&self, out: &mut Vec<u8>) {
        if self.base > 0 {
            out.extend_from_slice(format!("\x1b[={}u", self.base).as_bytes());
        }
        for flags in &self.pushed {
            out.extend_from_slice(format!("\x1b[>{flags}u").as_bytes());
        }
    }
}

fn remember(modes: &mut Vec<u16>, mode: u16, present: bool) {
    modes.retain(|known| *known != mode);
    if present {
        modes.push(mode);
    }
}

/// A complete control sequence: `CSI prefix params last`, `ESC last` with the prefix ESC, or the command mark `OSC 133 ; last`
/// with the prefix `]`.
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
    /// `ESC ( B` and the like.
    Designate,
    Csi,
    /// A CSI sequence that no terminal obeys.
    BadCsi,
    /// Until ST or BEL.
    Osc,
    /// DCS up to its function, and its data, which a byte of the old ST ends as well.
    Dcs,
    DcsData,
    /// APC, PM, SOS: until ST.
    String,
}

#[derive(Clone, Debug, Default)]
struct Parser {
    state: State,
    sequence: Sequence,
    digits: bool,
    /// The bytes of the sequence so far.
    length: usize,
    /// The beginning of a string.
    beginning: [u8; STRING_BEGINNING],
    collected: usize,
}

impl Parser {
    fn is_ground(&self) -> bool {
        self.state == State::Ground
    }

    fn in_string(&self) -> bool {
        matches!(self.state, State::Osc | State::Dcs | State::DcsData | State::String)
    }

    fn step(&mut self, byte: u8) -> Option<Sequence> {
        let before = self.state;
        let sequence = match (before, byte) {
            // Any escape ends a sequence and begins one: that of a string's terminator, too.
            (_, 0x1b) => {
                self.state = State::Escape;
                self.length = 0;
                None
            }
            (_, 0x18 | 0x1a)
            | (State::Osc, 0x07)
            | (State::DcsData, 0x9c)
            | (State::Designate, 0x30..=0x7e)
            | (State::BadCsi, 0x40..=0x7e) => {
                self.state = State::Ground;
                None
            }
            (State::Osc, _) => {
                if let Some(slot) = self.beginning.get_mut(self.collected) {
                    *slot = byte;
                    self.collected += 1;
                }
                None
            }
            (State::Escape, _) => self.after_escape(byte),
            (State::Csi, _) => self.csi(byte),
            (State::Dcs, 0x40..=0x7e) => {
                self.state = State::DcsData;
                None
            }
            (_, _) => None,
        };
        self.length = if self.is_ground() { 0 } else { self.length.saturating_add(1) };
        if before == State::Osc && self.state != State::Osc { self.command_mark() } else { sequence }
    }

    fn command_mark(&mut self) -> Option<Sequence> {
        let beginning = self.beginning.get(..std::mem::take(&mut self.collected))?;
        let mark = *beginning.strip_prefix(b"133;")?.first()?;
        matches!(mark, b'A' | b'B' | b'C' | b'D').then(|| Sequence {
            prefix: b']',
            last: mark,
            ..Sequence::default()
        })
    }

    fn after_escape(&mut self, byte: u8) -> Option<Sequence> {
        match byte {
            b'[' => {
                self.state = State::Csi;
                self.sequence = Sequence::default();
                self.digits = false;
            }
            b']' => {
                self.state = State::Osc;
                self.collected = 0;
            }
            b'P' => self.state = State::Dcs,
            b'X' | b'^' | b'_' => self.state = State::String,
            b' '..=b'/' => self.state = State::Designate,
            0x30..=0x7e => {
                self.state = State::Ground;
                return Some(Sequence { prefix: 0x1b, last: byte, ..Sequence::default() });
            }
            _ => {}
        }
        None
    }

    fn csi(&mut self, byte: u8) -> Option<Sequence> {
        let is_beginning = self.sequence.prefix == 0 && self.sequence.count == 0;
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
            b'<'..=b'?' if is_beginning => self.sequence.prefix = byte,
            b'<'..=b'?' => self.state = State::BadCsi,
            // The intermediate bytes (`!`, ` `, `$`): the last one counts.
            b' '..=b'/' => self.sequence.prefix = byte,
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
            ("\x1b[;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;1m", ""),
            ("\x1b[=5u", "\x1b[=0u"),
            ("\x1b[=5u\x1b[>1u\x1b[=8;2u\x1b[<u\x1b[=5;3u", ""),
            ("\x1b[6 q", "\x1b[0 q"),
            ("\x1b[6 q\x1b[0 q", ""),
            ("\x1b[?6h", "\x1b[?6l"),
            ("\x1b]133;A\x07", "\x1b]133;D\x1b\\"),
            ("\x1b]133;A;k=s\x1b\\", "\x1b]133;D\x1b\\"),
            ("\x1b]133;C\x1b\\\x1b]133;D;0\x1b\\", ""),
            ("\x1b]1337;C\x07\x1b]13\x07", ""),
            ("\x1bP a BEL \x07 does not end it", "\x1b\\"),
            ("\x1b[1?2004h\x1b(((\x1b[?2004h", "\x1b[?2004l"),
        ] {
            assert_eq!(undo(output), expected, "after {output:?}");
        }
    }

    #[test]
    fn set_switches_on_in_another_terminal_what_is_on_in_this_one() {
        for (output, main_keyboard, rest) in [
            ("", "", ""),
            ("\x1b[1mtext\x1b]133;A\x07", "", ""),
            ("\x1b[?2026h\x1b[?2004h\x1b[?1004h", "", "\x1b[?2004h\x1b[?1004h\x1b[?2026h"),
            // The last of the mouse modes is the one that counts.
            ("\x1b[?1003h\x1b[?1000;1006h", "", "\x1b[?1003h\x1b[?1000h\x1b[?1006h"),
            ("\x1b[>1u\x1b[>7u\x1b[?25l", "\x1b[>1u\x1b[>7u", "\x1b[?25l"),
            ("\x1b[>1u\x1b[?1049h\x1b[>7u\x1b[>4;2m", "\x1b[>1u", "\x1b[>7u\x1b[>4;2m"),
            ("\x1b[=5u\x1b=\x1b[6 q\x1b[?2031h", "\x1b[=5u", "\x1b[?2031h\x1b=\x1b[6 q"),
        ] {
            let mut modes = Modes::default();
            modes.feed(output.as_bytes());
            assert_eq!(String::from_utf8(modes.set_main_keyboard()).unwrap(), main_keyboard, "{output:?}");
            assert_eq!(String::from_utf8(modes.set()).unwrap(), rest, "{output:?}");
        }
    }

    #[test]
    fn unfinished_sequences_are_measured_from_their_escape() {
        for (output, length) in [
            ("text", 0),
            ("text\x1b", 1),
            ("text\x1b[", 2),
            ("text\x1b[38;5", 6),
            ("\x1b[1m", 0),
            ("\x1b]0;title", 9),
            ("\x1b]0;title\x1b", 1),
            ("\x1b]0;title\x07", 0),
            ("\x1b(", 2),
            ("\x1b(B", 0),
            ("\x1b[3\x1b[4", 3),
        ] {
            let mut modes = Modes::default();
            modes.feed(output.as_bytes());
            assert_eq!(modes.unfinished(), length, "after {output:?}");
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
