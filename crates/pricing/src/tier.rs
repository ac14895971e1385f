//! Which of a vendor's services answered a call: each has prices of its own.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub enum Tier {
    #[default]
    Standard,
    /// Faster and more expensive: Claude's fast mode, the priority tiers of others.
    Fast,
    /// Slower and cheaper.
    Flex,
    /// Faster still than `Fast`.
    Ultrafast,
    /// The agent names one that is not known here. What it costs is not known either.
    Unknown,
}

impl Tier {
    pub const ALL: [Self; 5] = [Self::Standard, Self::Fast, Self::Flex, Self::Ultrafast, Self::Unknown];

    /// By the name that a file gives it; none at all is the standard.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            None | Some("standard" | "default" | "auto") => Self::Standard,
            Some("fast" | "priority") => Self::Fast,
            Some("flex") => Self::Flex,
            Some("ultrafast") => Self::Ultrafast,
            Some(_) => Self::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Fast => "fast",
            Self::Flex => "flex",
            Self::Ultrafast => "ultrafast",
            Self::Unknown => "unknown",
        }
    }

    /// In databases and caches: these numbers never change. Standard and fast are what `false` and `true` were, when these
    /// two were all.
    pub fn number(self) -> u8 {
        match self {
            Self::Standard => 0,
            Self::Fast => 1,
            Self::Flex => 2,
            Self::Ultrafast => 3,
            Self::Unknown => 4,
        }
    }

    /// From a column of a database; a call that names none is of the first.
    pub fn stored(number: Option<i64>) -> Self {
        u64::try_from(number.unwrap_or(0)).map_or(Self::Unknown, Self::numbered)
    }

    /// A number that only a newer codemie knows is a tier without a known price.
    pub fn numbered(number: u64) -> Self {
        Self::ALL.into_iter().find(|tier| u64::from(tier.number()) == number).unwrap_or(Self::Unknown)
    }
}

/// How a tier is written in JSON, among the fields of what has it. `fast` alone was written before there were other tiers, and
/// it is all that an older codemie reads, which takes the other tiers for the standard one.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Fields {
    fast: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
}

impl From<Fields> for Tier {
    fn from(fields: Fields) -> Self {
        match fields.tier {
            Some(name) => Self::named(Some(&name)),
            None if fields.fast => Self::Fast,
            None => Self::Standard,
        }
    }
}

impl From<Tier> for Fields {
    fn from(tier: Tier) -> Self {
        let named = !matches!(tier, Tier::Standard | Tier::Fast);
        Self { fast: tier == Tier::Fast, tier: named.then(|| tier.name().to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_by_its_name_its_number_and_in_json() {
        for (tier, number, json) in [
            (Tier::Standard, 0, r#"{"fast":false}"#),
            (Tier::Fast, 1, r#"{"fast":true}"#),
            (Tier::Flex, 2, r#"{"fast":false,"tier":"flex"}"#),
            (Tier::Ultrafast, 3, r#"{"fast":false,"tier":"ultrafast"}"#),
            (Tier::Unknown, 4, r#"{"fast":false,"tier":"unknown"}"#),
        ] {
            assert_eq!(Tier::named(Some(tier.name())), tier);
            assert_eq!((tier.number(), Tier::numbered(number.into())), (number, tier));
            assert_eq!(serde_json::to_string(&tier).unwrap(), json);
            assert_eq!(serde_json::from_str::<Tier>(json).unwrap(), tier);
        }
        assert_eq!(Tier::numbered(5), Tier::Unknown, "of a newer codemie");
        assert_eq!(serde_json::from_str::<Tier>("{}").unwrap(), Tier::Standard);
    }

    #[test]
    fn only_names_of_the_standard_tier_and_none_are_the_standard_tier() {
        for (name, tier) in [
            (None, Tier::Standard),
            (Some("default"), Tier::Standard),
            (Some("auto"), Tier::Standard),
            (Some("standard"), Tier::Standard),
            (Some("priority"), Tier::Fast),
            (Some("flex"), Tier::Flex),
            (Some("ultrafast"), Tier::Ultrafast),
            (Some("scale"), Tier::Unknown),
            (Some(""), Tier::Unknown),
        ] {
            assert_eq!(Tier::named(name), tier, "{name:?}");
        }
    }
}
