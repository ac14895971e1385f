//! The bytes that draw a screen: its history, its cells, its cursor and its modes.
//!
//! vt100's own `state_formatted` knows neither history nor the screen behind the alternate one, neither scroll region nor saved
//! cursor, and erased cells keep all their attributes in it, which no terminal does. So rows are drawn from cells here. What
//! vt100 keeps to itself is found out on a copy of the screen, which is sent the sequences that show it.

use vt100::{Cell, Color};

use super::{KEY_FRAME_LIMIT, Screen};

/// How much of a cell is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Styled,
    /// One character, no colours: at most four bytes a cell.
    Plain,
}

pub(super) fn draw(screen: &Screen) -> Vec<u8> {
    let mut frame = Vec::new();
    for (detail, with_main) in [(Detail::Styled, true), (Detail::Styled, false), (Detail::Plain, false)] {
        let (mut copy, body) = draw_screens(screen, detail, with_main);
        let room = KEY_FRAME_LIMIT.checked_sub(body.len());
        if room.is_some() || detail == Detail::Plain {
            frame = screen.modes.set_main_keyboard();
            frame.extend(draw_history(&mut copy, room.unwrap_or(0).saturating_sub(frame.len())));
            frame.extend(body);
            break;
        }
    }
    frame.truncate(KEY_FRAME_LIMIT);
    frame
}

/// Everything but the history, and the copy, which shows the main screen now.
fn draw_screens(screen: &Screen, detail: Detail, with_main: bool) -> (vt100::Parser, Vec<u8>) {
    let original = screen.parser.screen();
    let (rows, cols) = original.size();
    let mut copy = vt100::Parser::new(rows, cols, 0);
    *copy.screen_mut() = original.clone();
    let mut out = Vec::new();
    let reports = screen.parser.callbacks();
    if !reports.title.is_empty() {
        out.extend_from_slice(format!("\x1b]0;{}\x1b\\", reports.title).as_bytes());
    }
    if let Some(state) = &reports.state {
        out.extend_from_slice(format!("\x1b]7501;{state}\x1b\\").as_bytes());
    }
    let shown = Page::read(&mut copy, detail);
    if original.alternate_screen() {
        copy.process(b"\x1b[?47l");
        if with_main {
            // Its style is the saved one by now, with which the program comes back to it.
            Page::read(&mut copy, detail).write(&mut out);
        }
        let mode = screen.modes.alternate().filter(|mode| *mode != 1047).unwrap_or(1049);
        out.extend_from_slice(format!("\x1b[?{mode}h\x1b[0m\x1b[?6l\x1b[r\x1b[2J").as_bytes());
    } else if screen.modes.alternate() == Some(1047) {
        // vt100 does not know it: its main screen shows what belongs on the alternate one.
        out.extend_from_slice(b"\x1b[?1047h");
    }
    shown.write(&mut out);
    out.extend(screen.modes.set());
    // A control character inside a sequence has been obeyed already.
    out.extend(screen.unfinished.iter().filter(|byte| **byte >= 0x20 || **byte == 0x1b));
    (copy, out)
}

/// The lines that have left the main screen, each in its colours, so that they leave the viewer's screen as well. The newest
/// that fit into `room`.
fn draw_history(copy: &mut vt100::Parser, room: usize) -> Vec<u8> {
    let screen = copy.screen_mut();
    let (rows, cols) = screen.size();
    let (rows, cols) = (usize::from(rows.get()), cols.get());
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let (mut length, mut height) = (0, 0);
    let mut next_joins = false;
    for back in 1..=screen.scrollback_len() {
        screen.set_scrollback(back);
        let mut line = Vec::new();
        let width = draw_row(screen, 0, Detail::Styled, &mut line);
        // A line that went on in the next row is one line for the viewer, who may select and copy it.
        if !(next_joins && screen.row_wrapped(0) && width == cols) {
            line.extend_from_slice(b"\r\n");
        }
        length += line.len();
        // The bottom is reached and scrolled past by one line feed for each row.
        if length + 2 * rows + 16 > room {
            break;
        }
        next_joins = screen.cell(0, 0).is_some_and(Cell::has_contents);
        height += usize::from(width.div_ceil(cols).max(1));
        lines.push(line);
    }
    screen.set_scrollback(0);
    if lines.is_empty() {
        return Vec::new();
    }
    let mut out = lines.into_iter().rev().flatten().collect::<Vec<u8>>();
    out.extend_from_slice(format!("\x1b[{rows};1H").as_bytes());
    out.extend(std::iter::repeat_n(b'\n', height.min(rows - 1)));
    out.extend_from_slice(b"\x1b[H\x1b[J");
    out
}

