//! Limits that an API reports with its answers.

use http::HeaderMap;
use types::Timestamp;

use super::json::Value;
use crate::Quota;

/// More windows than an API has.
const MOST: usize = 16;
/// The longest name of a window that is believed.
const LONGEST_NAME: usize = 64;

/// The limits that an answer's headers report. `now` is when they came: some count from there.
pub fn quotas(headers: &HeaderMap, now: Timestamp) -> Vec<Quota> {
    let mut quotas = Vec::new();
    for name in headers.keys() {
        let name = name.as_str();
        let text = |name: String| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: String| text(name).and_then(|text| finite(text.trim()));
        let quota = if let Some(window) = between(name, "anthropic-ratelimit-unified-", "-utilization") {
            number(name.to_owned()).map(|used| Quota {
                provider: "anthropic",
                window: window.to_owned(),
                utilization: part(used),
                resets_at: number(format!("anthropic-ratelimit-unified-{window}-reset")).and_then(moment),
            })
        } else if let Some(window) = between(name, "x-codex-", "-used-percent") {
            let reset = number(format!("x-codex-{window}-reset-at")).and_then(moment);
            let after =
                || number(format!("x-codex-{window}-reset-after-seconds")).and_then(|time| later(now, time));
            number(name.to_owned()).map(|used| openai(window, used, reset.or_else(after)))
        } else {
            None
        };
        quotas.extend(quota);
    }
    // Maps have no order of their own.
    quotas.sort_by(|one, other| one.window.cmp(&other.window));
    quotas.truncate(MOST);
    quotas
}

/// A limit of Codex by its window: `primary`, `secondary`.
pub fn openai(window: &str, used_percent: f64, resets_at: Option<Timestamp>) -> Quota {
    Quota {
        provider: "openai",
        window: window.to_owned(),
        utilization: part(used_percent / 100.0),
        resets_at,
    }
}

/// Limits in a message of a WebSocket.
#[derive(Debug, Default)]
pub(super) struct ReportedLimits([Limit; 2]);

const WINDOWS: [&str; 2] = ["primary", "secondary"];

#[derive(Debug, Default)]
struct Limit {
    used_percent: Option<f64>,
    reset_at: Option<f64>,
    reset_after_seconds: Option<f64>,
}

impl ReportedLimits {
    pub(super) fn note(&mut self, path: &str, value: Value<'_>) {
        let Some((window, field)) = path.strip_prefix("rate_limits.").and_then(|path| path.split_once('.'))
        else {
            return;
        };
        let Some(at) = WINDOWS.iter().position(|name| *name == window) else { return };
        let limit = &mut self.0[at];
        match field {
            "used_percent" => limit.used_percent = value.number(),
            "reset_at" => limit.reset_at = value.number(),
            "reset_after_seconds" => limit.reset_after_seconds = value.number(),
            _ => {}
        }
    }

    pub(super) fn quotas(self, now: Timestamp) -> Vec<Quota> {
        let named = WINDOWS.iter().zip(self.0);
        named
            .filter_map(|(window, limit)| {
                let reset = limit.reset_at.and_then(moment);
                let after = || limit.reset_after_seconds.and_then(|time| later(now, time));
                Some(openai(window, limit.used_percent?, reset.or_else(after)))
            })
            .collect()
    }
}

fn between<'a>(name: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let inside = name.strip_prefix(before)?.strip_suffix(behind)?;
    (!inside.is_empty() && inside.len() <= LONGEST_NAME).then_some(inside)
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// APIs report somewhat more than all at times.
fn part(used: f64) -> f64 {
    used.clamp(0.0, 1.0)
}

/// A moment in seconds since 1970.
fn moment(seconds: f64) -> Option<Timestamp> {
    let at = Timestamp(milliseconds(seconds)?);
    (at.0 > 0 && at.is_a_date()).then_some(at)
}

