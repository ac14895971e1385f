//! Where events are kept: what a database does beside answering ([`Reader`]) and knowing tokens ([`Tokens`]). Used as
//! `Arc<dyn Storage>`.

use reader::token::Owner;
use reader::{Answer, Reader, Token, Tokens};
use serde::Serialize;
use types::{Event, Timestamp};

use super::event::Rejected;

/// The result of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ingested {
    /// New, or a higher revision than was known.
    pub accepted: usize,
    pub duplicates: usize,
    pub rejected: Vec<Rejected>,
}

/// A store of events.
pub trait Storage: Reader + Tokens {
    /// Takes in a batch that a token of this owner brought. What is answered has been committed.
    fn ingest(&self, owner: &Owner, batch: Vec<Event>, now: Timestamp) -> Answer<'_, Ingested>;

    /// Whether events could be taken in now; costs a small write.
    fn ready(&self) -> Answer<'_, ()>;

    /// Adds one. False if its name is taken.
    fn add_token(&self, token: Token) -> Answer<'_, bool>;

    /// Revokes the token of this name. False if there is none, or it was revoked before.
    fn revoke_token(&self, name: &str, now: Timestamp) -> Answer<'_, bool>;
}
