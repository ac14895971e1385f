//! Calls of versions that write no `token_usage_record`, computed from the `token_count` events all versions write.
//!
//! Such an event holds two sums: of the conversation so far (`total`), and of the last call (`last`). Up to 0.65 it comes before
//! the answer's own lines, from 0.66 on behind them, so neighbouring lines do not decide. `total` does: every call adds
//! its usage to it, and nothing else. The event is repeated unchanged on retries, interruptions, rollbacks and
//! compactions (where `last` becomes an estimate). `total` begins at zero again after the context ran over, and, in older versions, when
//! a process resumes the conversation; an event without sums announces that.
//!
//! A fork that does not hold its parent's lines begins with its parent's `total`. There the first event is a call only if an
//! answer of the model precedes it.
//!
//! The answer's id is not known here, so keys are the thread's id and a number.

use serde::{Deserialize, Serialize};

use super::shape::{Counts, TokenInfo};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReportedSums {
    /// The last event's `total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<Counts>,
    /// The conversation is a copy: its first `total` is not all its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forked: bool,
    /// The model answered since the last event. Only used where [`Self::forked`] leaves the first event in doubt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    answered: bool,
    /// Calls are recorded one by one in this file: the sums are not needed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    recorded: bool,
    /// Calls counted under the thread's own id.
    #[serde(default)]
    pub(super) counted: u64,
}

impl ReportedSums {
    pub(super) fn of_thread(forked: bool) -> Self {
        Self { forked, ..Self::default() }
    }

    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    pub(super) fn recorded(&mut self) {
        self.recorded = true;
    }

    /// The sums begin at zero: a process has resumed the conversation, or the lines that follow are the parent's own.
    pub(super) fn begin_at_zero(&mut self) {
        (self.total, self.forked) = (None, false);
    }

    /// Nothing was counted yet, and no event was seen.
    pub(super) fn are_untouched(&self) -> bool {
        *self == Self::of_thread(self.forked)
    }

    /// Whether the lines of the model's answers make no difference to [`Self::call`].
    pub(super) fn ignore_answers(&self) -> bool {
        self.recorded || self.answered || !self.forked || self.total.is_some()
    }

    /// The usage of the call that this event reports, if it reports one.
    pub(super) fn call(&mut self, info: &TokenInfo) -> Option<Counts> {
        let (before, total) = (self.total.replace(info.total_token_usage), info.total_token_usage);
        let answered = std::mem::take(&mut self.answered);
        if self.recorded || before == Some(total) {
            return None;
        }
        let usage = match before {
            // More than `last` where an event was not written: the sums stay right.
            Some(before) => total.minus(before).unwrap_or(info.last_token_usage),
            None if self.forked && !answered => return None,
            None => info.last_token_usage,
        };
        (usage != Counts::default()).then_some(usage)
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
    fn play(mut sums: ReportedSums, events: &[(bool, u64, u64, Option<u64>)]) {
        for &(answered, total, last, expected) in events {
            if answered {
                sums.answered();
            }
            let info = TokenInfo { total_token_usage: counts(total), last_token_usage: counts(last) };
            assert_eq!(sums.call(&info), expected.map(counts), "{total} {last}");
        }
    }

    /// Whether the answer's lines stand before the event (from 0.66 on) or behind it (up to 0.65).
    #[test]
    fn each_call_counts_once_in_both_orders() {
        for before in [true, false] {
            play(
                ReportedSums::of_thread(false),
                &[
                    (before, 10, 10, Some(10)),
                    (false, 10, 10, None),  // repeated
                    (before, 10, 10, None), // an answer without usage
                    (before, 35, 25, Some(25)),
                    (false, 50, 15, Some(15)), // the call that compacts; no line of its answer is written
                    (false, 50, 0, None),      // compacted: `last` is an estimate
                    (false, 0, 0, None),       // the context ran over
                    (before, 7, 7, Some(7)),
                    (before, 3, 3, Some(3)),  // reset and grown in one
                    (before, 12, 4, Some(9)), // an event in between was not written
                ],
            );
        }
    }

    #[test]
    fn a_resumed_process_begins_at_zero() {
        let mut sums = ReportedSums::of_thread(false);
        let info =
            |total, last| TokenInfo { total_token_usage: counts(total), last_token_usage: counts(last) };
        assert_eq!(sums.call(&info(100, 100)), Some(counts(100)));
        sums.begin_at_zero();
        assert_eq!(sums.call(&info(5000, 5000)), Some(counts(5000)), "not 4900");
    }

    #[test]
    fn a_fork_begins_with_its_parents_sum() {
        play(ReportedSums::of_thread(true), &[(true, 4130, 1050, Some(1050)), (true, 4200, 70, Some(70))]);
        play(ReportedSums::of_thread(true), &[(false, 3080, 1040, None), (true, 4150, 1070, Some(1070))]);
    }

    #[test]
    fn where_calls_are_recorded_sums_count_nothing() {
        let mut sums = ReportedSums::of_thread(false);
        sums.recorded();
        play(sums, &[(true, 10, 10, None), (true, 20, 10, None)]);
    }
}
