//! Sending a text to a background session, once for each idempotency key, whoever asks and whatever breaks.
//!
//! Two memories work together. The host of a run types a text under a key once, and gives everybody who asks again the same
//! answer. The store remembers keys for a day, beyond the life of hosts and clients: a key whose host has gone without an answer
//! is answered with `unknown` for ever, since its text may have been typed.

use std::time::Duration;

use super::client::{Connection, RemoteError};
use super::protocol::{FromHost, SendAnswer, SendRequest, ToHost};
use super::text::{self, TextError};
use crate::live::events::Cursor;
use os::home::Home;
use pty::process::{Processes, SystemProcesses};
use store::{self, Claim, NewRequest, Realm, RequestRow, Store, View};
use types::{Delivery, Pid, ProcessId, RunId, SessionId, StartTime, Timestamp};

/// The kind of these requests in the store.
const KIND: &str = "send";
/// Longer than any key needs to be.
pub const LONGEST_KEY: usize = 200;
/// What a host may take beyond the caller's time: a text that was typed in the last moment is seen through, and Enter may be
/// pressed twice.
const SEEN_THROUGH: Duration = Duration::from_secs(10);
/// How far sessions are followed along `/clear` and switches.
const LONGEST_CHAIN: usize = 1000;

/// Where a text is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient {
    pub run: RunId,
    /// The session the run is in.
    pub session: SessionId,
}

/// Why there is no answer. Nothing was typed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("an idempotency key has 1 to {LONGEST_KEY} bytes")]
    Key,
    #[error("the idempotency key {0:?} was used for another text; a key stands for one text alone")]
    OtherText(String),
    #[error(
        "the idempotency key {key:?} was used for the session {session}; a key stands for one text to one session"
    )]
    OtherSession { key: String, session: SessionId },
    #[error(transparent)]
    Remote(RemoteError),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Sends a text and waits for what becomes of it. `store` is asked only for a request with a key.
pub fn send(
    home: &Home,
    store: &mut Store,
    to: Recipient,
    request: &SendRequest,
    now: Timestamp,
) -> Result<SendAnswer, SendError> {
    let mut ask = |request: &SendRequest| ask_host(home, to, request);
    send_by(&mut ask, store, to, request, now)
}

/// How far a question to a host came.
#[derive(Debug)]
enum Asked {
    Answered(SendAnswer),
    /// Nothing was asked, or the host refused: nothing was typed.
    Not(RemoteError),
    /// It was asked, and nobody knows what became of it.
    BrokeOff(RemoteError),
}

fn ask_host(home: &Home, to: Recipient, request: &SendRequest) -> Asked {
    let mut connection = match Connection::open(home, to.run) {
        Ok(connection) => connection,
        Err(error) => return Asked::Not(error),
    };
    let further = Duration::from_millis(request.timeout_ms) + SEEN_THROUGH;
    match connection.ask(&ToHost::Send(request.clone()), further) {
        Ok(FromHost::Sent(answer)) => Asked::Answered(answer),
        Ok(_) => Asked::BrokeOff(RemoteError::Closed),
        Err(error @ (RemoteError::Refused(_) | RemoteError::NoHost)) => Asked::Not(error),
        Err(error) => Asked::BrokeOff(error),
    }
}

