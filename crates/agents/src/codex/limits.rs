//! The limits in a rollout's `token_count` lines: `rate_limits`, with a primary and a secondary window, or null for a login that
//! has none.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::shape::Text;
use crate::meter::quota::QuotaReport;
use types::event::Source;
use types::{Timestamp, Utilization};

#[derive(Debug, Default, Deserialize)]
struct RateLimits<'a> {
    /// `codex`, or another family of limits: a line has the one that was reported last.
    #[serde(borrow, default)]
    limit_id: Text<'a>,
    #[serde(borrow, default)]
    primary: Option<&'a RawValue>,
    #[serde(borrow, default)]
    secondary: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Window {
    used_percent: f64,
    /// In seconds since 1970.
    #[serde(default)]
    resets_at: Option<u32>,
    /// Older versions: from now on.
    #[serde(default)]
    resets_in_seconds: Option<u32>,
}

/// The reports of a line that was written at `at`.
pub(super) fn read(raw: &RawValue, at: Timestamp) -> impl Iterator<Item = QuotaReport> + use<> {
    let limits: RateLimits = serde_json::from_str(raw.get()).unwrap_or_default();
    let family = limits.limit_id.0.as_deref().filter(|id| *id != "codex").map(|id| {
        // As the API's headers name it: `x-codex-bengalfox-primary-…` is `codex_bengalfox` here.
        id.strip_prefix("codex_").unwrap_or(id).replace('_', "-")
    });
    let window = |raw: Option<&RawValue>| serde_json::from_str::<Window>(raw?.get()).ok();
    [("primary", window(limits.primary)), ("secondary", window(limits.secondary))].into_iter().filter_map(
        move |(name, window)| {
            let window = window?;
            let ms = |seconds: u32| i64::from(seconds) * 1000;
            let resets_at = window.resets_at.map(ms);
            let resets_in = || window.resets_in_seconds.map(|seconds| at.0.saturating_add(ms(seconds)));
            Some(QuotaReport {
                provider: "openai".to_owned(),
                window: family.as_ref().map_or_else(|| name.to_owned(), |family| format!("{family}-{name}")),
                utilization: Utilization::of(window.used_percent / 100.0)?,
                resets_at: resets_at.or_else(resets_in).map(Timestamp),
                source: Source::Transcript,
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_and_their_absence_is_none() {
        let read = |json: &str| {
            let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
            super::read(&raw, Timestamp(1_000))
                .map(|quota| (quota.window, quota.utilization.millionths(), quota.resets_at.map(|at| at.0)))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            read(
                r#"{"limit_id":"codex","primary":{"used_percent":12.5,"window_minutes":300,"resets_at":1794819900},
                    "secondary":{"used_percent":101,"window_minutes":10080,"resets_in_seconds":60}}"#
            ),
            [
                ("primary".to_owned(), 125_000, Some(1_794_819_900_000)),
                ("secondary".to_owned(), 1_000_000, Some(61_000))
            ]
        );
        let fox = r#"{"limit_id":"codex_bengalfox","limit_name":"fox","primary":{"used_percent":3.0,"resets_at":null}}"#;
        assert_eq!(read(fox), [("bengalfox-primary".to_owned(), 30_000, None)]);
        for none in
            [r#"{"primary":null,"secondary":null}"#, "{}", "null", r#"{"primary":{"used_percent":"x"}}"#]
        {
            assert_eq!(read(none), [], "{none}");
        }
    }
}
