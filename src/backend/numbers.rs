//! What is added up: one set of numbers, the same for a session, a day, a model, everything.

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
            }

            pub fn subtract(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_sub(other.$field);)+
            }
        }
    };
}

numbers!(
    /// Sums, or differences of sums.
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
        /// The part of `output` spent on it.
        reasoning,
        /// Pico-dollars.
        cost,
        prompts,
        tool_calls,
        tool_errors,
        lines_added,
        lines_removed,
        api_errors,
    }
);

impl Numbers {
    /// Everything billed.
    pub fn tokens(&self) -> i64 {
        [self.input, self.output, self.cache_read, self.cache_write].into_iter().fold(0, i64::saturating_add)
    }

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}
