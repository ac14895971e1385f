//! What receivers differ in. A sink is a receiver as the loop sees it: which requests describe a batch of events, and what
//! the answers mean. It knows nothing of cursors, leases and backoff; a further receiver implements [`Sink`] and is added in
//! [`super::configured`].

use reqwest::Url;

use super::answer::{Answer, Verdict};
use super::http::Request;
use super::plan;
use store::{Error, Outgoing, UndeliveredEvent, View};
use types::Timestamp;

/// What becomes of an event when the cursor reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triage {
    Send,
    /// It waits in a letter until it is due, for the given reason.
    Defer(&'static str),
    /// This receiver has no use for it.
    Skip,
}

/// When a deferred event is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Now,
    At(Timestamp),
    /// After something has happened that the loop will be woken for.
    Unknown,
}

/// A receiver: which requests describe events to it, and what its answers mean.
pub trait Sink: Send {
    /// Its name in the store, in messages and in `sync --status`.
    fn name(&self) -> &'static str;

    /// Its address, for connections and for people.
    fn url(&self) -> &Url;

    /// The largest number of events in one request.
    fn max_batch(&self) -> usize {
        plan::MAX_EVENTS
    }

    /// Whether it counts an event twice that it gets twice. Then an accepted request is never sent again, and no request
    /// is cut off.
    fn counts_duplicates(&self) -> bool {
        false
    }

    fn triage(&self, _view: &View<'_>, _event: &Outgoing) -> Result<Triage, Error> {
        Ok(Triage::Send)
    }

    /// Asked for events that [`Sink::triage`] deferred, and for dead letters that are to be sent again.
    fn due(&self, _view: &View<'_>, _letter: &UndeliveredEvent, _now: Timestamp) -> Result<Due, Error> {
        Ok(Due::Now)
    }

    /// The requests that describe these events; the batch has arrived when all of them are accepted.
    fn requests(&self, view: &View<'_>, events: &[Outgoing]) -> Result<Vec<Request>, Error>;

    /// A request without events, to find out whether one with events would be accepted; `None` if there is no such request.
    fn question(&self) -> Option<Request> {
        None
    }

    /// What the answer to one of the requests means.
    fn judge(&self, events: &[Outgoing], request: &Request, answer: &Answer) -> Verdict;

    /// A request's body as a person can read it.
    fn readable(&self, request: &Request) -> String {
        String::from_utf8_lossy(&request.body).into_owned()
    }
}
