//! Queries: which sessions, which sums.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use uuid::Uuid;

use super::{Day, Quarter, Session};
use wire::PicoDollars;
use wire::Timestamp;
use wire::{Status, spelled};

spelled!(
    /// What usage is split by.
    By {
        Day = "day",
        Session = "session",
        Model = "model",
        Project = "project",
        Agent = "agent",
        Branch = "branch",
        User = "user",
    }
);

/// In which order sessions are listed; within one time or cost, by id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest start first.
    #[default]
    Newest,
    /// The most expensive first.
    MostExpensive,
}

/// Which sessions; everything given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub agent: Option<String>,
    /// Not of this agent.
    pub without_agent: Option<String>,
    pub project: Option<String>,
    pub branch: Option<String>,
    pub user: Option<String>,
    pub machine: Option<String>,
    /// One that made a call with this model.
    pub model: Option<String>,
    pub status: Option<Status>,
    /// Began at or after, and before.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only sessions with a missing `seq`.
    pub gaps: bool,
    pub order: Order,
    /// One of its tags.
    pub tag: Option<String>,
    pub group: Option<String>,
    /// Contained in its name, project, repository, branch, group, tags, user, or ids; upper and lower case are the same.
    pub search: Option<String>,
}

impl SessionFilter {
    /// Whether it needs the short rows that sessions are searched by.
    pub fn looks_at_words(&self) -> bool {
        self.tag.is_some() || self.search.is_some() || self.group.is_some()
    }
}

/// How many, and after which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub after: Option<Cursor>,
    pub limit: usize,
}

impl Page {
    pub const MOST: usize = 500;

    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }
}

/// A position in a list of sessions: the value it is ordered by, then the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The time of the start, or the cost.
    pub rank: i64,
    pub id: String,
}

impl Cursor {
    pub fn after(session: &Session, order: Order) -> Self {
        let rank = match order {
            Order::Newest => session.started_at().0,
            Order::MostExpensive => session.numbers.cost,
        };
        Self { rank, id: session.id.clone() }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank, self.id)
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let (rank, id) = text.split_once('.').ok_or(BadCursor)?;
        let rank = rank.parse().map_err(|_| BadCursor)?;
        if id.contains('\0') { Err(BadCursor) } else { Ok(Self { rank, id: id.to_owned() }) }
    }
}

/// A position in a session's events: after all with this `seq`, or after one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelinePosition {
    pub seq: i64,
    pub id: Option<Uuid>,
}

impl fmt::Display for TimelinePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "{}.{}", self.seq, id.simple()),
            None => write!(f, "{}", self.seq),
        }
    }
}

impl FromStr for TimelinePosition {
    type Err = BadPosition;

    fn from_str(text: &str) -> Result<Self, BadPosition> {
        let (seq, id) = text.split_once('.').map_or((text, None), |(seq, id)| (seq, Some(id)));
        let seq: u32 = seq.parse().map_err(|_| BadPosition)?;
        let id = id.map(Uuid::try_parse).transpose().map_err(|_| BadPosition)?;
        Ok(Self { seq: i64::from(seq), id })
    }
}

/// A part of the time a session took, and the number of its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityBucket {
    /// The time of the last event in it.
    pub until: Timestamp,
    pub prompts: i64,
    pub calls: i64,
    pub cost: PicoDollars,
    /// Tool calls that did not fail.
    pub tools: i64,
    /// Tool calls and API calls that failed.
    pub errors: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is neither a seq nor `next` of an earlier answer; leave it out to begin at the first")]
pub struct BadPosition;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is no cursor of an earlier answer; leave it out to begin at the newest")]
pub struct BadCursor;

#[derive(Clone, Debug, PartialEq)]
pub struct SessionPage {
    /// In the order asked for.
    pub sessions: Vec<Session>,
    /// Where the next page begins, if there is more.
    pub next: Option<Cursor>,
}

/// How many sessions, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    pub sessions: i64,
    pub cost_usd: f64,
    pub unpriced_calls: i64,
}

impl Counted {
    pub fn of(sessions: &[Session]) -> Self {
        let mut counted = Self::default();
        for session in sessions {
            counted.sessions += 1;
            counted.cost_usd += session.numbers.dollars();
            counted.unpriced_calls = counted.unpriced_calls.saturating_add(session.numbers.unpriced_calls);
        }
        counted
    }
}

/// Which usage; everything given must hold. Days are those of the zone, and both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageFilter {
    pub agent: Option<String>,
    pub model: Option<String>,
    pub project: Option<String>,
    pub branch: Option<String>,
    pub user: Option<String>,
    /// Not of this agent.
    pub without_agent: Option<String>,
    pub since: Option<Day>,
    pub until: Option<Day>,
    pub zone: TimeZone,
}

impl Default for UsageFilter {
    fn default() -> Self {
        let (agent, model, project, branch, user, without_agent) = Default::default();
        Self {
            agent,
            model,
            project,
            branch,
            user,
            without_agent,
            since: None,
            until: None,
            zone: TimeZone::UTC,
        }
    }
}

impl UsageFilter {
    /// The first quarter of the span, and the first one after it.
    pub fn quarters(&self) -> (Option<Quarter>, Option<Quarter>) {
        let after = self.until.map(|Day(day)| Day(day.saturating_add(1)));
        let first = |day: Day| Quarter::first_of(day, &self.zone);
        (self.since.map(first), after.map(first))
    }
}
