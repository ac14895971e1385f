//! The sums over the records of a session, and their form in the record of the session.

use std::collections::BTreeMap;

use super::{Coverage, PicoDollars, Tokens, UsageSummary};

/// Sums over records, or differences to be added to such sums. They stop at the largest integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub api_calls: i64,
    pub input: i64,
    pub output: i64,
    pub cache_read: i64,
    pub cache_write: i64,
    /// The part of `output` spent on reasoning.
    pub reasoning: i64,
    pub cost: PicoDollars,
    pub prompts: i64,
    pub tool_calls: i64,
    pub tool_errors: i64,
    pub files_changed: i64,
    pub lines_added: i64,
    pub lines_removed: i64,
    pub api_errors: i64,
}

impl Sums {
    /// One more call.
    pub fn add_call(&mut self, tokens: &Tokens, cost: Option<PicoDollars>) {
        self.api_calls = self.api_calls.saturating_add(1);
        self.add_tokens(tokens, cost, 1);
    }

    /// The same call with other numbers: it was read again when more of it was written.
    pub fn revise_call(
        &mut self,
        before: (&Tokens, Option<PicoDollars>),
        now: (&Tokens, Option<PicoDollars>),
    ) {
        self.add_tokens(before.0, before.1, -1);
        self.add_tokens(now.0, now.1, 1);
    }

    /// One more call of a tool.
    pub fn add_tool(&mut self, ok: bool, lines_added: u64, lines_removed: u64) {
        self.tool_calls = self.tool_calls.saturating_add(1);
        self.tool_errors = self.tool_errors.saturating_add(i64::from(!ok));
        self.lines_added = self.lines_added.saturating_add(signed(lines_added));
        self.lines_removed = self.lines_removed.saturating_add(signed(lines_removed));
    }

    fn add_tokens(&mut self, tokens: &Tokens, cost: Option<PicoDollars>, sign: i64) {
        let add = |sum: &mut i64, more: i64| *sum = sum.saturating_add(sign * more);
        add(&mut self.input, signed(tokens.input));
        add(&mut self.output, signed(tokens.output));
        add(&mut self.cache_read, signed(tokens.cache_read));
        add(&mut self.cache_write, signed(tokens.cache_write()));
        add(&mut self.reasoning, signed(tokens.reasoning));
        add(&mut self.cost.0, cost.unwrap_or_default().0);
    }

    /// Everything billed.
    pub fn tokens(&self) -> i64 {
        [self.input, self.output, self.cache_read, self.cache_write].into_iter().fold(0, i64::saturating_add)
    }

    /// Whether one of the sums is so large that adding another such sum would go beyond the largest integer.
    pub fn may_be_cut_off(&self) -> bool {
        let Self {
            input, output, cache_read, cache_write, reasoning, cost, lines_added, lines_removed, ..
        } = *self;
        [input, output, cache_read, cache_write, reasoning, cost.0, lines_added, lines_removed]
            .into_iter()
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
            api_calls: self.api_calls,
            input_tokens: self.input,
            output_tokens: self.output,
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
            cost_usd: self.cost.dollars(),
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
        let (mut revised, mut whole) = (Sums::default(), Sums::default());
        revised.add_call(&first, None);
        revised.revise_call((&first, None), (&second, Some(PicoDollars(5))));
        whole.add_call(&second, Some(PicoDollars(5)));
        assert_eq!(revised, whole);
        assert_eq!(whole.tokens(), 17);
    }

    #[test]
    fn overflowing_sums_stop_at_the_largest_integer() {
        let mut sums = Sums::default();
        for _ in 0..2 {
            sums.add_call(&Tokens { input: u64::MAX, ..Tokens::default() }, Some(PicoDollars(i64::MAX)));
        }
        assert_eq!((sums.api_calls, sums.input, sums.cost.0), (2, i64::MAX, i64::MAX));
        assert!(sums.may_be_cut_off());
    }
}
