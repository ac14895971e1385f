//! What a page is made of beyond the read model of the backend.

use std::collections::BTreeMap;

use crate::backend::model::{Facets, SeriesRow, SessionDetail, Stretch, Sums, TimelineEvent, UsageRow};
use crate::clock::Timestamp;

/// What the overview tells, under one filter.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub facets: Facets,
    /// Per day and agent.
    pub days: Vec<SeriesRow>,
    pub models: Vec<UsageRow>,
    pub projects: Vec<UsageRow>,
    pub users: Vec<UsageRow>,
    /// The demonstration is not among them.
    pub demo_left_out: bool,
}

impl Overview {
    /// The days added up by agent, the dearest first.
    pub fn agents(&self) -> Vec<UsageRow> {
        let mut agents: BTreeMap<&str, Sums> = BTreeMap::new();
        for row in &self.days {
            agents.entry(&row.key).or_default().add(&row.sums);
        }
        let mut rows: Vec<UsageRow> = agents
            .into_iter()
            .map(|(agent, sums)| UsageRow { key: agent.to_owned(), sums, ..UsageRow::default() })
            .collect();
        rows.sort_by(|one, other| other.sums.cost_usd.total_cmp(&one.sums.cost_usd));
        rows
    }

    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for row in &self.days {
            sums.add(&row.sums);
        }
        sums
    }
}

/// A session and what happened in it.
#[derive(Clone, Debug)]
pub struct Story {
    pub detail: SessionDetail,
    /// In the order they happened.
    pub events: Vec<TimelineEvent>,
    /// If there are more events than these: all of them, added up.
    pub course: Option<Vec<Stretch>>,
}

/// A receiver of what the local store holds: only that machine knows what has not left it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    pub sink: String,
    pub pending: i64,
    pub dead: i64,
    pub deferred: i64,
    /// Why nothing is sent until someone does something about it.
    pub paused: Option<String>,
    /// What went wrong last.
    pub trouble: Option<String>,
    pub failures: i64,
    pub retry_at: Option<Timestamp>,
    pub last_delivered: Option<Timestamp>,
}
