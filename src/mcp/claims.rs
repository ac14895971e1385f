//! Idempotency keys of `start_session`: which session a key stands for.
//!
//! The id of a session is chosen before its start and kept with the key. Whoever asks with the same key later, or at the same
//! time, finds that id, and looks for the session instead of starting another one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::store;
use wire::{SessionId, Timestamp};

/// A key and the session it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub session: SessionId,
    /// When the key was first used.
    pub at: Timestamp,
    /// It is the first use: the session is to be started.
    pub first: bool,
    /// What was asked for then, as the same text as now.
    pub same_request: bool,
}

/// Keys that were used, for all servers of this user.
pub trait StartClaims: Send + Sync {
    /// The first use of `key` keeps `session` and `request`; any other returns what was kept.
    fn claim(
        &self,
        key: &str,
        request: &str,
        session: SessionId,
        now: Timestamp,
    ) -> Result<Claim, store::Error>;

    /// The session was not started, so the key may be used again.
    fn release(&self, key: &str) -> Result<(), store::Error>;
}

/// The keys that one server process has seen.
#[derive(Debug, Default)]
pub struct ServerClaims(Mutex<HashMap<String, (String, SessionId, Timestamp)>>);

impl StartClaims for ServerClaims {
    fn claim(
        &self,
        key: &str,
        request: &str,
        session: SessionId,
        now: Timestamp,
    ) -> Result<Claim, store::Error> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, session, at)) = kept.get(key) {
            return Ok(Claim { session: *session, at: *at, first: false, same_request: of == request });
        }
        kept.insert(key.to_owned(), (request.to_owned(), session, now));
        Ok(Claim { session, at: now, first: true, same_request: true })
    }

    fn release(&self, key: &str) -> Result<(), store::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        Ok(())
    }
}
