//! The pieces of time that sums are kept for: quarters of an hour, days of UTC, months of UTC.
//!
//! Zones differ from UTC by quarters of an hour, so the days of any zone are made of whole quarters. A long span is made of
//! whole months, of the days around them, and of the quarters at its two ends.

use jiff::tz::TimeZone;

use reader::{Day, QUARTERS_OF_A_DAY, Quarter, UsageFilter};
use types::Timestamp;

/// A month of the calendar, counted from January 1970. Sums over a long time are made of whole months, and of days at
/// the ends only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(pub i32);

impl Month {
    pub fn of(day: Day) -> Self {
        let date = day.date();
        Self((i32::from(date.year()) - 1970) * 12 + i32::from(date.month()) - 1)
    }

    pub fn first_day(self) -> Day {
        let year = i16::try_from(1970 + self.0.div_euclid(12)).unwrap_or(i16::MAX);
        let month = i8::try_from(self.0.rem_euclid(12) + 1).unwrap_or(1);
        let first = jiff::civil::Date::new(year, month, 1).unwrap_or(jiff::civil::Date::MAX);
        let start = first.to_zoned(TimeZone::UTC).map(|start| start.timestamp().as_millisecond());
        Day::of(Timestamp(start.unwrap_or(i64::MAX)))
    }
}

/// The rows of the sums over all sessions that something in this quarter belongs to.
pub fn rows_of(quarter: Quarter) -> [SumRow; 3] {
    let day = quarter.day();
    [SumRow::of_quarter(quarter), SumRow::of_day(day), SumRow::of_month(Month::of(day))]
}

/// The first quarter of the days that a filter asks for, and the first one after them.
pub fn quarters_of(filter: &UsageFilter) -> (Option<Quarter>, Option<Quarter>) {
    let (first, last) = filter.days();
    Quarter::of_days(first, last, &filter.zone)
}

/// The number of a row of sums over all sessions. One column names the pieces of time of all three lengths: months are below
/// zero, later ones further down; then come the days; from [`QUARTERS`] on, the quarters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SumRow(pub i64);

/// Far beyond the number of any day (the year 29,000).
pub const QUARTERS: i64 = 10_000_000;

impl SumRow {
    pub fn of_quarter(quarter: Quarter) -> Self {
        Self(QUARTERS.saturating_add(quarter.0.max(0)))
    }

    pub fn of_day(Day(day): Day) -> Self {
        Self(i64::from(day).clamp(0, QUARTERS - 1))
    }

    pub fn of_month(Month(month): Month) -> Self {
        Self(-1 - i64::from(month))
    }
}

/// Rows from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRange {
    pub first: i64,
    pub last: i64,
}

fn days(from: Day, to: Day) -> RowRange {
    RowRange { first: SumRow::of_day(from).0, last: SumRow::of_day(to).0 - 1 }
}

fn quarters(from: Quarter, to: Quarter) -> RowRange {
    RowRange { first: SumRow::of_quarter(from).0, last: SumRow::of_quarter(to).0 - 1 }
}

/// The rows whose sum is everything from one quarter on, up to another one; open where there is none. The rows are as few
/// as possible.
pub fn covering(from: Option<Quarter>, to: Option<Quarter>) -> Vec<RowRange> {
    // The first and the last whole day, and then month.
    let first_day = from.map(|from| match from.day() {
        day if Quarter::of_day(day) == from => day,
        Day(day) => Day(day + 1),
    });
    let end_day = to.map(Quarter::day);
    if let (Some(from), Some(to), Some(first), Some(end)) = (from, to, first_day, end_day)
        && first > end
    {
        return vec![quarters(from, to)];
    }
    let mut rows = Vec::new();
    if let (Some(from), Some(first)) = (from, first_day) {
        rows.push(quarters(from, Quarter::of_day(first)));
    }
    rows.extend(whole_days(first_day, end_day));
    if let (Some(to), Some(end)) = (to, end_day) {
        rows.push(quarters(Quarter::of_day(end), to));
    }
    rows.retain(|row| row.first <= row.last);
    rows
}

