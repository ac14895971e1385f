//! Words folded into lines of a given width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// At least one line. A word wider than the line is broken; control characters become spaces.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(2); // room for the widest character there is
    let clean: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in clean.split(' ').filter(|word| !word.is_empty()) {
        let gap = usize::from(used > 0);
        if used > 0 && used + gap + word.width() > width {
            lines.push(String::new());
            used = 0;
        } else if gap > 0 {
            push(&mut lines, ' ');
            used += 1;
        }
        for letter in word.chars() {
            let cells = letter.width().unwrap_or(0);
            if used + cells > width {
                lines.push(String::new());
                used = 0;
            }
            push(&mut lines, letter);
            used += cells;
        }
    }
    lines
}

fn push(lines: &mut [String], letter: char) {
    if let Some(line) = lines.last_mut() {
        line.push(letter);
    }
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
            ("日本語", 5, &["日本", "語"]),
            ("日本", 0, &["日", "本"]),
        ] {
            assert_eq!(wrap(text, width), lines, "{text:?} in {width}");
        }
        assert_eq!(wrap("no end in sight", usize::MAX), ["no end in sight"]);
    }
}
