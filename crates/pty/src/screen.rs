//! The screen of a program, as a terminal would show it, for people who look later and for those who read it.
//!
//! Cells, cursor and scrollback are vt100's; the modes are those of [`Modes`], which knows more of them. Promises: memory is
//! bounded whatever the program writes and whatever size it is given, and no input makes it panic.
//!
//! What vt100 does not keep is not shown to a later viewer: strike-through, blinking, hyperlinks, the colours and forms of
//! underlines, line-drawing character sets, images, and the alternate screen of mode 1047, which no agent uses.

mod key_frame;

use std::fmt;
use std::num::NonZeroU16;

use memchr::memmem;
use portable_pty::PtySize;

use super::modes::Modes;

/// Larger than any real terminal (a wall of small letters has some 300 rows of 900 cells); 32 bytes a cell.
const MOST_ROWS: u16 = 500;
const MOST_COLS: u16 = 1000;
/// As many as tmux keeps.
const MOST_HISTORY: usize = 2000;

/// A title, and a program's report of its state: a little shorter than vt100 hands them over, so that they arrive once more.
const LONGEST_TEXT: usize = 1000;

/// An unfinished control sequence is repeated to a new viewer up to here. Only strings are longer, and their middle may be
/// missing.
const LONGEST_UNFINISHED: usize = 4096;

/// Answers that nobody took: a program that asks without end is not answered without end.
const MOST_ANSWERS: usize = 4096;

/// U+FE0F, which makes an emoji of the character before it.
const WIDENING: &[u8] = "\u{fe0f}".as_bytes();

/// The longest key frame, whatever is on the screen: a little less than a frame between host and client may have.
pub const KEY_FRAME_LIMIT: usize = (2 << 20) - (16 << 10);

/// The screen at one moment, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenView {
    /// One string per row, without trailing blanks.
    pub rows: Vec<String>,
    /// Row and column of the cursor, from 0.
    pub cursor: (u16, u16),
    pub cursor_visible: bool,
    /// The title that the program gave its window.
    pub title: String,
    /// The last report of a program's own state: the text of `OSC 7501`.
    pub reported_state: Option<String>,
    /// The program asked for pastes to be marked.
    pub bracketed_paste: bool,
    pub alternate_screen: bool,
    /// Cells in faint letters: placeholders and suggestions, which nobody typed.
    pub faint: Vec<CellRange>,
    /// Cells in inverse colours: the caret of programs that hide the terminal's own cursor, and chosen lines of menus.
    pub inverse: Vec<CellRange>,
}

/// Neighbouring cells of one row, from 0. Cells with nothing in them do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRange {
    pub row: u16,
    pub from: u16,
    /// The column after the last.
    pub to: u16,
}

/// A screen that follows a program's output.
pub struct Screen {
    parser: vt100::Parser<Reports>,
    modes: Modes,
    /// The bytes of a control sequence or of a character that has only begun.
    unfinished: Vec<u8>,
}

impl Screen {
    /// Sizes that no terminal has are brought to the nearest that one may have.
    pub fn new(size: PtySize, scrollback_lines: usize) -> Self {
        let (rows, cols) = cells(size);
        let history = scrollback_lines.min(MOST_HISTORY);
        Self {
            parser: vt100::Parser::new_with_callbacks(rows, cols, history, Reports::default()),
            modes: Modes::default(),
            unfinished: Vec::new(),
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        if self.modes.unfinished() == 0 && !self.unfinished.is_empty() {
            // The end of a character.
            let joined = [&std::mem::take(&mut self.unfinished), bytes].concat();
            return self.feed(&joined);
        }
        let (_, cols) = self.parser.screen().size();
        let mut rest = bytes;
        // A few bytes may ask for 65,535 characters, which take vt100 milliseconds: a row of them is enough.
        while let Some(end) = self.modes.feed_to_repetition(rest, cols.get()) {
            self.draw(&rest[..end - 1]);
            self.draw(format!("\x18\x1b[{cols}b").as_bytes());
            rest = &rest[end..];
        }
        self.keep_unfinished(bytes);
        let begun = if self.modes.unfinished() == 0 { self.unfinished.len() } else { 0 };
        self.draw(&rest[..rest.len() - begun]);
    }

    /// vt100 moves a character that becomes wide behind the last column to the next row, but looks for it in the wrong row
    /// when that scrolls, and panics later over the half that it left. There such a character stays narrow.
    fn draw(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(at) = memmem::find(rest, WIDENING) {
            let (before, after) = rest.split_at(at);
            self.parser.process(before);
            let screen = self.parser.screen();
            if screen.cursor_position().1 < screen.size().1.get() {
                self.parser.process(WIDENING);
            }
            rest = &after[WIDENING.len()..];
        }
        self.parser.process(rest);
    }

    pub fn resize(&mut self, size: PtySize) {
        let (rows, cols) = cells(size);
        self.parser.set_size(rows, cols);
    }

    pub fn view(&self) -> ScreenView {
        let screen = self.parser.screen();
        let (_, cols) = screen.size();
        let (row, col) = screen.cursor_position();
        ScreenView {
            rows: screen.rows(0, cols.get()).map(without_trailing_blanks).collect(),
            // Behind the last column it is shown on it.
            cursor: (row, col.min(cols.get() - 1)),
            cursor_visible: self.modes.cursor_visible(),
            title: self.parser.callbacks().title.clone(),
            reported_state: self.parser.callbacks().state.clone(),
            bracketed_paste: self.modes.bracketed_paste(),
            alternate_screen: screen.alternate_screen(),
            faint: ranges(screen, vt100::Cell::dim),
            inverse: ranges(screen, vt100::Cell::inverse),
        }
    }

    /// Of everything that the program has written.
    pub fn modes(&self) -> &Modes {
        &self.modes
    }

    /// Whether the program is in the middle of no control sequence and no character, so that something else may be written.
    pub fn is_between_sequences(&self) -> bool {
        self.unfinished.is_empty() && self.modes.unfinished() == 0
    }

    /// What a terminal would have answered to the program's questions since the last call. Only questions that programs wait
    /// for are answered: what kind of terminal it is, whether it is well, where its cursor stands.
    pub fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.parser.callbacks_mut().answers)
    }

    /// The bytes that draw this screen on an empty terminal of the same size, with its modes, and before it the lines that
    /// have left it. On the alternate screen the main one is drawn behind it. The program's next output continues them.
    ///
    /// They are never longer than [`KEY_FRAME_LIMIT`]: the oldest lines are missing first, then what is behind the alternate
    /// screen, then colours.
    pub fn key_frame(&self) -> Vec<u8> {
        key_frame::draw(self)
    }

    fn keep_unfinished(&mut self, bytes: &[u8]) {
        let length = self.modes.unfinished();
        if length == 0 {
            let begun = unfinished_character(bytes);
            self.unfinished = bytes[bytes.len() - begun..].to_vec();
            return;
        }
        if length <= bytes.len() {
            self.unfinished.clear();
        }
        let new = &bytes[bytes.len().saturating_sub(length)..];
        let room = LONGEST_UNFINISHED.saturating_sub(self.unfinished.len());
        self.unfinished.extend_from_slice(&new[..new.len().min(room)]);
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("size", &self.parser.screen().size()).finish_non_exhaustive()
    }
}

