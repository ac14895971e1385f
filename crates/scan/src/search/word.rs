//! Words that are searched for, in texts as people read them: each anywhere in the text, capital letters or not.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use memchr::memmem;

/// Where letters with a case stand beyond ASCII. Between are ideographs, syllables and signs, which need not be looked at.
const WITH_CASE: [RangeInclusive<char>; 6] = [
    '\u{80}'..='\u{2e7f}',
    '\u{a640}'..='\u{abff}',
    '\u{fb00}'..='\u{10fff}',
    '\u{11800}'..='\u{118ff}',
    '\u{16e00}'..='\u{16fff}',
    '\u{1e900}'..='\u{1e9ff}',
];

/// What letters beyond ASCII become without their case, where that is not the letter itself, sorted by letter. Full case folding
/// as Unicode has it, so one letter can become up to three: `ß` is `ss`, `\u{fb03}` is `ffi`, the sign of Kelvin is `k`.
static FOLDINGS: LazyLock<Vec<(char, String)>> = LazyLock::new(|| {
    let all = WITH_CASE.into_iter().flatten().map(|letter| (letter, folding(letter)));
    all.filter(|(letter, folding)| !folding.chars().eq([*letter])).collect()
});

/// The standard library knows capitals and small letters, but no folding. A folding is the small letters of the capitals; of
/// the small letter's capitals, because `ẞ` is its own capital while that of `ß` is `SS`.
fn folding(letter: char) -> String {
    // Its capital is I, whose small letter is another one everywhere but in Turkish.
    if letter == '\u{131}' {
        return letter.to_string();
    }
    let capitals = letter.to_lowercase().flat_map(char::to_uppercase);
    capitals.flat_map(char::to_lowercase).collect()
}

/// Letters beyond ASCII whose folding meets a condition.
pub(super) fn letters_with(folding: impl Fn(&str) -> bool) -> impl Iterator<Item = char> {
    FOLDINGS.iter().filter(move |(_, folded)| folding(folded)).map(|(letter, _)| *letter)
}

/// Calls `each` with the letters that a letter becomes without its case.
fn fold(letter: char, mut each: impl FnMut(char)) {
    if letter.is_ascii() {
        each(letter.to_ascii_lowercase());
    } else if !WITH_CASE.iter().any(|span| span.contains(&letter)) {
        each(letter);
    } else {
        match FOLDINGS.binary_search_by_key(&letter, |(known, _)| *known) {
            Ok(at) => FOLDINGS[at].1.chars().for_each(each),
            Err(_) => each(letter),
        }
    }
}

fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut folded = String::with_capacity(text.len());
    text.chars().for_each(|letter| fold(letter, |letter| folded.push(letter)));
    folded
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

/// A letter of a text without its case, and the bytes of the letter that it comes from.
struct Letter {
    folded: char,
    start: usize,
    end: usize,
}

/// Where the words are in a text, as ranges of bytes that do not overlap, in order.
pub fn places(words: &[Word], text: &str) -> Vec<std::ops::Range<usize>> {
    let mut letters = Vec::with_capacity(text.len());
    for (start, letter) in text.char_indices() {
        let end = start + letter.len_utf8();
        fold(letter, |folded| letters.push(Letter { folded, start, end }));
    }
    let mut places = Vec::new();
    for word in words {
        let word: Vec<char> = word.0.chars().collect();
        let mut at = 0;
        while let Some(window) = letters.get(at..at + word.len()) {
            let here = window.iter().map(|letter| &letter.folded).eq(&word);
            if let (true, Some(first), Some(last)) = (here, window.first(), window.last()) {
                places.push(first.start..last.end);
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
    fn no_letter_outside_the_spans_has_a_case() {
        let outside = |letter: &char| !WITH_CASE.iter().any(|span| span.contains(letter));
        let with_case =
            ('\u{80}'..=char::MAX).filter(outside).find(|letter| !folding(*letter).chars().eq([*letter]));
        assert_eq!(with_case, None);
        assert!(WITH_CASE.is_sorted_by_key(|span| *span.start()));
    }

    #[test]
    fn all_words_must_be_there_and_case_does_not_count() {
        for (wanted, text, there) in [
            ("flaky", "the FLAKY test", true),
            ("flaky|test", "test is Flaky", true),
            ("flaky|proxy", "the flaky test", false),
            ("GRÖSSE", "die grösse", true),
            ("größe", "GRÖẞE", true),
            ("größe", "GRÖSSE", true),
            ("GRÖSSE", "größe", true),
            ("gros", "groß", true),
            ("größe", "grosse", false),
            ("office", "o\u{fb03}ce", true),
            ("the flaky", "The\nflaky", false),
            ("the flaky", "The Flaky", true),
            ("k", "5 \u{212a}", true),
            ("istanbul", "\u{130}stanbul", false),
            ("i\u{307}stanbul", "\u{130}stanbul", true),
            ("i", "\u{131}", false),
            ("Σ", "ς", true),
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
            ("strasse", "die Straße", "die [Straße]"),
            ("as", "Straße", "Str[aß]e"),
            ("ß", "SS Nassau", "[SS] Na[ss]au"),
            ("s", "ß", "[ß]"),
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
