//! What an answer means for the events that were sent. Pure.

use std::time::Duration;

use uuid::Uuid;

/// What came back over HTTP, cut to what is worth reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The receiver's own wish, already bounded ([`super::backoff::asked`]).
    pub retry_after: Option<Duration>,
    pub content_type: String,
    pub body: Vec<u8>,
    /// The body went on beyond what is read of one.
    pub overlong: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it has arrived, but for those named, which never will.
    Accepted { rejected: Vec<(Uuid, String)> },
    /// It has arrived, but for a part that is not named and never will.
    Partly(String),
    /// Too much at once: the same in smaller batches.
    Halve(String),
    /// The same, uncompressed.
    Identity(String),
    /// Nothing more until somebody does something about it.
    Pause(String),
    /// Once more, later.
    Later { why: String, asked: Option<Duration> },
    /// Something in it is refused for good: find out what by smaller batches.
    Isolate(String),
    /// All of it is refused for good.
    Refuse(String),
    /// The receiver takes no requests of this kind. As good as accepted if it takes the others.
    Unserved(String),
}

/// What the status alone decides; `None` where the receiver has agreed and its body must tell to what.
pub fn by_status(answer: &Answer) -> Option<Verdict> {
    let status = answer.status;
    let later = |why: String| Verdict::Later { why, asked: answer.retry_after };
    Some(match status {
        200 => return None,
        201..=299 => later(format!("answered {status}, which does not say that anything was stored")),
        300..=399 => {
            later(format!("answered {status}, a redirection, which is not followed; check the address"))
        }
        401 | 403 => Verdict::Pause(format!("refused the credentials ({status})")),
        407 => Verdict::Pause("the proxy wants credentials (407)".to_owned()),
        408 | 425 | 429 | 500..=599 => later(format!("answered {status}")),
        413 => Verdict::Halve(format!("too large ({status})")),
        415 => Verdict::Identity(format!("does not take this encoding ({status})")),
        400 | 422 => Verdict::Isolate(refusal(answer)),
        402..=499 => Verdict::Refuse(refusal(answer)),
        _ => later(format!("answered {status}, which means nothing")),
    })
}

/// An agreement whose body does not say so.
pub fn rubbish(what: &str) -> Verdict {
    Verdict::Later { why: format!("answered 200 with {what}; check the address"), asked: None }
}

/// As much of a receiver's own words as helps: one line, no control characters.
pub fn refusal(answer: &Answer) -> String {
    match in_one_line(&String::from_utf8_lossy(&answer.body)).as_str() {
        "" => format!("refused ({})", answer.status),
        words => format!("refused ({}): {words}", answer.status),
    }
}

pub fn in_one_line(words: &str) -> String {
    let line: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_consequence() {
        let word = |status: u16| {
            let answer = Answer { status, retry_after: Some(Duration::from_secs(7)), ..Answer::default() };
            match by_status(&answer) {
                None => "body",
                Some(Verdict::Accepted { .. }) => "accepted",
                Some(Verdict::Halve(_)) => "halve",
                Some(Verdict::Identity(_)) => "identity",
                Some(Verdict::Pause(_)) => "pause",
                Some(Verdict::Later { asked: Some(asked), .. }) if asked.as_secs() == 7 => "later",
                Some(Verdict::Later { .. }) => "later, but not as asked",
                Some(Verdict::Isolate(_)) => "isolate",
                Some(Verdict::Refuse(_)) => "refuse",
                Some(Verdict::Unserved(_)) => "unserved",
                Some(Verdict::Partly(_)) => "partly",
            }
        };
        for (status, expected) in [
            (0, "later"),
            (100, "later"),
            (200, "body"),
            (202, "later"),
            (204, "later"),
            (301, "later"),
            (308, "later"),
            (400, "isolate"),
            (401, "pause"),
            (402, "refuse"),
            (403, "pause"),
            (404, "refuse"),
            (405, "refuse"),
            (407, "pause"),
            (408, "later"),
            (409, "refuse"),
            (413, "halve"),
            (415, "identity"),
            (422, "isolate"),
            (425, "later"),
            (429, "later"),
            (451, "refuse"),
            (500, "later"),
            (503, "later"),
            (599, "later"),
            (999, "later"),
        ] {
            assert_eq!(word(status), expected, "{status}");
        }
    }

    #[test]
    fn a_receivers_words_are_one_short_line() {
        let body = format!("no\u{1b}[31m such\nthing{}", "x".repeat(10_000)).into_bytes();
        let text = refusal(&Answer { status: 404, body, ..Answer::default() });
        assert!(text.starts_with("refused (404): no [31m such thing"), "{text}");
        assert!(text.len() < 250 && !text.contains(char::is_control));
        assert_eq!(refusal(&Answer { status: 404, ..Answer::default() }), "refused (404)");
    }
}
