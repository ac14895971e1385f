//! Queries: which sessions, which sums.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::day::Day;
use crate::session::Session;
use types::{Filter, PicoDollars, Span, Status, Timestamp, spelled};

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

/// In which order sessions are listed: by one column, then the newest start first, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub by: OrderBy,
    pub descending: bool,
}

/// The column that sessions are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderBy {
    Started,
    /// In lower case.
    Name,
    Agent,
    Project,
    User,
    Status,
    /// How long it was open; one that runs counts from its start until this moment.
    Duration(Timestamp),
    Tokens,
    Cost,
}

impl Order {
    pub const NEWEST: Self = Self { by: OrderBy::Started, descending: true };
    pub const MOST_EXPENSIVE: Self = Self { by: OrderBy::Cost, descending: true };
}

impl Default for Order {
    fn default() -> Self {
        Self::NEWEST
    }
}

/// Which sessions, and in which order. Names are whole names; one of the words may be anywhere in a session's name, project,
/// repository, branch, group, tags, user, or ids. A session is within a span if it began in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub filter: Filter,
    pub order: Order,
    /// Only sessions with a missing `seq`.
    pub gaps: bool,
    /// Sessions that the words find by something else than what is stored here: on a user's own machine, by their titles.
    pub also: Vec<String>,
}

impl SessionFilter {
    /// Whether it needs the short rows that sessions are searched by.
    pub fn looks_at_words(&self) -> bool {
        let Filter { tag, group, words, .. } = &self.filter;
        tag.is_some() || group.is_some() || !words.is_empty()
    }
}

impl From<Filter> for SessionFilter {
    fn from(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
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

/// A position in a list of sessions: the value of the column it is ordered by, the start, then the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// `None` where the list is ordered by the start.
    pub key: Option<OrderKey>,
    pub started_at: i64,
    pub id: String,
}

/// A value of the column that sessions are ordered by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrderKey {
    Number(i64),
    Text(String),
}

impl OrderKey {
    /// The value of a session, the same as a database computes it; `None` for the start, which is in every order.
    pub fn of(session: &Session, by: OrderBy) -> Option<Self> {
        let text = |text: &str| Some(Self::Text(text.to_owned()));
        match by {
            OrderBy::Started => None,
            OrderBy::Name => {
                let name = session.name().to_lowercase();
                text(name.split('\n').next().unwrap_or_default())
            }
            OrderBy::Agent => text(&session.life.agent),
            OrderBy::Project => text(session.project().unwrap_or_default()),
            OrderBy::User => text(session.life.user.as_deref().unwrap_or_default()),
            OrderBy::Status => text(session.status().as_str()),
            OrderBy::Duration(now) => {
                let closed = session.life.end.as_ref().map_or(0, |end| end.value.duration_ms.get());
                let running = session.status() == Status::Active;
                let open = if running { now.0.saturating_sub(session.started_at().0).max(0) } else { 0 };
                Some(Self::Number(closed.saturating_add(open)))
            }
            OrderBy::Tokens => Some(Self::Number(session.numbers.tokens())),
            OrderBy::Cost => Some(Self::Number(session.numbers.cost)),
        }
    }
}

impl Cursor {
    pub fn after(session: &Session, order: Order) -> Self {
        let key = OrderKey::of(session, order.by);
        Self { key, started_at: session.started_at().0, id: session.id.clone() }
    }

    /// The number that the list is ordered by, if it is one.
    pub fn number(&self) -> Option<i64> {
        match &self.key {
            None => Some(self.started_at),
            Some(OrderKey::Number(number)) => Some(*number),
            Some(OrderKey::Text(_)) => None,
        }
    }

    /// The same cursor, if it can be a position in a list of this order.
    pub fn fitting(cursor: Option<Self>, order: Order) -> Result<Option<Self>, BadCursor> {
        match cursor {
            Some(cursor) if !cursor.fits(order) => Err(BadCursor),
            cursor => Ok(cursor),
        }
    }

    fn fits(&self, order: Order) -> bool {
        match (order.by, &self.key) {
            (OrderBy::Started, key) => key.is_none(),
            (OrderBy::Duration(_) | OrderBy::Tokens | OrderBy::Cost, key) => {
                matches!(key, Some(OrderKey::Number(_)))
            }
            (_, key) => matches!(key, Some(OrderKey::Text(_))),
        }
    }
}

/// `1768135000000.id`, before it the value: `n250.` for a number, `t66 6f 6f.` (without spaces) for a text.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            None => {}
            Some(OrderKey::Number(number)) => write!(f, "n{number}.")?,
            Some(OrderKey::Text(text)) => {
                f.write_str("t")?;
                for byte in text.bytes() {
                    write!(f, "{byte:02x}")?;
                }
                f.write_str(".")?;
            }
        }
        write!(f, "{}.{}", self.started_at, self.id)
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let (key, rest) = match text.as_bytes().first() {
            Some(b'n' | b't') => {
                let (key, rest) = text.split_once('.').ok_or(BadCursor)?;
                (Some(order_key(key)?), rest)
            }
            _ => (None, text),
        };
        let (started_at, id) = rest.split_once('.').ok_or(BadCursor)?;
        let started_at = started_at.parse().map_err(|_| BadCursor)?;
        if id.contains('\0') { Err(BadCursor) } else { Ok(Self { key, started_at, id: id.to_owned() }) }
    }
}

fn order_key(text: &str) -> Result<OrderKey, BadCursor> {
    if let Some(number) = text.strip_prefix('n') {
        return number.parse().map(OrderKey::Number).map_err(|_| BadCursor);
    }
    let digits = text.strip_prefix('t').map(str::as_bytes).ok_or(BadCursor)?;
    let byte = |pair: &[u8]| {
        let digits = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        let pair = std::str::from_utf8(pair).ok().filter(|_| digits)?;
        u8::from_str_radix(pair, 16).ok().filter(|byte| *byte != 0)
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(OrderKey::Text).ok_or(BadCursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written() {
        let texts = ["1700.a.b", "n-5.1700.x", "t.1700.x", "tc3a92e2e.1700.x"];
        for text in texts {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        let cursor: Cursor = "tc3a92e2e.1700.x".parse().unwrap();
        assert_eq!((cursor.key.clone(), cursor.number()), (Some(OrderKey::Text("é..".into())), None));
        let name = Order { by: OrderBy::Name, descending: false };
        assert!(cursor.fits(name) && !cursor.fits(Order::NEWEST) && !cursor.fits(Order::MOST_EXPENSIVE));
        for wrong in ["", "x", "1700", "n.1.x", "t6.1.x", "t00.1.x", "tff.1.x", "t+1.1.x", "n5.x", "1.a\0"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
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

#[derive(Clone, Debug, Default, PartialEq)]
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

/// Which usage, by the days of a zone. Names are whole names. Sums know no machine, tag, group, status or words; these conditions
/// are not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageFilter {
    pub filter: Filter,
    pub zone: TimeZone,
}

impl UsageFilter {
    /// The first and the last day that its span has a part of. Days count whole.
    pub fn days(&self) -> (Option<Day>, Option<Day>) {
        let Span { since, until } = self.filter.span;
        let last = until.map(|until| Timestamp(until.0.saturating_sub(1)));
        let day = |at: Option<Timestamp>| at.map(|at| Day::of_in(at, &self.zone));
        (day(since), day(last))
    }
}

/// By days of UTC.
impl From<Filter> for UsageFilter {
    fn from(filter: Filter) -> Self {
        Self { filter, zone: TimeZone::UTC }
    }
}

impl Default for UsageFilter {
    fn default() -> Self {
        Filter::default().into()
    }
}
