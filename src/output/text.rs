//! Text from outside on its way to a terminal: names, paths and words that an agent, a file or another machine chose.
//!
//! [`clean`] and [`clean_lines`] are what everything printed goes through; [`Screen`] does the same once more to all that is
//! written to a terminal, so that a path that forgot it harms nobody.

use std::borrow::Cow;
use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

use super::Colour;

/// Stands where a character was that could have changed the order of its neighbours.
const REPLACEMENT: char = '\u{fffd}';

/// Marks on one letter; no script stacks more. Text of endless marks would be one cell wide and fill the screen.
const MOST_MARKS: usize = 8;

/// Whether a terminal might obey it instead of showing it: control characters (C1 included, which some take for `ESC [`),
/// overrides and isolates of writing direction, separators of lines.
pub fn is_harmful(letter: char) -> bool {
    letter.is_control() || is_bidirectional(letter) || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// Those that reorder what stands around them. The plain marks (U+200E, U+200F) do not, and right-to-left text needs them.
fn is_bidirectional(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

fn harmless(letter: char) -> char {
    match letter {
        _ if is_bidirectional(letter) => REPLACEMENT,
        _ if is_harmful(letter) => ' ',
        _ => letter,
    }
}

/// Whether each byte is a letter that takes one cell. All are looked at: that is done many at a time, an early end is not.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'))
}

/// As one line.
pub fn clean(text: &str) -> Cow<'_, str> {
    cleaned(text, |_| false)
}

/// As lines: line ends and tabs stay.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    cleaned(text, |letter| matches!(letter, '\n' | '\t'))
}

fn cleaned(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let mut marks = 0;
    let kept = text.chars().filter(|letter| {
        marks = if letter.width() == Some(0) { marks + 1 } else { 0 };
        marks <= MOST_MARKS
    });
    Cow::Owned(kept.map(|letter| if stays(letter) { letter } else { harmless(letter) }).collect())
}

/// A terminal that is written to: of sequences only the colours of [`Colour`] pass.
///
/// Where the end is no terminal, everything passes as it is: scripts read it.
#[derive(Debug)]
pub struct Screen<W> {
    inner: W,
    terminal: bool,
    /// The beginning of a character whose other bytes have not been written yet.
    torn: Vec<u8>,
}

impl<W: Write> Screen<W> {
    pub fn new(inner: W, terminal: bool) -> Self {
        Self { inner, terminal, torn: Vec::new() }
    }

    fn show(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find('\x1b') {
            let (before, sequence) = rest.split_at(at);
            self.inner.write_all(clean_lines(before).as_bytes())?;
            let length = colour_sequence(sequence);
            let shown = if length > 0 { &sequence[..length] } else { " " };
            self.inner.write_all(shown.as_bytes())?;
            rest = &sequence[length.max(1)..];
        }
        self.inner.write_all(clean_lines(rest).as_bytes())
    }
}

/// How long the colour is that a text begins with; 0 for anything else.
fn colour_sequence(text: &str) -> usize {
    let end = text.find('m').filter(|_| text.starts_with("\x1b["));
    let code = end.and_then(|end| text.get(2..end));
    let known = |code: &str| code == "0" || Colour::ALL.iter().any(|colour| colour.code() == Some(code));
    if code.is_some_and(known) { end.map_or(0, |end| end + 1) } else { 0 }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.terminal {
            return self.inner.write(bytes);
        }
        let mut all = std::mem::take(&mut self.torn);
        all.extend_from_slice(bytes);
        for chunk in all.utf8_chunks() {
            self.show(chunk.valid())?;
            match chunk.invalid() {
                [] => {}
                // Whatever is broken off at the very end may go on with the next write.
                torn if all.ends_with(torn) && is_torn(torn) => self.torn = torn.to_vec(),
                _ => self.show("\u{fffd}")?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Whether further bytes would make a character of it.
fn is_torn(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_might_obey_is_not_shown() {
        for (text, line, lines) in [
            ("plain", "plain", "plain"),
            ("größer 修正 👩‍💻", "größer 修正 👩‍💻", "größer 修正 👩‍💻"),
            ("a\x1b[31mb\n\tc", "a [31mb  c", "a [31mb\n\tc"),
            ("\u{9b}31m\u{85}\x7f", " 31m  ", " 31m  "),
            ("exe\u{202e}gpj", "exe\u{fffd}gpj", "exe\u{fffd}gpj"),
            ("\u{2066}a\u{2069}\u{2028}", "\u{fffd}a\u{fffd} ", "\u{fffd}a\u{fffd} "),
            ("שלום\u{200f}!", "שלום\u{200f}!", "שלום\u{200f}!"),
        ] {
            assert_eq!(clean(text), line, "{text:?}");
            assert_eq!(clean_lines(text), lines, "{text:?}");
        }
        let stacked = format!("a{}b", "\u{301}".repeat(70_000));
        assert_eq!(clean(&stacked).chars().count(), 2 + MOST_MARKS);
    }

    fn written(parts: &[&[u8]], terminal: bool) -> Vec<u8> {
        let mut screen = Screen::new(Vec::new(), terminal);
        for part in parts {
            screen.write_all(part).unwrap();
        }
        screen.inner
    }

    #[test]
    fn a_terminal_gets_our_colours_and_nothing_else_that_steers_it() {
        for (text, shown) in [
            ("\x1b[1mNAME\x1b[0m\n", "\x1b[1mNAME\x1b[0m\n"),
            ("\x1b[8mhidden\x1b[2J", " [8mhidden [2J"),
            ("\x1b]0;owned\x07", " ]0;owned "),
            ("a\rb\u{202e}", "a b\u{fffd}"),
            ("\x1b[31", " [31"),
            ("\x1bm", " m"),
        ] {
            assert_eq!(String::from_utf8(written(&[text.as_bytes()], true)).unwrap(), shown);
            assert_eq!(written(&[text.as_bytes()], false), text.as_bytes(), "a script reads it as it is");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            let torn = written(&single, true);
            assert!(!torn.contains(&0x9b) && !torn.contains(&b'\r'), "{torn:?}");
        }
        let letter = "ü".as_bytes();
        assert_eq!(written(&[&letter[..1], &letter[1..]], true), letter);
        assert_eq!(written(&[b"\xff\xfe.", &letter[..1]], true), "\u{fffd}\u{fffd}.".as_bytes());
    }
}
