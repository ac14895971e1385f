//! Making a choice in the dialog of a background session.

use std::time::Duration;

use super::client::{Connection, RemoteError};
use super::protocol::{AnswerRequest, FromHost, SendAnswer, ToHost};
use super::send::{Recipient, unknown};
use os::home::Home;
use types::Timestamp;

/// What a host may take: the screen comes to rest, and then the agent takes the choice.
const SEEN_THROUGH: Duration = Duration::from_secs(15);

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
    match connection.ask(&ToHost::Answer(request.clone()), SEEN_THROUGH) {
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
