//! A moment, in the one form that the store, the records and the events have.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, the only form of time in the store and in published records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Parses the RFC 3339 form that all three agents write (`2026-11-15T23:45:44.931Z`).
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|at| Self(at.as_millisecond()))
    }

    /// Whether it is from 1970 to 2199, as receivers require. Files of others may hold any time, and clocks may be wrong; a chart
    /// over ten thousand years would be useless.
    pub fn is_a_date(self) -> bool {
        (0..=7_258_118_399_999).contains(&self.0)
    }

    /// This moment plus `time`.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Time since `earlier`; zero when the clock was set back in between.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A time before 1970 becomes the beginning of 1970.
impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Self {
        Self(0).after(at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
    }
}

/// RFC 3339 in UTC with milliseconds, as events carry it.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_what_the_agents_write() {
        let at = Timestamp::parse("2026-11-15T23:45:44.931Z").unwrap();
        assert_eq!(at.to_string(), "2026-11-15T23:45:44.931Z");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn times_beyond_the_edges_are_held_there() {
        assert_eq!(Timestamp(5).after(Duration::from_micros(4999)), Timestamp(9));
        assert_eq!(Timestamp(5).after(Duration::MAX), Timestamp(i64::MAX));
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_nanos(7_999_999)), Timestamp(7));
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)), Timestamp(0));
    }

    #[test]
    fn a_clock_set_back_gives_no_negative_duration() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(9).since(Timestamp(5)), Duration::from_millis(4));
    }
}
