//! Sending a text to a background session, once for each idempotency key, whoever asks and whatever breaks.
//!
//! Two memories work together. The host of a run types a text under a key once, and gives everybody who asks again the same
//! answer. The store remembers keys for a day, beyond the life of hosts and clients: a key whose host has gone without an answer
//! is answered with `unknown` for ever, since its text may have been typed.

use std::time::Duration;

use super::client::{Connection, RemoteError};
use super::protocol::{AnswerRequest, FromHost, MAX_FRAME, SendAnswer, SendRequest, ToHost};
use crate::live::events::Cursor;
use os::home::Home;
use pty::process::{Processes, SystemProcesses};
use store::{BootAndPidNs, Claim, NewRequest, RequestRow, Store, View};
use types::{Delivery, Pid, ProcessId, RunId, SessionId, StartTime, Timestamp};

/// The kind of these requests in the store.
const KIND: &str = "send";
/// Longer than any key needs to be.
pub const LONGEST_KEY: usize = 200;
/// What a host may take beyond the caller's time: a text that was typed in the last moment is seen through, and Enter may be
/// pressed twice.
const TEXT_SEEN_THROUGH: Duration = Duration::from_secs(10);
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
    let further = Duration::from_millis(request.timeout_ms) + TEXT_SEEN_THROUGH;
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
    let text = prepare(&request.text)?;
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
    let (content, realm) = (fingerprint(&text), BootAndPidNs::here());
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

// Which texts can be sent to a session. Checked by the client, before anything is asked of a host, and again by the host.

/// The longest text, in bytes. In a frame each of them may take two.
pub const LONGEST: usize = MAX_FRAME / 2 - 1024;

/// Why a text cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("there is nothing to send: the text is empty")]
    Empty,
    #[error("the text has {0} bytes, and {LONGEST} is the most; put it into a file and send its path")]
    TooLong(usize),
    #[error(
        "the text holds {what} in line {line}, which the agent would take for a key; only text, tabs and line ends can be sent"
    )]
    Control { what: String, line: usize },
}

/// The text as it is typed: with `\n` at the end of a line and none at the end of the text.
pub fn prepare(text: &str) -> Result<String, TextError> {
    if text.len() > LONGEST {
        return Err(TextError::TooLong(text.len()));
    }
    let text = text.replace("\r\n", "\n");
    let text = text.trim_end_matches('\n');
    let mut line = 1;
    for letter in text.chars() {
        match letter {
            '\n' => line += 1,
            '\t' => {}
            control if control.is_control() => {
                return Err(TextError::Control { what: name(control), line });
            }
            _ => {}
        }
    }
    if text.trim().is_empty() { Err(TextError::Empty) } else { Ok(text.to_owned()) }
}

fn name(control: char) -> String {
    match control {
        '\x1b' => "an ESC byte".to_owned(),
        '\r' => "a carriage return".to_owned(),
        '\0' => "a NUL byte".to_owned(),
        '\x7f' => "a DEL byte".to_owned(),
        other => format!("the control character U+{:04X}", u32::from(other)),
    }
}

/// A fingerprint of a text under an idempotency key. The text itself is kept nowhere.
pub fn fingerprint(text: &str) -> String {
    use sha2::{Digest, Sha256};
    types::hex::hex(&Sha256::digest(text.as_bytes()))
}

// Making a choice in the dialog of a background session.

/// What a host may take: the screen comes to rest, and then the agent takes the choice.
const CHOICE_SEEN_THROUGH: Duration = Duration::from_secs(15);

