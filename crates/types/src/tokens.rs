//! The tokens of one call.

use serde::{Deserialize, Serialize};

/// The largest plausible count: no call uses more tokens, and no tool writes more lines. A larger one is damage. Sums of many
/// such counts still fit the integers of a database.
pub const MAX_COUNT: u64 = 1 << 40;

crate::row! {
    /// Token counts, disjoint but for `reasoning`, which is the part of `output` spent on it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Tokens {
        pub input: u64 as Option<i64> => stored,
        pub output: u64 as Option<i64> => stored,
        pub cache_read: u64 as Option<i64> => stored,
        pub cache_write_5m: u64 as Option<i64> => stored,
        pub cache_write_1h: u64 as Option<i64> => stored,
        pub reasoning: u64 as Option<i64> => stored,
    }
}

/// Databases count with a sign; what is below zero is damage.
fn stored(count: Option<i64>) -> u64 {
    count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}

impl Tokens {
    /// Whether an agent can have meant it.
    pub fn is_plausible(&self) -> bool {
        let Self { input, output, cache_read, cache_write_5m, cache_write_1h, reasoning } = *self;
        [input, output, cache_read, cache_write_5m, cache_write_1h, reasoning]
            .iter()
            .all(|count| *count <= MAX_COUNT)
    }

    pub fn cache_write(&self) -> u64 {
        self.cache_write_5m.saturating_add(self.cache_write_1h)
    }

    /// Everything billed.
    pub fn total(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write()]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Several revisions of one call: the larger output wins, then the larger sum.
    pub fn supersedes(&self, earlier: &Self) -> bool {
        (self.output, self.total()) > (earlier.output, earlier.total())
    }
}
