//! What an answer of a receiver means for the events that were sent. Pure.
//!
//! An answer becomes a [`Verdict`]: a fact about the receiver or about the events. What follows from it for the batch and for
//! the next attempt is decided by [`consequence`].
//!
//! Promise: nothing counts as arrived that the receiver has not confirmed, and every status has its verdict.

use std::time::Duration;

use uuid::Uuid;

use super::plan::Size;
use super::sender::Pace;
use types::Timestamp;

/// What came back over HTTP, bounded in size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// How long the receiver asked us to wait (`Retry-After`), already bounded ([`super::answer::asked`]).
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

// What follows from verdicts: for the batch that was sent, for the next attempt, and for how requests are packed. Pure;
// clock and chance are handed in. [`super::drain`] writes it down.

/// How soon a receiver that failed is tried again while somebody waits.
pub const INTERACTIVE_RETRY: Duration = Duration::from_millis(500);

/// How requests to one receiver are packed: what its answers have taught us so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    pub size: Size,
    /// The receiver takes no compressed bodies.
    pub uncompressed: bool,
}

impl Packing {
    pub fn new(max_batch: usize) -> Self {
        Self { size: Size::new(max_batch), uncompressed: false }
    }

    /// Learns from the verdict on a batch of `sent` events. True: the same events are worth sending again at once, packed
    /// differently.
    pub fn adapt(&mut self, verdict: &Verdict, sent: usize) -> bool {
        match verdict {
            Verdict::Accepted { .. } => {
                self.size.grow();
                false
            }
            Verdict::TooLarge(_) | Verdict::SomeRefused(_) => self.size.halve(sent),
            Verdict::EncodingRefused(_) => !std::mem::replace(&mut self.uncompressed, true),
            Verdict::PartlyAccepted(_)
            | Verdict::CredentialsRefused(_)
            | Verdict::Unconfirmed { .. }
            | Verdict::AllRefused(_)
            | Verdict::NotServed(_) => false,
        }
    }
}

/// The verdicts on the requests that describe one batch, collected in the order of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// How many requests were accepted, those of earlier attempts included.
    pub accepted: usize,
    /// What the receiver did not take of the batch, if it did not name the events.
    pub untaken: Option<String>,
    rejected: Vec<(Uuid, String)>,
}

impl Verdicts {
    pub fn after(accepted_before: usize) -> Self {
        Self { accepted: accepted_before, ..Self::default() }
    }

    /// Adds the verdict on the request to `path`. A verdict that comes back is that of the whole batch: further requests
    /// are not sent.
    pub fn add(&mut self, path: &str, verdict: Verdict) -> Option<Verdict> {
        match verdict {
            Verdict::Accepted { rejected } => {
                self.rejected.extend(rejected);
                self.accepted += 1;
            }
            Verdict::PartlyAccepted(why) => {
                self.untaken = Some(why);
                self.accepted += 1;
            }
            Verdict::NotServed(why) => self.untaken = Some(format!("takes nothing at {path}: {why}")),
            verdict => return Some(verdict),
        }
        None
    }

    /// The verdict on the whole batch after all of its requests. A receiver that serves none of them refuses it.
    pub fn conclude(&self) -> Verdict {
        match &self.untaken {
            Some(why) if self.accepted == 0 => Verdict::AllRefused(why.clone()),
            _ => Verdict::Accepted { rejected: self.rejected.clone() },
        }
    }
}

/// What is to be done about a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// It has arrived, except for these events, which become dead letters.
    Finish { rejected: Vec<(Uuid, String)> },
    /// Send it again at once, packed as the receiver wants it.
    Resend,
    /// All of its events become dead letters.
    Bury(String),
    /// Send nothing more until somebody changes the credentials.
    Pause(String),
    /// Send it again at `until`.
    Retry {
        why: String,
        until: Timestamp,
        /// Until when the receiver itself asked to be left alone.
        asked_until: Option<Timestamp>,
        /// Failures in a row, for our own backoff; `None` leaves the backoff as it is, because somebody waits.
        failures: Option<i64>,
    },
}

/// The state of delivery to a receiver when an answer came.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    pub pace: Pace,
    /// Failures in a row before this answer.
    pub failures: i64,
    /// In 0..1, for jitter.
    pub chance: f64,
    pub now: Timestamp,
}

/// What follows from the verdict on a batch of `sent` events.
pub fn consequence(verdict: Verdict, sent: usize, packing: &mut Packing, at: Circumstances) -> Consequence {
    if packing.adapt(&verdict, sent) {
        return Consequence::Resend;
    }
    match verdict {
        Verdict::Accepted { rejected } => Consequence::Finish { rejected },
        Verdict::TooLarge(why)
        | Verdict::EncodingRefused(why)
        | Verdict::SomeRefused(why)
        | Verdict::AllRefused(why)
        | Verdict::PartlyAccepted(why)
        | Verdict::NotServed(why) => Consequence::Bury(why),
        Verdict::CredentialsRefused(why) => Consequence::Pause(why),
        Verdict::Unconfirmed { why, retry_after } => {
            let asked = retry_after.unwrap_or_default();
            let (wait, failures) = match at.pace {
                Pace::Interactive => (INTERACTIVE_RETRY, None),
                Pace::Background => {
                    let failures = at.failures.saturating_add(1);
                    (delay(failures, at.chance), Some(failures))
                }
            };
            let asked_until = retry_after.map(|wait| at.now.after(wait));
            Consequence::Retry { why, until: at.now.after(wait.max(asked)), asked_until, failures }
        }
    }
}

