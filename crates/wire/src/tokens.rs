//! The tokens of one call.

use serde::{Deserialize, Serialize};

/// More of anything no call uses and no tool writes: a count beyond it is damage or a bad joke, and sums of many such stay
/// within what a database's integer holds.
pub const MAX_COUNT: u64 = 1 << 40;

/// Token counts, disjoint but for `reasoning`, which is the part of `output` spent on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write_5m: u64,
    pub cache_write_1h: u64,
    pub reasoning: u64,
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
