//! The used part of a limit.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const WHOLE: u32 = 1_000_000;

/// From nothing (0) to all of it (1), exact to a millionth: no API reports more digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utilization(u32);

impl Utilization {
    pub const ALL: Self = Self(WHOLE);

    /// What lies beyond either end is cut off; `None` for what is no number.
    pub fn of(part: f64) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and a million, after the clamp"
        )]
        let millionths = (part.clamp(0.0, 1.0) * f64::from(WHOLE)).round() as u32;
        (!part.is_nan()).then_some(Self(millionths))
    }

    pub fn of_millionths(millionths: u32) -> Self {
        Self(millionths.min(WHOLE))
    }

    pub fn millionths(self) -> u32 {
        self.0
    }

    pub fn part(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }
}

impl Serialize for Utilization {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.part().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Utilization {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let part = f64::deserialize(deserializer)?;
        let within = Some(part).filter(|part| (0.0..=1.0).contains(part)).and_then(Self::of);
        within.ok_or_else(|| D::Error::custom("is not between 0 and 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_kept_to_the_millionth_and_within_its_ends() {
        for (given, millionths) in
            [(0.0, 0), (0.375, 375_000), (1.0, WHOLE), (1.02, WHOLE), (-0.5, 0), (f64::INFINITY, WHOLE)]
        {
            assert_eq!(Utilization::of(given).map(Utilization::millionths), Some(millionths), "{given}");
        }
        assert_eq!(Utilization::of(f64::NAN), None);
        let read = |text: &str| serde_json::from_str::<Utilization>(text);
        for spelled in ["0.0", "0.07", "0.123456", "1.0"] {
            assert_eq!(serde_json::to_string(&read(spelled).unwrap()).unwrap(), spelled);
        }
        assert!(read("1.01").is_err() && read("-0.1").is_err());
    }
}
