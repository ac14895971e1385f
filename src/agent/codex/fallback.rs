//! Calls of versions that write no `token_usage_record`, told from the `token_count` events all versions write.
//!
//! Such an event tells sums: of the conversation so far (`total`), and of the last call. It is repeated unchanged on retries,
//! interruptions and compactions, `total` begins at zero again after the context ran over, and a fork begins with its parent's
//! `total`. So a call is counted only where the model said something since the last event and the sums changed: by how much
//! `total` grew, or by `last` where it did not grow or where a fork's first event leaves its parent's `total` unknown.
//!
//! What this cannot tell: the answer's id, so keys are the thread's id and a number; and old versions are said to copy the
//! parent's lines into a fork, where they would be counted once more.

use serde::{Deserialize, Serialize};

use super::shape::{Counts, TokenInfo};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    /// The last event's `total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<Counts>,
    /// The conversation is a copy: its first `total` is not all its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forked: bool,
    /// The model said something since the last event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    answered: bool,
    /// Calls are recorded one by one in this file: the sums are of no further interest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    recorded: bool,
    /// Calls counted.
    #[serde(default)]
    pub(super) counted: u64,
}

impl Sums {
    pub(super) fn of_thread(forked: bool) -> Self {
        Self { forked, ..Self::default() }
    }

    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    pub(super) fn recorded(&mut self) {
        self.recorded = true;
    }

    /// Whether what the model says makes no difference any more.
    pub(super) fn are_idle(&self) -> bool {
        self.recorded || self.answered
    }

    /// What the call cost that this event tells of, if it tells of one.
    pub(super) fn told(&mut self, info: &TokenInfo) -> Option<Counts> {
        let (before, total) = (self.total.replace(info.total_token_usage), info.total_token_usage);
        let answered = std::mem::take(&mut self.answered);
        if self.recorded || !answered || before == Some(total) {
            return None;
        }
        let grown = match before {
            Some(before) => total.minus(before).unwrap_or(info.last_token_usage),
            None if self.forked => info.last_token_usage,
            None => total,
        };
        (grown != Counts::default()).then(|| {
            self.counted += 1;
            grown
        })
    }
}

impl Counts {
    /// `None` where any of them is less.
    fn minus(self, other: Self) -> Option<Self> {
        Some(Self {
            input_tokens: self.input_tokens.checked_sub(other.input_tokens)?,
            cached_input_tokens: self.cached_input_tokens.checked_sub(other.cached_input_tokens)?,
            cache_write_input_tokens: self
                .cache_write_input_tokens
                .checked_sub(other.cache_write_input_tokens)?,
            output_tokens: self.output_tokens.checked_sub(other.output_tokens)?,
            reasoning_output_tokens: self
                .reasoning_output_tokens
                .checked_sub(other.reasoning_output_tokens)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(input: u64) -> Counts {
        Counts { input_tokens: input, ..Counts::default() }
    }

    /// Events as (answered before, total, last), and what each must count.
    fn play(mut sums: Sums, events: &[(bool, u64, u64, Option<u64>)]) {
        for &(answered, total, last, expected) in events {
            if answered {
                sums.answered();
            }
            let info = TokenInfo { total_token_usage: counts(total), last_token_usage: counts(last) };
            assert_eq!(sums.told(&info), expected.map(counts), "{total} {last}");
        }
    }

    #[test]
    fn each_call_once() {
        play(
            Sums::of_thread(false),
            &[
                (true, 10, 10, Some(10)),
                (false, 10, 10, None), // repeated
                (true, 10, 10, None),  // an answer without usage
                (true, 35, 25, Some(25)),
                (false, 35, 0, None), // compacted: `last` is an estimate
                (false, 0, 0, None),  // the context ran over
                (true, 7, 7, Some(7)),
                (true, 3, 3, Some(3)), // reset and grown in one
            ],
        );
    }

    #[test]
    fn a_fork_begins_with_its_parents_sum() {
        play(Sums::of_thread(true), &[(true, 4130, 1050, Some(1050)), (true, 4200, 70, Some(70))]);
        play(Sums::of_thread(true), &[(false, 3080, 1040, None), (true, 4150, 1070, Some(1070))]);
    }

    #[test]
    fn where_calls_are_recorded_sums_count_nothing() {
        let mut sums = Sums::of_thread(false);
        sums.recorded();
        play(sums, &[(true, 10, 10, None), (true, 20, 10, None)]);
    }
}
