//! Which of a session's `seq`s have arrived, as ranges: one number pair as long as nothing is missing.

use serde::{Deserialize, Serialize};

/// More separate ranges than any honest sender makes: it sends in order, and refused events leave single holes.
const MOST_RANGES: usize = 4096;

/// Sorted, disjoint, never adjacent ranges, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seqs(Vec<(i64, i64)>);

impl Seqs {
    /// All from the first to the last.
    pub fn of_range(first: i64, last: i64) -> Self {
        Self(vec![(first, last)])
    }

    /// How many there are.
    pub fn count(&self) -> i64 {
        self.0.iter().map(|(from, to)| to - from + 1).sum()
    }

    /// Adds one. False if that would tear the set into more pieces than are kept.
    pub fn insert(&mut self, seq: i64) -> bool {
        // The first range that ends at or beyond the number before this one: it takes it in, or it comes after.
        let at = self.0.partition_point(|&(_, to)| to < seq - 1);
        let full = self.0.len() >= MOST_RANGES;
        match self.0.get_mut(at) {
            Some(range) if range.0 <= seq && seq <= range.1 => {}
            Some(range) if range.1 == seq - 1 => {
                range.1 = seq;
                if self.0.get(at + 1).is_some_and(|next| next.0 == seq + 1) {
                    self.0[at].1 = self.0.remove(at + 1).1;
                }
            }
            Some(range) if range.0 == seq + 1 => range.0 = seq,
            _ if full => return false,
            _ => self.0.insert(at, (seq, seq)),
        }
        true
    }

    pub fn contains(&self, seq: i64) -> bool {
        let at = self.0.partition_point(|&(_, to)| to < seq);
        self.0.get(at).is_some_and(|&(from, _)| from <= seq)
    }

    pub fn highest(&self) -> i64 {
        self.0.last().map_or(0, |&(_, to)| to)
    }

    /// The holes from 1 up to `last`, or to the highest that arrived if that is more.
    pub fn missing(&self, last: i64) -> Vec<(i64, i64)> {
        let mut holes = Vec::new();
        let mut next = 1;
        for &(from, to) in &self.0 {
            if from > next {
                holes.push((next, from - 1));
            }
            next = to + 1;
        }
        if last >= next {
            holes.push((next, last));
        }
        holes
    }

    pub fn missing_count(&self, last: i64) -> i64 {
        last.max(self.highest()) - self.count()
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[i64]) -> Seqs {
        let mut seqs = Seqs::default();
        for &number in numbers {
            assert!(seqs.insert(number));
        }
        seqs
    }

    #[test]
    fn any_order_gives_the_same_ranges() {
        let table: [(&[i64], &str); 7] = [
            (&[], "[]"),
            (&[1, 2, 3], "[[1,3]]"),
            (&[3, 1, 2], "[[1,3]]"),
            (&[2, 2, 1, 2], "[[1,2]]"),
            (&[5, 1, 3], "[[1,1],[3,3],[5,5]]"),
            (&[5, 1, 3, 4, 2], "[[1,5]]"),
            (&[7, 9, 8, 3], "[[3,3],[7,9]]"),
        ];
        for (numbers, expected) in table {
            let seqs = of(numbers);
            assert_eq!(seqs.to_json(), expected, "{numbers:?}");
            assert_eq!(Seqs::from_json(expected).unwrap(), seqs);
            for number in 0..12 {
                assert_eq!(seqs.contains(number), numbers.contains(&number), "{number} in {numbers:?}");
            }
        }
    }

    #[test]
    fn holes_are_listed_up_to_the_last() {
        let table: [(&[i64], i64, &[(i64, i64)]); 6] = [
            (&[], 0, &[]),
            (&[], 4, &[(1, 4)]),
            (&[1, 2], 2, &[]),
            (&[2, 5], 7, &[(1, 1), (3, 4), (6, 7)]),
            (&[1, 2, 3], 2, &[]),
            (&[1, 5], 2, &[(2, 4)]),
        ];
        for (numbers, last, holes) in table {
            let seqs = of(numbers);
            assert_eq!(seqs.missing(last), holes, "{numbers:?} to {last}");
            let count: i64 = holes.iter().map(|(from, to)| to - from + 1).sum();
            assert_eq!(seqs.missing_count(last), count, "{numbers:?} to {last}");
        }
    }

    #[test]
    fn torn_into_too_many_pieces_it_takes_no_more() {
        let mut seqs = Seqs::default();
        for number in 0..i64::try_from(MOST_RANGES).unwrap() {
            assert!(seqs.insert(number * 2 + 2));
        }
        assert!(!seqs.insert(100_000));
        assert!(seqs.insert(3), "filling a hole is always possible");
    }
}
