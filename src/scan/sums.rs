//! Usage per conversation, model and day: the index keeps it, and every table of `usage` is made of it.

use super::bytes::{Bytes, put, put_signed};
use super::call::Sighting;
use super::strings::StringId;
use wire::PicoDollars;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DailySum {
    pub(super) agent: StringId,
    pub(super) conversation: StringId,
    pub(super) model: StringId,
    pub(super) day: i32,
    pub(super) sums: CallSums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallSums {
    pub(super) calls: i64,
    /// Calls without a price.
    pub(super) unpriced: i64,
    pub(super) input: i64,
    pub(super) output: i64,
    pub(super) cache_read: i64,
    pub(super) cache_write: i64,
    pub(super) reasoning: i64,
    pub(super) cost: i64,
    /// Time of the first call and the last, in milliseconds.
    pub(super) first: i64,
    pub(super) last: i64,
}

impl CallSums {
    pub(super) fn add(&mut self, sighting: &Sighting, cost: Option<PicoDollars>) {
        let add = |sum: &mut i64, count: u64| {
            *sum = sum.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let tokens = &sighting.tokens;
        self.calls += 1;
        self.unpriced += i64::from(cost.is_none());
        add(&mut self.input, tokens.input);
        add(&mut self.output, tokens.output);
        add(&mut self.cache_read, tokens.cache_read);
        add(&mut self.cache_write, tokens.cache_write());
        add(&mut self.reasoning, tokens.reasoning);
        self.cost = self.cost.saturating_add(cost.unwrap_or_default().0);
        self.first = self.first.min(sighting.at.0);
        self.last = self.last.max(sighting.at.0);
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
        for sum in [calls, unpriced, input, output, cache_read, cache_write, reasoning, cost, first, last] {
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
                cost: from.signed()?,
                first: from.signed()?,
                last: from.signed()?,
            },
        })
    }
}
