//! Amounts of money as whole numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A millionth of a millionth of a dollar: prices per token are whole numbers of it, so nothing is ever rounded. 64 bits
/// hold nine million dollars. Signed, for differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PicoDollars(pub i64);

impl PicoDollars {
    /// For showing and for JSON; never for adding up.
    #[expect(clippy::cast_precision_loss, reason = "an amount is shown to far fewer digits than f64 holds")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The nearest amount; exact up to nine thousand dollars.
    #[expect(clippy::cast_possible_truncation, reason = "beyond the bounds, the bound")]
    pub fn from_dollars(dollars: f64) -> Self {
        Self((dollars * 1e12).round() as i64)
    }
}

/// Dollars, exact, without trailing zeros.
impl fmt::Display for PicoDollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let pico = self.0.unsigned_abs();
        let (whole, rest) = (pico / 1_000_000_000_000, pico % 1_000_000_000_000);
        if rest == 0 {
            return write!(f, "{sign}{whole}");
        }
        write!(f, "{sign}{whole}.{}", format!("{rest:012}").trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_exactly() {
        for (pico, shown) in [
            (0, "0"),
            (1, "0.000000000001"),
            (1_748_500_000, "0.0017485"),
            (12_000_000_000_000, "12"),
            (12_030_000_000_000, "12.03"),
        ] {
            assert_eq!(PicoDollars(pico).to_string(), shown);
        }
        assert!((PicoDollars(1_748_500_000).dollars() - 0.001_748_5).abs() < 1e-15);
    }
}
