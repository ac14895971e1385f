//! The numbers that are added up: one set of them, the same for a session, a day, a model, everything.

use types::event::{Attributes, Usage};
use types::{CallSums, PicoDollars};

/// Declares the struct together with the order of its columns, so that SQL and Rust cannot drift apart.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: i64),+ }

        impl $name {
            /// The columns, in the order of [`Self::values`].
            pub const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),+];
            pub const COUNT: usize = Self::COLUMNS.len();

            pub fn values(&self) -> [i64; Self::COUNT] {
                [$(self.$field),+]
            }

            pub fn from_values(values: [i64; Self::COUNT]) -> Self {
                let [$($field),+] = values;
                Self { $($field),+ }
            }

            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
                self.carry();
            }

            pub fn subtract(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_sub(other.$field);)+
                self.carry();
            }
        }
    };
}

numbers!(
    /// Sums, or differences of sums. One event adds a billion to a number at most, so it takes nine billion of them to fill
    /// 64 bits; money is counted in such small parts that some thousand would do, and has a second number.
    Numbers {
        /// Sessions that began (on that day).
        sessions,
        api_calls,
        /// Calls of models without a price: in the tokens, not in the cost.
        unpriced_calls,
        input,
        output,
        cache_read,
        cache_write,
        /// The part of `output` spent on reasoning.
        reasoning,
        /// Pico-dollars, from 0 to below [`CARRY`].
        cost,
        prompts,
        tool_calls,
        tool_errors,
        lines_added,
        lines_removed,
        api_errors,
        /// How many times [`CARRY`] pico-dollars there are beside `cost`.
        cost_carried,
    }
);

/// Four million dollars in pico-dollars. Two amounts below it still fit 64 bits together.
pub const CARRY: i64 = 4_000_000_000_000_000_000;

impl Numbers {
    /// Every amount has one form: `cost` is never negative, and below [`CARRY`].
    fn carry(&mut self) {
        if (0..CARRY).contains(&self.cost) {
            return; // nearly always, and dividing takes as long as all the rest
        }
        self.cost_carried = self.cost_carried.saturating_add(self.cost.div_euclid(CARRY));
        self.cost = self.cost.rem_euclid(CARRY);
    }

    /// What an event adds, and the model it is counted under; empty for what no model did.
    pub fn of_event(attributes: &Attributes) -> (&str, Self) {
        let none = Self::default();
        match attributes {
            Attributes::Usage(usage) => (&usage.model, Self::of_call(usage)),
            Attributes::Tool(tool) => (
                "",
                Self {
                    tool_calls: 1,
                    tool_errors: i64::from(tool.ok == Some(false)),
                    lines_added: tool.lines_added.get(),
                    lines_removed: tool.lines_removed.get(),
                    ..none
                },
            ),
            Attributes::Prompt(_) => ("", Self { prompts: 1, ..none }),
            Attributes::Error(_) => ("", Self { api_errors: 1, ..none }),
            Attributes::Start(_)
            | Attributes::Bound(_)
            | Attributes::Quota(_)
            | Attributes::End(_)
            | Attributes::Other(_) => ("", none),
        }
    }

    /// What one call adds.
    pub fn of_call(usage: &Usage) -> Self {
        Self::of_sums(&usage.sums(), usage.cost().is_none())
    }

    /// The same of one call's sums.
    pub fn of_sums(call: &CallSums, unpriced: bool) -> Self {
        let CallSums { api_calls, input, output, cache_read, cache_write, reasoning, cost } = *call;
        Self {
            api_calls,
            unpriced_calls: i64::from(unpriced),
            input,
            output,
            cache_read,
            cache_write,
            reasoning,
            cost: cost.0,
            ..Self::default()
        }
    }

    /// The same numbers in their one form; a database may have added up `cost` beyond it.
    #[must_use]
    pub fn carried(mut self) -> Self {
        self.carry();
        self
    }

    /// The whole amount, exactly.
    pub fn pico_dollars(&self) -> i128 {
        i128::from(self.cost_carried) * i128::from(CARRY) + i128::from(self.cost)
    }

    /// The whole amount as it is shown beside a session: nine million dollars at most.
    pub fn money(&self) -> PicoDollars {
        let most = i128::from(i64::MAX);
        PicoDollars(i64::try_from(self.pico_dollars().clamp(-most, most)).unwrap_or(i64::MAX))
    }

    /// The whole amount in dollars.
    #[expect(clippy::cast_precision_loss, reason = "shown to far fewer digits than f64 holds")]
    pub fn dollars(&self) -> f64 {
        self.pico_dollars() as f64 / 1e12
    }

    /// Everything billed.
    pub fn tokens(&self) -> i64 {
        [self.input, self.output, self.cache_read, self.cache_write].into_iter().fold(0, i64::saturating_add)
    }

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(pico: i64) -> Numbers {
        Numbers { cost: pico, ..Numbers::default() }.carried()
    }

    #[test]
    fn amounts_have_one_form() {
        for (pico, carried, rest) in [
            (0, 0, 0),
            (1, 0, 1),
            (CARRY - 1, 0, CARRY - 1),
            (CARRY, 1, 0),
            (i64::MAX, 2, i64::MAX - 2 * CARRY),
            (-1, -1, CARRY - 1),
            (-CARRY, -1, 0),
        ] {
            let numbers = cost(pico);
            assert_eq!((numbers.cost_carried, numbers.cost), (carried, rest), "{pico}");
            assert_eq!(numbers.pico_dollars(), i128::from(pico));
        }
        assert!(cost(0).is_zero() && !cost(CARRY).is_zero());
    }

    /// Any number of calls of any price, any of them revised any number of times: the sum is what they cost in the end.
    #[test]
    fn sums_are_exact_whatever_is_added_and_taken_back() {
        let mut state = 7_u64;
        let mut roll = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20) % below
        };
        for _ in 0..20 {
            // Up to a thousand dollars each, twenty thousand of them.
            let (mut sum, mut calls) = (Numbers::default(), Vec::new());
            for _ in 0..20_000 {
                let price = i64::try_from(roll(1_000_000_000_000_001)).unwrap();
                calls.push(price);
                sum.add(&cost(price));
                if roll(3) == 0 {
                    let at = usize::try_from(roll(calls.len() as u64)).unwrap();
                    let price = i64::try_from(roll(10_000_000_000)).unwrap();
                    let old = std::mem::replace(&mut calls[at], price);
                    sum.subtract(&cost(old));
                    sum.add(&cost(price));
                }
            }
            let exact: i128 = calls.iter().copied().map(i128::from).sum();
            assert_eq!(sum.pico_dollars(), exact);
            // Revised to a cent each, as differences that are gathered first.
            let mut difference = Numbers::default();
            for price in &calls {
                difference.subtract(&cost(*price));
                difference.add(&cost(10_000_000_000));
            }
            sum.add(&difference);
            assert_eq!(sum.pico_dollars(), 20_000 * 10_000_000_000);
            assert_eq!((sum.cost_carried, sum.money().to_string()), (0, "200".to_owned()));
        }
    }
}
