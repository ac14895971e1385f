//! The day, the week or the month that a moment lies in, by the calendar of a time zone.

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::Per;
use types::Timestamp;

/// A stretch of the calendar. Its first moment belongs to it, its end does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// As keys of `usage` are written: `2026-11-17`, `2026-W47`, `2026-11`.
    pub span: String,
    pub begin: Timestamp,
    pub end: Timestamp,
}

impl Window {
    /// `None` for a session, which is no stretch of the calendar, and for moments beyond it.
    pub fn of(per: Per, now: Timestamp, zone: &TimeZone) -> Option<Self> {
        let today = zone.to_datetime(jiff::Timestamp::from_millisecond(now.0).ok()?).date();
        let (first, next) = match per {
            Per::Session => return None,
            Per::Day => (today, today.tomorrow().ok()?),
            Per::Week => {
                let monday = today.checked_sub(today.weekday().to_monday_zero_offset().days()).ok()?;
                (monday, monday.checked_add(7.days()).ok()?)
            }
            Per::Month => {
                let first = today.first_of_month();
                (first, first.checked_add(1.month()).ok()?)
            }
        };
        let span = match per {
            Per::Session | Per::Day => first.to_string(),
            Per::Week => {
                let week = first.iso_week_date();
                format!("{}-W{:02}", week.year(), week.week())
            }
            Per::Month => format!("{:04}-{:02}", first.year(), first.month()),
        };
        Some(Self { span, begin: midnight(first, zone)?, end: midnight(next, zone)? })
    }
}

/// The first moment of a day: where clocks go forward at midnight, that is one o'clock.
fn midnight(day: Date, zone: &TimeZone) -> Option<Timestamp> {
    Some(Timestamp(day.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(rule: &str) -> TimeZone {
        TimeZone::posix(rule).unwrap()
    }

    #[test]
    fn days_weeks_and_months_by_the_calendar_of_the_zone() {
        const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
        // Clocks go forward at midnight there, so that one day begins at one o'clock.
        const HAVANA: &str = "CST5CDT,M3.2.0/0,M11.1.0/1";
        const KATHMANDU: &str = "<+0545>-5:45";
        for (rule, per, now, span, begin, end) in [
            (
                "UTC0",
                Per::Day,
                "2026-11-17T00:00:00Z",
                "2026-11-17",
                "2026-11-17T00:00:00Z",
                "2026-11-18T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Day,
                "2026-11-17T23:59:59.999Z",
                "2026-11-17",
                "2026-11-17T00:00:00Z",
                "2026-11-18T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Week,
                "2026-11-17T12:00:00Z",
                "2026-W47",
                "2026-11-16T00:00:00Z",
                "2026-11-23T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Week,
                "2026-11-22T23:00:00Z",
                "2026-W47",
                "2026-11-16T00:00:00Z",
                "2026-11-23T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Week,
                "2027-01-01T00:00:00Z",
                "2026-W53",
                "2026-12-28T00:00:00Z",
                "2027-01-04T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Month,
                "2026-12-31T23:00:00Z",
                "2026-12",
                "2026-12-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            // The zone's day, not UTC's.
            (
                BERLIN,
                Per::Day,
                "2026-11-16T23:30:00Z",
                "2026-11-17",
                "2026-11-16T23:00:00Z",
                "2026-11-17T23:00:00Z",
            ),
            (
                KATHMANDU,
                Per::Day,
                "2026-11-17T18:20:00Z",
                "2026-11-18",
                "2026-11-17T18:15:00Z",
                "2026-11-18T18:15:00Z",
            ),
            // The days of 23 and of 25 hours.
            (
                BERLIN,
                Per::Day,
                "2026-03-29T12:00:00Z",
                "2026-03-29",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            (
                BERLIN,
                Per::Day,
                "2026-10-25T12:00:00Z",
                "2026-10-25",
                "2026-10-24T22:00:00Z",
                "2026-10-25T23:00:00Z",
            ),
            (
                BERLIN,
                Per::Week,
                "2026-03-29T12:00:00Z",
                "2026-W13",
                "2026-03-22T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            (
                BERLIN,
                Per::Month,
                "2026-10-31T12:00:00Z",
                "2026-10",
                "2026-09-30T22:00:00Z",
                "2026-10-31T23:00:00Z",
            ),
            (
                HAVANA,
                Per::Day,
                "2026-03-08T12:00:00Z",
                "2026-03-08",
                "2026-03-08T05:00:00Z",
                "2026-03-09T04:00:00Z",
            ),
        ] {
            let at = |text: &str| Timestamp::parse(text).unwrap();
            let expected = Window { span: span.into(), begin: at(begin), end: at(end) };
            assert_eq!(Window::of(per, at(now), &zone(rule)), Some(expected), "{rule} {per} {now}");
        }
        assert_eq!(Window::of(Per::Session, Timestamp(0), &TimeZone::UTC), None);
        assert_eq!(Window::of(Per::Day, Timestamp(i64::MAX), &TimeZone::UTC), None);
    }
}
