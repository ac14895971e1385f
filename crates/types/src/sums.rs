//! The sums over the records of a session, and their form in the record of the session.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{Coverage, PicoDollars, Tokens, UsageSummary};

crate::row! {
    /// What API calls used and cost: of one call ([`CallSums::of`], the only way from a call to numbers), of many, or a difference
    /// to be added to such sums. They stop at the largest integer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CallSums {
        pub api_calls: i64,
        pub input: i64,
        pub output: i64,
        pub cache_read: i64,
        pub cache_write: i64,
        /// The part of `output` spent on reasoning.
        pub reasoning: i64,
        pub cost: PicoDollars,
    }
}

impl CallSums {
    /// What one call adds to every sum that it is in. A call without a price costs nothing.
    pub fn of(tokens: &Tokens, cost: Option<PicoDollars>) -> Self {
        Self {
            api_calls: 1,
            input: signed(tokens.input),
            output: signed(tokens.output),
            cache_read: signed(tokens.cache_read),
            cache_write: signed(tokens.cache_write()),
            reasoning: signed(tokens.reasoning),
            cost: cost.unwrap_or_default(),
        }
    }

    pub fn add(&mut self, more: &Self) {
        self.each(more, i64::saturating_add);
    }

    pub fn subtract(&mut self, less: &Self) {
        self.each(less, i64::saturating_sub);
    }

    fn each(&mut self, other: &Self, change: impl Fn(i64, i64) -> i64) {
        let Self { api_calls, input, output, cache_read, cache_write, reasoning, cost } = other;
        for (sum, other) in [
            (&mut self.api_calls, api_calls),
            (&mut self.input, input),
            (&mut self.output, output),
            (&mut self.cache_read, cache_read),
            (&mut self.cache_write, cache_write),
            (&mut self.reasoning, reasoning),
            (&mut self.cost.0, &cost.0),
        ] {
            *sum = change(*sum, *other);
        }
    }

    /// Everything billed.
    pub fn tokens(&self) -> i64 {
        [self.input, self.output, self.cache_read, self.cache_write].into_iter().fold(0, i64::saturating_add)
    }

    fn numbers(&self) -> [i64; 7] {
        let Self { api_calls, input, output, cache_read, cache_write, reasoning, cost } = *self;
        [api_calls, input, output, cache_read, cache_write, reasoning, cost.0]
    }
}

/// As programs get them.
impl Serialize for CallSums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("CallSums", 7)?;
        fields.serialize_field("inputTokens", &self.input)?;
        fields.serialize_field("outputTokens", &self.output)?;
        fields.serialize_field("cacheReadTokens", &self.cache_read)?;
        fields.serialize_field("cacheWriteTokens", &self.cache_write)?;
        fields.serialize_field("reasoningTokens", &self.reasoning)?;
        fields.serialize_field("apiCalls", &self.api_calls)?;
        fields.serialize_field("costUsd", &self.cost.dollars())?;
        fields.end()
    }
}

crate::row! {
    /// Sums over the records of a session, or differences to be added to such sums. They stop at the largest integer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Sums {
        pub calls: CallSums [row],
        pub prompts: i64,
        pub tool_calls: i64,
        pub tool_errors: i64,
        pub files_changed: i64,
        pub lines_added: i64,
        pub lines_removed: i64,
        pub api_errors: i64,
    }
}

impl Sums {
    /// One more call of a tool.
    pub fn add_tool(&mut self, ok: bool, lines_added: u64, lines_removed: u64) {
        self.tool_calls = self.tool_calls.saturating_add(1);
        self.tool_errors = self.tool_errors.saturating_add(i64::from(!ok));
        self.lines_added = self.lines_added.saturating_add(signed(lines_added));
        self.lines_removed = self.lines_removed.saturating_add(signed(lines_removed));
    }

    /// Whether one of the sums is so large that adding another such sum would go beyond the largest integer.
    pub fn may_be_cut_off(&self) -> bool {
        let lines = [self.lines_added, self.lines_removed];
        self.calls
            .numbers()
            .into_iter()
            .chain(lines)
            .any(|sum| !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&sum))
    }

    /// In the form of a session's record, with the models whose calls have no price.
    pub fn summary(
        self,
        unpriced_models: Vec<String>,
        unpriced_calls: BTreeMap<String, i64>,
        coverage: Coverage,
    ) -> UsageSummary {
        UsageSummary {
            api_calls: self.calls.api_calls,
            input_tokens: self.calls.input,
            output_tokens: self.calls.output,
            cache_read_tokens: self.calls.cache_read,
            cache_write_tokens: self.calls.cache_write,
            reasoning_tokens: self.calls.reasoning,
            cost_usd: self.calls.cost.dollars(),
            unpriced_models,
            unpriced_calls,
            prompts: self.prompts,
            tool_calls: self.tool_calls,
            tool_errors: self.tool_errors,
            files_changed: self.files_changed,
            lines_added: self.lines_added,
            lines_removed: self.lines_removed,
            api_errors: self.api_errors,
            coverage,
        }
    }
}

/// More than a sum can hold stops at its limit.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_revised_counts_once() {
        let (first, second) = (
            Tokens { input: 10, output: 2, ..Tokens::default() },
            Tokens { input: 10, output: 7, ..Tokens::default() },
        );
        let (before, now) = (CallSums::of(&first, None), CallSums::of(&second, Some(PicoDollars(5))));
        let mut revised = before;
        revised.subtract(&before);
        revised.add(&now);
        assert_eq!(revised, now);
        assert_eq!(now.tokens(), 17);
    }

    #[test]
    fn overflowing_sums_stop_at_the_largest_integer() {
        let call =
            CallSums::of(&Tokens { input: u64::MAX, ..Tokens::default() }, Some(PicoDollars(i64::MAX)));
        let mut sums = Sums::default();
        for _ in 0..2 {
            sums.calls.add(&call);
        }
        assert_eq!((sums.calls.api_calls, sums.calls.input, sums.calls.cost.0), (2, i64::MAX, i64::MAX));
        assert!(sums.may_be_cut_off());
    }
}
