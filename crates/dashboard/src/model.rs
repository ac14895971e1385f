//! What a page shows: answers of the read model, put together.

use std::collections::{BTreeMap, HashSet};

use super::agents::{KnownAgents, OTHERS};
use reader::{
    ActivityBucket, Counted, Facets, HourRow, SeriesRow, SessionDetail, SessionPage, TimelineEvent, UsageRow,
    UsageSums,
};

/// The numbers of the overview, under one filter.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub facets: Facets,
    /// Per day and agent.
    pub days: Vec<SeriesRow>,
    /// Per day and model or project, where the cost is to be split by these.
    pub stacked: Vec<SeriesRow>,
    /// Per hour of the week.
    pub hours: Vec<HourRow>,
    pub models: Vec<UsageRow>,
    pub projects: Vec<UsageRow>,
    pub users: Vec<UsageRow>,
    /// The sums of as many days before these.
    pub before: Option<UsageSums>,
    /// Where one model is asked for: the sessions begun that called it, unless counting takes too long. The sums by model
    /// know of no sessions.
    pub with_model: Option<Counted>,
    /// There are sessions of the demonstration, and they are left out.
    pub demo_left_out: bool,
}

impl Overview {
    /// The days added up by agent, the most expensive first; other programs last, and nothing that costs nothing.
    pub fn agents(&self, known: KnownAgents) -> Vec<UsageRow> {
        let mut agents: BTreeMap<&str, UsageSums> = BTreeMap::new();
        for row in &self.days {
            agents.entry(known.known(&row.key)).or_default().add(&row.sums);
        }
        let mut rows: Vec<UsageRow> = agents
            .into_iter()
            .filter(|(_, sums)| sums.cost_usd > 0.0 || sums.counts.unpriced_calls > 0)
            .map(|(agent, sums)| UsageRow { key: agent.to_owned(), sums, ..UsageRow::default() })
            .collect();
        let other = |row: &UsageRow| row.key == OTHERS;
        rows.sort_by(|one, two| {
            other(one).cmp(&other(two)).then(two.sums.cost_usd.total_cmp(&one.sums.cost_usd))
        });
        rows
    }

    pub fn sums(&self) -> UsageSums {
        let mut sums = UsageSums::default();
        for row in &self.days {
            sums.add(&row.sums);
        }
        sums
    }

    pub fn added(rows: &[UsageRow]) -> UsageSums {
        let mut sums = UsageSums::default();
        for row in rows {
            sums.add(&row.sums);
        }
        sums
    }

    /// Sessions of agents that called a model at all: a program without one costs nothing, and does not lower the average.
    pub fn paying_sessions(&self) -> i64 {
        let mut agents: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for SeriesRow { key, sums, .. } in &self.days {
            let (sessions, calls) = agents.entry(key).or_default();
            *sessions += sums.counts.sessions;
            *calls += sums.counts.api_calls;
        }
        agents.values().filter(|(_, calls)| *calls > 0).map(|(sessions, _)| sessions).sum()
    }
}

/// A page of the table of sessions.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub facets: Facets,
    pub page: SessionPage,
    /// All of them, where counting does not take longer than the page itself.
    pub total: Option<Counted>,
    /// Sessions of a chain whose last opening does not report it.
    pub chained: HashSet<String>,
    /// There are sessions of the demonstration, and they are left out.
    pub demo_left_out: bool,
}

/// A session and what happened in it.
#[derive(Clone, Debug)]
pub struct SessionView {
    pub detail: SessionDetail,
    /// In the order they happened.
    pub events: Vec<TimelineEvent>,
    /// If there are more events than these: the number of all of them over time.
    pub activity: Option<Vec<ActivityBucket>>,
}
