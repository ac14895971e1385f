//! From a buffer of cells to the bytes that draw it, and our colours on cells.

use std::fmt::Write as _;
use std::ops::Range;

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::Position;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use format::output::Colour;
use format::text::clean;

/// A colour of ours on cells.
pub fn style(colour: Colour) -> Style {
    let style = Style::new();
    match colour {
        Colour::Plain => style,
        Colour::Heading => style.add_modifier(Modifier::BOLD),
        Colour::Faint => style.add_modifier(Modifier::DIM),
        Colour::Good => style.fg(Color::Green),
        Colour::Note => style.fg(Color::Cyan),
        Colour::Warning => style.fg(Color::Yellow),
        Colour::Bad => style.fg(Color::Red),
    }
}

/// Puts a line where it stands; what is outside of the buffer is left out.
pub fn put(buffer: &mut Buffer, y: u16, line: &Line<'_>, x: u16) {
    let area = buffer.area;
    if y < area.height && x < area.width {
        buffer.set_line(x, y, line, area.width - x);
    }
}

/// Keys and what they do, as many as fit.
pub fn key_line(keys: &[(String, &'static str)], width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, does) in keys {
        let cells = key.width() + does.width() + 3;
        if used + cells > width {
            break;
        }
        used += cells;
        spans.push(Span::styled(key.clone(), style(Colour::Note)));
        spans.push(Span::raw(format!(" {does}  ")));
    }
    Line::from(spans)
}

/// A text in which some places stand out.
pub fn marked(text: &str, places: &[Range<usize>]) -> Vec<Span<'static>> {
    let plain = |range: Range<usize>| Span::raw(clean(&text[range]).into_owned());
    let mut spans = Vec::new();
    let mut at = 0;
    for place in places {
        spans.push(plain(at..place.start));
        let marked = clean(&text[place.clone()]).into_owned();
        spans.push(Span::styled(marked, style(Colour::Warning).add_modifier(Modifier::BOLD)));
        at = place.end;
    }
    spans.push(plain(at..text.len()));
    spans.retain(|span| !span.content.is_empty());
    spans
}

/// A text as lines of at most so many cells. Spaces stay: it may be a program.
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let (mut part, mut used) = (String::new(), 0);
        for letter in line.chars() {
            let cells = letter.width().unwrap_or(0);
            if used + cells > width.max(2) {
                lines.push(std::mem::take(&mut part));
                used = 0;
            }
            part.push(letter);
            used += cells;
        }
        lines.push(part);
    }
    lines
}

/// Writes the cells in which two buffers differ.
pub(super) fn write_changes(shown: &Buffer, next: &Buffer, colour: bool, out: &mut Vec<u8>) {
    let mut text = String::new();
    let mut at: Option<(u16, u16)> = None;
    let mut style: Option<(Color, Modifier)> = None;
    for (x, y, cell) in shown.diff(next) {
        // Writing to a text cannot fail.
        if at != Some((x, y)) {
            let _ = write!(text, "\x1b[{};{}H", y + 1, x + 1);
        }
        let wanted = (if colour { cell.fg } else { Color::Reset }, cell.modifier);
        if style != Some(wanted) {
            text += &sequence(wanted);
            style = Some(wanted);
        }
        text += cell.symbol();
        at = Some((x + width(cell), y));
    }
    if !text.is_empty() {
        text += "\x1b[0m";
    }
    out.extend_from_slice(text.as_bytes());
}

fn width(cell: &Cell) -> u16 {
    u16::try_from(cell.symbol().width()).unwrap_or(1)
}

fn sequence((colour, modifier): (Color, Modifier)) -> String {
    let mut codes = String::from("\x1b[0");
    for (flag, code) in [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")] {
        if modifier.contains(flag) {
            codes += code;
        }
    }
    codes += match colour {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Cyan => ";36",
        _ => "",
    };
    codes + "m"
}

pub(super) fn write_cursor(cursor: Option<Position>, out: &mut Vec<u8>) {
    let text = match cursor {
        Some(Position { x, y }) => format!("\x1b[{};{}H\x1b[?25h", y + 1, x + 1),
        None => "\x1b[?25l".to_owned(),
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::layout::Rect;

    #[test]
    fn only_changed_cells_are_written() {
        let area = Rect::new(0, 0, 10, 2);
        let mut shown = Buffer::empty(area);
        shown.set_stringn(0, 0, "hello", 10, Style::new());
        let mut next = shown.clone();
        let written = |shown: &Buffer, next: &Buffer, colour| {
            let mut out = Vec::new();
            write_changes(shown, next, colour, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&shown, &next, true), "");
        next.set_stringn(1, 0, "a", 10, style(Colour::Good));
        assert_eq!(written(&shown, &next, true), "\x1b[1;2H\x1b[0;32ma\x1b[0m");
        assert_eq!(
            written(&shown, &next, false),
            "\x1b[1;2H\x1b[0ma\x1b[0m",
            "no colour where none is wanted"
        );
        next.set_stringn(0, 1, "日x", 10, Style::new());
        assert!(
            written(&shown, &next, true).ends_with("\x1b[2;1H\x1b[0m日x\x1b[0m"),
            "cells follow each other"
        );
    }

    #[test]
    fn marks_stand_out_and_nothing_steers_the_terminal() {
        let spans = marked("a \x1b[31mproxy", std::slice::from_ref(&(7..12)));
        let texts: Vec<&str> = spans.iter().map(|span| &*span.content).collect();
        assert_eq!(texts, ["a  [31m", "proxy"]);
        assert_ne!(spans[1].style, Style::new());
    }
}