fn send_by(
    ask: &mut dyn FnMut(&SendRequest) -> Asked,
    store: &mut Store,
    to: Recipient,
    request: &SendRequest,
    now: Timestamp,
) -> Result<SendAnswer, SendError> {
    let text = text::prepare(&request.text)?;
    let Some(key) = &request.idempotency_key else {
        return match ask(request) {
            Asked::Answered(answer) => Ok(answer),
            Asked::Not(error) => Err(SendError::Remote(error)),
            Asked::BrokeOff(error) => Ok(broke_off(to, &error, now)),
        };
    };
    if key.is_empty() || key.len() > LONGEST_KEY {
        return Err(SendError::Key);
    }
    let (content, realm) = (text::fingerprint(&text), Realm::here());
    let new = NewRequest {
        kind: KIND,
        key,
        content: &content,
        owner: this_process(),
        realm: &realm,
        run: Some(to.run),
        session: Some(to.session),
    };
    let claim = store.write(|tx| tx.claim_request(&new, now))?;
    // Whose key it was before: it is released only by the one who claimed it, because an earlier text may have been typed.
    let is_ours = claim == Claim::New;
    if let Claim::Earlier(earlier) = claim {
        if earlier.content != content {
            return Err(SendError::OtherText(key.clone()));
        }
        if let Some(session) = store.read(|view| other_session(view, &earlier, to))? {
            return Err(SendError::OtherSession { key: key.clone(), session });
        }
        if let Some(answer) = earlier.answer.as_deref().and_then(|json| serde_json::from_str(json).ok()) {
            return Ok(answer);
        }
        if earlier.run != Some(to.run) {
            return Ok(never_answered(&earlier));
        }
        // Its host lives, and knows whether it has typed the text.
    }
    match ask(request) {
        Asked::Answered(answer) if answer.result == Delivery::Rejected => {
            if is_ours {
                store.write(|tx| tx.release_request(KIND, key))?;
            }
            Ok(answer)
        }
        Asked::Answered(answer) => {
            let json = serde_json::to_string(&answer).unwrap_or_default();
            // The text has been typed: its answer is given, whether the store takes it or not.
            if let Err(error) = store.write(|tx| tx.answer_request(KIND, key, &json)) {
                tracing::warn!("an answer is not remembered: {error}");
            }
            Ok(answer)
        }
        Asked::Not(error) => {
            if is_ours {
                store.write(|tx| tx.release_request(KIND, key))?;
            }
            Err(SendError::Remote(error))
        }
        // The key stays taken and unanswered. Who asks again gets the host's answer, if it lives.
        Asked::BrokeOff(error) => Ok(broke_off(to, &error, now)),
    }
}

fn broke_off(to: Recipient, error: &RemoteError, now: Timestamp) -> SendAnswer {
    unknown(now, Some(to.session), &format!("{error}; the text may have been typed, and is not typed again"))
}

fn never_answered(earlier: &RequestRow) -> SendAnswer {
    let why = "the host that was asked to type it under this key ended without an answer; the text may have been typed, and is \
               not typed again";
    unknown(earlier.created_at, earlier.session, why)
}

/// Whatever came of it came after it was asked for.
pub(super) fn unknown(asked_at: Timestamp, session: Option<SessionId>, why: &str) -> SendAnswer {
    let cursor = Cursor::at(asked_at).to_string();
    SendAnswer { result: Delivery::Unknown, why: why.to_owned(), session, cursor }
}

/// The session that a key was used for, if it is another one: neither of the same run, nor one that led to this one by `/clear`
/// or a switch.
fn other_session(
    view: &View<'_>,
    earlier: &RequestRow,
    to: Recipient,
) -> Result<Option<SessionId>, store::Error> {
    let Some(first) = earlier.session else { return Ok(None) };
    if earlier.run == Some(to.run) {
        return Ok(None);
    }
    let mut session = first;
    for _ in 0..LONGEST_CHAIN {
        if session == to.session {
            return Ok(None);
        }
        match view.went_to(session)? {
            Some(next) => session = next,
            None => break,
        }
    }
    Ok(Some(first))
}