fn later(now: Timestamp, seconds: f64) -> Option<Timestamp> {
    let at = Timestamp(now.0.checked_add(milliseconds(seconds)?)?);
    at.is_a_date().then_some(at)
}

fn milliseconds(seconds: f64) -> Option<i64> {
    // Far more than any date.
    #[expect(clippy::cast_possible_truncation, reason = "within the bounds")]
    (0.0..1e12).contains(&seconds).then_some((seconds * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn read(lines: &[(&'static str, &'static str)]) -> Vec<(String, String, f64, Option<i64>)> {
        let headers = lines
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let quotas = quotas(&headers, Timestamp(1_000_000));
        quotas
            .into_iter()
            .map(|quota| {
                (quota.provider.to_owned(), quota.window, quota.utilization, quota.resets_at.map(|at| at.0))
            })
            .collect()
    }

    fn quota(
        provider: &str,
        window: &str,
        used: f64,
        reset: Option<i64>,
    ) -> (String, String, f64, Option<i64>) {
        (provider.to_owned(), window.to_owned(), used, reset)
    }

    #[test]
    fn windows_of_a_subscription_are_read_by_the_names_of_the_api() {
        let quotas = read(&[
            ("anthropic-ratelimit-unified-status", "allowed"),
            ("anthropic-ratelimit-unified-5h-status", "allowed"),
            ("anthropic-ratelimit-unified-5h-utilization", "0.634"),
            ("anthropic-ratelimit-unified-5h-reset", "1750000000"),
            ("anthropic-ratelimit-unified-7d-utilization", "0.21"),
            ("anthropic-ratelimit-unified-7d_oi-utilization", "1.04"),
            ("anthropic-ratelimit-unified-7d_oi-reset", "soon"),
            ("anthropic-ratelimit-unified-overage-utilization", "many"),
            ("anthropic-ratelimit-unified-fallback-percentage", "0.5"),
            ("anthropic-ratelimit-requests-remaining", "49"),
        ]);
        assert_eq!(
            quotas,
            [
                quota("anthropic", "5h", 0.634, Some(1_750_000_000_000)),
                quota("anthropic", "7d", 0.21, None),
                quota("anthropic", "7d_oi", 1.0, None),
            ]
        );
    }

    #[test]
    fn windows_of_codex_are_read_with_either_form_of_the_reset() {
        let quotas = read(&[
            ("x-codex-primary-used-percent", "75"),
            ("x-codex-primary-window-minutes", "300"),
            ("x-codex-primary-reset-at", "1750000000"),
            ("x-codex-secondary-used-percent", "12.5"),
            ("x-codex-secondary-reset-after-seconds", "60"),
            ("x-codex-bengalfox-primary-used-percent", "3"),
            ("x-codex-credits-balance", "3"),
        ]);
        assert_eq!(
            quotas,
            [
                quota("openai", "bengalfox-primary", 0.03, None),
                quota("openai", "primary", 0.75, Some(1_750_000_000_000)),
                quota("openai", "secondary", 0.125, Some(1_060_000)),
            ]
        );
    }

    #[test]
    fn numbers_that_mean_nothing_are_no_quota() {
        for value in ["", "NaN", "inf", "-", "0x1"] {
            let headers = [(
                HeaderName::from_static("x-codex-primary-used-percent"),
                HeaderValue::from_str(value).unwrap(),
            )];
            assert_eq!(super::quotas(&headers.into_iter().collect(), Timestamp(0)), [], "{value}");
        }
        for (reset, expected) in [("1e300", None), ("-5", None), ("0", None), ("9999999999", None)] {
            let quotas = read(&[
                ("anthropic-ratelimit-unified-5h-utilization", "-0.5"),
                ("anthropic-ratelimit-unified-5h-reset", reset),
            ]);
            assert_eq!(quotas, [quota("anthropic", "5h", 0.0, expected)], "{reset}");
        }
    }
}