// How long to wait before the next attempt. Pure: clock and chance are handed in.

/// The first wait; each further failure doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// A receiver that was away for a week is found within this time of its return.
pub const LONGEST: Duration = Duration::from_mins(5);
/// No receiver may silence us for longer, whatever it asks for.
pub const LONGEST_ASKED: Duration = Duration::from_hours(1);

/// Another process may note a wait after we read the clock and before we read the note; the wait then seems longer than it
/// is. A busy store can put ten seconds between the two.
pub const OVERTAKEN: Duration = Duration::from_mins(1);

/// The wait after so many failures in a row. Half of it is chance (`random` in 0..1), so that a thousand machines do not
/// come back to a recovering receiver in step.
pub fn delay(failures: i64, random: f64) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1).clamp(0, 30)).unwrap_or(30);
    let whole = FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST);
    whole / 2 + (whole / 2).mul_f64(random.clamp(0.0, 1.0))
}

/// What `Retry-After` asks for: seconds, or the date when to come back.
pub fn asked(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    let wait = if header.bytes().all(|byte| byte.is_ascii_digit()) && !header.is_empty() {
        Duration::from_secs(header.parse().unwrap_or(u64::MAX))
    } else {
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(header).ok()?;
        Timestamp(at.as_millisecond()).since(now)
    };
    Some(wait.min(LONGEST_ASKED))
}

