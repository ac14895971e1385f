//! Words that are searched for, in texts as people read them: each anywhere in the text, capital letters or not.

use memchr::memmem;

/// A letter without its case. One letter stays one letter, and no other letter becomes an ASCII one (as `K`, the sign of Kelvin,
/// would): whatever of a word is ASCII can be looked for as bytes.
pub(super) fn fold(letter: char) -> char {
    if letter.is_ascii() {
        return letter.to_ascii_lowercase();
    }
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) if !one.is_ascii() => one,
        _ => letter,
    }
}

fn folded(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.chars().map(fold).collect() }
}

/// One word, or several where somebody quoted them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(String);

impl Word {
    /// `None` for a blank one: it is in every text.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(folded(text)))
    }

    pub(super) fn folded(&self) -> &str {
        &self.0
    }
}

/// Whether all of the words are in the text.
pub fn are_in(words: &[Word], text: &str) -> bool {
    let all_in =
        |text: &str| words.iter().all(|word| memmem::find(text.as_bytes(), word.0.as_bytes()).is_some());
    // As they are spelled here they mostly are in it, and the text need not be copied: a sixth of a search for a common word.
    all_in(text) || all_in(&folded(text))
}

/// Where the words are in a text, as ranges of bytes that do not overlap, in order.
pub fn places(words: &[Word], text: &str) -> Vec<std::ops::Range<usize>> {
    let letters: Vec<(usize, char)> = text.char_indices().map(|(at, letter)| (at, fold(letter))).collect();
    let end_of = |at: usize| letters.get(at).map_or(text.len(), |(byte, _)| *byte);
    let mut places = Vec::new();
    for word in words {
        let word: Vec<char> = word.0.chars().collect();
        let mut at = 0;
        while at + word.len() <= letters.len() {
            let here = letters[at..at + word.len()].iter().map(|(_, letter)| letter).eq(&word);
            if here {
                places.push(letters[at].0..end_of(at + word.len()));
            }
            at += if here { word.len() } else { 1 };
        }
    }
    places.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end)));
    let mut end = 0;
    places.retain(|place| {
        let apart = place.start >= end;
        end = end.max(place.end);
        apart
    });
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Word> {
        text.split('|').filter_map(Word::new).collect()
    }

    #[test]
    fn all_words_must_be_there_and_case_does_not_count() {
        for (wanted, text, there) in [
            ("flaky", "the FLAKY test", true),
            ("flaky|test", "test is Flaky", true),
            ("flaky|proxy", "the flaky test", false),
            ("GRÖSSE", "die grösse", true),
            ("größe", "GRÖẞE", true),
            ("größe", "GRÖSSE", false),
            ("the flaky", "The\nflaky", false),
            ("the flaky", "The Flaky", true),
            ("k", "5 \u{212a}", false),
            ("i", "\u{130}", false),
            ("日本", "日本語", true),
            ("Σίσυφος", "ΣΊΣΥΦΟς", true),
            ("flaky|Grösse", "flaky in der GRÖSSE", true),
            ("flaky|proxy", "Flaky, and a proxy", true),
        ] {
            assert_eq!(are_in(&words(wanted), text), there, "{wanted} in {text}");
        }
        assert_eq!((Word::new(" "), Word::new("")), (None, None));
    }

    #[test]
    fn places_are_given_in_bytes_of_the_text_itself() {
        for (wanted, text, marked) in [
            ("test|flaky", "The Flaky TEST, a test", "The [Flaky] [TEST], a [test]"),
            ("aa", "aaaa a", "[aa][aa] a"),
            ("proxy|prox", "a proxy", "a [proxy]"),
            ("ö", "Öl für Köln", "[Ö]l für K[ö]ln"),
            ("x", "", ""),
            ("nothing", "here", "here"),
        ] {
            let mut shown = text.to_owned();
            for place in places(&words(wanted), text).into_iter().rev() {
                shown.replace_range(place.clone(), &format!("[{}]", &text[place]));
            }
            assert_eq!(shown, marked);
        }
    }
}
