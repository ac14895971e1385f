//! Requests that must not be carried out twice: who asks under which key, how far it is, and the answer.
//!
//! A key is remembered for [`REMEMBERED`]. Of two callers that claim one key at once, one wins ([`Tx::claim_request`]); the other
//! gets what is known of the first one's request. A request without an answer whose owner is gone broke off somewhere: it may
//! have been carried out, so it is never carried out again.

use std::time::Duration;

use rusqlite::params;

use super::row::{insert, read_keyed, read_row};
use super::{BootAndPidNs, Error, Tx, View};
use types::row::RowColumns;
use types::{ProcessId, RunId, SessionId, Timestamp, row};

/// How long a key is remembered.
pub const REMEMBERED: Duration = Duration::from_hours(24);

/// A request under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest<'a> {
    /// What is asked for: `send`, `start`, …; each kind has keys of its own.
    pub kind: &'a str,
    pub key: &'a str,
    /// A fingerprint of what is asked for: one key stands for one request alone.
    pub content: &'a str,
    /// The process that carries it out.
    pub owner: ProcessId,
    pub realm: &'a BootAndPidNs,
    /// The run and the session it is for, as far as they are known already.
    pub run: Option<RunId>,
    pub session: Option<SessionId>,
}

row! {
    /// A request as it was made, and how far it has come.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RequestRow {
        pub content: String,
        pub owner: ProcessId = "owner_pid, owner_start" [row],
        pub realm: BootAndPidNs [row],
        pub run: Option<RunId>,
        pub session: Option<SessionId>,
        /// How far it has come, in the words of its kind.
        pub stage: String,
        /// JSON; `None`: not answered, or never to be.
        pub answer: Option<String>,
        pub created_at: Timestamp,
    }
}

/// What a claim of a key leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller is to carry it out.
    New,
    /// Somebody did, or does.
    Earlier(RequestRow),
}

/// The kind of request that stands for a session which `codemie mcp` has started: kept for as long as that runs, which may be days.
pub const PLACE: &str = "place";

/// The stage of a request that was claimed and has not come any further.
pub const CLAIMED: &str = "claimed";

impl View<'_> {
    pub fn request(&self, kind: &str, key: &str) -> Result<Option<RequestRow>, Error> {
        self.maybe(&RequestRow::select("FROM request WHERE kind = ?1 AND key = ?2"), [kind, key], read_row)
    }

    /// All of a kind, each with its key.
    pub fn requests(&self, kind: &str) -> Result<Vec<(String, RequestRow)>, Error> {
        let columns = RequestRow::COLUMNS;
        let sql = format!("SELECT key, {columns} FROM request WHERE kind = ?1 ORDER BY created_at, key");
        self.all(&sql, [kind], read_keyed)
    }
}