/// One of the two screens, with what belongs to it alone.
#[derive(Debug)]
struct Page {
    rows: Vec<Vec<u8>>,
    /// The column may be the one behind the last: the next character goes to the next row.
    cursor: (u16, u16),
    /// The cell before a cursor behind the last column, drawn, and its column.
    before_cursor: Option<(u16, Vec<u8>)>,
    style: Style,
    saved_cursor: (u16, u16),
    saved_style: Style,
    /// First and last row that scroll, unless all do.
    region: Option<(u16, u16)>,
    /// Rows are counted from the region's first.
    origin: bool,
}

impl Page {
    /// Moves the copy's cursor about.
    fn read(copy: &mut vt100::Parser, detail: Detail) -> Self {
        let screen = copy.screen();
        let (rows, cols) = screen.size();
        let (rows, cols) = (rows.get(), cols.get());
        let cursor = screen.cursor_position();
        let drawn = (0..rows)
            .map(|row| {
                let mut line = Vec::new();
                draw_row(screen, row, detail, &mut line);
                line
            })
            .collect();
        let before_cursor = (cursor.1 >= cols).then(|| last_cell(screen, cursor.0, cols, detail));
        let style = Style::current(screen);
        let home = cursor_after(copy, b"\x1b[H").0;
        let end = cursor_after(copy, b"\x1b[9999H").0;
        let top = cursor_after(copy, b"\x1b[?6h").0;
        let bottom = cursor_after(copy, b"\x1b[9999H").0;
        let region = Some((top, bottom)).filter(|region| *region != (0, rows - 1));
        let origin = region.is_some() && (home, end) == (top, bottom);
        let (row, col) = cursor_after(copy, b"\x1b8");
        let saved_style = Style::current(copy.screen());
        Self {
            rows: drawn,
            cursor,
            before_cursor,
            style,
            saved_cursor: (row, col.min(cols - 1)),
            saved_style,
            region,
            origin,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (row, line) in self.rows.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
            out.extend_from_slice(format!("\x1b[{};1H", row + 1).as_bytes());
            out.extend_from_slice(line);
        }
        if self.saved_cursor != (0, 0) || self.saved_style != Style::default() {
            move_to(out, self.saved_cursor);
            self.saved_style.write(out);
            out.extend_from_slice(b"\x1b7\x1b[0m");
        }
        let mut first_row = 0;
        if let Some((top, bottom)) = self.region {
            out.extend_from_slice(format!("\x1b[{};{}r", top + 1, bottom + 1).as_bytes());
            if self.origin && (top..=bottom).contains(&self.cursor.0) {
                out.extend_from_slice(b"\x1b[?6h");
                first_row = top;
            }
        }
        let row = self.cursor.0 - first_row;
        match &self.before_cursor {
            None => move_to(out, (row, self.cursor.1)),
            Some((col, cell)) => {
                move_to(out, (row, *col));
                out.extend_from_slice(cell);
            }
        }
        if self.style != Style::default() {
            self.style.write(out);
        }
    }
}

fn cursor_after(copy: &mut vt100::Parser, bytes: &[u8]) -> (u16, u16) {
    copy.process(bytes);
    copy.screen().cursor_position()
}

fn move_to(out: &mut Vec<u8>, (row, col): (u16, u16)) {
    out.extend_from_slice(format!("\x1b[{};{}H", row + 1, col + 1).as_bytes());
}

