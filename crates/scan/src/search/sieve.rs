//! Bytes as the agents write them, searched before any of them is parsed: JSON, in which the same letter can be spelled in
//! several ways.
//!
//! Promise: a text that contains a word is never missed, whatever spelling its file has. A text that only resembles one may pass;
//! the reader of conversations decides then.
//!
//! Of a word its rarest part is looked for that JSON never spells otherwise (letters, digits, most signs): a window of a few
//! letters, in capitals and small letters; beside it any letter of that part as `\uXXXX`. Where it is found, the rest of the part
//! is compared.
//!
//! Letters beyond ASCII that become ASCII ones without their case (`ß` is `ss`) are looked for in a search of their own, because
//! among the others they would make each search slower: it costs as much as the first. So a window that no such letter can
//! stand for, not even in part, is preferred, and most words have one.

use std::ops::Range;

use aho_corasick::AhoCorasick;
use aho_corasick::packed::Searcher;

use super::word::{Word, letters_with};

/// Letters looked for at once, and spellings of their cases: as many as the fastest search takes, and already rare.
const LETTERS: usize = 4;
const SPELLINGS: usize = 8;

/// What a window is worth that needs no second search.
const ALONE: u32 = 12;

/// Finds where a word may be.
#[derive(Debug)]
pub(super) struct Sieve {
    search: Finder,
    part: Part,
    /// Letters beyond ASCII that hold one of a run's letters without their case.
    others: Option<Finder>,
}

/// What is looked for.
#[derive(Debug)]
enum Part {
    /// ASCII, in small letters; looked for is the window in it.
    Run { letters: Vec<u8>, window: Range<usize> },
    /// One other letter, folded.
    Letter(char),
}

#[derive(Debug)]
enum Finder {
    Packed(Searcher),
    /// Where the processor is not known to the other.
    Automaton(AhoCorasick),
}

impl Finder {
    fn new(patterns: &[Vec<u8>]) -> Option<Self> {
        Searcher::new(patterns)
            .map(Self::Packed)
            .or_else(|| AhoCorasick::new(patterns).ok().map(Self::Automaton))
    }

    /// Where the first pattern begins, from `at` on.
    fn find(&self, bytes: &[u8], at: usize) -> Option<usize> {
        match self {
            Self::Packed(search) => {
                let span = aho_corasick::Span { start: at, end: bytes.len() };
                search.find_in(bytes, span).map(|found| found.start())
            }
            Self::Automaton(search) => {
                search.find(aho_corasick::Input::new(bytes).span(at..bytes.len())).map(|found| found.start())
            }
        }
    }
}

impl Sieve {
    /// `None`: the word cannot be searched for (there is none such).
    pub(super) fn new(word: &Word) -> Option<Self> {
        let part = Part::of(word.folded())?;
        let search = Finder::new(&part.patterns())?;
        let others = match &part {
            Part::Run { letters, window } => spellings(&window_others(letters, window)),
            Part::Letter(_) => Vec::new(),
        };
        let others = if others.is_empty() { None } else { Some(Finder::new(&others)?) };
        Some(Self { search, part, others })
    }

    /// How seldom what is looked for is found by chance: the higher, the better.
    pub(super) fn rarity(&self) -> u32 {
        match &self.part {
            Part::Run { letters, window } => {
                rarity(&letters[window.clone()]) + u32::try_from(letters.len()).unwrap_or(0)
            }
            Part::Letter(_) => 100,
        }
    }

    /// Whether a line may hold the word.
    pub(super) fn passes(&self, line: &[u8]) -> bool {
        self.places(line).next(0).is_some()
    }

    /// The places in `bytes` that may belong to the word. `bytes` must begin with a line.
    pub(super) fn places<'a>(&'a self, bytes: &'a [u8]) -> Places<'a> {
        Places { sieve: self, bytes, spelled: Ahead::default(), other: Ahead::default() }
    }

