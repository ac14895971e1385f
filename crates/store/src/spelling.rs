//! How the types of this room and its neighbours are spelled in columns; those of the wire spell themselves (`types::sqlite`).

use types::as_word;

use super::proxied::Seen;
use super::record::RecordKind;

as_word!(RecordKind, Seen);

/// Token counts are unsigned; a count beyond 2^63 is held at the edge rather than made negative.
pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn uncount(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