/// The same for whole days, up to one that is not included.
fn whole_days(from: Option<Day>, to: Option<Day>) -> Vec<RowRange> {
    let first = from.map(|day| match Month::of(day) {
        month if month.first_day() == day => month,
        Month(month) => Month(month + 1),
    });
    let end = to.map(Month::of);
    if let (Some(from), Some(to), Some(first), Some(end)) = (from, to, first, end)
        && first >= end
    {
        return vec![days(from, to)];
    }
    let mut rows = Vec::new();
    if let (Some(from), Some(first)) = (from, first) {
        rows.push(days(from, first.first_day()));
    }
    rows.push(RowRange {
        first: end.map_or(i64::MIN, |end| SumRow::of_month(end).0 + 1),
        last: first.map_or(-1, |first| SumRow::of_month(first).0),
    });
    if let (Some(to), Some(end)) = (to, end) {
        rows.push(days(end.first_day(), to));
    }
    rows
}

/// Quarters of one day of UTC that belong to another day in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub quarters: RowRange,
    pub from: Day,
    pub to: Day,
}

/// What a zone's days differ by from those of UTC, from one day to another, both included.
pub fn moved(zone: &TimeZone, first: Day, last: Day) -> Vec<Moved> {
    let mut all: Vec<Moved> = Vec::new();
    for day in first.0..=last.0 {
        let utc = Day(day);
        let start = Quarter::of_day(utc);
        let ends = [start, Quarter(start.0 + QUARTERS_OF_A_DAY)];
        if ends.iter().all(|quarter| offset(zone, *quarter) == 0) {
            continue;
        }
        for quarter in (start.0..start.0 + QUARTERS_OF_A_DAY).map(Quarter) {
            let local = Day::of_in(quarter.start(), zone);
            let row = SumRow::of_quarter(quarter).0;
            match all.last_mut() {
                _ if local == utc => {}
                Some(last) if last.from == utc && last.to == local && last.quarters.last + 1 == row => {
                    last.quarters.last = row;
                }
                _ => all.push(Moved { quarters: RowRange { first: row, last: row }, from: utc, to: local }),
            }
        }
    }
    all
}