    /// A place of the part in its own letters, from `at` on.
    fn spelled(&self, bytes: &[u8], mut at: usize) -> Option<usize> {
        loop {
            let found = self.search.find(bytes, at)?;
            if self.part.is_at(bytes, found) {
                return Some(found);
            }
            at = found + 1;
        }
    }
}

/// Places where a word may be, in order.
#[derive(Debug)]
pub(super) struct Places<'a> {
    sieve: &'a Sieve,
    bytes: &'a [u8],
    spelled: Ahead,
    other: Ahead,
}

impl Places<'_> {
    /// The first place from `at` on, which must not be before the last one asked for.
    pub(super) fn next(&mut self, at: usize) -> Option<usize> {
        let spelled = self.spelled.from(at, |at| self.sieve.spelled(self.bytes, at));
        let Some(others) = &self.sieve.others else { return spelled };
        let other = self.other.from(at, |at| other_letter(others, self.bytes, at));
        [spelled, other].into_iter().flatten().min()
    }
}

/// What a search found last. It is kept, so that two searches side by side read no bytes twice.
#[derive(Debug, Default)]
enum Ahead {
    #[default]
    Unknown,
    At(usize),
    None,
}

impl Ahead {
    fn from(&mut self, at: usize, find: impl FnOnce(usize) -> Option<usize>) -> Option<usize> {
        match *self {
            Self::None => None,
            Self::At(found) if found >= at => Some(found),
            Self::At(_) | Self::Unknown => {
                let found = find(at);
                *self = found.map_or(Self::None, Self::At);
                found
            }
        }
    }
}

/// Where one of these letters is, from `at` on: itself, or its digits behind `\u`.
fn other_letter(others: &Finder, bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = others.find(bytes, at)?;
        if !bytes[found].is_ascii() || bytes[..found].ends_with(b"\\u") {
            return Some(found);
        }
        at = found + 1;
    }
}

impl Part {
    fn of(word: &str) -> Option<Self> {
        // Quotation marks and slashes may have a backslash before them, which tears a run.
        let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\/".contains(byte);
        let runs = word.as_bytes().split(|byte| !plain(byte)).filter(|run| !run.is_empty());
        let windows = runs.flat_map(|run| windows(run).map(move |window| (run, window)));
        let worth = |(run, window): &(&[u8], Range<usize>)| {
            let alone = window_others(run, window).is_empty();
            rarity(&run[window.clone()]) + if alone { ALONE } else { 0 }
        };
        let best = windows.max_by_key(worth);
        if let Some((run, window)) = best {
            return Some(Self::Run { letters: run.to_vec(), window });
        }
        let letter = word.chars().find(|letter| !letter.is_ascii() && !letter.is_whitespace());
        let sign = word.bytes().find(|byte| byte.is_ascii() && !byte.is_ascii_whitespace());
        letter.map(Self::Letter).or_else(|| sign.map(|sign| Self::Run { letters: vec![sign], window: 0..1 }))
    }

