//! What a call cost, by list price, in whole pico-dollars: every price of the table is a whole number of them per token, so
//! nothing is ever rounded.
//!
//! `prices.tsv` is LiteLLM's price data, cut down to token prices: one line per model, sorted by name, columns separated by
//! tabs: name · standard rates · threshold of the long-context tier · rates above it · fast rates · fast rates above it.
//! Rates are input, output, cache read, cache write for 5 minutes, cache write for 1 hour. Where the data lists no cache
//! price, cached input is billed as input; a missing 1-hour price stays missing. Free and audio models are left out.
//! "Fast" is Claude's fast mode (a factor on all rates) and the priority tiers of others. Whoever changes the table raises
//! [`TABLE_VERSION`].
//!
//! Nothing is parsed before it is asked for: a look-up is a binary search in the embedded text.

use std::collections::BTreeMap;

use super::record::{Tokens, Usage};
use crate::money::PicoDollars;

/// Stored with every cost.
pub const TABLE_VERSION: u32 = 1;

static TABLE: &str = include_str!("prices.tsv");

/// What the call cost; `None` when the model, or what was used of it, has no price here. Never a guess, never a silent zero.
pub fn cost(usage: &Usage) -> Option<PicoDollars> {
    Prices::of(&usage.model)?.cost(&usage.tokens, usage.fast)
}

/// Of models and their calls without a price those that have one otherwise: they lack it in one of their modes.
pub fn of_priced_models(mut calls: BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    calls.retain(|model, _| Prices::of(model).is_some());
    calls
}

/// What one model costs, looked up once for many calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    standard: Option<Rates>,
    threshold: Option<u64>,
    above: Option<Rates>,
    fast: Option<Rates>,
    fast_above: Option<Rates>,
}

impl Prices {
    /// `None`: the model has no price at all.
    pub fn of(model: &str) -> Option<Self> {
        let Row { standard, threshold, above, fast, fast_above } = row(model)?;
        Some(Self {
            standard: Rates::parse(standard),
            threshold,
            above: Rates::parse(above),
            fast: Rates::parse(fast),
            fast_above: Rates::parse(fast_above),
        })
    }

    /// The modes in which an agent can have used the model without a price for that.
    pub fn modes_without(&self) -> Vec<&'static str> {
        let long = self.threshold.is_some();
        let mut modes = Vec::new();
        if self.fast.is_none() {
            modes.push("in fast mode");
        } else if long && self.fast_above.is_none() {
            modes.push("for long prompts in fast mode");
        }
        if long && self.above.is_none() {
            modes.push("for long prompts");
        }
        // Others have no such cache: there writing to it costs what input does.
        let writes_cost_more = |rates: Rates| rates.cache_write_5m > rates.input;
        if self.standard.is_some_and(|rates| writes_cost_more(rates) && rates.cache_write_1h.is_none()) {
            modes.push("for 1-hour cache writes");
        }
        modes
    }

    /// What a call cost; `None` when what was used of the model has no price.
    pub fn cost(&self, tokens: &Tokens, fast: bool) -> Option<PicoDollars> {
        self.rates(tokens, fast)?.cost(tokens)
    }

    /// The whole call is billed at the higher rates when its prompt (everything sent, cached or not) exceeds the threshold.
    fn rates(&self, tokens: &Tokens, fast: bool) -> Option<Rates> {
        let prompt =
            [tokens.input, tokens.cache_read, tokens.cache_write()].into_iter().fold(0, u64::saturating_add);
        let long = self.threshold.is_some_and(|threshold| prompt > threshold);
        match (long, fast) {
            (false, false) => self.standard,
            (true, false) => self.above,
            (false, true) => self.fast,
            (true, true) => self.fast_above,
        }
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    standard: &'static str,
    threshold: Option<u64>,
    above: &'static str,
    fast: &'static str,
    fast_above: &'static str,
}

/// Pico-dollars per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rates {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write_5m: u64,
    cache_write_1h: Option<u64>,
}

impl Row {
    fn parse(columns: &'static str) -> Self {
        let mut columns = columns.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let standard = next();
        let threshold = next().parse().ok();
        Self { standard, threshold, above: next(), fast: next(), fast_above: next() }
    }
}

impl Rates {
    fn parse(group: &str) -> Option<Self> {
        let mut rates = group.split(',').map(|rate| rate.parse().ok());
        Some(Self {
            input: rates.next()??,
            output: rates.next()??,
            cache_read: rates.next()??,
            cache_write_5m: rates.next()??,
            cache_write_1h: rates.next().flatten(),
        })
    }

