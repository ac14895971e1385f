//! What an answer of a receiver means for the events that were sent. Pure.
//!
//! An answer becomes a [`Verdict`]: a fact about the receiver or about the events. What follows from it for the batch and for
//! the next attempt is decided in [`super::consequence`].
//!
//! Promise: nothing counts as arrived that the receiver has not confirmed, and every status has its verdict.

use std::time::Duration;

use uuid::Uuid;

/// What came back over HTTP, bounded in size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// How long the receiver asked us to wait (`Retry-After`), already bounded ([`super::backoff::asked`]).
    pub retry_after: Option<Duration>,
    pub content_type: String,
    pub body: Vec<u8>,
    /// The body was longer than is read of one.
    pub truncated: bool,
}

/// What an answer means. The text says why, as a person reads it after the receiver's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All events have arrived, except the rejected ones, which never will.
    Accepted { rejected: Vec<(Uuid, String)> },
    /// The events have arrived, except some that the receiver refused for good without naming them.
    PartlyAccepted(String),
    /// The request is too large; smaller batches may be accepted.
    TooLarge(String),
    /// The receiver does not take this compression; uncompressed requests may be accepted.
    EncodingRefused(String),
    /// Nothing is accepted until somebody changes the credentials.
    CredentialsRefused(String),
    /// There is no proof that anything has arrived: the same events are sent again later.
    Unconfirmed { why: String, retry_after: Option<Duration> },
    /// At least one of the events is refused for good; smaller batches show which.
    SomeRefused(String),
    /// All of the events are refused for good.
    AllRefused(String),
    /// The receiver has no endpoint for this kind of request. That is no refusal if it accepts the other kinds.
    NotServed(String),
}

/// The verdict that the status alone allows; `None` for 200, where the body must show what was accepted.
pub fn by_status(answer: &Answer) -> Option<Verdict> {
    let status = answer.status;
    let unconfirmed = |why: String| Verdict::Unconfirmed { why, retry_after: answer.retry_after };
    Some(match status {
        200 => return None,
        201..=299 => unconfirmed(format!("answered {status}, which does not say that anything was stored")),
        300..=399 => {
            unconfirmed(format!("answered {status}, a redirection, which is not followed; check the address"))
        }
        401 | 403 => Verdict::CredentialsRefused(format!("refused the credentials ({status})")),
        407 => Verdict::CredentialsRefused("the proxy wants credentials (407)".to_owned()),
        408 | 425 | 429 | 500..=599 => unconfirmed(format!("answered {status}")),
        413 => Verdict::TooLarge(format!("too large ({status})")),
        415 => Verdict::EncodingRefused(format!("does not take this encoding ({status})")),
        400 | 422 => Verdict::SomeRefused(refusal(answer)),
        402..=499 => Verdict::AllRefused(refusal(answer)),
        _ => unconfirmed(format!("answered {status}, which means nothing")),
    })
}

/// A 200 whose body is not a receipt for the events.
pub fn unusable(what: &str) -> Verdict {
    Verdict::Unconfirmed { why: format!("answered 200 with {what}; check the address"), retry_after: None }
}

/// The receiver's own reason for a refusal: one line, no control characters.
pub fn refusal(answer: &Answer) -> String {
    match in_one_line(&String::from_utf8_lossy(&answer.body)).as_str() {
        "" => format!("refused ({})", answer.status),
        reason => format!("refused ({}): {reason}", answer.status),
    }
}

/// At most 200 characters, without control characters.
pub fn in_one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_verdict() {
        let name = |status: u16| {
            let answer = Answer { status, retry_after: Some(Duration::from_secs(7)), ..Answer::default() };
            match by_status(&answer) {
                None => "by the body",
                Some(Verdict::Accepted { .. }) => "accepted",
                Some(Verdict::PartlyAccepted(_)) => "partly accepted",
                Some(Verdict::TooLarge(_)) => "too large",
                Some(Verdict::EncodingRefused(_)) => "encoding",
                Some(Verdict::CredentialsRefused(_)) => "credentials",
                Some(Verdict::Unconfirmed { retry_after: Some(wait), .. }) if wait.as_secs() == 7 => {
                    "unconfirmed"
                }
                Some(Verdict::Unconfirmed { .. }) => "unconfirmed, Retry-After ignored",
                Some(Verdict::SomeRefused(_)) => "some refused",
                Some(Verdict::AllRefused(_)) => "all refused",
                Some(Verdict::NotServed(_)) => "not served",
            }
        };
        for (status, expected) in [
            (0, "unconfirmed"),
            (100, "unconfirmed"),
            (200, "by the body"),
            (202, "unconfirmed"),
            (204, "unconfirmed"),
            (301, "unconfirmed"),
            (308, "unconfirmed"),
            (400, "some refused"),
            (401, "credentials"),
            (402, "all refused"),
            (403, "credentials"),
            (404, "all refused"),
            (405, "all refused"),
            (407, "credentials"),
            (408, "unconfirmed"),
            (409, "all refused"),
            (413, "too large"),
            (415, "encoding"),
            (422, "some refused"),
            (425, "unconfirmed"),
            (429, "unconfirmed"),
            (451, "all refused"),
            (500, "unconfirmed"),
            (503, "unconfirmed"),
            (599, "unconfirmed"),
            (999, "unconfirmed"),
        ] {
            assert_eq!(name(status), expected, "{status}");
        }
    }

    #[test]
    fn refusal_is_one_short_line_without_control_characters() {
        let body = format!("no\u{1b}[31m such\nthing{}", "x".repeat(10_000)).into_bytes();
        let text = refusal(&Answer { status: 404, body, ..Answer::default() });
        assert!(text.starts_with("refused (404): no [31m such thing"), "{text}");
        assert!(text.len() < 250 && !text.contains(char::is_control));
        assert_eq!(refusal(&Answer { status: 404, ..Answer::default() }), "refused (404)");
    }
}