    fn patterns(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Run { letters, window } => {
                let mut patterns = vec![Vec::new()];
                for &letter in &letters[window.clone()] {
                    let upper = letter.to_ascii_uppercase();
                    let cases: &[u8] = if upper == letter { &[letter] } else { &[letter, upper] };
                    let longer = patterns.iter().flat_map(|begin: &Vec<u8>| {
                        cases.iter().map(|case| begin.iter().copied().chain([*case]).collect())
                    });
                    patterns = longer.collect();
                }
                // Letters as `\uXXXX`, by the digits that they begin with: `\u001b`, which is in every coloured output, would stop
                // the search ten million times in a gigabyte. Beside a window of four all four: numbers are full of `003`.
                let length = patterns[0].len().clamp(3, 4);
                let mut digits: Vec<Vec<u8>> = letters
                    .iter()
                    .flat_map(|letter| [*letter, letter.to_ascii_uppercase()])
                    .flat_map(|letter| in_any_case(&format!("{letter:04x}")[..length]))
                    .collect();
                digits.sort();
                digits.dedup();
                patterns.extend(digits);
                patterns
            }
            Self::Letter(wanted) => {
                let same: Vec<char> = letter_others(*wanted).chain([*wanted]).collect();
                spellings(&same)
            }
        }
    }

    /// Whether a pattern that was found belongs to what is looked for.
    fn is_at(&self, bytes: &[u8], found: usize) -> bool {
        let escape = found.checked_sub(2).map(|begin| &bytes[begin..]);
        // What looks like an escape may be one, or a text about one (`\\u0041`).
        let unit = escape.filter(|bytes| bytes.starts_with(b"\\u")).and_then(escaped);
        if unit.is_some_and(|unit| self.may_hold(unit)) {
            return true;
        }
        match self {
            Self::Run { letters, window } => {
                let (before, after) = (&letters[..window.start], &letters[window.end..]);
                bytes[found..]
                    .get(..window.len())
                    .is_some_and(|here| here.eq_ignore_ascii_case(&letters[window.clone()]))
                    && may_end_with(&bytes[..found], before)
                    && may_begin_with(&bytes[found + window.len()..], after)
            }
            Self::Letter(_) => !bytes[found].is_ascii(),
        }
    }

    /// Whether a letter spelled as this UTF-16 unit can be one of it.
    fn may_hold(&self, unit: u16) -> bool {
        match self {
            Self::Run { letters, .. } => {
                u8::try_from(unit).is_ok_and(|byte| letters.contains(&byte.to_ascii_lowercase()))
            }
            // Half of a letter that takes two may be any of them.
            Self::Letter(wanted) => char::from_u32(unit.into()).is_none_or(|letter| {
                letter == *wanted || letter_others(*wanted).any(|other| other == letter)
            }),
        }
    }
}

/// The windows of a run: as long as their spellings are few enough.
fn windows(run: &[u8]) -> impl Iterator<Item = Range<usize>> {
    (0..run.len()).map(|start| {
        let mut spellings = 1;
        let fits = |letter: &&u8| {
            spellings *= if letter.is_ascii_alphabetic() { 2 } else { 1 };
            spellings <= SPELLINGS
        };
        start..start + run[start..].iter().take(LETTERS).take_while(fits).count()
    })
}

/// Whether text that stands before a window may be these letters: up to a letter beyond ASCII, or one spelled as `\uXXXX`, which
/// is for others to compare.
fn may_end_with(bytes: &[u8], letters: &[u8]) -> bool {
    for (at, letter) in letters.iter().rev().enumerate() {
        let Some(left) = bytes.len().checked_sub(at + 1) else { return false };
        if !bytes[left].eq_ignore_ascii_case(letter) {
            let escape = left.checked_sub(5).map(|begin| &bytes[begin..=left]);
            return !bytes[left].is_ascii() || escape.is_some_and(|bytes| bytes.starts_with(b"\\u"));
        }
    }
    true
}

/// The same for text that stands behind it.
fn may_begin_with(bytes: &[u8], letters: &[u8]) -> bool {
    for (at, letter) in letters.iter().enumerate() {
        let Some(byte) = bytes.get(at) else { return false };
        if !byte.eq_ignore_ascii_case(letter) {
            return !byte.is_ascii() || *byte == b'\\';
        }
    }
    true
}

/// Letters beyond ASCII that can stand for some of the letters in a window, or for them and their neighbours.
fn window_others(letters: &[u8], window: &Range<usize>) -> Vec<char> {
    letters_with(|folding| {
        let folded: Vec<char> = folding.chars().collect();
        // Each way in which the two overlap: the folding begins so many letters before the window's end.
        (1..window.len() + folded.len()).any(|before_end| {
            (0..folded.len()).all(|at| {
                let Some(place) = (window.end + at).checked_sub(before_end) else { return true };
                letters.get(place).is_none_or(|letter| char::from(*letter) == folded[at])
            })
        })
    })
    .collect()
}

/// Other letters that are this one without their case, or hold it.
fn letter_others(wanted: char) -> impl Iterator<Item = char> {
    letters_with(move |folding| folding.contains(wanted))
}

