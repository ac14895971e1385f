//! What pages and queries ask, and what they are answered: the read model of sessions.
//!
//! [`Reader`] is the one trait between a store of sessions and what shows it. The backend's databases implement it; the pages of
//! `dashboard` and the backend's API are written against it alone, so neither knows which database answers, nor whether one
//! person's machine or a whole team is behind it. [`Tokens`] is the same for who may ask.
//!
//! ```text
//! query      which sessions, which sums, in which order, from where on
//! session    a session as its events describe it; seqs: which of its events have arrived
//! answers    sums, pages, one session with what is around it, the state of delivery
//! numbers    what is added up; day: days of a zone, quarters of an hour
//! token      roles, owners, secrets
//! ```
//!
//! It is a crate of its own, below `store` and `backend` and beside `usage`, because the answers are futures (one implementation is
//! across a network), and crates that only add up need no such thing. No I/O.

mod answers;
mod day;
mod numbers;
mod query;
mod seqs;
mod session;
pub mod token;

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;
use types::Timestamp;

pub use answers::{
    Facets, Health, HourRow, ModelRow, Origin, SeriesRow, SessionDetail, SpendingKey, SpendingRow,
    TimelineEvent, TimelinePage, ToolNumbers, ToolRow, Touched, UsagePage, UsageRow, UsageSums,
};
pub use day::{Day, QUARTERS_OF_A_DAY, Quarter};
pub use numbers::{CARRY, Numbers};
pub use query::{
    ActivityBucket, BadCursor, BadPosition, By, Counted, Cursor, Order, OrderBy, OrderKey, Page,
    SessionFilter, SessionPage, TimelinePosition, UsageFilter,
};
pub use seqs::Seqs;
pub use session::{Dimensions, Latest, Life, Session};
pub use token::Token;

use token::TokenHash;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the database has schema {found}, this codemie knows {known}: it was made by a newer one; update codemie"
    )]
    Newer { found: i64, known: i64 },
    #[error("the database cannot be opened: {0}")]
    Open(String),
    /// Worth another try later: the database is away, or too busy.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    #[error("the disk of the database is full: {0}")]
    Full(String),
    #[error("the database cannot be written to: {0}")]
    ReadOnly(String),
    #[error("the database failed: {0}")]
    Failed(String),
    #[error("a row of the database cannot be read: {0}")]
    Damaged(String),
}

pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// The read model.
pub trait Reader: Send + Sync {
    /// Sessions, in the order the filter asks for.
    fn sessions(&self, filter: SessionFilter, page: Page) -> Answer<'_, SessionPage>;

    /// How many sessions there are, counted no further than `most`.
    fn count_sessions(&self, filter: SessionFilter, most: i64) -> Answer<'_, Counted>;

    /// Which of these sessions are part of a chain. Their last openings report no transition; the ids in `reopened` have
    /// earlier openings, too.
    fn chained(&self, ids: Vec<String>, reopened: Vec<String>) -> Answer<'_, Vec<String>>;

    /// One session and what is around it.
    fn session(&self, id: &str) -> Answer<'_, Option<SessionDetail>>;

    /// These sessions as they are now, without what is around them; unknown ids are left out.
    fn sessions_by_id(&self, ids: Vec<String>) -> Answer<'_, Vec<Session>>;

    /// A session's events beyond `after`, in order.
    fn timeline(&self, id: &str, after: TimelinePosition, limit: usize) -> Answer<'_, TimelinePage>;

    /// The same added up: the time between the two in `parts` of the same length, the ones with events in order. Earlier and
    /// later events belong to the first and the last of them.
    fn activity(
        &self,
        id: &str,
        from: Timestamp,
        to: Timestamp,
        parts: usize,
    ) -> Answer<'_, Vec<ActivityBucket>>;

    /// Sums by a key: these rows, counted from the newest day (given in order) or from the most expensive of anything else.
    fn usage(&self, by: By, filter: UsageFilter, rows: Range<usize>) -> Answer<'_, UsagePage>;

    /// Sums per day, split by agent, model, project or user (by anything else: not split), days in order.
    fn series(&self, by: By, filter: UsageFilter) -> Answer<'_, Vec<SeriesRow>>;

    /// Sums by the hour of the week, in the filter's zone; hours without anything are left out.
    fn hours(&self, filter: UsageFilter) -> Answer<'_, Vec<HourRow>>;

    /// Sums of all time by agent, model and project, the most expensive first.
    fn spending(&self) -> Answer<'_, Vec<SpendingRow>>;

    /// The state of delivery, with up to `limit` sessions that have gaps.
    fn health(&self, limit: usize) -> Answer<'_, Health>;

    /// The values there are to filter by.
    fn facets(&self) -> Answer<'_, Facets>;

    /// Sessions that change from now on, on any node. A slow receiver misses some.
    fn live(&self) -> broadcast::Receiver<Arc<[Touched]>>;
}

/// Who may ask: the tokens of a store, and the passes made from them.
pub trait Tokens: Send + Sync {
    fn tokens(&self) -> Answer<'_, Vec<Token>>;

    /// The token with this hash, revoked or not.
    fn token(&self, hash: TokenHash) -> Answer<'_, Option<Token>>;

    /// Notes that a logout ended the pass with this signature; after `until` it would have expired.
    fn end_pass(&self, signature: [u8; 32], until: Timestamp, now: Timestamp) -> Answer<'_, ()>;

    /// Whether a logout ended this pass.
    fn pass_ended(&self, signature: [u8; 32]) -> Answer<'_, bool>;
}
