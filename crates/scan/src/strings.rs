//! Texts that repeat (models, conversations, projects), each kept once and known by a number.

use std::collections::HashMap;
use std::sync::Mutex;

use super::hash::{CheapMap, hash};

/// The number of a text; zero is no text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StringId(pub(super) u32);

impl StringId {
    pub(super) const NONE: Self = Self(0);
}

/// All texts in one string, so that loading them is no more than copying; found by their hashes.
#[derive(Clone, Debug)]
pub(super) struct StringTable {
    all: String,
    /// Where each ends; the first is the empty one.
    ends: Vec<u32>,
    /// By hash; of texts that share one (hardly ever any), the first.
    numbers: CheapMap<u64, StringId>,
}

impl Default for StringTable {
    fn default() -> Self {
        Self { all: String::new(), ends: vec![0], numbers: CheapMap::default() }
    }
}

impl StringTable {
    pub(super) fn with_capacity(strings: usize) -> Self {
        let mut all = Self::default();
        all.ends.reserve(strings);
        all.numbers.reserve(strings);
        all
    }

    /// The empty text is [`StringId::NONE`].
    pub(super) fn number(&mut self, text: &str) -> StringId {
        if text.is_empty() {
            return StringId::NONE;
        }
        let hash = hash(0, text.as_bytes());
        match self.numbers.get(&hash) {
            Some(&id) if self.text(id) == text => return id,
            Some(_) => {
                let shared = (1..self.len()).map(|at| StringId(u32::try_from(at).unwrap_or(0)));
                if let Some(id) = shared.into_iter().find(|&id| self.text(id) == text) {
                    return id;
                }
            }
            None => {}
        }
        let id = StringId(u32::try_from(self.ends.len()).unwrap_or(0));
        self.all.push_str(text);
        self.ends.push(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.numbers.entry(hash).or_insert(id);
        id
    }

    pub(super) fn text(&self, id: StringId) -> &str {
        let at = id.0 as usize;
        let end = |at: usize| self.ends.get(at).map_or(0, |&end| end as usize);
        if at == 0 { "" } else { self.all.get(end(at - 1)..end(at)).unwrap_or("") }
    }

    pub(super) fn some(&self, id: StringId) -> Option<&str> {
        Some(self.text(id)).filter(|text| !text.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All but the empty one, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (1..self.len()).map(|at| self.text(StringId(u32::try_from(at).unwrap_or(0))))
    }
}

/// One thread's cache of the shared table: takes the lock only for a text that it has not seen before.
#[derive(Debug)]
pub(super) struct LocalStrings<'a> {
    shared: &'a Mutex<StringTable>,
    met: HashMap<Box<str>, StringId>,
    last: (String, StringId),
}

impl<'a> LocalStrings<'a> {
    pub(super) fn new(shared: &'a Mutex<StringTable>) -> Self {
        Self { shared, met: HashMap::new(), last: (String::new(), StringId::NONE) }
    }

    pub(super) fn number(&mut self, text: &str) -> StringId {
        if self.last.0 == text {
            return self.last.1;
        }
        let id = if let Some(&id) = self.met.get(text) {
            id
        } else {
            let id = self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner).number(text);
            self.met.insert(text.into(), id);
            id
        };
        self.last.0.clear();
        self.last.0.push_str(text);
        self.last.1 = id;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number() {
        let shared = Mutex::new(StringTable::default());
        let mut one = LocalStrings::new(&shared);
        let mut two = LocalStrings::new(&shared);
        let a = one.number("a");
        assert_eq!((one.number("a"), two.number("a"), two.number("")), (a, a, StringId::NONE));
        assert_ne!(two.number("b"), a);
        let strings = shared.into_inner().unwrap();
        assert_eq!(
            (strings.text(a), strings.some(StringId::NONE), strings.text(StringId(99))),
            ("a", None, "")
        );
        assert_eq!(strings.iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn texts_that_share_a_hash_are_distinguished() {
        let mut strings = StringTable::default();
        let a = strings.number("a");
        // As if "b" had the hash of "a".
        strings.numbers.insert(hash(0, b"b"), a);
        let b = strings.number("b");
        assert_ne!(a, b);
        assert_eq!((strings.number("b"), strings.number("a"), strings.text(b)), (b, a, "b"));
    }
}
