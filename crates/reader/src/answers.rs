//! What is answered: sums, one session with what is around it, the state of delivery, the values to filter by.

use std::collections::BTreeMap;
use std::ops::Range;

use jiff::tz::TimeZone;
use serde::Serialize;
use types::event::{Attributes, Tool};
use types::{EventKind, EventType, Timestamp};

use crate::day::{Day, Quarter};
use crate::numbers::Numbers;
use crate::query::TimelinePosition;
use crate::session::Session;

/// Sums over many sessions. The cost has a field of its own: 64 bits of pico-dollars hold nine million dollars at most, and a
/// large team spends more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageSums {
    /// Its `cost` is zero.
    pub counts: Numbers,
    pub cost_usd: f64,
}

impl UsageSums {
    pub fn of(numbers: &Numbers) -> Self {
        Self { counts: Numbers { cost: 0, cost_carried: 0, ..*numbers }, cost_usd: numbers.dollars() }
    }

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

impl UsagePage {
    /// The newest days, given in order, from the sums of each day by agent and by model.
    pub fn of_days(of_agents: Vec<SeriesRow>, of_models: Vec<SeriesRow>, wanted: Range<usize>) -> Self {
        let mut days: BTreeMap<Day, UsageRow> = BTreeMap::new();
        for row in of_agents {
            let day = days.entry(row.day).or_insert_with(|| UsageRow {
                key: row.day.to_string(),
                agent: Some(row.key.clone()),
                ..UsageRow::default()
            });
            day.sums.add(&row.sums);
            if day.agent.as_ref() != Some(&row.key) {
                day.agent = None;
            }
        }
        for row in of_models.into_iter().filter(|row| row.sums.counts.unpriced_calls > 0) {
            if let Some(day) = days.get_mut(&row.day) {
                day.unpriced_models.push(row.key);
            }
        }
        let more = days.len() > wanted.end;
        let newest = days.into_values().rev().skip(wanted.start).take(wanted.len());
        let mut rows: Vec<UsageRow> = newest.collect();
        rows.reverse();
        Self { rows, more }
    }
}

/// One point of a chart: a day, and one value of what it is split by.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesRow {
    pub day: Day,
    pub key: String,
    pub sums: UsageSums,
}

impl SeriesRow {
    /// Parts added up by day and key, in that order; of days between these, both included, and nothing that comes to zero.
    pub fn summed(
        parts: impl IntoIterator<Item = Self>,
        since: Option<Day>,
        until: Option<Day>,
    ) -> Vec<Self> {
        let mut sums: BTreeMap<(Day, String), UsageSums> = BTreeMap::new();
        for Self { day, key, sums: part } in parts {
            sums.entry((day, key)).or_default().add(&part);
        }
        let within =
            |day: Day| since.is_none_or(|since| day >= since) && until.is_none_or(|until| day <= until);
        let rows = sums.into_iter().map(|((day, key), sums)| Self { day, key, sums: sums.exact() });
        rows.filter(|row| within(row.day) && row.sums != UsageSums::default()).collect()
    }
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

impl HourRow {
    /// Sums of quarters of an hour added up by the hour of the week in a zone.
    pub fn summed(quarters: impl IntoIterator<Item = (Quarter, UsageSums)>, zone: &TimeZone) -> Vec<Self> {
        let mut hours: BTreeMap<(i8, i8), UsageSums> = BTreeMap::new();
        for (quarter, sums) in quarters {
            let at = jiff::Timestamp::from_millisecond(quarter.start().0).unwrap_or_default();
            let local = zone.to_datetime(at);
            let weekday = local.weekday().to_monday_zero_offset();
            hours.entry((weekday, local.hour())).or_default().add(&sums);
        }
        hours.into_iter().map(|((weekday, hour), sums)| Self { weekday, hour, sums }).collect()
    }
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
