//! Texts that come again and again (models, conversations, projects), each kept once and known by a number.

use std::collections::HashMap;
use std::sync::Mutex;

use super::hash::{CheapMap, hash};

/// A text by its number; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Word(pub(super) u32);

impl Word {
    pub(super) const NONE: Self = Self(0);
}

/// All texts in one, so that loading them is no more than copying; found by their hashes.
#[derive(Clone, Debug)]
pub(super) struct Words {
    all: String,
    /// Where each ends; the first is the empty one.
    ends: Vec<u32>,
    /// By hash; of those that share one (hardly ever any), the first.
    numbers: CheapMap<u64, Word>,
}

impl Default for Words {
    fn default() -> Self {
        Self { all: String::new(), ends: vec![0], numbers: CheapMap::default() }
    }
}

impl Words {
    pub(super) fn with_capacity(words: usize) -> Self {
        let mut all = Self::default();
        all.ends.reserve(words);
        all.numbers.reserve(words);
        all
    }

    /// The empty text is [`Word::NONE`].
    pub(super) fn number(&mut self, text: &str) -> Word {
        if text.is_empty() {
            return Word::NONE;
        }
        let hash = hash(0, text.as_bytes());
        match self.numbers.get(&hash) {
            Some(&word) if self.text(word) == text => return word,
            Some(_) => {
                let shared = (1..self.len()).map(|at| Word(u32::try_from(at).unwrap_or(0)));
                if let Some(word) = shared.into_iter().find(|&word| self.text(word) == text) {
                    return word;
                }
            }
            None => {}
        }
        let word = Word(u32::try_from(self.ends.len()).unwrap_or(0));
        self.all.push_str(text);
        self.ends.push(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.numbers.entry(hash).or_insert(word);
        word
    }

    pub(super) fn text(&self, word: Word) -> &str {
        let at = word.0 as usize;
        let end = |at: usize| self.ends.get(at).map_or(0, |&end| end as usize);
        if at == 0 { "" } else { self.all.get(end(at - 1)..end(at)).unwrap_or("") }
    }

    pub(super) fn some(&self, word: Word) -> Option<&str> {
        Some(self.text(word)).filter(|text| !text.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All but the empty one, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (1..self.len()).map(|at| self.text(Word(u32::try_from(at).unwrap_or(0))))
    }
}

/// One thread's look at the words that all share: asks for the lock only for a text that it has not met before.
#[derive(Debug)]
pub(super) struct Known<'a> {
    shared: &'a Mutex<Words>,
    met: HashMap<Box<str>, Word>,
    last: (String, Word),
}

impl<'a> Known<'a> {
    pub(super) fn new(shared: &'a Mutex<Words>) -> Self {
        Self { shared, met: HashMap::new(), last: (String::new(), Word::NONE) }
    }

    pub(super) fn number(&mut self, text: &str) -> Word {
        if self.last.0 == text {
            return self.last.1;
        }
        let word = if let Some(&word) = self.met.get(text) {
            word
        } else {
            let word = self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner).number(text);
            self.met.insert(text.into(), word);
            word
        };
        self.last.0.clear();
        self.last.0.push_str(text);
        self.last.1 = word;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number() {
        let shared = Mutex::new(Words::default());
        let mut one = Known::new(&shared);
        let mut two = Known::new(&shared);
        let a = one.number("a");
        assert_eq!((one.number("a"), two.number("a"), two.number("")), (a, a, Word::NONE));
        assert_ne!(two.number("b"), a);
        let words = shared.into_inner().unwrap();
        assert_eq!((words.text(a), words.some(Word::NONE), words.text(Word(99))), ("a", None, ""));
        assert_eq!(words.iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn texts_that_share_a_hash_are_told_apart() {
        let mut words = Words::default();
        let a = words.number("a");
        // As if "b" had the hash of "a".
        words.numbers.insert(hash(0, b"b"), a);
        let b = words.number("b");
        assert_ne!(a, b);
        assert_eq!((words.number("b"), words.number("a"), words.text(b)), (b, a, "b"));
    }
}
