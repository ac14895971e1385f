//! Which events of a batch may be taken in at all. Pure: the caller has asked the storage.
//!
//! A session belongs to the owner that reported it first, and no other owner adds to it. `seq` and `rev` count up by one at
//! the sender's; a number far beyond the known one would hide every honest event or revision below it, so it is refused.
//!
//! Senders deliver in the order in which events became true or were revised, so `seq`s nearly ascend, and a jump is
//! measured from the highest known one: received, or named by an END. Below that, any order is fine. Of a session that is
//! not known yet, the first report may begin far up: what is revised is sent again later, whole ranges at a time, and
//! `sync --backfill --scan` derives a call's `rev` from its tokens. Within one batch the order does not count.

use reader::Session;
use types::Attributes;
use types::Event;

/// How far beyond the known number the next one may be.
pub const JUMP: i64 = 100_000;
/// How high the first known number of a session or event may be. The longest conversations have some hundred thousand events, and the
/// largest calls two million tokens.
pub const FIRST: i64 = 10_000_000;

/// Why an event is not taken in; the text goes to its sender, where it is kept beside the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    // Senders keep the first two hundred characters.
    #[error(
        "the session belongs to another owner: use a token of its owner (codemie backend token create --replaces TOKEN), \
         then codemie sync --retry-dead"
    )]
    OtherOwner,
    #[error(
        "seq or lastSeq is more than {JUMP} beyond what is known of this session: deliver what comes before it, then \
         codemie sync --retry-dead"
    )]
    FarSeq,
    #[error("rev is more than {JUMP} beyond the one that is known of this event")]
    FarRevision,
    #[error("too many seqs of this session are missing before this one")]
    TooManyHoles,
}

/// Whether the next number is within reach of the known one.
fn within_reach(number: i64, known: Option<i64>) -> bool {
    known.map_or(number <= FIRST, |known| number.saturating_sub(known) <= JUMP)
}

pub fn owner(owner: i64, session: &Session) -> Result<(), Refused> {
    if session.owner == owner { Ok(()) } else { Err(Refused::OtherOwner) }
}

/// A revision of an event. `known` is the stored one of the same session; if `rev` is no more than [`JUMP`], it need not be
/// looked up.
pub fn revision(rev: i64, known: Option<i64>) -> Result<(), Refused> {
    if within_reach(rev, known) { Ok(()) } else { Err(Refused::FarRevision) }
}

/// The `seq` of an event in its session. Nothing is known of a session without received events.
pub fn sequence(event: &Event, session: &Session) -> Result<(), Refused> {
    let known = Some(session.highest_seq()).filter(|highest| *highest > 0);
    let last = match &event.attributes {
        Attributes::End(end) => end.last_seq.0.max(event.seq),
        _ => event.seq,
    };
    if within_reach(last, known) { Ok(()) } else { Err(Refused::FarSeq) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_limited_by_the_known_one() {
        for (number, known, good) in [
            (1, None, true),
            (FIRST, None, true),
            (FIRST + 1, None, false),
            (2_147_483_647, None, false),
            (JUMP, Some(0), true),
            (JUMP + 1, Some(0), false),
            (JUMP + 7, Some(7), true),
            (JUMP + 8, Some(7), false),
            (3, Some(900_000), true),
            (1_000_000, Some(900_000), true),
            (1_000_001, Some(900_000), false),
            (FIRST + JUMP, Some(FIRST), true),
            (i64::MAX, Some(0), false),
        ] {
            assert_eq!(within_reach(number, known), good, "{number} after {known:?}");
            assert_eq!(revision(number, known).is_ok(), good, "{number} after {known:?}");
        }
    }
}
