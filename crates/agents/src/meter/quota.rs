//! A limit of an agent's API, as the API reported it.

use types::event::Source;
use types::{Timestamp, Utilization};

types::row! {
    /// How much of a limit is used. When it was so is known beside it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct QuotaReport {
        /// Whose limit (`anthropic`, `openai`).
        pub provider: String,
        /// The API's own name of the window: `5h`, `7d`, `primary`.
        pub window: String,
        pub utilization: Utilization,
        pub resets_at: Option<Timestamp>,
        pub source: Source as String => |source| Source::parse(&source).unwrap_or(Source::Transcript),
    }
}

/// A window's end may be computed anew with each answer, and differ by some seconds then.
const ROUNDING_MS: i64 = 60_000;
/// The longest name of a provider or a window.
const LONGEST_NAME: usize = 64;

impl QuotaReport {
    /// Whether the API can have meant it.
    pub fn is_plausible(&self) -> bool {
        let name = |name: &str| (1..=LONGEST_NAME).contains(&name.len());
        name(&self.provider) && name(&self.window) && self.resets_at.is_none_or(Timestamp::is_a_date)
    }

    /// Whether the window has begun anew since the end of the earlier report's, and the use seen then.
    pub fn is_new_window(&self, resets_at: Option<Timestamp>, used: Utilization) -> bool {
        match (resets_at, self.resets_at) {
            (Some(before), Some(now)) => now.0 > before.0.saturating_add(ROUNDING_MS),
            _ => self.utilization < used,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_new_when_its_end_moves_on_or_else_when_less_of_it_is_used() {
        let of = |millionths| Utilization::of_millionths(millionths);
        let report = |resets_at: Option<i64>, used| QuotaReport {
            provider: "openai".into(),
            window: "primary".into(),
            utilization: of(used),
            resets_at: resets_at.map(Timestamp),
            source: Source::Proxy,
        };
        for (resets, before, used, now, new) in [
            (Some(1_000_000), 10, Some(1_000_000), 20, false),
            (Some(1_000_000), 10, Some(1_030_000), 5, false),
            (Some(1_000_000), 10, Some(19_000_000), 0, true),
            (Some(19_000_000), 10, Some(1_000_000), 0, false),
            (None, 10, None, 20, false),
            (None, 10, None, 5, true),
            (Some(1_000_000), 10, None, 5, true),
        ]
        .map(|(before, seen, now, used, new)| (before, of(seen), of(used), now, new))
        {
            assert_eq!(report(now, used.millionths()).is_new_window(resets.map(Timestamp), before), new);
        }
    }
}
