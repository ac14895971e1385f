//! Which texts can be sent to a session. Checked by the client, before anything is asked of a host, and again by the host.

use super::protocol::MAX_FRAME;

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

#[cfg(test)]
mod tests {
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