    fn cost(&self, tokens: &Tokens) -> Option<PicoDollars> {
        let write_1h = if tokens.cache_write_1h == 0 { 0 } else { self.cache_write_1h? };
        [
            (tokens.input, self.input),
            (tokens.output, self.output),
            (tokens.cache_read, self.cache_read),
            (tokens.cache_write_5m, self.cache_write_5m),
            (tokens.cache_write_1h, write_1h),
        ]
        .into_iter()
        .try_fold(0_u64, |sum, (count, rate)| sum.checked_add(count.checked_mul(rate)?))
        .and_then(|pico| i64::try_from(pico).ok())
        .map(PicoDollars)
    }
}

/// A model by the name the agent gives it. In this order, the first hit counts:
/// 1. the name as it is;
/// 2. without a suffix in brackets (`[1m]`: the context window asked for, which the tier rates already know);
/// 3. without what names the vendor or the way to it (`anthropic/`, `models/`, an ARN), or with `gemini/` before it, under
///    which the table keeps Google's newer models;
/// 4. without a date at its end (`-20251101`, `@20251101`, `-2026-04-23`): a snapshot that has no price of its own costs what
///    the model costs.
///
/// Regions (`eu.`, `us-gov.`) are never taken off: they are dearer.
fn row(model: &str) -> Option<Row> {
    if let Some(row) = find(model) {
        return Some(row);
    }
    let bare = model.split_once('[').map_or(model, |(name, _)| name);
    let named = without_vendor(bare);
    let undated = without_date(named);
    find(bare).or_else(|| find(named)).or_else(|| google(named)).or_else(|| {
        let undated = undated?;
        find(undated).or_else(|| google(undated))
    })
}

fn google(name: &str) -> Option<Row> {
    name.starts_with("gemini-").then(|| find(&format!("gemini/{name}"))).flatten()
}

