//! The line of a message that has a hit, cut so that the hit is seen.

use std::ops::Range;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use format::output::{Colour, Style};
use format::text::{clean, shorten};
use scan::search::{Word, places};

/// Where nobody folds lines, this much of one is given.
const WIDEST: usize = 400;

/// A part of one line, and where the words are in it.
pub(super) struct Excerpt {
    pub(super) text: String,
    pub(super) places: Vec<Range<usize>>,
}

impl Excerpt {
    pub(super) fn of(text: &str, words: &[Word], width: usize) -> Self {
        let width = width.min(WIDEST);
        // The line with the most of the words; words that are folded over two lines are in none.
        let line = text.lines().max_by_key(|line| {
            let found = words.iter().filter(|word| !places(std::slice::from_ref(word), line).is_empty());
            (found.count(), std::cmp::Reverse(line.as_ptr()))
        });
        let line = clean(line.unwrap_or_default().trim());
        let first = places(words, &line).first().map_or(0, |place| place.start);
        let text = if line.width() <= width {
            line.into_owned()
        } else {
            shorten(&from(&line, first, width), width)
        };
        let places = places(words, &text);
        Self { text, places }
    }

    pub(super) fn painted(&self, style: Style) -> String {
        let mut painted = String::new();
        let mut at = 0;
        for place in &self.places {
            painted += &self.text[at..place.start];
            painted += &style.paint(&self.text[place.clone()], Colour::Warning);
            at = place.end;
        }
        painted + &self.text[at..]
    }
}

/// The line from a third of the width before the hit on, with an ellipsis where something is missing.
fn from(line: &str, hit: usize, width: usize) -> String {
    let (mut begin, mut cells) = (hit, 0);
    for (at, letter) in line[..hit].char_indices().rev() {
        cells += letter.width().unwrap_or(0);
        if cells > width / 3 {
            break;
        }
        begin = at;
    }
    // A line that ends soon is shown to its end, and more of its beginning.
    let rest = line[begin..].width();
    if rest < width {
        let mut left = width - rest - 1;
        for (at, letter) in line[..begin].char_indices().rev() {
            let Some(less) = left.checked_sub(letter.width().unwrap_or(0)) else { break };
            (left, begin) = (less, at);
        }
    }
    if begin == 0 { line.to_owned() } else { format!("…{}", &line[begin..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hit_is_always_seen() {
        let words: Vec<Word> = ["proxy", "ü"].iter().filter_map(|word| Word::new(word)).collect();
        for (text, width, shown) in [
            ("a proxy", 20, "a [proxy]"),
            ("nothing\n\n  the PROXY is für  \n", 40, "the [PROXY] is f[ü]r"),
            ("0123456789 0123456789 proxy 0123456789", 20, "…56789 [proxy] 012345…"),
            ("0123456789 0123456789 a proxy", 20, "… 0123456789 a [proxy]"),
            ("proxy 0123456789 0123456789", 12, "[proxy] 01234…"),
            ("日本日本日本日本 proxy 日本", 12, "…本 [proxy] …"),
            ("", 10, ""),
        ] {
            let mut excerpt = Excerpt::of(text, &words, width);
            assert!(excerpt.text.width() <= width, "{:?}", excerpt.text);
            for place in excerpt.places.iter().rev() {
                excerpt.text.insert(place.end, ']');
                excerpt.text.insert(place.start, '[');
            }
            assert_eq!(excerpt.text, shown, "{text:?} in {width}");
        }
    }
}
