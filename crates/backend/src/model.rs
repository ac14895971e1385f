//! The read model: sessions as their events describe them, sums, the feed, the state of delivery.

mod query;
mod record;
mod session;
mod slot;

use std::fmt;

use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};

pub use query::{
    ActivityBucket, By, Counted, Cursor, Order, OrderBy, OrderKey, Page, SessionFilter, SessionPage,
    TimelinePosition, UsageFilter,
};
pub use record::Record;
pub use session::{Dimensions, Latest, Life, Session};
pub use slot::{Moved, QUARTERS, Quarter, RowRange, SumRow, covering, moved};

use super::numbers::Numbers;
use types::Timestamp;
use types::event::{Attributes, Tool};
use types::{EventKind, EventType};

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

    pub(super) fn date(self) -> jiff::civil::Date {
        let start = jiff::Timestamp::from_millisecond(self.start().0).unwrap_or_default();
        start.to_zoned(TimeZone::UTC).date()
    }
}

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

/// Sums over many sessions. The cost has a field of its own: 64 bits of pico-dollars hold nine million dollars at most, and a
/// large team spends more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageSums {
    /// Its `cost` is zero.
    pub counts: Numbers,
    pub cost_usd: f64,
}

impl UsageSums {
    /// Everything billed.
    pub fn tokens(&self) -> i64 {
        self.counts.tokens()
    }

    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.cost_usd += other.cost_usd;
    }

    /// What takes these sums away again when it is added.
    #[must_use]
    pub fn negated(&self) -> Self {
        let mut counts = Numbers::default();
        counts.subtract(&self.counts);
        Self { counts, cost_usd: -self.cost_usd }
    }

    /// Without what adding and subtracting floats leaves beside the sum: money is whole pico-dollars.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { cost_usd: (self.cost_usd * 1e12).round() / 1e12 + 0.0, ..self }
    }
}

/// One line of usage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageRow {
    /// The day, model, project, …; empty where it is not known. By session: the agent's session id, or ours if unknown.
    pub key: String,
    /// `None` where several agents share the key.
    pub agent: Option<String>,
    /// By session: our id.
    pub session_id: Option<String>,
    pub sums: UsageSums,
    /// Models without a price: their calls are in the tokens, not in the cost.
    pub unpriced_models: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsagePage {
    pub rows: Vec<UsageRow>,
    /// There are more than were asked for: earlier days, or keys with less cost.
    pub more: bool,
}

/// One point of a chart: a day, and one value of what it is split by.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesRow {
    pub day: Day,
    pub key: String,
    pub sums: UsageSums,
}

/// What calls are spent on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpendingKey {
    pub agent: String,
    pub model: String,
    /// Empty where it is not known.
    pub project: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpendingRow {
    pub key: SpendingKey,
    pub sums: UsageSums,
}

/// Everything that happened within one hour of the week.
#[derive(Clone, Debug, PartialEq)]
pub struct HourRow {
    /// 0 is Monday.
    pub weekday: i8,
    pub hour: i8,
    pub sums: UsageSums,
}

/// The calls of one model in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRow {
    pub model: String,
    pub numbers: Numbers,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolNumbers {
    pub calls: i64,
    pub errors: i64,
    pub lines_added: i64,
    pub lines_removed: i64,
}

impl ToolNumbers {
    pub fn of(tool: &Tool) -> Self {
        Self {
            calls: 1,
            errors: i64::from(tool.ok == Some(false)),
            lines_added: tool.lines_added.get(),
            lines_removed: tool.lines_removed.get(),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.lines_added += other.lines_added;
        self.lines_removed += other.lines_removed;
    }

    pub fn subtract(&mut self, other: &Self) {
        self.calls -= other.calls;
        self.errors -= other.errors;
        self.lines_added -= other.lines_added;
        self.lines_removed -= other.lines_removed;
    }
}

/// The calls of one tool in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRow {
    pub name: String,
    /// `read`, `write`, `edit`, `exec`, `other`; empty where it is not known.
    pub kind: String,
    pub numbers: ToolNumbers,
}

/// One event of a session's timeline, in the order of `seq`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEvent {
    pub seq: i64,
    pub rev: i64,
    #[serde(rename = "type")]
    pub kind: EventKind,
    pub time: Timestamp,
    #[serde(serialize_with = "types::event::keep")]
    pub attributes: Attributes,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TimelinePage {
    pub events: Vec<TimelineEvent>,
    /// Where the next page begins, if there is more.
    pub next: Option<TimelinePosition>,
}

/// One session with everything that its page shows, except its timeline, which is paged.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionDetail {
    pub session: Session,
    pub models: Vec<ModelRow>,
    pub tools: Vec<ToolRow>,
    /// Its STARTs, bounds and ENDs, in the order of `seq`: the openings.
    pub openings: Vec<TimelineEvent>,
    /// The sessions of its `/clear` chain, oldest first, itself among them.
    pub chain: Vec<Session>,
    pub parent: Option<Session>,
    /// Sessions started from inside it, newest first; at most a hundred.
    pub children: Vec<Session>,
}

/// Where events come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    pub machine: Option<String>,
    pub user: Option<String>,
    pub first_received_at: Timestamp,
    pub last_received_at: Timestamp,
    /// Events taken in, each once, however often it was sent or revised.
    pub events: i64,
}

/// The state of delivery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Sessions with a missing `seq`, the last received first, as many as were asked for.
    pub gaps: Vec<Session>,
    pub gap_count: i64,
    pub origins: Vec<Origin>,
    pub sessions: i64,
    pub active: i64,
}

/// The values there are, for the menus of filters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facets {
    pub agents: Vec<String>,
    pub models: Vec<String>,
    pub projects: Vec<String>,
    pub users: Vec<String>,
}

/// A session with a new event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    pub session: String,
    pub latest: EventType,
}

#[cfg(test)]
mod tests {
    use super::*;

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
