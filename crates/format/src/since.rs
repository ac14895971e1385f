//! A time in the past as people type it: `7d` or `30m` ago, `today`, `yesterday`, or a date.

use std::str::FromStr;
use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use jiff::{SpanRelativeTo, ToSpan};

use types::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Ago(Duration),
    /// The first moment of the day so many days ago, in the user's own time.
    DaysAgo(i8),
    /// The first moment of that day, in the user's own time.
    Date(Date),
    /// In the user's own time.
    Local(DateTime),
    At(Timestamp),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it like 30m, 12h, 7d or 2w, today, yesterday, or as a date like 2026-11-01")]
pub struct NotATime;

impl Since {
    /// The moment that it names, seen from `now`.
    pub fn before(&self, now: Timestamp, zone: &TimeZone) -> Timestamp {
        match self {
            // Nothing is older than the clock.
            Self::Ago(time) => {
                Timestamp(now.0.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)).max(0))
            }
            Self::DaysAgo(days) => jiff::Timestamp::from_millisecond(now.0)
                .and_then(|at| at.to_zoned(zone.clone()).checked_sub(days.days())?.start_of_day())
                .map_or(now, |at| Timestamp(at.timestamp().as_millisecond())),
            Self::Date(date) => start_of(*date, zone, now),
            // A time that the clock skipped is the one right after it; no date is beyond what this can hold.
            Self::Local(time) => {
                time.to_zoned(zone.clone()).map_or(now, |at| Timestamp(at.timestamp().as_millisecond()))
            }
            Self::At(at) => *at,
        }
    }

    /// The moment up to which it lasts: a day is meant with all of its hours.
    pub fn end(&self, now: Timestamp, zone: &TimeZone) -> Timestamp {
        match self {
            Self::DaysAgo(days) => Self::DaysAgo(days.saturating_sub(1)).before(now, zone),
            Self::Date(date) => date.tomorrow().map_or(now, |date| start_of(date, zone, now)),
            Self::Ago(_) | Self::Local(_) | Self::At(_) => self.before(now, zone),
        }
    }
}

fn start_of(date: Date, zone: &TimeZone, otherwise: Timestamp) -> Timestamp {
    date.to_zoned(zone.clone()).map_or(otherwise, |at| Timestamp(at.timestamp().as_millisecond()))
}

impl FromStr for Since {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        let text = text.trim();
        if let Some(time) = length(text) {
            return Ok(Self::Ago(time));
        }
        match text {
            "today" => return Ok(Self::DaysAgo(0)),
            "yesterday" => return Ok(Self::DaysAgo(1)),
            _ => {}
        }
        if let Some(at) = Timestamp::parse(text) {
            return Ok(Self::At(at));
        }
        // A date is shorter than a date with a time.
        if text.len() <= 10 {
            return text.parse().map(Self::Date).map_err(|_| NotATime);
        }
        text.parse().map(Self::Local).map_err(|_| NotATime)
    }
}

// A length of time as people type it: `10s`, `500ms`, `7d`, `1h 30m`.

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
    fn times_as_people_type_them() {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        for (text, expected) in [
            ("0s", "2026-11-16T12:00:00.000Z"),
            ("45s", "2026-11-16T11:59:15.000Z"),
            ("30m", "2026-11-16T11:30:00.000Z"),
            ("12h", "2026-11-16T00:00:00.000Z"),
            (" 7d ", "2026-11-09T12:00:00.000Z"),
            ("90d", "2026-08-18T12:00:00.000Z"),
            ("2w", "2026-11-02T12:00:00.000Z"),
            ("today", "2026-11-15T22:00:00.000Z"),
            ("yesterday", "2026-11-14T22:00:00.000Z"),
            ("2026-11-01", "2026-10-31T22:00:00.000Z"),
            ("2026-11-01 08:30", "2026-11-01T06:30:00.000Z"),
            ("2026-11-01T08:30:00Z", "2026-11-01T08:30:00.000Z"),
        ] {
            let since: Since = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!(since.before(now, &zone).to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_day_ends_with_its_last_hour() {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (text, expected) in [
            ("today", "2026-11-16T23:00:00.000Z"),
            ("yesterday", "2026-11-15T23:00:00.000Z"),
            ("2026-11-01", "2026-11-01T23:00:00.000Z"),
            // Twenty-five hours, and twenty-three.
            ("2026-10-25", "2026-10-25T23:00:00.000Z"),
            ("2026-03-29", "2026-03-29T22:00:00.000Z"),
            ("2026-11-01 08:30", "2026-11-01T07:30:00.000Z"),
            ("12h", "2026-11-16T00:00:00.000Z"),
        ] {
            let until: Since = text.parse().unwrap();
            assert_eq!(until.end(now, &zone).to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn texts_that_are_no_time() {
        for text in ["", "7", "d", "-7d", "+7d", "tomorrow", "2026-13-01", "2026-11"] {
            assert_eq!(text.parse::<Since>(), Err(NotATime), "{text:?}");
        }
        assert_eq!("99999999999999999999d".parse::<Since>(), Err(NotATime));
        assert_eq!("9999999999999999w".parse::<Since>(), Err(NotATime));
    }

    #[test]
    fn an_age_beyond_all_time_is_the_beginning_of_it() {
        let long: Since = "999999999999999s".parse().unwrap();
        assert_eq!(long.before(Timestamp(1_000), &TimeZone::UTC), Timestamp(0));
    }
}

#[cfg(test)]
mod length_tests {
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