/// Has the host compare the dialog with its screen and make the choice, and waits for what becomes of it.
pub fn answer(
    home: &Home,
    to: Recipient,
    request: &AnswerRequest,
    now: Timestamp,
) -> Result<SendAnswer, RemoteError> {
    let mut connection = Connection::open(home, to.run)?;
    if !connection.welcome.answers {
        let build = &connection.welcome.build;
        return Err(RemoteError::Refused(format!(
            "the session's host was started from an older codemie ({build}), which cannot answer dialogs; attach to the session \
             and answer there"
        )));
    }
    match connection.ask(&ToHost::Answer(request.clone()), CHOICE_SEEN_THROUGH) {
        Ok(FromHost::Sent(answer)) => Ok(answer),
        Err(error @ RemoteError::Refused(_)) => Err(error),
        other => {
            let error = other.err().unwrap_or(RemoteError::Closed);
            let why = format!("{error}; the choice may have been typed, and is not typed again");
            Ok(unknown(now, Some(to.session), &why))
        }
    }
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

#[cfg(test)]
mod text_tests {
    use super::*;

    #[test]
    fn text_tabs_and_line_ends_can_be_sent_and_nothing_else() {
        let control = |what: &str, line| Err(TextError::Control { what: what.to_owned(), line });
        for (text, expected) in [
            ("x", Ok("x")),
            ("héllo 日本 👩‍👩‍👧\tand\n\n  more", Ok("héllo 日本 👩‍👩‍👧\tand\n\n  more")),
            ("one\r\ntwo\r\n", Ok("one\ntwo")),
            ("one\n\n\n", Ok("one")),
            ("", Err(TextError::Empty)),
            (" \n\t\n ", Err(TextError::Empty)),
            ("a\nb\x1b[201~c", control("an ESC byte", 2)),
            ("a\rb", control("a carriage return", 1)),
            ("\x03", control("the control character U+0003", 1)),
            ("\x7f", control("a DEL byte", 1)),
            ("a\0", control("a NUL byte", 1)),
            ("\u{9b}31m", control("the control character U+009B", 1)),
        ] {
            assert_eq!(prepare(text), expected.map(str::to_owned), "{text:?}");
        }
        let long = "x".repeat(LONGEST);
        assert_eq!(prepare(&long).as_deref(), Ok(&*long));
        assert_eq!(prepare(&(long + "x")), Err(TextError::TooLong(LONGEST + 1)));
    }

    #[test]
    fn the_longest_text_fits_into_a_frame_whatever_it_holds() {
        use crate::remote::frames::Frame;
        use crate::remote::protocol::{SendRequest, ToHost};
        let text = "\n".repeat(LONGEST);
        let request = SendRequest { text, idempotency_key: Some("k".repeat(200)), timeout_ms: u64::MAX };
        assert!(ToHost::Send(request).to_bytes().len() <= MAX_FRAME);
    }
}

#[cfg(test)]
mod answer_tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::remote::address::bind;
    use crate::remote::frames::{Frame, Frames};
    use crate::remote::protocol::{SendAnswer, Welcome};
    use types::{Delivery, RunId, SessionId};

    /// Asks a host that welcomes with this, answers one question with that, and ends the connection.
    fn ask(welcome: Welcome, answers: Option<FromHost>) -> Result<SendAnswer, RemoteError> {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let to = Recipient { run: RunId(uuid::Uuid::nil()), session: SessionId(uuid::Uuid::nil()) };
        let listener = bind(&home, to.run).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut frames, mut bytes) = (Frames::default(), [0; 1024]);
            let mut left = vec![Some(FromHost::Welcome(welcome)), answers];
            while !left.is_empty() {
                match frames.take_next::<ToHost>().unwrap() {
                    Some(_) => match left.remove(0) {
                        Some(answer) => stream.write_all(&answer.to_bytes()).unwrap(),
                        None => return,
                    },
                    None => match stream.read(&mut bytes).unwrap() {
                        0 => return,
                        count => frames.add(&bytes[..count]),
                    },
                }
            }
        });
        let request = AnswerRequest { dialog: "0123456789abcdef".into(), choice: 1 };
        let answered = answer(&home, to, &request, Timestamp(1));
        serving.join().unwrap();
        answered
    }

    #[test]
    fn an_older_host_is_not_asked() {
        let older = Welcome { version: 1, build: "0.1.0".into(), ..Welcome::default() };
        let error = ask(older, None).unwrap_err().to_string();
        assert!(error.contains("older codemie (0.1.0)") && error.contains("attach"), "{error}");
    }

    #[test]
    fn a_host_that_goes_away_in_between_leaves_it_unknown() {
        let answered = ask(Welcome { answers: true, ..Welcome::default() }, None).unwrap();
        assert_eq!(answered.result, Delivery::Unknown);
        let sent = SendAnswer {
            result: Delivery::Accepted,
            why: "the dialog has left the screen".into(),
            session: None,
            cursor: "7".into(),
        };
        let answers = Some(FromHost::Sent(sent.clone()));
        assert_eq!(ask(Welcome { answers: true, ..Welcome::default() }, answers).unwrap(), sent);
    }
}