fn this_process() -> ProcessId {
    let pid = Pid(std::process::id().cast_signed());
    SystemProcesses.identify(pid).unwrap_or(ProcessId { pid, start: StartTime(0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Ids, RandomIds};

    const NOW: Timestamp = Timestamp(1_768_135_000_000);

    struct Desk {
        _folder: tempfile::TempDir,
        store: Store,
        asked: usize,
    }

    impl Desk {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(&Home::at(folder.path()), NOW).unwrap();
            Self { _folder: folder, store, asked: 0 }
        }

        fn send(
            &mut self,
            to: Recipient,
            text: &str,
            key: Option<&str>,
            then: Asked,
        ) -> Result<SendAnswer, SendError> {
            let request =
                SendRequest { text: text.to_owned(), idempotency_key: key.map(str::to_owned), timeout_ms: 1 };
            let (mut then, asked) = (Some(then), &mut self.asked);
            let mut ask = |_: &SendRequest| {
                *asked += 1;
                then.take().expect("asked once")
            };
            send_by(&mut ask, &mut self.store, to, &request, NOW)
        }
    }

    fn to() -> Recipient {
        Recipient { run: RandomIds.run(), session: RandomIds.session() }
    }

    fn answered(result: Delivery) -> Asked {
        Asked::Answered(SendAnswer { result, why: "so".into(), session: None, cursor: "5".into() })
    }

    fn broken() -> Asked {
        Asked::BrokeOff(RemoteError::Closed)
    }

    #[test]
    fn a_repeated_key_gets_the_first_answer_from_whichever_host() {
        let mut desk = Desk::new();
        let first = to();
        let answer = desk.send(first, "hi", Some("k"), answered(Delivery::Accepted)).unwrap();
        let resumed = Recipient { run: RandomIds.run(), ..first };
        assert_eq!(desk.send(first, "hi\n", Some("k"), broken()).unwrap(), answer);
        assert_eq!(desk.send(resumed, "hi", Some("k"), broken()).unwrap(), answer);
        assert_eq!(desk.asked, 1);
        assert!(matches!(desk.send(first, "ho", Some("k"), broken()), Err(SendError::OtherText(_))));
        assert!(matches!(desk.send(to(), "hi", Some("k"), broken()), Err(SendError::OtherSession { .. })));
        desk.send(first, "hi", None, answered(Delivery::Accepted)).unwrap();
        assert_eq!(desk.asked, 2, "without a key nothing is remembered");
    }

    #[test]
    fn a_key_whose_host_went_silent_is_asked_for_there_and_nowhere_else() {
        let mut desk = Desk::new();
        let first = to();
        assert_eq!(desk.send(first, "hi", Some("k"), broken()).unwrap().result, Delivery::Unknown);
        let resumed = Recipient { run: RandomIds.run(), ..first };
        let answer = desk.send(resumed, "hi", Some("k"), answered(Delivery::Accepted)).unwrap();
        assert_eq!((answer.result, desk.asked), (Delivery::Unknown, 1), "{}", answer.why);
        assert!(answer.why.contains("not typed again"));
        let answer = desk.send(first, "hi", Some("k"), answered(Delivery::TurnStarted)).unwrap();
        assert_eq!((answer.result, desk.asked), (Delivery::TurnStarted, 2));
        assert_eq!(desk.send(resumed, "hi", Some("k"), broken()).unwrap().result, Delivery::TurnStarted);
    }

    #[test]
    fn a_key_is_free_again_if_nothing_was_typed() {
        let mut desk = Desk::new();
        let to = to();
        assert_eq!(
            desk.send(to, "hi", Some("k"), answered(Delivery::Rejected)).unwrap().result,
            Delivery::Rejected
        );
        let refused = Asked::Not(RemoteError::NoHost);
        assert!(matches!(
            desk.send(to, "hi", Some("k"), refused),
            Err(SendError::Remote(RemoteError::NoHost))
        ));
        assert_eq!(
            desk.send(to, "ho", Some("k"), answered(Delivery::Queued)).unwrap().result,
            Delivery::Queued
        );
        assert_eq!(desk.asked, 3);
    }

    #[test]
    fn bad_texts_and_keys_reach_no_host() {
        let mut desk = Desk::new();
        assert!(matches!(desk.send(to(), "a\x1b", None, broken()), Err(SendError::Text(_))));
        let long = "k".repeat(LONGEST_KEY + 1);
        for key in ["", &long] {
            assert!(matches!(desk.send(to(), "a", Some(key), broken()), Err(SendError::Key)));
        }
        assert_eq!(desk.asked, 0);
    }
}