/// The last cell of a row, drawn, and its column: writing it leaves the cursor behind it.
fn last_cell(screen: &vt100::Screen, row: u16, cols: u16, detail: Detail) -> (u16, Vec<u8>) {
    let is_second_half = screen.cell(row, cols - 1).is_some_and(Cell::is_wide_continuation);
    let col = cols - 1 - u16::from(is_second_half);
    let mut out = Vec::new();
    let cell = screen.cell(row, col).filter(|cell| cell.is_wide() == is_second_half);
    match cell.and_then(|cell| Look::of(cell, detail)) {
        Some(look) => {
            look.style.write(&mut out);
            out.extend_from_slice(look.text.as_bytes());
            out.extend_from_slice(b"\x1b[0m");
        }
        None => out.push(b' '),
    }
    (col, out)
}

/// Draws one row and returns where it ends. Begins and ends with the default style; blanks at the end are left out.
fn draw_row(screen: &vt100::Screen, row: u16, detail: Detail, out: &mut Vec<u8>) -> u16 {
    let mut style = Style::default();
    let (mut end, mut col) = (0, 0);
    while let Some(cell) = screen.cell(row, col) {
        let has_second_half = cell.is_wide() && screen.cell(row, col + 1).is_some();
        let Some(look) = Look::of(cell, detail).filter(|_| has_second_half || !cell.is_wide()) else {
            col += 1;
            continue;
        };
        if end < col {
            out.extend_from_slice(format!("\x1b[{}C", col - end).as_bytes());
        }
        if style != look.style {
            look.style.write(out);
            style = look.style;
        }
        out.extend_from_slice(look.text.as_bytes());
        col += 1 + u16::from(has_second_half);
        end = col;
        // Terminals disagree about how wide joined characters are.
        if look.text.chars().nth(1).is_some() && screen.cell(row, col).is_some() {
            out.extend_from_slice(format!("\x1b[{}G", col + 1).as_bytes());
        }
    }
    if style != Style::default() {
        out.extend_from_slice(b"\x1b[0m");
    }
    end
}

/// What is seen of a cell.
#[derive(Debug)]
struct Look<'a> {
    text: &'a str,
    style: Style,
}

impl<'a> Look<'a> {
    /// `None`: nothing.
    fn of(cell: &'a Cell, detail: Detail) -> Option<Self> {
        let text = cell.contents();
        match detail {
            Detail::Styled if text.is_empty() => {
                let style = Style { background: cell.bgcolor(), ..Style::default() };
                // Of an erased cell a terminal keeps the background alone.
                (style != Style::default()).then_some(Self { text: " ", style })
            }
            Detail::Styled => Some(Self { text, style: Style::of(cell) }),
            Detail::Plain => {
                let first = text.chars().next()?.len_utf8();
                Some(Self { text: &text[..first], style: Style::default() })
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    foreground: Color,
    background: Color,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
    inverse: bool,
}

impl Style {
    fn of(cell: &Cell) -> Self {
        Self {
            foreground: cell.fgcolor(),
            background: cell.bgcolor(),
            bold: cell.bold(),
            dim: cell.dim(),
            italic: cell.italic(),
            underline: cell.underline(),
            inverse: cell.inverse(),
        }
    }

    /// In which the next character will be written.
    fn current(screen: &vt100::Screen) -> Self {
        Self {
            foreground: screen.fgcolor(),
            background: screen.bgcolor(),
            bold: screen.bold(),
            dim: screen.dim(),
            italic: screen.italic(),
            underline: screen.underline(),
            inverse: screen.inverse(),
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\x1b[0");
        let attributes =
            [(self.bold, 1), (self.dim, 2), (self.italic, 3), (self.underline, 4), (self.inverse, 7)];
        for (_, code) in attributes.iter().filter(|(is_set, _)| *is_set) {
            out.extend_from_slice(format!(";{code}").as_bytes());
        }
        write_colour(out, self.foreground, 30);
        write_colour(out, self.background, 40);
        out.push(b'm');
    }
}

/// `base`: 30 for the foreground, 40 for the background.
fn write_colour(out: &mut Vec<u8>, colour: Color, base: u8) {
    let code = match colour {
        Color::Default => return,
        Color::Idx(index @ 0..=7) => format!(";{}", base + index),
        Color::Idx(index @ 8..=15) => format!(";{}", base + 60 + index - 8),
        Color::Idx(index) => format!(";{};5;{index}", base + 8),
        Color::Rgb(red, green, blue) => format!(";{};2;{red};{green};{blue}", base + 8),
    };
    out.extend_from_slice(code.as_bytes());
}
