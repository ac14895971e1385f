//! How many sessions run at once below one caller, counted over all servers that share this home.
//!
//! A server takes a place for a session before it starts it, in one transaction with the count, and gives it back if the start
//! fails. A place is free again when the run that its session began in has ended, or when nothing came of the start.

use std::time::Duration;

use super::scope::active_below;
use pty::process::Processes;
use store::{self, BootAndPidNs, CLAIMED, NewRequest, PLACE, RequestRow, Store, View};
use types::{ProcessId, SessionId, Timestamp};

/// A launcher answers within less. A place that is older, without a session, is one whose server was stopped in between.
const START_TAKES: Duration = Duration::from_mins(2);

/// The stage of a place whose launcher has answered.
const STARTED: &str = "started";

/// Who starts sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starter {
    /// The first session above the caller's, or the caller's own; `None` outside of any session: all of those callers count
    /// together, because nothing tells them apart.
    pub top: Option<(i64, SessionId)>,
    pub server: ProcessId,
}

/// A place that was taken.
#[derive(Debug)]
pub struct Place(String);

/// So many sessions run already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPlace(pub u32);

impl Place {
    /// Takes a place if fewer than `most` sessions run below the starter. `session`: the one that is to be started, where it is
    /// known.
    pub fn take(
        store: &mut Store,
        starter: &Starter,
        most: u32,
        session: Option<SessionId>,
        processes: &dyn Processes,
        now: Timestamp,
    ) -> Result<Result<Self, NoPlace>, store::Error> {
        let content = starter.top.map_or(String::new(), |(_, id)| id.to_string());
        let key = session.unwrap_or_else(|| types::Ids::session(&types::RandomIds)).to_string();
        let realm = BootAndPidNs::here();
        store.write(|tx| {
            let mut running = starter.top.map_or(Ok(0), |(n, _)| active_below(tx, n))?;
            for (taken, request) in tx.requests(PLACE)? {
                let holds = Hold::of(tx, &request, &realm, processes, now)?;
                let same = request.content == content;
                running += match holds {
                    Hold::Nothing => {
                        tx.release_request(PLACE, &taken)?;
                        0
                    }
                    Hold::Start => u32::from(same),
                    // Those below a session were counted with it.
                    Hold::Session => u32::from(same && starter.top.is_none()),
                };
            }
            if running >= most {
                return Ok(Err(NoPlace(running)));
            }
            let place = NewRequest {
                kind: PLACE,
                key: &key,
                content: &content,
                owner: starter.server,
                realm: &realm,
                run: None,
                session,
            };
            tx.claim_request(&place, now)?;
            Ok(Ok(Self(key)))
        })
    }

    /// The session runs: the place is its own until it ends.
    pub fn keep(self, store: &mut Store, session: SessionId) -> Result<(), store::Error> {
        store.write(|tx| tx.advance_request(PLACE, &self.0, STARTED, None, Some(session)))
    }

    /// Nothing was started.
    pub fn give_back(self, store: &mut Store) -> Result<(), store::Error> {
        store.write(|tx| tx.release_request(PLACE, &self.0))
    }
}

/// What a place is taken by.
enum Hold {
    Nothing,
    /// A launcher is under way.
    Start,
    Session,
}

impl Hold {
    fn of(
        view: &View<'_>,
        request: &RequestRow,
        here: &BootAndPidNs,
        processes: &dyn Processes,
        now: Timestamp,
    ) -> Result<Self, store::Error> {
        let row = request.session.map(|session| view.session(session)).transpose()?.flatten();
        let run = row.as_ref().and_then(|row| row.run).map(|run| view.run_number(run)).transpose()?.flatten();
        // The run goes on where its session has ended by `/clear`.
        if run.is_some_and(|run| run.ended_at.is_none()) {
            return Ok(Self::Session);
        }
        // A server in another container cannot be seen from here.
        let server_lives = request.realm != *here || processes.alive(request.owner);
        let young = now.since(request.created_at) < START_TAKES;
        let starting = request.stage == CLAIMED && young && server_lives;
        Ok(if starting { Self::Start } else { Self::Nothing })
    }
}
