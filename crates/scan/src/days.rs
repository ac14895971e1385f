//! Local days. The roll-ups are kept by day, so a scan must know whether the days are still the same ones.

use jiff::tz::TimeZone;

use super::hash::hash;
use os::calendar::{LocalClock, PER_DAY};
use types::Timestamp;

/// The days of one time zone.
#[derive(Debug)]
pub struct Days(LocalClock);

impl Days {
    pub fn of(zone: TimeZone) -> Self {
        Self(LocalClock::of(zone))
    }

    /// The day as a number, counted from 1970-01-01.
    pub(super) fn number(&self, at: Timestamp) -> i32 {
        self.0.quarter(at).div_euclid(PER_DAY)
    }

    /// Zones with the same fingerprint have the same days.
    pub(super) fn fingerprint(&self) -> u64 {
        self.0
            .spans()
            .iter()
            .fold(0, |print, (from, ahead)| hash(hash(print, &from.to_le_bytes()), &ahead.to_le_bytes()))
    }

    /// Whether a clock has these days.
    pub(super) fn are_of(&self, clock: &LocalClock) -> bool {
        self.0.spans() == clock.spans()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_zone_has_another_fingerprint() {
        let zones = ["CET-1CEST,M3.5.0,M10.5.0/3", "CET-1", "UTC0", "EST5EDT,M3.2.0,M11.1.0"];
        let mut prints: Vec<_> =
            zones.iter().map(|zone| Days::of(TimeZone::posix(zone).unwrap()).fingerprint()).collect();
        assert_eq!(Days::of(TimeZone::UTC).fingerprint(), prints[2]);
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), zones.len());
    }
}
