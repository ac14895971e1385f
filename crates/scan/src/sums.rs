//! Usage per conversation, model and day: the index keeps it, and every table of `usage` is made of it.

use super::bytes::{Bytes, put, put_signed};
use super::call::Sighting;
use super::strings::StringId;
use types::{PicoDollars, Timestamp};
use usage::CallSums;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DailySum {
    pub(super) agent: StringId,
    pub(super) conversation: StringId,
    pub(super) model: StringId,
    /// Or the quarter of an hour, where sums by those were asked for.
    pub(super) day: i32,
    pub(super) sums: CallSums,
}

/// A call that a file records.
pub(super) fn of_call(sighting: &Sighting, cost: Option<PicoDollars>) -> CallSums {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let tokens = &sighting.tokens;
    CallSums {
        calls: 1,
        unpriced: i64::from(cost.is_none()),
        input: count(tokens.input),
        output: count(tokens.output),
        cache_read: count(tokens.cache_read),
        cache_write: count(tokens.cache_write()),
        reasoning: count(tokens.reasoning),
        cost: cost.unwrap_or_default(),
        first: sighting.at,
        last: sighting.at,
    }
}

impl DailySum {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for string in [self.agent, self.conversation, self.model] {
            put(out, u64::from(string.0));
        }
        put_signed(out, i64::from(self.day));
        let CallSums {
            calls,
            unpriced,
            input,
            output,
            cache_read,
            cache_write,
            reasoning,
            cost,
            first,
            last,
        } = self.sums;
        let times = [cost.0, first.0, last.0];
        for sum in
            [calls, unpriced, input, output, cache_read, cache_write, reasoning].into_iter().chain(times)
        {
            put_signed(out, sum);
        }
    }

    pub(super) fn read(from: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            agent: StringId(from.small()?),
            conversation: StringId(from.small()?),
            model: StringId(from.small()?),
            day: from.signed()?.try_into().ok()?,
            sums: CallSums {
                calls: from.signed()?,
                unpriced: from.signed()?,
                input: from.signed()?,
                output: from.signed()?,
                cache_read: from.signed()?,
                cache_write: from.signed()?,
                reasoning: from.signed()?,
                cost: PicoDollars(from.signed()?),
                first: Timestamp(from.signed()?),
                last: Timestamp(from.signed()?),
            },
        })
    }
}