impl Tx<'_> {
    /// Takes a key for a request, unless it is taken. Forgets keys whose time is over.
    pub fn claim_request(&self, request: &NewRequest<'_>, at: Timestamp) -> Result<Claim, Error> {
        let oldest =
            Timestamp(at.0.saturating_sub(i64::try_from(REMEMBERED.as_millis()).unwrap_or(i64::MAX)));
        self.execute("DELETE FROM request WHERE created_at < ?1 AND kind <> ?2", params![oldest, PLACE])?;
        if let Some(earlier) = self.request(request.kind, request.key)? {
            return Ok(Claim::Earlier(earlier));
        }
        insert!(self, "request": {
            kind: request.kind,
            key: request.key,
            content: request.content,
            owner_pid: request.owner.pid,
            owner_start: request.owner.start,
            boot: request.realm.boot,
            pids: request.realm.pids,
            run: request.run,
            session: request.session,
            stage: CLAIMED,
            created_at: at,
        })?;
        Ok(Claim::New)
    }

    /// How far a request has come; with the run and the session, once they are known.
    pub fn advance_request(
        &self,
        kind: &str,
        key: &str,
        stage: &str,
        run: Option<RunId>,
        session: Option<SessionId>,
    ) -> Result<(), Error> {
        self.execute(
            "UPDATE request SET stage = ?3, run = coalesce(?4, run), session = coalesce(?5, session)
             WHERE kind = ?1 AND key = ?2",
            params![kind, key, stage, run, session],
        )
        .map(drop)
    }

    /// The answer that everybody gets who asks under this key from now on.
    pub fn answer_request(&self, kind: &str, key: &str, answer: &str) -> Result<(), Error> {
        self.execute("UPDATE request SET answer = ?3 WHERE kind = ?1 AND key = ?2", [kind, key, answer])
            .map(drop)
    }

    /// Nothing was done for it: the key is free for another try.
    pub fn release_request(&self, kind: &str, key: &str) -> Result<(), Error> {
        self.execute("DELETE FROM request WHERE kind = ?1 AND key = ?2 AND answer IS NULL", [kind, key])
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use os::home::Home;
    use types::{Ids, Pid, RandomIds, StartTime};

    const AT: Timestamp = Timestamp(1_768_135_000_000);

    fn new<'a>(kind: &'a str, key: &'a str, content: &'a str, realm: &'a BootAndPidNs) -> NewRequest<'a> {
        let owner = ProcessId { pid: Pid(7), start: StartTime(11) };
        NewRequest { kind, key, content, owner, realm, run: None, session: None }
    }

    fn realm() -> BootAndPidNs {
        BootAndPidNs { boot: "boot".into(), pids: "pid:[1]".into() }
    }

    #[test]
    fn a_key_is_claimed_once_until_it_is_released_or_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&Home::at(folder.path()), AT).unwrap();
        let realm = realm();
        let claim = |store: &mut Store, kind, key, at| {
            store.write(|tx| tx.claim_request(&new(kind, key, "hash", &realm), at)).unwrap()
        };
        assert_eq!(claim(&mut store, "send", "k", AT), Claim::New);
        assert_eq!(claim(&mut store, "start", "k", AT), Claim::New, "each kind has keys of its own");
        assert_eq!(claim(&mut store, "send", "other", AT), Claim::New);
        let Claim::Earlier(earlier) = claim(&mut store, "send", "k", AT) else { panic!("claimed twice") };
        assert_eq!((earlier.stage.as_str(), earlier.answer, earlier.session), (CLAIMED, None, None));
        assert_eq!((earlier.owner.pid, earlier.realm, earlier.created_at), (Pid(7), realm.clone(), AT));

        let (run, session) = (RandomIds.run(), RandomIds.session());
        store
            .write(|tx| {
                tx.advance_request("send", "k", "typing", Some(run), Some(session))?;
                tx.advance_request("send", "k", "typed", None, None)?;
                tx.answer_request("send", "k", "{}")
            })
            .unwrap();
        let row = store.read(|view| view.request("send", "k")).unwrap().unwrap();
        assert_eq!((row.run, row.session, row.stage.as_str()), (Some(run), Some(session), "typed"));
        assert_eq!(row.answer.as_deref(), Some("{}"));
        store.write(|tx| tx.release_request("send", "k")).unwrap();
        assert!(matches!(claim(&mut store, "send", "k", AT), Claim::Earlier(_)), "an answer stays");
        store.write(|tx| tx.release_request("start", "k")).unwrap();
        assert_eq!(claim(&mut store, "start", "k", AT), Claim::New);

        let day = AT.after(REMEMBERED);
        assert!(matches!(claim(&mut store, "send", "k", day), Claim::Earlier(_)));
        assert_eq!(claim(&mut store, "send", "k", day.after(Duration::from_millis(1))), Claim::New);
    }

    #[test]
    fn of_many_callers_at_once_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        drop(Store::open(&home, AT).unwrap());
        let claims: Vec<Claim> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut store = Store::open(&home, AT).unwrap();
                        store.write(|tx| tx.claim_request(&new("start", "k", "hash", &realm()), AT)).unwrap()
                    })
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        });
        assert_eq!(claims.iter().filter(|claim| **claim == Claim::New).count(), 1);
    }
}
