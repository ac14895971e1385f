//! What a call cost, by list price, in whole pico-dollars: every price of the table is a whole number of them per token, so
//! nothing is ever rounded.
//!
//! `prices.tsv` is LiteLLM's price data, cut down to context windows and token prices: one line per model, sorted by name, columns
//! separated by tabs: name · how many tokens a prompt may have, if that is known ([`window`]) · standard rates · threshold of the long-context tier · rates above it · fast rates · fast rates above it · the
//! same two of flex · the same two of ultrafast. Empty columns at the end of a line are left out.
//! Rates are input, output, cache read, cache write for 5 minutes, cache write for 1 hour. Where the data lists no cache
//! price, cached input is billed as input; a missing 1-hour price stays missing. Free and audio models are left out. A tier
//! without cache prices of its own has the standard ones. See [`Tier`] for what the tiers are; Claude's fast mode is a factor on
//! all rates.
//! With every change of a price [`TABLE_VERSION`] is raised.
//!
//! Nothing is parsed before it is asked for: a look-up is a binary search in the embedded text.

use std::collections::BTreeMap;

use types::{PicoDollars, Tokens};

mod own;
pub mod tier;
pub mod unpriced;
pub mod window;

pub use own::{Cost, OWN, PriceList};
use tier::Tier;

/// Stored with every cost.
pub const TABLE_VERSION: u32 = 2;

/// When the data of the table was taken over.
pub const TABLE_DATE: &str = "2026-11-17";

static TABLE: &str = include_str!("prices.tsv");

/// The cost of a call; `None` when the model, or the mode in which it was used, has no price here. Never a guess, never a silent
/// zero.
pub fn cost(model: &str, tokens: &Tokens, tier: Tier) -> Option<PicoDollars> {
    Prices::of(model)?.cost(tokens, tier)
}

/// The names of all models in the table, in their order.
pub fn models() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter_map(|line| line.split_once('\t').map(|(name, _)| name))
}

/// From calls without a price, by model, those of models that do have a price: it is missing for one of their modes.
pub fn of_priced_models(mut calls: BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    calls.retain(|model, _| Prices::of(model).is_some());
    calls
}

/// What one model costs, looked up once for many calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    threshold: Option<u64>,
    standard: TierRates<Option<Rates>>,
    fast: TierRates<Option<Rates>>,
    flex: TierRates<Option<Rates>>,
    ultrafast: TierRates<Option<Rates>>,
    /// Set by the user, in place of the standard rates.
    own: Option<Rates>,
}

impl Prices {
    const NONE: Self = {
        let none = TierRates { short: None, long: None };
        Self { threshold: None, standard: none, fast: none, flex: none, ultrafast: none, own: None }
    };

    /// As the table has them. `None`: the model has no price at all.
    pub fn of(model: &str) -> Option<Self> {
        let Row { threshold, standard, fast, flex, ultrafast, .. } = row(model)?;
        Some(Self {
            threshold,
            standard: standard.parse(),
            fast: fast.parse(),
            flex: flex.parse(),
            ultrafast: ultrafast.parse(),
            own: None,
        })
    }

    /// For short prompts in the standard mode, by the table.
    pub fn listed(&self) -> Option<Rates> {
        self.standard.short
    }

    /// What the user has set in place of them.
    pub fn own(&self) -> Option<Rates> {
        self.own
    }

    /// Which prices a call in this mode is priced with.
    pub fn version(&self, tier: Tier) -> String {
        match self.own {
            Some(own) if tier == Tier::Standard => own.version(),
            _ => TABLE_VERSION.to_string(),
        }
    }

    /// The modes of `model`, whose prices these are, that an agent can use and that have no price.
    pub fn modes_without(&self, model: &str) -> Vec<&'static str> {
        let long = self.threshold.is_some();
        // The agents that use these models name no other tiers.
        let tiers =
            if model.contains("claude") || model.contains("gemini") { &MODES[..1] } else { &MODES[..] };
        let mut modes = Vec::new();
        for &(tier, mode, mode_of_long_prompts) in tiers {
            match self.tier(tier) {
                None | Some(TierRates { short: None, .. }) => modes.push(mode),
                Some(TierRates { long: None, .. }) if long => modes.push(mode_of_long_prompts),
                Some(_) => {}
            }
        }
        if long && self.standard.long.is_none() {
            modes.push("for long prompts");
        }
        // Others have no such cache: there writing to it costs what input does.
        let writes_cost_more = |rates: Rates| rates.cache_write_5m > rates.input;
        if self.standard.short.is_some_and(|rates| writes_cost_more(rates) && rates.cache_write_1h.is_none())
        {
            modes.push("for 1-hour cache writes");
        }
        modes
    }

    /// The cost of a call; `None` when the mode in which it was made has no price.
    pub fn cost(&self, tokens: &Tokens, tier: Tier) -> Option<PicoDollars> {
        self.rates(tokens, tier)?.cost(tokens)
    }

    /// The whole call is billed at the higher rates when its prompt (everything sent, cached or not) exceeds the threshold.
    fn rates(&self, tokens: &Tokens, tier: Tier) -> Option<Rates> {
        if let Some(own) = self.own.filter(|_| tier == Tier::Standard) {
            return Some(own);
        }
        let prompt =
            [tokens.input, tokens.cache_read, tokens.cache_write()].into_iter().fold(0, u64::saturating_add);
        let long = self.threshold.is_some_and(|threshold| prompt > threshold);
        let rates = self.tier(tier)?;
        if long { rates.long } else { rates.short }
    }

    fn tier(&self, tier: Tier) -> Option<TierRates<Option<Rates>>> {
        match tier {
            Tier::Standard => Some(self.standard),
            Tier::Fast => Some(self.fast),
            Tier::Flex => Some(self.flex),
            Tier::Ultrafast => Some(self.ultrafast),
            Tier::Unknown => None,
        }
    }
}

