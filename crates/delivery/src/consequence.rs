//! What follows from verdicts: for the batch that was sent, for the next attempt, and for how requests are packed. Pure;
//! clock and chance are handed in. [`super::drain`] writes it down.

use std::time::Duration;

use uuid::Uuid;

use super::answer::Verdict;
use super::backoff;
use super::batch::Size;
use super::progress::Pace;
use types::Timestamp;

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
                    (backoff::delay(failures, at.chance), Some(failures))
                }
            };
            let asked_until = retry_after.map(|wait| at.now.after(wait));
            Consequence::Retry { why, until: at.now.after(wait.max(asked)), asked_until, failures }
        }
    }
}

#[cfg(test)]
mod tests {
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