/// The letters as a file has them: in UTF-8, or as the digits of `\uXXXX`, of which the first of two units stands for both.
fn spellings(letters: &[char]) -> Vec<Vec<u8>> {
    let spelled = letters.iter().map(|letter| letter.to_string().into_bytes());
    let units = letters.iter().map(|letter| letter.encode_utf16(&mut [0; 2])[0]);
    spelled.chain(units.flat_map(|unit| in_any_case(&format!("{unit:04x}")))).collect()
}

/// All spellings of a number in hexadecimal digits.
fn in_any_case(digits: &str) -> Vec<Vec<u8>> {
    let mut spellings = vec![Vec::new()];
    for digit in digits.bytes() {
        let cases = [digit, digit.to_ascii_uppercase()];
        let cases = if cases[0] == cases[1] { &cases[..1] } else { &cases[..] };
        let longer = spellings.iter().flat_map(|begin: &Vec<u8>| {
            cases.iter().map(|case| begin.iter().copied().chain([*case]).collect::<Vec<u8>>())
        });
        spellings = longer.collect();
    }
    spellings
}

/// The unit that `\uXXXX` stands for.
fn escaped(bytes: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(bytes.get(2..6)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

/// By how often letters occur in English text and in program code, roughly.
fn rarity(letters: &[u8]) -> u32 {
    let one = |letter: &u8| match letter {
        b'e' | b't' => 1,
        b'a' | b'o' | b'i' | b'n' | b's' | b'r' | b',' | b':' | b'0' => 2,
        b'h' | b'd' | b'l' | b'c' | b'u' | b'1' | b'2' | b'-' | b'.' | b'_' => 4,
        b'm' | b'p' | b'f' | b'g' | b'w' | b'y' | b'b' | b'3'..=b'9' => 6,
        b'v' | b'k' => 9,
        _ => 14,
    };
    letters.iter().map(one).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;

    use super::*;

    fn passes(word: &str, line: &str) -> bool {
        let sieve = Sieve::new(&Word::new(word).unwrap()).unwrap();
        sieve.passes(line.as_bytes())
    }

    /// Every spelling of a text that contains the word must pass; what cannot contain it should not.
    #[test]
    fn no_spelling_of_a_word_is_missed() {
        for (word, line, expected) in [
            ("flaky", r#"{"text":"the FLAKY test"}"#, true),
            ("flaky", r#"{"text":"the flak test"}"#, false),
            ("flaky", r#"{"text":"\nflaky"}"#, true),
            ("flaky", r#"{"text":"fl\u0061ky"}"#, true),
            ("flaky", r#"{"text":"fl\u0041KY"}"#, true),
            ("flaky", r#"{"text":"\u003cb\u003e \u001b[0m 0066 u0066"}"#, false),
            ("say \"no\"", r#"{"text":"say \"no\""}"#, true),
            ("\"", r#"{"text":"\""}"#, true),
            ("a/b", r#"{"text":"a\/b"}"#, true),
            ("/", "no", false),
            ("<div>", r#"{"text":"\u003cdiv\u003e"}"#, true),
            ("größe", r#"{"text":"gr\u00f6\u00dfe"}"#, true),
            ("GRÖSSE", r#"{"text":"größe"}"#, true),
            ("GRÖSSE", r#"{"text":"gr\u00f6\u00dfe"}"#, true),
            ("gros", r#"{"text":"groß"}"#, true),
            ("größe", r#"{"text":"GRÖSSE"}"#, true),
            ("office", "o\u{fb03}ce", true),
            ("office", r#"{"text":"o\uFB03ce"}"#, true),
            ("office", "o fb03 ce", false),
            ("k", "5 \u{212a}", true),
            ("ö", r#"{"text":"K\u00d6LN"}"#, true),
            ("ö", r#"{"text":"K\u00D6LN"}"#, true),
            ("ö", r#"{"text":"00d6"}"#, false),
            ("ö", r#"{"text":"KÖLN"}"#, true),
            ("ö", r#"{"text":"\u001b[31m koln"}"#, false),
            ("日本", r#"{"text":"\u65e5\u672c"}"#, true),
            ("日本", "日", true),
            ("00ab", r#"{"text":"\\u00ab"}"#, true),
            ("😀", r#"{"text":"\ud83d\ude00"}"#, true),
            ("😀", r#"{"text":"\u65e5"}"#, false),
            ("x", "X", true),
            ("ab", "xAB", true),
            ("Σ", "ς", true),
            ("Σ", "s", false),
            ("Σ", "σ", true),
        ] {
            assert_eq!(passes(word, line), expected, "{word:?} in {line}");
        }
    }

    #[test]
    fn each_letter_passes_for_all_that_it_becomes_without_its_case() {
        let mut by_part: BTreeMap<char, Vec<char>> = BTreeMap::new();
        for letter in letters_with(|_| true) {
            for part in Word::new(&letter.to_string()).unwrap().folded().chars() {
                by_part.entry(part).or_default().push(letter);
            }
        }
        assert!(by_part.len() > 1000, "{}", by_part.len());
        for (part, letters) in by_part {
            let sieve = Sieve::new(&Word::new(&part.to_string()).unwrap()).unwrap();
            for letter in letters {
                assert!(sieve.passes(letter.to_string().as_bytes()), "{part:?} in {letter:?}");
                let unit = letter.encode_utf16(&mut [0; 2])[0];
                assert!(sieve.passes(format!("\\u{unit:04x}").as_bytes()), "{part:?} in {letter:?}");
            }
        }
    }

    #[test]
    fn only_letters_that_fit_a_run_are_looked_for_beside_it() {
        for (run, others) in [
            ("ss", "\u{df}\u{17f}\u{1e9e}\u{fb05}\u{fb06}"),
            ("asks", "\u{df}\u{17f}\u{1e9e}\u{212a}\u{fb05}\u{fb06}"),
            ("tasty", "\u{17f}\u{1e99}\u{fb05}\u{fb06}"),
            ("000", ""),
        ] {
            let mut found: Vec<char> = window_others(run.as_bytes(), &(0..run.len()));
            let mut expected: Vec<char> = others.chars().collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{run}");
        }
    }

    #[test]
    fn places_come_in_order_whatever_they_are_spelled_with() {
        let sieve = Sieve::new(&Word::new("ss").unwrap()).unwrap();
        let mut places = sieve.places("a ss ß SS".as_bytes());
        let found = [0, 3, 6, 9].map(|at| places.next(at));
        assert_eq!(found, [Some(2), Some(5), Some(8), None]);
    }

    #[test]
    fn any_json_spelling_of_any_text_passes() {
        const LETTERS: [char; 20] = [
            'a', 'K', 's', 'z', '0', '-', '"', '\\', '/', '\n', ' ', '<', 'ß', 'É', '語', '😀', '\u{7f}',
            '\u{130}', '\u{212a}', '\u{fb03}',
        ];
        let mut seed = 7_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        for _ in 0..1500 {
            let text: Vec<char> = (0..=next(8)).map(|_| LETTERS[next(LETTERS.len())]).collect();
            let begin = next(text.len());
            let part: String = text[begin..begin + 1 + next(text.len() - begin)].iter().collect();
            let Some(word) = Word::new(&part) else { continue };
            let mut json = String::from("{\"t\":\"");
            for letter in &text {
                match (letter, next(3)) {
                    ('\n', 1) => json += "\\n",
                    ('"' | '\\', 1) => json.extend(['\\', *letter]),
                    ('/', 1) => json += "\\/",
                    (letter, 0) | (letter @ ('\n' | '"' | '\\' | '\u{7f}'), _) => {
                        for unit in letter.encode_utf16(&mut [0; 2]) {
                            let _ = write!(json, "\\u{unit:04x}");
                        }
                    }
                    (letter, _) => json.push(*letter),
                }
            }
            json += "\"}";
            let back: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert!(super::super::word::are_in(std::slice::from_ref(&word), back["t"].as_str().unwrap()));
            assert!(passes(&part, &json), "{part:?} in {json}");
        }
    }
}