/// How long to wait by the noted time. A wait longer than any that is ever noted means that the clock was set back
/// since, and is over.
pub fn left(until: Option<Timestamp>, now: Timestamp, longest: Duration) -> Duration {
    let wait = until.map_or(Duration::ZERO, |until| until.since(now));
    if wait > longest + OVERTAKEN { Duration::ZERO } else { wait }
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

#[cfg(test)]
mod consequence_tests {
    use super::*;

    fn why() -> String {
        "why".to_owned()
    }

    fn accepted() -> Verdict {
        Verdict::Accepted { rejected: Vec::new() }
    }

    fn unconfirmed(retry_after: Option<u64>) -> Verdict {
        Verdict::Unconfirmed { why: why(), retry_after: retry_after.map(Duration::from_secs) }
    }

    fn at(pace: Pace, failures: i64) -> Circumstances {
        Circumstances { pace, failures, chance: 1.0, now: Timestamp(0) }
    }

    #[test]
    fn each_verdict_has_its_consequence_for_one_event_and_for_many() {
        let (resend, bury) = (Consequence::Resend, Consequence::Bury(why()));
        let rejected = vec![(Uuid::from_u128(1), why())];
        for (verdict, many, single) in [
            (accepted(), Consequence::Finish { rejected: vec![] }, Consequence::Finish { rejected: vec![] }),
            (
                Verdict::Accepted { rejected: rejected.clone() },
                Consequence::Finish { rejected: rejected.clone() },
                Consequence::Finish { rejected },
            ),
            (Verdict::TooLarge(why()), resend.clone(), bury.clone()),
            (Verdict::SomeRefused(why()), resend.clone(), bury.clone()),
            (Verdict::EncodingRefused(why()), resend.clone(), resend),
            (Verdict::AllRefused(why()), bury.clone(), bury.clone()),
            (Verdict::NotServed(why()), bury.clone(), bury.clone()),
            (Verdict::PartlyAccepted(why()), bury.clone(), bury),
            (Verdict::CredentialsRefused(why()), Consequence::Pause(why()), Consequence::Pause(why())),
        ] {
            for (sent, expected) in [(20, many), (1, single)] {
                let mut packing = Packing::new(20);
                let found = consequence(verdict.clone(), sent, &mut packing, at(Pace::Background, 0));
                assert_eq!(found, expected, "{verdict:?} for {sent}");
            }
        }
    }

    #[test]
    fn events_are_buried_if_even_uncompressed_bodies_are_refused() {
        let mut packing = Packing::new(20);
        let refused = || Verdict::EncodingRefused(why());
        assert_eq!(consequence(refused(), 5, &mut packing, at(Pace::Background, 0)), Consequence::Resend);
        assert!(packing.uncompressed);
        assert_eq!(
            consequence(refused(), 5, &mut packing, at(Pace::Background, 0)),
            Consequence::Bury(why())
        );
    }

    #[test]
    fn batches_shrink_when_refused_and_grow_when_accepted() {
        let mut packing = Packing::new(20);
        assert!(packing.adapt(&Verdict::TooLarge(why()), 20));
        assert!(packing.adapt(&Verdict::SomeRefused(why()), 10));
        assert_eq!(packing.size.events(), 5);
        assert!(!packing.adapt(&accepted(), 5));
        assert_eq!(packing.size.events(), 10);
        assert!(!packing.adapt(&unconfirmed(None), 10));
        assert_eq!(packing.size.events(), 10, "a failure says nothing about the size");
    }

    #[test]
    fn retry_waits_for_backoff_and_for_what_the_receiver_asked() {
        for (pace, before, retry_after, wait_ms, asked_ms, failures) in [
            (Pace::Background, 0, None, 1000, None, Some(1)),
            (Pace::Background, 4, None, 16_000, None, Some(5)),
            (Pace::Background, 4, Some(2), 16_000, Some(2000), Some(5)),
            (Pace::Background, 0, Some(60), 60_000, Some(60_000), Some(1)),
            (Pace::Background, i64::MAX, None, 300_000, None, Some(i64::MAX)),
            (Pace::Interactive, 9, None, 500, None, None),
            (Pace::Interactive, 9, Some(0), 500, Some(0), None),
            (Pace::Interactive, 9, Some(60), 60_000, Some(60_000), None),
        ] {
            let expected = Consequence::Retry {
                why: why(),
                until: Timestamp(wait_ms),
                asked_until: asked_ms.map(Timestamp),
                failures,
            };
            let mut packing = Packing::new(1);
            let found = consequence(unconfirmed(retry_after), 1, &mut packing, at(pace, before));
            assert_eq!(found, expected, "{pace:?} after {before}, asked {retry_after:?}");
        }
    }

    #[test]
    fn batch_has_arrived_when_every_request_was_accepted_or_is_not_served() {
        let not_served = || Verdict::NotServed(why());
        let partly = || Verdict::PartlyAccepted("one".into());
        let nowhere = || Verdict::AllRefused("takes nothing at /p: why".into());
        for (before, verdicts, expected, accepted_in_all, untaken) in [
            (0, vec![accepted(), accepted()], accepted(), 2, None),
            (1, vec![accepted()], accepted(), 2, None),
            (0, vec![accepted(), partly()], accepted(), 2, Some("one")),
            (0, vec![not_served(), accepted()], accepted(), 1, Some("takes nothing at /p: why")),
            (0, vec![not_served(), not_served()], nowhere(), 0, Some("takes nothing at /p: why")),
            (0, vec![accepted(), unconfirmed(None)], unconfirmed(None), 1, None),
            (0, vec![Verdict::TooLarge(why()), accepted()], Verdict::TooLarge(why()), 0, None),
        ] {
            let mut all = Verdicts::after(before);
            let early = verdicts.clone().into_iter().find_map(|verdict| all.add("/p", verdict));
            assert_eq!(early.unwrap_or_else(|| all.conclude()), expected, "{verdicts:?}");
            assert_eq!((all.accepted, all.untaken.as_deref()), (accepted_in_all, untaken), "{verdicts:?}");
        }
    }

    #[test]
    fn rejected_events_of_all_requests_are_collected() {
        let rejected = |n| (Uuid::from_u128(n), why());
        let mut all = Verdicts::default();
        for n in [1, 2] {
            assert_eq!(all.add("/p", Verdict::Accepted { rejected: vec![rejected(n)] }), None);
        }
        assert_eq!(all.conclude(), Verdict::Accepted { rejected: vec![rejected(1), rejected(2)] });
    }
}

#[cfg(test)]
mod backoff_tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_the_longest_and_half_of_it_is_chance() {
        for (failures, least, most) in [
            (0, 500, 1000),
            (1, 500, 1000),
            (2, 1000, 2000),
            (5, 8000, 16_000),
            (9, 128_000, 256_000),
            (10, 150_000, 300_000),
            (1_000_000, 150_000, 300_000),
            (i64::MAX, 150_000, 300_000),
        ] {
            assert_eq!(delay(failures, 0.0).as_millis(), least, "{failures}");
            assert_eq!(delay(failures, 1.0).as_millis(), most, "{failures}");
        }
        assert_eq!(delay(3, f64::INFINITY), delay(3, 1.0));
    }

    #[test]
    fn retry_after_takes_seconds_and_dates_and_is_capped() {
        let now = Timestamp::parse("2026-11-16T10:00:00Z").unwrap();
        for (header, seconds) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("Mon, 16 Nov 2026 10:00:30 GMT", Some(30)),
            ("Mon, 16 Nov 2026 09:00:00 GMT", Some(0)),
            ("Sun, 16 Nov 2036 10:00:00 GMT", Some(3600)),
            ("86400000", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("-5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(asked(header, now).map(|wait| wait.as_secs()), seconds, "{header:?}");
        }
    }

    #[test]
    fn a_clock_set_back_does_not_lengthen_the_wait() {
        let (day, just_noted) = (86_400_000, 300_007);
        for (until, now, ms) in [
            (None, 0, 0),
            (Some(500), 0, 500),
            (Some(500), 900, 0),
            (Some(just_noted), 0, 300_007),
            (Some(day), 0, 0),
        ] {
            assert_eq!(left(until.map(Timestamp), Timestamp(now), LONGEST).as_millis(), ms, "{until:?}");
        }
    }
}
