//! Words folded into lines of a given width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Style;
use crate::text::{clean, shorten};

/// How far the lines after the first are indented.
pub const INDENT: usize = 2;

/// One paragraph with indented continuation lines, each line with its end. A text that fits stays as it is, except for
/// control characters.
pub fn hanging(text: &str, width: usize, indent: usize) -> String {
    let text = shorten(text, usize::MAX);
    if text.width() <= width {
        return text + "\n";
    }
    let begin = text.len() - text.trim_start().len();
    let indent = begin + indent;
    let lines = folded(&text, width.saturating_sub(begin), width.saturating_sub(indent));
    format!("{}{}\n", " ".repeat(begin), lines.join(&format!("\n{}", " ".repeat(indent))))
}

/// At least one line. A word wider than the line is broken; control characters become spaces.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    folded(text, width, width)
}

fn folded(text: &str, first: usize, width: usize) -> Vec<String> {
    // Room for the widest character there is.
    let (first, others) = (first.max(2), width.max(2));
    let mut width = first;
    let clean = clean(text);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(&clean, others) {
        let gap = usize::from(used > 0);
        if used > 0 && used + gap + word.width() > width {
            lines.push(String::new());
            (used, width) = (0, others);
        } else if gap > 0 {
            push(&mut lines, ' ');
            used += 1;
        }
        for letter in word.chars() {
            let cells = letter.width().unwrap_or(0);
            if used + cells > width {
                // A path is broken behind a slash, where it can be.
                let rest = lines.last_mut().and_then(|line| {
                    let slash = line.rfind('/').filter(|slash| line[..*slash].width() >= width / 2)?;
                    Some(line.split_off(slash + 1))
                });
                let rest = rest.unwrap_or_default();
                (used, width) = (rest.width(), others);
                lines.push(rest);
            }
            push(&mut lines, letter);
            used += cells;
        }
    }
    lines
}

/// A command in backticks is one word, because people copy it; one that is too long for a line is split into its words.
fn words(text: &str, width: usize) -> Vec<String> {
    let is_mark = |word: &str| word.matches('`').count() % 2 == 1;
    let mut words = Vec::new();
    let mut rest = text.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = rest.next() {
        let (mut ahead, mut whole) = (rest.clone(), word.to_owned());
        let mut closed = !is_mark(word);
        while !closed
            && whole.width() <= width
            && let Some(next) = ahead.next()
        {
            closed = is_mark(next);
            whole = format!("{whole} {next}");
        }
        if closed && whole.width() <= width {
            words.push(whole);
            rest = ahead;
        } else {
            words.push(word.to_owned());
        }
    }
    words
}

fn push(lines: &mut [String], letter: char) {
    if let Some(line) = lines.last_mut() {
        line.push(letter);
    }
}

// The user's own folder as people write it.

/// For a terminal: paths in the user's folder begin with `~`. Whatever is not a terminal gets them whole.
pub fn at_home(text: &str, style: Style) -> String {
    let home = std::env::var("HOME").ok().filter(|_| style.columns != usize::MAX);
    home.map_or_else(|| text.to_owned(), |home| tilde(text, &home))
}

/// Only where a shell understands it: at the beginning of a word. In quotes, or behind `=`, it would not.
fn tilde(text: &str, home: &str) -> String {
    let home = home.trim_end_matches('/');
    if !home.starts_with('/') {
        return text.to_owned();
    }
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(home) {
        let (before, found) = rest.split_at(at);
        let behind = &found[home.len()..];
        let begins = match before.chars().next_back().or_else(|| short.chars().next_back()) {
            None => true,
            Some(last) => last.is_whitespace() || last == '(',
        };
        let ends = behind.chars().next().is_none_or(|next| next == '/' || next.is_whitespace());
        short.push_str(before);
        short.push_str(if begins && ends { "~" } else { home });
        rest = behind;
    }
    short + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_where_they_can() {
        for (text, width, lines) in [
            ("", 10, &[""][..]),
            ("one two three", 13, &["one two three"]),
            ("one two three", 12, &["one two", "three"]),
            ("one two three", 3, &["one", "two", "thr", "ee"]),
            ("  a \t\n b  ", 10, &["a b"]),
            ("a 7a276c6b-d81e", 8, &["a", "7a276c6b", "-d81e"]),
            ("run `codemie list` now", 14, &["run", "`codemie list`", "now"]),
            ("run `codemie list` now", 13, &["run `codemie", "list` now"]),
            ("it is `open for ever", 11, &["it is `open", "for ever"]),
            ("日本語", 5, &["日本", "語"]),
            ("日本", 0, &["日", "本"]),
        ] {
            assert_eq!(wrap(text, width), lines, "{text:?} in {width}");
        }
        assert_eq!(wrap("no end in sight", usize::MAX), ["no end in sight"]);
    }

    #[test]
    fn a_path_is_broken_behind_a_slash() {
        for (text, width, lines) in [
            ("/home/dev/project/file.jsonl", 18, &["/home/dev/project/", "file.jsonl"][..]),
            ("/home/dev/project/file.jsonl", 12, &["/home/dev/", "project/", "file.jsonl"]),
            ("/a-very-long-name-without-any", 12, &["/a-very-long", "-name-withou", "t-any"]),
        ] {
            assert_eq!(wrap(text, width), lines, "{text:?} in {width}");
        }
    }

    #[test]
    fn continued_lines_are_indented() {
        for (text, width, drawn) in [
            ("one two three", 20, "one two three\n"),
            ("one two three four", 9, "one two\n  three\n  four\n"),
            ("  one two three", 9, "  one two\n    three\n"),
            ("  id  name", 10, "  id  name\n"),
            ("one  two\tthree", usize::MAX, "one  two three\n"),
        ] {
            assert_eq!(hanging(text, width, INDENT), drawn, "{width}");
        }
    }
}

#[cfg(test)]
mod tilde_tests {
    use super::*;

    #[test]
    fn a_path_is_short_where_a_shell_makes_it_whole_again() {
        for (text, home, short) in [
            ("/home/dev/project", "/home/dev", "~/project"),
            ("/home/dev", "/home/dev/", "~"),
            ("/home/developer/x", "/home/dev", "/home/developer/x"),
            ("cannot read /home/dev/a (/home/dev/b)", "/home/dev", "cannot read ~/a (~/b)"),
            ("cd '/home/dev/a b'; PATH=/home/dev/bin", "/home/dev", "cd '/home/dev/a b'; PATH=/home/dev/bin"),
            ("/mnt/home/dev/x", "/home/dev", "/mnt/home/dev/x"),
            ("/etc", "/", "/etc"),
            ("/etc", "", "/etc"),
        ] {
            assert_eq!(tilde(text, home), short, "{text} in {home}");
        }
        let whole = Style { colour: false, columns: usize::MAX };
        assert_eq!(at_home("/home/dev/project", whole), "/home/dev/project");
    }
}
