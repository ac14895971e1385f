//! Texts that come again and again (models, conversations, projects), each kept once and known by a number.

use std::collections::HashMap;
use std::sync::Mutex;

/// A text by its number; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Word(pub(super) u32);

impl Word {
    pub(super) const NONE: Self = Self(0);
}

#[derive(Clone, Debug)]
pub(super) struct Words {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, Word>,
}

impl Default for Words {
    fn default() -> Self {
        Self { texts: vec![Box::default()], numbers: HashMap::from([(Box::default(), Word::NONE)]) }
    }
}

impl Words {
    /// The empty text is [`Word::NONE`].
    pub(super) fn number(&mut self, text: &str) -> Word {
        if let Some(&word) = self.numbers.get(text) {
            return word;
        }
        let word = Word(u32::try_from(self.texts.len()).unwrap_or(0));
        self.texts.push(text.into());
        self.numbers.insert(text.into(), word);
        word
    }

    pub(super) fn text(&self, word: Word) -> &str {
        self.texts.get(word.0 as usize).map_or("", |text| text)
    }

    pub(super) fn some(&self, word: Word) -> Option<&str> {
        Some(self.text(word)).filter(|text| !text.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// All but the empty one, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().skip(1).map(|text| &**text)
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
}