fn offset(zone: &TimeZone, quarter: Quarter) -> i32 {
    let at = jiff::Timestamp::from_millisecond(quarter.start().0).unwrap_or_default();
    zone.to_offset(at).seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        Day::parse(text).unwrap()
    }

    fn at(text: &str) -> Quarter {
        Quarter::of(Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()))
    }

    /// The rows of three months, in the order of time, that the ranges choose.
    fn chosen(ranges: &[RowRange]) -> Vec<String> {
        let mut found: Vec<(i64, String)> = Vec::new();
        let (first, last) = (Quarter::of_day(day("2026-09-01")), Quarter::of_day(day("2026-12-01")));
        for quarter in (first.0..last.0).map(Quarter) {
            for SumRow(row) in rows_of(quarter) {
                let count = ranges.iter().filter(|range| (range.first..=range.last).contains(&row)).count();
                assert!(count <= 1, "row {row} is chosen twice");
                if count == 1 && !found.iter().any(|(known, _)| *known == row) {
                    found.push((
                        row,
                        match row {
                            ..0 => format!("month {}", &quarter.day().to_string()[..7]),
                            0..QUARTERS => quarter.day().to_string(),
                            _ => quarter.start().to_string()[..16].to_owned(),
                        },
                    ));
                }
            }
        }
        found.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn a_span_is_whole_months_and_the_days_and_quarters_around_them() {
        let span = |from: &str, to: &str| {
            let at = |text: &str| Some(text).filter(|text| !text.is_empty()).map(at);
            chosen(&covering(at(from), at(to)))
        };
        assert_eq!(span("", ""), ["month 2026-09", "month 2026-10", "month 2026-11"]);
        assert_eq!(span("2026-10-01T00:00:00Z", ""), ["month 2026-10", "month 2026-11"]);
        assert_eq!(span("2026-10-31T00:00:00Z", ""), ["2026-10-31", "month 2026-11"]);
        assert_eq!(
            span("2026-10-31T23:30:00Z", ""),
            ["2026-10-31T23:30", "2026-10-31T23:45", "month 2026-11"]
        );
        assert_eq!(span("", "2026-10-02T00:15:00Z"), ["month 2026-09", "2026-10-01", "2026-10-02T00:00"]);
        assert_eq!(
            span("2026-10-01T10:00:00Z", "2026-10-01T10:30:00Z"),
            ["2026-10-01T10:00", "2026-10-01T10:15"]
        );
        assert_eq!(
            span("2026-10-01T23:45:00Z", "2026-10-02T00:15:00Z"),
            ["2026-10-01T23:45", "2026-10-02T00:00"]
        );
        assert_eq!(
            span("2026-09-30T23:45:00Z", "2026-11-01T00:15:00Z"),
            ["2026-09-30T23:45", "month 2026-10", "2026-11-01T00:00"]
        );
        assert_eq!(span("2026-10-05T00:00:00Z", "2026-10-07T00:00:00Z"), ["2026-10-05", "2026-10-06"]);
        assert!(span("2026-10-05T00:00:00Z", "2026-10-05T00:00:00Z").is_empty());
    }

    #[test]
    fn a_zone_moves_the_quarters_at_the_ends_of_a_day() {
        let fixed = |minutes: i32| {
            let offset = jiff::tz::Offset::from_seconds(minutes * 60).unwrap();
            TimeZone::fixed(offset)
        };
        let today = day("2026-11-17");
        let of = |minutes: i32| moved(&fixed(minutes), today, today);
        assert!(of(0).is_empty());
        let row = |text: &str| SumRow::of_quarter(at(text)).0;
        let one = |first: &str, last: &str, to: &str| {
            let quarters = RowRange { first: row(first), last: row(last) };
            vec![Moved { quarters, from: today, to: day(to) }]
        };
        assert_eq!(of(60), one("2026-11-17T23:00:00Z", "2026-11-17T23:45:00Z", "2026-11-18"));
        assert_eq!(of(345), one("2026-11-17T18:15:00Z", "2026-11-17T23:45:00Z", "2026-11-18"), "Nepal");
        assert_eq!(of(-210), one("2026-11-17T00:00:00Z", "2026-11-17T03:15:00Z", "2026-11-16"));
    }

    /// A day's own rows, without what moves out and with what moves in, are its 92 to 100 quarters.
    #[test]
    fn days_in_which_the_clock_changes_have_all_their_quarters() {
        for zone in ["CET-1CEST,M3.5.0,M10.5.0/3", "NZST-12NZDT,M9.5.0,M4.1.0/3", "EST5EDT,M3.2.0,M11.1.0"] {
            let zone = TimeZone::posix(zone).unwrap();
            let (first, last) = (day("2026-03-01"), day("2026-11-30"));
            let all = moved(&zone, Day(first.0 - 1), Day(last.0 + 1));
            for day in (first.0..=last.0).map(Day) {
                let length = |moved: &Moved| moved.quarters.last - moved.quarters.first + 1;
                let out: i64 = all.iter().filter(|moved| moved.from == day).map(length).sum();
                let into: i64 = all.iter().filter(|moved| moved.to == day).map(length).sum();
                let first = |day: Day| Quarter::of(day.start_in(&zone)).0;
                let quarters = first(Day(day.0 + 1)) - first(day);
                assert_eq!(QUARTERS_OF_A_DAY - out + into, quarters, "{day}");
            }
        }
    }

    #[test]
    fn every_day_is_in_its_month() {
        for (day, month, first) in [
            ("1970-01-01", 0, "1970-01-01"),
            ("1970-01-31", 0, "1970-01-01"),
            ("1970-02-01", 1, "1970-02-01"),
            ("2024-02-29", 649, "2024-02-01"),
            ("2026-12-31", 683, "2026-12-01"),
            ("2198-12-31", 2747, "2198-12-01"),
        ] {
            let day = Day::parse(day).unwrap();
            assert_eq!((Month::of(day).0, Month::of(day).first_day().to_string()), (month, first.to_owned()));
            assert_eq!(SumRow::of_month(Month::of(day)), SumRow(-1 - i64::from(month)));
        }
    }
}
