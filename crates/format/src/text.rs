//! Text from outside on its way to a terminal: names, paths and words that an agent, a file or another machine chose.
//!
//! Everything printed goes through [`clean`] or [`clean_lines`]: a terminal shows it and cannot be steered by it.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands where a character was that could have changed the order of its neighbours.
const REPLACEMENT: char = '\u{fffd}';

/// Marks on one letter; no script stacks more. Text of endless marks would be one cell wide and fill the screen.
const MOST_MARKS: usize = 8;

/// Whether a terminal might obey it instead of showing it: control characters (C1 included, which some take for `ESC [`),
/// overrides and isolates of writing direction, separators of lines.
pub fn is_harmful(letter: char) -> bool {
    letter.is_control() || is_bidirectional(letter) || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// Whether nobody sees it, though it is no white space: marks of byte order, joiners, fillers, marks that stand on another letter.
pub fn is_invisible(letter: char) -> bool {
    letter.width() == Some(0)
        || matches!(letter, '\u{ad}' | '\u{feff}' | '\u{3164}' | '\u{ffa0}' | '\u{2800}')
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

/// At most `width` cells, with an ellipsis where something is missing. What a terminal might obey never reaches it.
pub fn shorten(text: &str, width: usize) -> String {
    if is_plain(text) && text.len() <= width {
        return text.to_owned();
    }
    let clean = clean(text);
    if clean.width() <= width {
        return clean.into_owned();
    }
    let mut short = String::new();
    let mut used = 1; // the ellipsis
    for letter in clean.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        short.push(letter);
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// Whether each byte is a letter that takes one cell.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_direction_overrides_are_replaced() {
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

    #[test]
    fn shortened_text_is_clean_and_at_most_as_wide_as_asked() {
        assert_eq!(shorten("a\x1b[31mb\n", 20), "a [31mb ");
        assert_eq!(shorten("日本語", 5), "日本…");
        assert_eq!(shorten("日本語", 4), "日…");
        assert_eq!(shorten("abc", 0), "");
    }
}
