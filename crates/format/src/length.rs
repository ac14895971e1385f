//! A length of time as people type it: `10s`, `500ms`, `7d`, `1h 30m`.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

/// Weeks to nanoseconds, where a day has 24 hours. `None` for what is no length, has a sign, or has months or years, which are
/// not of one length.
pub fn length(text: &str) -> Option<Duration> {
    static PARSER: SpanParser = SpanParser::new();
    let text = text.trim();
    // The parser would take a sign.
    if text.starts_with(['-', '+']) {
        return None;
    }
    // Up to hours any number that a duration holds; days and weeks as far as the calendar goes.
    PARSER.parse_unsigned_duration(text).ok().or_else(|| {
        let span =
            PARSER.parse_span(text).ok().filter(|span| span.get_months() == 0 && span.get_years() == 0)?;
        Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_as_people_type_them() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("45s", 45_000),
            (" 2m", 120_000),
            ("30m ", 1_800_000),
            ("12h", 43_200_000),
            ("7d", 604_800_000),
            ("90d", 7_776_000_000),
            ("2w", 1_209_600_000),
            ("999999999999999s", 999_999_999_999_999_000),
            ("7 d", 604_800_000),
            ("7days", 604_800_000),
            ("2 weeks", 1_209_600_000),
            ("1.5h", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1d12h", 129_600_000),
        ] {
            assert_eq!(length(text), Some(Duration::from_millis(ms)), "{text:?}");
        }
    }

    #[test]
    fn texts_that_are_no_length() {
        for text in [
            "",
            "s",
            "d",
            "7",
            "10",
            "-7d",
            "+7d",
            "-1s",
            "+1s",
            "7 days ago",
            "1mo",
            "1y",
            "tomorrow",
            "2026-11-01",
            "99999999999999999999s",
            "18446744073709551615h",
            "99999999999999999999d",
            "9999999999999999w",
        ] {
            assert_eq!(length(text), None, "{text:?}");
        }
    }
}