/// The cells of the screen with something in them for which this holds.
fn ranges(screen: &vt100::Screen, holds: impl Fn(&vt100::Cell) -> bool) -> Vec<CellRange> {
    let (rows, cols) = screen.size();
    let mut ranges: Vec<CellRange> = Vec::new();
    for row in 0..rows.get() {
        for col in 0..cols.get() {
            let found = screen.cell(row, col).is_some_and(|cell| cell.has_contents() && holds(cell));
            match ranges.last_mut() {
                Some(last) if found && last.row == row && last.to == col => last.to = col + 1,
                _ if found => ranges.push(CellRange { row, from: col, to: col + 1 }),
                _ => {}
            }
        }
    }
    ranges
}

fn cells(size: PtySize) -> (NonZeroU16, NonZeroU16) {
    let clamped = |value: u16, most| NonZeroU16::new(value.min(most)).unwrap_or(NonZeroU16::MIN);
    (clamped(size.rows, MOST_ROWS), clamped(size.cols, MOST_COLS))
}

fn without_trailing_blanks(mut row: String) -> String {
    row.truncate(row.trim_end().len());
    row
}

/// How many bytes at the end are a character that has only begun.
fn unfinished_character(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(3);
    let Some(lead) = (1..=longest).find(|back| bytes[bytes.len() - back] & 0xc0 != 0x80) else { return 0 };
    match std::str::from_utf8(&bytes[bytes.len() - lead..]) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => lead,
        _ => 0,
    }
}

/// What the program reports beside the screen.
#[derive(Debug, Default)]
struct Reports {
    title: String,
    state: Option<String>,
    /// To questions of the program's.
    answers: Vec<u8>,
}

impl Reports {
    fn note(&mut self, number: &[u8], text: &[&[u8]]) {
        let text = || {
            let mut text = String::from_utf8_lossy(&text.join(&b';')).replace(char::is_control, "");
            text.truncate(text.floor_char_boundary(LONGEST_TEXT));
            text
        };
        match number {
            b"0" | b"2" => self.title = text(),
            // Claude asks for the terminal's own.
            b"7501" => self.state = Some(text()).filter(|state| state != "?").or_else(|| self.state.take()),
            _ => {}
        }
    }
}

impl vt100::Callbacks for Reports {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.note(b"2", &[title]);
    }

    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        intermediate: Option<u8>,
        second: Option<u8>,
        params: &[&[u16]],
        last: char,
    ) {
        if second.is_some() || self.answers.len() > MOST_ANSWERS {
            return;
        }
        let first = params.first().and_then(|param| param.first()).copied().unwrap_or(0);
        match (intermediate, last, first) {
            // A VT220 with colours, as multiplexers call themselves.
            (None, 'c', 0) => self.answers.extend_from_slice(b"\x1b[?62;22c"),
            (Some(b'>'), 'c', 0) => self.answers.extend_from_slice(b"\x1b[>1;10;0c"),
            (None, 'n', 5) => self.answers.extend_from_slice(b"\x1b[0n"),
            (None, 'n', 6) => {
                let (row, col) = screen.cursor_position();
                let col = col.min(screen.size().1.get() - 1);
                self.answers.extend_from_slice(format!("\x1b[{};{}R", row + 1, col + 1).as_bytes());
            }
            _ => {}
        }
    }

    /// Titles with a semicolon come here, too.
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
        if let Some((number, text)) = params.split_first() {
            self.note(number, text);
        }
    }
}

#[cfg(test)]
mod tests;
