//! Sessions: what they are, how they begin and end, which of the agent's conversations each one is.
//!
//! # For callers
//!
//! Everything that changes a session takes a transaction ([`crate::Tx`]) and the time, and either happens as a
//! whole, events included, or not at all:
//!
//! ```text
//! lifecycle::start(tx, at, ids, &RunStart)         a run begins: a new session, or one re-opened or joined
//! lifecycle::end(tx, at, run, Ending)              a run ends, however; the session with it if it was the last run in it
//! lifecycle::transition(tx, at, ids, run, &Transition)  /clear or switch: end + start in one, linked both ways
//! lifecycle::bind(tx, at, ids, session, &Binding)  the agent's session is known
//! lifecycle::doubt(tx, session)                    the evidence allows two
//! lifecycle::learn_version(tx, session, version)   the agent's version became known after the START
//! absorb::take_records(tx, at, &row, &records)     records of any producer; ownership, revisions, late ENDs
//! absorb::absorb(tx, at, session, &Batch)          the same of a file, with how far it has been read
//! proxied::take(tx, at, &call)                     a call that the proxy saw: a record, or it waits for its session
//! proxied::assign_waiting(tx, at, session)         the waiting calls of a session
//! journal::take_in(&mut store, &home, now)         calls of a proxy that was killed before it stored them
//! quota::take(tx, at, session, &report)            a limit that came with a call of a session
//! publish::publish(&mut store, &home, now)         the JSON files of all sessions changed since
//! recover::recover(&mut store, …)                  ends sessions whose wrapper vanished
//! record::record(view, &row, now)                  the record of `show --json`
//! runaway::runaway_of(view, session, limits, now)  the sign that a running session has run away, if it shows one
//! lookup::find(view, text, scan)                   SESSION on a command line → one session
//! labels::{rename, tag, untag, group, archive}     on a row that was found
//! approval::refusal(view, by, &target, &run, allowed)  whether a caller may answer a session's dialog
//! prune::prune(&mut store, &home, before, agent, dry_run) old sessions leave
//! exchange::export(view, &rows, now)               sessions as a file to take elsewhere
//! import::import(&mut store, path, now)            such a file, or an old store's file or folder
//! import::found::take_in(&mut store, …)            old stores found where an agent was started, piece by piece
//! ```

pub mod absorb;
pub mod approval;
pub mod event;
pub mod exchange;
pub mod import;
pub mod journal;
pub mod labels;
pub mod lifecycle;
pub mod lineage;
pub mod lookup;
pub mod names;
pub mod neighbours;
pub mod proxied;
pub mod prune;
pub mod publish;
pub mod quota;
pub mod quota_use;
pub mod record;
pub mod recover;
pub mod runaway;
pub mod state;

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "for tests alone")]
pub mod testing;
#[cfg(test)]
mod tests;

use state::Illegal;
use types::{RunId, SessionId};

/// Why a change was refused. The transaction it was tried in must be given up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] crate::Error),
    #[error("session {session}: {source}")]
    Illegal { session: SessionId, source: Illegal },
    #[error("there is no session {0}")]
    NoSession(SessionId),
    #[error("there is no run {0}, or it has ended")]
    NoRun(RunId),
    #[error("the run is in session {0} already")]
    AlreadyThere(SessionId),
    #[error(transparent)]
    Name(#[from] names::NameError),
    #[error("the name {0:?} is taken; choose another")]
    NameTaken(String),
}

impl Error {
    /// Whether the same change may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Store(error) if error.may_pass())
    }
}
