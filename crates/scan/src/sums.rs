//! Usage per conversation, model and day: the index keeps it, and every table of `usage` is made of it.

use super::bytes::{Bytes, put, put_signed};
use super::strings::StringId;
use types::{CallSums, PicoDollars, Timestamp};
use usage::DatedSums;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DailySum {
    pub(super) agent: StringId,
    pub(super) conversation: StringId,
    pub(super) model: StringId,
    /// Or the quarter of an hour, where sums by those were asked for.
    pub(super) day: i32,
    pub(super) sums: DatedSums,
}

impl DailySum {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for string in [self.agent, self.conversation, self.model] {
            put(out, u64::from(string.0));
        }
        put_signed(out, i64::from(self.day));
        let DatedSums { calls: sums, unpriced, first, last } = self.sums;
        let CallSums { api_calls, input, output, cache_read, cache_write, reasoning, cost } = sums;
        let times = [cost.0, first.0, last.0];
        for sum in
            [api_calls, unpriced, input, output, cache_read, cache_write, reasoning].into_iter().chain(times)
        {
            put_signed(out, sum);
        }
    }

    pub(super) fn read(from: &mut Bytes<'_>) -> Option<Self> {
        let agent = StringId(from.small()?);
        let conversation = StringId(from.small()?);
        let model = StringId(from.small()?);
        let day = from.signed()?.try_into().ok()?;
        let mut number = || from.signed();
        let (api_calls, unpriced) = (number()?, number()?);
        let calls = CallSums {
            api_calls,
            input: number()?,
            output: number()?,
            cache_read: number()?,
            cache_write: number()?,
            reasoning: number()?,
            cost: PicoDollars(number()?),
        };
        let sums = DatedSums { calls, unpriced, first: Timestamp(number()?), last: Timestamp(number()?) };
        Some(Self { agent, conversation, model, day, sums })
    }
}
