//! Days of the calendar, in any zone.

use std::fmt;

use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};
use types::Timestamp;

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
