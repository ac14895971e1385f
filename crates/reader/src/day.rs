//! Days of the calendar, in any zone.

use std::fmt;

use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};
use types::{Span, Timestamp};

/// A day of the calendar, counted from 1970-01-01. Without a zone it is one of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i32);

impl Day {
    pub fn of(time: Timestamp) -> Self {
        Self(i32::try_from(time.0.div_euclid(86_400_000)).unwrap_or(i32::MAX))
    }

    pub fn start(self) -> Timestamp {
        Timestamp(i64::from(self.0) * 86_400_000)
    }

    /// The day that it is in a zone.
    pub fn of_in(time: Timestamp, zone: &TimeZone) -> Self {
        let at = jiff::Timestamp::from_millisecond(time.0).unwrap_or_default();
        Self::of(Timestamp(time.0.saturating_add(i64::from(zone.to_offset(at).seconds()) * 1000)))
    }

    /// When it begins in a zone.
    pub fn start_in(self, zone: &TimeZone) -> Timestamp {
        let start = self.date().to_zoned(zone.clone());
        start.map_or_else(|_| self.start(), |start| Timestamp(start.timestamp().as_millisecond()))
    }

    /// When the next one begins in a zone; `None` at the end of the calendar.
    fn end_in(self, zone: &TimeZone) -> Option<Timestamp> {
        let next = Self(self.0.checked_add(1)?);
        (Self::of_date(next.date()) == next).then(|| next.start_in(zone))
    }

    /// From the beginning of the first day to the end of the last one, in a zone.
    pub fn span_in(first: Option<Self>, last: Option<Self>, zone: &TimeZone) -> Span {
        let since = first.map(|day| day.start_in(zone));
        Span { since, until: last.and_then(|day| day.end_in(zone)) }
    }

    /// The same day of the calendar.
    pub fn of_date(date: jiff::civil::Date) -> Self {
        let start = date.to_zoned(TimeZone::UTC).map(|start| start.timestamp().as_millisecond());
        Self::of(Timestamp(start.unwrap_or_default()))
    }

    /// `2026-11-16`.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::of_date)
    }

    pub fn date(self) -> jiff::civil::Date {
        let start = jiff::Timestamp::from_millisecond(self.start().0).unwrap_or_default();
        start.to_zoned(TimeZone::UTC).date()
    }
}

/// Milliseconds.
const QUARTER_MS: i64 = 900_000;
/// Of a day of UTC.
pub const QUARTERS_OF_A_DAY: i64 = 96;

/// A quarter of an hour, counted from 1970-01-01 00:00 UTC. Zones differ from UTC by quarters, so the days of any zone are made of
/// whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quarter(pub i64);

impl Quarter {
    pub fn of(time: Timestamp) -> Self {
        Self(time.0.div_euclid(QUARTER_MS))
    }

    pub fn start(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(QUARTER_MS))
    }

    /// The first one of a day in a zone.
    pub fn first_of(day: Day, zone: &TimeZone) -> Self {
        Self::of(day.start_in(zone))
    }

    /// The first one of these days of a zone, both included, and the first one after them; open where there is no day.
    pub fn of_days(since: Option<Day>, until: Option<Day>, zone: &TimeZone) -> (Option<Self>, Option<Self>) {
        let first = |day| Self::first_of(day, zone);
        (since.map(first), until.map(|Day(day)| first(Day(day.saturating_add(1)))))
    }

    /// The day of UTC that it is in.
    pub fn day(self) -> Day {
        Day(i32::try_from(self.0.div_euclid(QUARTERS_OF_A_DAY)).unwrap_or(i32::MAX))
    }

    /// The first one of a day of UTC.
    pub fn of_day(Day(day): Day) -> Self {
        Self(i64::from(day) * QUARTERS_OF_A_DAY)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start().to_string();
        f.write_str(start.split('T').next().unwrap_or_default())
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_a_span_that_ends_with_the_last_one() {
        let zone = TimeZone::fixed(jiff::tz::Offset::from_seconds(20_700).unwrap());
        let span = |first, last| Day::span_in(Day::parse(first), Day::parse(last), &zone);
        let days = span("2026-11-01", "2026-11-02");
        assert_eq!(days.since.unwrap().to_string(), "2026-10-31T18:15:00.000Z");
        assert_eq!(days.until.unwrap().to_string(), "2026-11-02T18:15:00.000Z");
        assert_eq!(span("", "9999-12-30"), Span::default(), "the calendar has no later day");
    }
}
