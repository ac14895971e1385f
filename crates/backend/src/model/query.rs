//! Questions: which sessions, which sums.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::{Day, Session};
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
    /// The dearest first.
    Dearest,
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
    /// Of which some `seq` is missing.
    pub gaps: bool,
    /// Which come first.
    pub order: Order,
    /// One of its tags.
    pub tag: Option<String>,
    /// Contained in its name, project, repository, branch, group, tags, user, or ids; letters' case does not matter.
    pub search: Option<String>,
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

/// A place in a list of sessions: what it is ordered by, then the id.
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
            Order::Dearest => session.numbers.cost,
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
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (rank, id) = text.split_once('.').ok_or(NoCursor)?;
        let rank = rank.parse().map_err(|_| NoCursor)?;
        if id.contains('\0') { Err(NoCursor) } else { Ok(Self { rank, id: id.to_owned() }) }
    }
}

/// A place in a session's events: beyond all with this `seq`, or beyond one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelinePlace {
    pub seq: i64,
    pub id: Option<Uuid>,
}

impl fmt::Display for TimelinePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "{}.{}", self.seq, id.simple()),
            None => write!(f, "{}", self.seq),
        }
    }
}

impl FromStr for TimelinePlace {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (seq, id) = text.split_once('.').map_or((text, None), |(seq, id)| (seq, Some(id)));
        let seq: u32 = seq.parse().map_err(|_| NoPlace)?;
        let id = id.map(Uuid::try_parse).transpose().map_err(|_| NoPlace)?;
        Ok(Self { seq: i64::from(seq), id })
    }
}

/// A part of the time a session took, and what happened in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// When the last of it happened.
    pub until: Timestamp,
    pub prompts: i64,
    pub calls: i64,
    pub cost: PicoDollars,
    /// Those that did not fail.
    pub tools: i64,
    /// Tools that failed, and calls.
    pub errors: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is neither a seq nor `next` of an earlier answer; leave it out to begin at the first")]
pub struct NoPlace;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is no cursor of an earlier answer; leave it out to begin at the newest")]
pub struct NoCursor;

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

/// Which usage; everything given must hold. Days are in UTC and both included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}
