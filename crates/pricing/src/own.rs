//! Prices that a user has set for a model. They win over the table for calls in the standard mode, whatever the length of the
//! prompt; other modes keep the table's price, or have none.

use std::collections::BTreeMap;

use types::{PicoDollars, Tokens};

use super::tier::Tier;
use super::{Prices, Rates, TABLE_VERSION, spelled};

/// What stands before the version of a price that a user has set.
pub const OWN: &str = "own-";

/// The table, and what a user has set beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    own: BTreeMap<String, Rates>,
}

/// The cost of one call, and the version of the prices that it was made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    pub amount: PicoDollars,
    pub version: String,
}

impl PriceList {
    /// By the model's name, which is looked up as those of the table are.
    pub fn with_own(own: impl IntoIterator<Item = (String, Rates)>) -> Self {
        Self { own: own.into_iter().collect() }
    }

    pub fn own(&self) -> &BTreeMap<String, Rates> {
        &self.own
    }

    /// `None`: the model has no price at all.
    pub fn of(&self, model: &str) -> Option<Prices> {
        let listed = Prices::of(model);
        match self.own_of(model) {
            Some(own) => Some(Prices { own: Some(own), ..listed.unwrap_or(Prices::NONE) }),
            None => listed,
        }
    }

    /// `None` when the model, or the mode in which it was used, has no price. Never a guess, never a silent zero.
    pub fn cost(&self, model: &str, tokens: &Tokens, tier: Tier) -> Option<Cost> {
        let prices = self.of(model)?;
        Some(Cost { amount: prices.cost(tokens, tier)?, version: prices.version(tier) })
    }

    /// The name under which a model's price was set.
    pub fn own_name(&self, model: &str) -> Option<&str> {
        spelled(model, |name| self.own.get_key_value(name)).map(|(name, _)| name.as_str())
    }

    fn own_of(&self, model: &str) -> Option<Rates> {
        if self.own.is_empty() {
            return None;
        }
        spelled(model, |name| self.own.get(name).copied())
    }

    /// Differs where a call may cost something else; the table's version where nothing is set.
    pub fn fingerprint(&self) -> u32 {
        let mut sum = Sum::default();
        for (model, rates) in &self.own {
            sum.add(model.as_bytes());
            rates.add_to(&mut sum);
        }
        if self.own.is_empty() { TABLE_VERSION } else { sum.0 ^ TABLE_VERSION }
    }
}

impl Rates {
    /// Differs from that of other rates, as far as 32 bits can.
    pub fn version(&self) -> String {
        let mut sum = Sum::default();
        self.add_to(&mut sum);
        format!("{OWN}{:08x}", sum.0)
    }

    fn add_to(&self, sum: &mut Sum) {
        let Self { input, output, cache_read, cache_write_5m, cache_write_1h } = *self;
        for rate in [input, output, cache_read, cache_write_5m] {
            sum.add(&rate.to_le_bytes());
        }
        sum.add(&cache_write_1h.map_or(u64::MAX, |rate| rate).to_le_bytes());
    }
}

/// FNV-1a: it is the same in every process and on every machine.
struct Sum(u32);

impl Default for Sum {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        input: 1_000_000,
        output: 2_000_000,
        cache_read: 100_000,
        cache_write_5m: 1_000_000,
        cache_write_1h: None,
    };

    fn tokens(input: u64) -> Tokens {
        Tokens { input, ..Tokens::default() }
    }

    #[test]
    fn an_own_price_wins_in_the_standard_mode_and_says_so_in_its_version() {
        let list = PriceList::with_own([("claude-opus-4-8".to_owned(), RATES), ("mine".to_owned(), RATES)]);
        for (model, tier, amount, own) in [
            ("claude-opus-4-8", Tier::Standard, Some(1_000_000), true),
            ("anthropic/claude-opus-4-8-20260601[1m]", Tier::Standard, Some(1_000_000), true),
            ("mine", Tier::Standard, Some(1_000_000), true),
            ("mine", Tier::Fast, None, false),
            ("claude-opus-4-8", Tier::Fast, Some(10_000_000), false),
            ("gpt-5.5", Tier::Standard, Some(5_000_000), false),
            ("nobody-knows", Tier::Standard, None, false),
        ] {
            let cost = list.cost(model, &tokens(1), tier);
            assert_eq!(cost.as_ref().map(|cost| cost.amount.0), amount, "{model} {tier:?}");
            let version = cost.map(|cost| cost.version);
            let expected = if own { RATES.version() } else { TABLE_VERSION.to_string() };
            assert_eq!(version, amount.map(|_| expected), "{model} {tier:?}");
        }
        // A long prompt has no other price: the one that was set is the price of the model.
        let long = list.cost("claude-haiku-5-5", &tokens(1), Tier::Standard).unwrap();
        assert_eq!(long.version, TABLE_VERSION.to_string());
        let list = PriceList::with_own([("claude-haiku-5-5".to_owned(), RATES)]);
        let long = list.cost("claude-haiku-5-5", &tokens(1_000_000), Tier::Standard).unwrap();
        assert_eq!(long.amount.0, 1_000_000_000_000);
        let hour = Tokens { cache_write_1h: 1, ..Tokens::default() };
        assert_eq!(list.cost("claude-haiku-5-5", &hour, Tier::Standard), None, "no such price was set");
    }

    #[test]
    fn a_changed_price_has_another_version_and_another_fingerprint() {
        let cheaper = Rates { output: 1, ..RATES };
        assert_ne!(RATES.version(), cheaper.version());
        let of = |model: &str, rates| PriceList::with_own([(model.to_owned(), rates)]).fingerprint();
        let all = [of("a", RATES), of("a", cheaper), of("b", RATES), TABLE_VERSION];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one));
        }
        assert_eq!(PriceList::default().fingerprint(), TABLE_VERSION);
    }
}
