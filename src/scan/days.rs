//! Local days. The roll-ups are kept by day, so a scan must know whether the days are still the same ones.

use jiff::Timestamp as Instant;
use jiff::tz::TimeZone;

use super::hash::hash;
use wire::Timestamp;

const DAY: i64 = 24 * 3_600_000;

/// Years whose changes of the clock are looked up once. Outside of them, every time is looked up by itself.
const YEARS: (&str, &str) = ("2020-01-01T00:00:00Z", "2050-01-01T00:00:00Z");

/// From times to days of one time zone.
#[derive(Debug)]
pub struct Days {
    zone: TimeZone,
    /// From when on, in milliseconds, the clock was this far ahead.
    spans: Vec<(i64, i64)>,
    until: i64,
}

impl Days {
    pub fn of(zone: TimeZone) -> Self {
        let [from, until] = [YEARS.0, YEARS.1].map(|at| at.parse::<Instant>().unwrap_or(Instant::UNIX_EPOCH));
        let ahead = |seconds: i32| i64::from(seconds) * 1000;
        let mut spans = vec![(from.as_millisecond(), ahead(zone.to_offset(from).seconds()))];
        let changes = zone.following(from).take_while(|change| change.timestamp() < until);
        spans.extend(
            changes.map(|change| (change.timestamp().as_millisecond(), ahead(change.offset().seconds()))),
        );
        Self { zone, spans, until: until.as_millisecond() }
    }

    /// The day as a number, counted from 1970-01-01.
    pub(super) fn number(&self, at: Timestamp) -> i32 {
        let ahead = if at.0 >= self.spans[0].0 && at.0 < self.until {
            self.spans[self.spans.partition_point(|span| span.0 <= at.0) - 1].1
        } else {
            Instant::from_millisecond(at.0)
                .map_or(0, |at| i64::from(self.zone.to_offset(at).seconds()) * 1000)
        };
        i32::try_from(at.0.saturating_add(ahead).div_euclid(DAY)).unwrap_or(i32::MAX)
    }

    /// Zones with the same fingerprint have the same days.
    pub(super) fn fingerprint(&self) -> u64 {
        self.spans
            .iter()
            .fold(0, |print, (from, ahead)| hash(hash(print, &from.to_le_bytes()), &ahead.to_le_bytes()))
    }
}

/// As `2026-11-16`.
pub(super) fn name(day: i32) -> String {
    Instant::from_millisecond(i64::from(day).saturating_mul(DAY))
        .map_or_else(|_| format!("day {day}"), |at| at.to_zoned(TimeZone::UTC).date().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(zone: &TimeZone, at: &str) -> String {
        name(Days::of(zone.clone()).number(Timestamp::parse(at).unwrap()))
    }

    #[test]
    fn a_day_is_the_local_one_and_clocks_change() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (at, expected) in [
            ("2026-07-01T21:59:59Z", "2026-07-01"),
            ("2026-07-01T22:00:00Z", "2026-07-02"),
            ("2026-11-15T22:59:59Z", "2026-11-15"),
            ("2026-11-15T23:00:00Z", "2026-11-16"),
            ("1969-12-31T22:59:00Z", "1969-12-31"),
            ("1969-12-31T23:00:00Z", "1970-01-01"),
            ("2055-07-01T22:00:00Z", "2055-07-02"),
        ] {
            assert_eq!(day(&berlin, at), expected, "{at}");
        }
        assert_eq!(day(&TimeZone::UTC, "2026-11-15T23:59:59Z"), "2026-11-15");
    }

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