fn without_vendor(name: &str) -> &str {
    const PREFIXES: &[&str] = &[
        "anthropic/",
        "openai/",
        "google/",
        "models/",
        "publishers/anthropic/models/",
        "publishers/google/models/",
    ];
    if let Some(arn) = name.strip_prefix("arn:") {
        // Inference profiles that users define have names of their own, which are in no table.
        return arn.split_once(":inference-profile/").map_or(name, |(_, model)| model);
    }
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

fn without_date(name: &str) -> Option<&str> {
    let ends_with = |pattern: &str| {
        let start = name.len().checked_sub(pattern.len())?;
        let tail = name.as_bytes().get(start..)?;
        let fits = tail.iter().zip(pattern.bytes()).all(|(&byte, wanted)| match wanted {
            b'9' => byte.is_ascii_digit(),
            wanted => byte == wanted,
        });
        fits.then(|| &name[..start])
    };
    ["-99999999", "@99999999", "-9999-99-99"].into_iter().find_map(ends_with).filter(|rest| !rest.is_empty())
}

/// Exactly this name.
fn find(name: &str) -> Option<Row> {
    let (mut low, mut high) = (0, TABLE.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        let start = memchr::memrchr(b'\n', &TABLE.as_bytes()[..middle]).map_or(0, |newline| newline + 1);
        let end = memchr::memchr(b'\n', &TABLE.as_bytes()[middle..])
            .map_or(TABLE.len(), |newline| middle + newline);
        let (key, columns) = TABLE[start..end].split_once('\t')?;
        match key.as_bytes().cmp(name.as_bytes()) {
            std::cmp::Ordering::Equal => return Some(Row::parse(columns)),
            std::cmp::Ordering::Less => low = end + 1,
            std::cmp::Ordering::Greater => high = start,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Tokens =
        Tokens { input: 0, output: 0, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, reasoning: 0 };

    fn of(model: &str, tokens: Tokens, fast: bool) -> Option<i64> {
        let usage = Usage { model: model.to_owned(), tokens, fast, request_id: None };
        cost(&usage).map(|cost| cost.0)
    }

    #[test]
    fn the_table_is_sorted_and_every_line_of_it_parses_and_is_found() {
        let mut previous = "";
        for line in TABLE.lines() {
            let (name, columns) = line.split_once('\t').unwrap();
            assert!(previous.as_bytes() < name.as_bytes(), "{previous} before {name}");
            previous = name;
            let row = find(name).unwrap();
            assert_eq!(row, Row::parse(columns));
            let standard = Rates::parse(row.standard).unwrap();
            assert!(standard.input > 0 && standard.output > 0, "{name}");
            for group in [row.above, row.fast, row.fast_above].into_iter().filter(|group| !group.is_empty()) {
                let rates = Rates::parse(group).unwrap_or_else(|| panic!("{name}: {group}"));
                assert!(rates.input >= standard.input, "{name}: a higher tier is not cheaper");
            }
            assert_eq!(row.threshold.is_some(), !row.above.is_empty(), "{name}");
        }
        assert!(TABLE.lines().count() > 900);
        for absent in ["", "claude", "claude-opus-4-8\t", "zzz", "AAA", "claude-opus-4-80"] {
            assert_eq!(find(absent), None, "{absent}");
        }
    }

    #[test]
    fn a_call_costs_the_sum_of_its_tokens() {
        let tokens = Tokens {
            input: 12,
            output: 22,
            cache_read: 1002,
            cache_write_5m: 102,
            cache_write_1h: 0,
            reasoning: 0,
        };
        // 12 × 5 + 22 × 25 + 1002 × 0.5 + 102 × 6.25 dollars per million tokens
        assert_eq!(of("claude-opus-4-8", tokens, false), Some(1_748_500_000));
        assert_eq!(of("claude-opus-4-8", tokens, true), Some(2 * 1_748_500_000));
        assert_eq!(of("claude-opus-4-8", Tokens { cache_write_1h: 3, ..NONE }, false), Some(3 * 10_000_000));
        assert_eq!(
            of("claude-opus-4-8", Tokens { output: 2, reasoning: 2, ..NONE }, false),
            Some(50_000_000)
        );
        assert_eq!(of("claude-opus-4-8", NONE, false), Some(0));
    }

    #[test]
    fn a_long_prompt_is_dearer_as_a_whole_and_cached_tokens_make_it_long() {
        let model = "claude-haiku-5-5"; // from 100,000 tokens on: 5 times
        let at = Tokens { input: 50_000, cache_read: 40_000, cache_write_5m: 10_000, output: 1000, ..NONE };
        let standard = 50_000 * 100_000 + 40_000 * 10_000 + 10_000 * 125_000 + 1000 * 500_000;
        assert_eq!(of(model, at, false), Some(standard));
        let over = Tokens { input: 50_001, ..at };
        assert_eq!(of(model, over, false), Some(5 * (standard + 100_000)));
        assert_eq!(
            of(model, Tokens { output: 200_000, ..NONE }, false),
            Some(200_000 * 500_000),
            "output does not count"
        );
        let gpt = Tokens { input: 272_001, ..NONE };
        assert_eq!(of("gpt-5.5", gpt, false), Some(272_001 * 10_000_000));
        assert_eq!(of("gpt-5.5", gpt, true), None, "there is no fast tier for long prompts");
        assert_eq!(of("gpt-5.5", Tokens { input: 1, ..NONE }, true), Some(12_500_000));
    }

    #[test]
    fn what_has_no_price_is_none() {
        for (model, tokens, fast) in [
            ("", NONE, false),
            ("<synthetic>", NONE, false),
            ("claude-opus-9", NONE, false),
            ("claude-haiku-4-5", Tokens { input: 1, ..NONE }, true), // no fast mode
            ("gpt-5", Tokens { cache_write_1h: 1, ..NONE }, false),  // no such cache
            ("claude-opus-4-8", Tokens { input: u64::MAX, ..NONE }, false),
        ] {
            assert_eq!(of(model, tokens, fast), None, "{model}");
        }
    }

    #[test]
    fn names_are_looked_up_in_the_order_of_the_page() {
        for (model, listed) in [
            ("claude-opus-4-8[1m]", Some("claude-opus-4-8")),
            ("claude-haiku-4-5-20251001", Some("claude-haiku-4-5-20251001")),
            ("claude-opus-4-8-20260601", Some("claude-opus-4-8")),
            ("claude-opus-4-8@20260601", Some("claude-opus-4-8")),
            ("claude-opus-4-8-20260601[1m]", Some("claude-opus-4-8")),
            ("anthropic/claude-opus-4-8", Some("claude-opus-4-8")),
            ("models/gemini-2.5-pro", Some("gemini-2.5-pro")),
            ("gemini-4-argon", Some("gemini/gemini-4-argon")),
            ("gpt-5.2-2026-01-01", Some("gpt-5.2")),
            ("openai/gpt-5.2", Some("gpt-5.2")),
            ("eu.anthropic.claude-opus-4-8", Some("eu.anthropic.claude-opus-4-8")),
            (
                "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-opus-4-8",
                Some("eu.anthropic.claude-opus-4-8"),
            ),
            ("arn:aws:bedrock:eu-west-1:1:application-inference-profile/abc", None),
            ("ca.anthropic.claude-opus-4-8", None), // a region without a price of its own
            ("openrouter/anthropic/claude-opus-4-8", None), // a reseller's price is its own
            ("claude-opus", None),
            ("claude-opus-4-8-preview", None),
            ("claude-opus-4-8-2026", None),
            ("-20260601", None),
            ("[1m]", None),
        ] {
            assert_eq!(row(model), listed.map(|name| find(name).unwrap()), "{model}");
        }
    }
}
