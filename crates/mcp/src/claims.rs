//! Idempotency keys of `start_session`: which session a key stands for.
//!
//! The id of a session is chosen before its start and kept with the key. Whoever asks with the same key later, or at the same
//! time, finds that id, and looks for the session instead of starting another one.

use sha2::{Digest, Sha256};

use store::{self, Claim, NewRequest, Realm, Store};
use types::hex::hex;
use types::{ProcessId, SessionId, Timestamp};

/// The kind of request in the store; each kind has keys of its own.
const KIND: &str = "start";

/// A key and the session it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartClaim {
    pub session: SessionId,
    /// When the key was first used.
    pub at: Timestamp,
    /// It is the first use: the session is to be started.
    pub first: bool,
    /// The same was asked for then.
    pub same_request: bool,
}

/// The first use of `key` keeps `session` and `request`; any other returns what was kept.
pub fn claim(
    store: &mut Store,
    key: &str,
    request: &str,
    session: SessionId,
    server: ProcessId,
    now: Timestamp,
) -> Result<StartClaim, store::Error> {
    let realm = Realm::here();
    // A prompt is nobody's business but the agent's.
    let content = hex(&Sha256::digest(request.as_bytes()));
    let request = NewRequest {
        kind: KIND,
        key,
        content: &content,
        owner: server,
        realm: &realm,
        run: None,
        session: Some(session),
    };
    Ok(match store.write(|tx| tx.claim_request(&request, now))? {
        Claim::New => StartClaim { session, at: now, first: true, same_request: true },
        Claim::Earlier(earlier) => StartClaim {
            session: earlier.session.unwrap_or(session),
            at: earlier.created_at,
            first: false,
            same_request: earlier.content == content,
        },
    })
}

/// The session was not started, so the key may be used again.
pub fn release(store: &mut Store, key: &str) -> Result<(), store::Error> {
    store.write(|tx| tx.release_request(KIND, key))
}
