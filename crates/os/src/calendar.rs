//! Days, hours, weeks and months of one time zone.
//!
//! A moment becomes a local quarter of an hour, counted from the beginning of 1970 as the zone's own clocks show it. Clocks
//! differ from each other by whole quarters, so sums by quarter can be added up to the hours, days, weeks and months of any
//! zone. Where a clock is set back, the hour that comes twice is one.

use jiff::Timestamp as Instant;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use types::Timestamp;

const QUARTER: i64 = 900_000;

/// Quarters of a day.
pub const PER_DAY: i32 = 96;

/// Years whose changes of the clock are looked up once. Outside of them, every time is looked up by itself.
const YEARS: (&str, &str) = ("2020-01-01T00:00:00Z", "2050-01-01T00:00:00Z");

/// From moments to what the clocks of one time zone show.
#[derive(Clone, Debug)]
pub struct LocalClock {
    zone: TimeZone,
    /// From when on, in milliseconds, the clock was this far ahead.
    spans: Vec<(i64, i64)>,
    until: i64,
}

impl LocalClock {
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

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Clocks with the same spans show the same.
    pub fn spans(&self) -> &[(i64, i64)] {
        &self.spans
    }

    /// The local quarter of an hour, as a number.
    pub fn quarter(&self, at: Timestamp) -> i32 {
        let ahead = if at.0 >= self.spans[0].0 && at.0 < self.until {
            self.spans[self.spans.partition_point(|span| span.0 <= at.0) - 1].1
        } else {
            Instant::from_millisecond(at.0)
                .map_or(0, |at| i64::from(self.zone.to_offset(at).seconds()) * 1000)
        };
        let quarter = at.0.saturating_add(ahead).div_euclid(QUARTER);
        i32::try_from(quarter).unwrap_or(if quarter < 0 { i32::MIN } else { i32::MAX })
    }
}

/// The first quarter of the hour that holds `quarter`.
pub fn start_of_hour(quarter: i32) -> i32 {
    quarter.div_euclid(4).saturating_mul(4)
}

pub fn start_of_day(quarter: i32) -> i32 {
    quarter.div_euclid(PER_DAY).saturating_mul(PER_DAY)
}

/// Of its Monday.
pub fn start_of_week(quarter: i32) -> i32 {
    // 1970 began on a Thursday.
    let monday = (quarter.div_euclid(PER_DAY) + 3).div_euclid(7) * 7 - 3;
    monday.saturating_mul(PER_DAY)
}

pub fn start_of_month(quarter: i32) -> i32 {
    let before = date(quarter).map_or(0, |date| i32::from(date.day()) - 1);
    (quarter.div_euclid(PER_DAY) - before).saturating_mul(PER_DAY)
}

/// `2026-11-17T14`
pub fn hour(quarter: i32) -> String {
    format!("{}T{:02}", day(quarter), quarter.rem_euclid(PER_DAY) / 4)
}

/// `2026-11-17`
pub fn day(quarter: i32) -> String {
    date(quarter).map_or_else(|| no_date(quarter), |date| date.to_string())
}

/// `2026-W47`: weeks begin on Monday, and belong to the year that has their Thursday (ISO 8601).
pub fn week(quarter: i32) -> String {
    date(quarter).map_or_else(
        || no_date(quarter),
        |date| {
            let week = date.iso_week_date();
            format!("{}-W{:02}", week.year(), week.week())
        },
    )
}

/// `2026-11`
pub fn month(quarter: i32) -> String {
    date(quarter).map_or_else(|| no_date(quarter), |date| format!("{:04}-{:02}", date.year(), date.month()))
}

fn date(quarter: i32) -> Option<Date> {
    let seconds = i64::from(quarter) * (QUARTER / 1000);
    Instant::from_second(seconds).ok().map(|at| at.to_zoned(TimeZone::UTC).date())
}

/// A time in a file may be any number.
fn no_date(quarter: i32) -> String {
    format!("day {}", quarter.div_euclid(PER_DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarter(zone: &str, at: &str) -> i32 {
        LocalClock::of(TimeZone::posix(zone).unwrap()).quarter(Timestamp::parse(at).unwrap())
    }

    #[test]
    fn hours_and_days_are_local_and_clocks_change() {
        const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
        for (zone, at, expected) in [
            (BERLIN, "2026-07-01T21:59:59Z", "2026-07-01T23"),
            (BERLIN, "2026-07-01T22:00:00Z", "2026-07-02T00"),
            (BERLIN, "2026-11-15T22:59:59Z", "2026-11-15T23"),
            (BERLIN, "2026-11-15T23:00:00Z", "2026-11-16T00"),
            // 02:00 is skipped in March, and comes twice in October.
            (BERLIN, "2026-03-29T00:59:59Z", "2026-03-29T01"),
            (BERLIN, "2026-03-29T01:00:00Z", "2026-03-29T03"),
            (BERLIN, "2026-10-25T00:30:00Z", "2026-10-25T02"),
            (BERLIN, "2026-10-25T01:30:00Z", "2026-10-25T02"),
            (BERLIN, "1969-12-31T22:59:00Z", "1969-12-31T23"),
            (BERLIN, "2055-07-01T22:00:00Z", "2055-07-02T00"),
            ("UTC0", "2026-11-15T23:59:59Z", "2026-11-15T23"),
            // Clocks that are a quarter and a half of an hour off.
            ("<+0545>-5:45", "2026-11-15T18:14:59Z", "2026-11-15T23"),
            ("<+0545>-5:45", "2026-11-15T18:15:00Z", "2026-11-16T00"),
            ("<-0330>3:30", "2026-11-15T03:29:59Z", "2026-11-14T23"),
        ] {
            assert_eq!(hour(quarter(zone, at)), expected, "{at} in {zone}");
        }
    }

    #[test]
    fn weeks_are_those_of_iso_8601() {
        for (at, week_of, month_of) in [
            ("2026-11-16T00:00:00Z", "2026-W47", "2026-11"),
            ("2026-11-15T23:59:59Z", "2026-W46", "2026-11"),
            ("2024-12-29T12:00:00Z", "2024-W52", "2024-12"),
            ("2024-12-30T12:00:00Z", "2025-W01", "2024-12"),
            ("2026-12-31T12:00:00Z", "2026-W53", "2026-12"),
            ("2027-01-03T12:00:00Z", "2026-W53", "2027-01"),
            ("2027-01-04T00:00:00Z", "2027-W01", "2027-01"),
            ("2023-01-01T12:00:00Z", "2022-W52", "2023-01"),
        ] {
            let quarter = quarter("UTC0", at);
            let (monday, first) = (start_of_week(quarter), start_of_month(quarter));
            assert_eq!((week(monday), month(first)), (week(quarter), month(quarter)), "{at}");
            assert_ne!((week(monday - 1), month(first - 1)), (week(quarter), month(quarter)), "{at}");
            assert!(quarter - monday < 7 * PER_DAY && day(first).ends_with("-01"), "{at}");
            assert_eq!((week(quarter), month(quarter)), (week_of.into(), month_of.into()), "{at}");
        }
    }

    #[test]
    fn a_time_beyond_all_calendars_has_a_name_all_the_same() {
        let clock = LocalClock::of(TimeZone::UTC);
        for at in [i64::MAX, i64::MIN] {
            let quarter = clock.quarter(Timestamp(at));
            assert!([hour, day, week, month].iter().all(|name| !name(quarter).is_empty()));
        }
    }
}
