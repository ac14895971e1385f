//! The columns of a chart over time: days, or weeks, months or years where there would be too many.

use jiff::civil::{Date, Weekday};
use jiff::{Span, ToSpan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Day,
    Week,
    Month,
    Year,
}

/// Columns that can still be distinguished and pointed at.
const COLUMNS: i32 = 93;

impl Unit {
    fn for_days(days: i32) -> Self {
        match days {
            ..=COLUMNS => Self::Day,
            d if d <= COLUMNS * 7 => Self::Week,
            d if d <= COLUMNS * 31 => Self::Month,
            _ => Self::Year,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The first day of the unit a day is in.
    fn start(self, day: Date) -> Date {
        match self {
            Self::Day => day,
            Self::Week => {
                let back = i64::from(day.weekday().since(Weekday::Monday));
                day.checked_sub(back.days()).unwrap_or(day)
            }
            Self::Month => day.first_of_month(),
            Self::Year => day.first_of_year(),
        }
    }

    fn span(self) -> Span {
        match self {
            Self::Day => 1.day(),
            Self::Week => 1.week(),
            Self::Month => 1.month(),
            Self::Year => 1.year(),
        }
    }
}

/// The columns from one day to another, both included, each as its first and last day; those at the ends may be partial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeColumns {
    pub unit: Unit,
    pub spans: Vec<(Date, Date)>,
}

impl TimeColumns {
    /// From and to the days that were asked for, or as far as there are numbers; never into a future without numbers,
    /// and never over more years than can be distinguished.
    pub fn covering(
        (first, last): (Option<Date>, Option<Date>),
        days: impl Iterator<Item = Date> + Clone,
        today: Date,
    ) -> Self {
        let latest = days.clone().max().map_or(today, |day| day.max(today));
        let last = last.map_or(latest, |last| last.min(latest));
        let first = first.or_else(|| days.min()).unwrap_or(today);
        let reach = last.checked_sub((COLUMNS - 1).years()).unwrap_or(Date::MIN);
        Self::between(first.max(reach), last)
    }

    pub fn between(first: Date, last: Date) -> Self {
        let days = first.until(last).map_or(0, |span| span.get_days());
        let unit = Unit::for_days(days + 1);
        let mut spans = Vec::new();
        let mut start = unit.start(first);
        while start <= last {
            let Ok(next) = start.checked_add(unit.span()) else { break };
            spans.push((start.max(first), next.yesterday().unwrap_or(next).min(last)));
            start = next;
        }
        Self { unit, spans }
    }

    /// Which column a day belongs to.
    pub fn of(&self, day: Date) -> Option<usize> {
        let at = self.spans.partition_point(|(_, last)| *last < day);
        self.spans.get(at).filter(|(first, _)| *first <= day).map(|_| at)
    }
}

/// The label below a column.
pub fn label(unit: Unit, first: Date) -> String {
    let format = match unit {
        Unit::Day | Unit::Week => "%-d %b",
        Unit::Month => "%b %Y",
        Unit::Year => "%Y",
    };
    first.strftime(format).to_string()
}

/// The days of a column, in full.
pub fn title(first: Date, last: Date) -> String {
    let format = "%a %-d %b %Y";
    if first == last {
        return first.strftime(format).to_string();
    }
    format!("{} to {}", first.strftime(format), last.strftime(format))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn few_days_are_days_and_many_are_weeks_months_or_years() {
        for (first, last, unit, columns) in [
            (date(2026, 11, 16), date(2026, 11, 16), Unit::Day, 1),
            (date(2026, 10, 18), date(2026, 11, 16), Unit::Day, 30),
            (date(2025, 11, 17), date(2026, 11, 16), Unit::Week, 53),
            (date(2020, 1, 1), date(2026, 11, 16), Unit::Month, 83),
            (date(2000, 5, 1), date(2026, 11, 16), Unit::Year, 27),
            (date(2026, 11, 17), date(2026, 11, 16), Unit::Day, 0),
        ] {
            let made = TimeColumns::between(first, last);
            assert_eq!((made.unit, made.spans.len()), (unit, columns), "{first} to {last}");
            if columns > 0 {
                assert_eq!((made.spans[0].0, made.spans[columns - 1].1), (first, last));
            }
        }
    }

    #[test]
    fn the_days_asked_for_are_covered_within_reason() {
        let today = date(2026, 11, 16);
        let days = [date(2026, 11, 3), date(2026, 11, 9)];
        for (asked, days, expected) in [
            ((None, None), &days[..], (Unit::Day, 14, date(2026, 11, 3), today)),
            ((None, None), &[], (Unit::Day, 1, today, today)),
            ((Some(date(2026, 11, 1)), None), &days, (Unit::Day, 16, date(2026, 11, 1), today)),
            ((None, Some(date(2026, 11, 5))), &days, (Unit::Day, 3, date(2026, 11, 3), date(2026, 11, 5))),
            ((None, None), &[date(2026, 12, 1)], (Unit::Day, 1, date(2026, 12, 1), date(2026, 12, 1))),
            ((Some(Date::MIN), Some(Date::MAX)), &days, (Unit::Year, 93, date(1934, 11, 16), today)),
            ((None, None), &[date(1, 1, 1)], (Unit::Year, 93, date(1934, 11, 16), today)),
        ] {
            let TimeColumns { unit, spans } = TimeColumns::covering(asked, days.iter().copied(), today);
            let (first, last) = (spans[0].0, spans[spans.len() - 1].1);
            assert_eq!((unit, spans.len(), first, last), expected, "{asked:?} {days:?}");
        }
        let future = (Some(date(9000, 1, 1)), Some(date(9000, 2, 1)));
        assert!(TimeColumns::covering(future, days.into_iter(), today).spans.is_empty());
    }

    #[test]
    fn every_day_is_in_exactly_one_column() {
        let (first, last) = (date(2025, 2, 25), date(2026, 3, 5));
        let columns = TimeColumns::between(first, last);
        let mut day = first;
        while day <= last {
            let at = columns.of(day).unwrap();
            let inside = columns.spans.iter().filter(|(first, last)| (*first..=*last).contains(&day)).count();
            assert_eq!(inside, 1, "{day}");
            assert!((columns.spans[at].0..=columns.spans[at].1).contains(&day), "{day}");
            day = day.tomorrow().unwrap();
        }
        assert_eq!(columns.of(date(2025, 2, 24)), None);
        assert_eq!(columns.of(day), None);
    }

    #[test]
    fn labels_and_titles_of_columns() {
        let (monday, sunday) = (date(2026, 11, 16), date(2026, 11, 22));
        assert_eq!(label(Unit::Week, monday), "16 Nov");
        assert_eq!(label(Unit::Month, monday), "Nov 2026");
        assert_eq!(title(monday, monday), "Mon 16 Nov 2026");
        assert_eq!(title(monday, sunday), "Mon 16 Nov 2026 to Sun 22 Nov 2026");
    }
}