/// Tiers in words, for short prompts and for long ones.
const MODES: [(Tier, &str, &str); 4] = [
    (Tier::Fast, "in fast mode", "for long prompts in fast mode"),
    (Tier::Flex, "in flex mode", "for long prompts in flex mode"),
    (Tier::Ultrafast, "in ultrafast mode", "for long prompts in ultrafast mode"),
    (Tier::Unknown, "in an unknown mode", "in an unknown mode"),
];

/// What one tier costs: for prompts up to the threshold, and for longer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TierRates<T> {
    short: T,
    long: T,
}

impl TierRates<&str> {
    fn parse(self) -> TierRates<Option<Rates>> {
        TierRates { short: Rates::parse(self.short), long: Rates::parse(self.long) }
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    window: Option<u64>,
    threshold: Option<u64>,
    standard: TierRates<&'static str>,
    fast: TierRates<&'static str>,
    flex: TierRates<&'static str>,
    ultrafast: TierRates<&'static str>,
}

/// Pico-dollars per token, which are millionths of a dollar per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write_5m: u64,
    /// `None`: no such cache, or no price of it.
    pub cache_write_1h: Option<u64>,
}

impl Row {
    fn parse(columns: &'static str) -> Self {
        let mut columns = columns.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let window = next().parse().ok();
        let standard = next();
        let threshold = next().parse().ok();
        let standard = TierRates { short: standard, long: next() };
        let mut tier = || TierRates { short: next(), long: next() };
        Self { window, threshold, standard, fast: tier(), flex: tier(), ultrafast: tier() }
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
/// Regions (`eu.`, `us-gov.`) are never taken off: they are more expensive.
fn row(model: &str) -> Option<Row> {
    spelled(model, find)
}

/// The first hit of a look-up by the spellings of a model's name, in the order of [`row`].
fn spelled<T>(model: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    if let Some(found) = find(model) {
        return Some(found);
    }
    let google = |name: &str| name.starts_with("gemini-").then(|| find(&format!("gemini/{name}"))).flatten();
    let bare = model.split_once('[').map_or(model, |(name, _)| name);
    let named = without_vendor(bare);
    let undated = without_date(named);
    find(bare).or_else(|| find(named)).or_else(|| google(named)).or_else(|| {
        let undated = undated?;
        find(undated).or_else(|| google(undated))
    })
}

fn without_vendor(name: &str) -> &str {
    const PREFIXES: &[&str] = &[
        // A model that is named by its file: prices of a user's own are set by the file's name.
        types::redact::FILE_MARK,
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

    fn of(model: &str, tokens: Tokens, tier: Tier) -> Option<i64> {
        cost(model, &tokens, tier).map(|cost| cost.0)
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
            let standard = Rates::parse(row.standard.short).unwrap();
            assert!(standard.input > 0 && standard.output > 0, "{name}");
            for (tier, is_cheaper) in
                [(row.standard, false), (row.fast, false), (row.flex, true), (row.ultrafast, false)]
            {
                for group in [tier.short, tier.long].into_iter().filter(|group| !group.is_empty()) {
                    let rates = Rates::parse(group).unwrap_or_else(|| panic!("{name}: {group}"));
                    assert!(
                        is_cheaper || rates.input >= standard.input,
                        "{name}: a higher tier is not cheaper"
                    );
                }
                let TierRates { short, long } = tier.parse();
                assert!(!is_cheaper || short.is_none_or(|rates| rates.input <= standard.input), "{name}");
                assert!(
                    long.is_none_or(|long| short.is_some_and(|short| long.input >= short.input)),
                    "{name}"
                );
            }
            assert_eq!(row.threshold.is_some(), !row.standard.long.is_empty(), "{name}");
            assert!(row.window.is_none_or(|window| (1000..20_000_000).contains(&window)), "{name}");
        }
        let windows =
            TABLE.lines().filter(|line| Row::parse(line.split_once('\t').unwrap().1).window.is_some());
        assert!(windows.count() > 900);
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
        assert_eq!(of("claude-opus-4-8", tokens, Tier::Standard), Some(1_748_500_000));
        assert_eq!(of("claude-opus-4-8", tokens, Tier::Fast), Some(2 * 1_748_500_000));
        assert_eq!(
            of("claude-opus-4-8", Tokens { cache_write_1h: 3, ..NONE }, Tier::Standard),
            Some(3 * 10_000_000)
        );
        assert_eq!(
            of("claude-opus-4-8", Tokens { output: 2, reasoning: 2, ..NONE }, Tier::Standard),
            Some(50_000_000)
        );
        assert_eq!(of("claude-opus-4-8", NONE, Tier::Standard), Some(0));
    }

    #[test]
    fn a_long_prompt_costs_more_as_a_whole_and_cached_tokens_make_it_long() {
        let model = "claude-haiku-5-5"; // from 100,000 tokens on: 5 times
        let at = Tokens { input: 50_000, cache_read: 40_000, cache_write_5m: 10_000, output: 1000, ..NONE };
        let standard = 50_000 * 100_000 + 40_000 * 10_000 + 10_000 * 125_000 + 1000 * 500_000;
        assert_eq!(of(model, at, Tier::Standard), Some(standard));
        let over = Tokens { input: 50_001, ..at };
        assert_eq!(of(model, over, Tier::Standard), Some(5 * (standard + 100_000)));
        assert_eq!(
            of(model, Tokens { output: 200_000, ..NONE }, Tier::Standard),
            Some(200_000 * 500_000),
            "output does not count"
        );
        let gpt = Tokens { input: 272_001, ..NONE };
        assert_eq!(of("gpt-5.5", gpt, Tier::Standard), Some(272_001 * 10_000_000));
        assert_eq!(of("gpt-5.5", gpt, Tier::Fast), None, "there is no fast tier for long prompts");
        assert_eq!(of("gpt-5.5", Tokens { input: 1, ..NONE }, Tier::Fast), Some(12_500_000));
    }

    #[test]
    fn every_tier_has_its_own_price_or_none() {
        let input = |model, count, tier| of(model, Tokens { input: count, ..NONE }, tier);
        // Millions of pico-dollars per token, for short prompts and for long ones.
        for (model, tier, short, long) in [
            ("gpt-6-astra", Tier::Standard, Some(10), Some(20)),
            ("gpt-6-astra", Tier::Fast, Some(20), Some(40)),
            ("gpt-6-astra", Tier::Flex, Some(5), Some(10)),
            ("gpt-6-astra", Tier::Ultrafast, Some(60), Some(120)),
            ("gpt-6-astra", Tier::Unknown, None, None),
            ("gpt-6.1-sol", Tier::Flex, Some(1), Some(2)),
            ("gpt-6.1-sol", Tier::Ultrafast, Some(12), Some(24)),
            ("gpt-5.5", Tier::Fast, Some(12), None), // and a half
            ("gpt-5.5", Tier::Ultrafast, None, None),
            ("azure/gpt-5.5", Tier::Standard, Some(5), Some(10)),
            ("azure/gpt-5.5", Tier::Flex, None, None), // only its input has one
            ("claude-opus-4-8", Tier::Flex, None, None),
        ] {
            let millions =
                |count| input(model, count, tier).map(|cost| cost / count.cast_signed() / 1_000_000);
            assert_eq!((millions(1), millions(272_001)), (short, long), "{model} {tier:?}");
        }
        // 1 × 5 + 2 × 25 + 4 × 0.5 + 8 × 6.25 dollars per million tokens
        let tokens = Tokens { input: 1, output: 2, cache_read: 4, cache_write_5m: 8, ..NONE };
        assert_eq!(of("gpt-6-astra", tokens, Tier::Flex), Some(107_000_000));
    }

    #[test]
    fn calls_outside_the_table_have_no_price() {
        for (model, tokens, tier) in [
            ("", NONE, Tier::Standard),
            ("<synthetic>", NONE, Tier::Standard),
            ("claude-opus-9", NONE, Tier::Standard),
            ("claude-haiku-4-5", Tokens { input: 1, ..NONE }, Tier::Fast), // no fast mode
            ("gpt-5", Tokens { cache_write_1h: 1, ..NONE }, Tier::Standard), // no such cache
            ("claude-opus-4-8", Tokens { input: u64::MAX, ..NONE }, Tier::Standard),
        ] {
            assert_eq!(of(model, tokens, tier), None, "{model}");
        }
    }

    #[test]
    fn names_are_looked_up_in_the_documented_order() {
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
