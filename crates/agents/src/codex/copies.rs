//! The lines of its parent that a fork's file begins with.
//!
//! In older versions (measured: 0.60, 0.92, 0.120; not in 0.166) a fork begins with its own first line and then all lines of its
//! parent, the parent's first one included, written in one go and with the time of that moment. In 0.60 a prompt that is edited
//! and sent again is such a fork, too. These lines are calls of the parent, under the parent's keys, and copies here:
//! counted again they would double the parent's cost.
//!
//! The turns show where the parent's lines end: their ids are UUIDs of version 7, so a turn with a smaller id than the
//! fork's own is older than the fork. Versions without such ids (0.60, 0.92) leave the time: copied lines are written within
//! moments, and the fork's own first turn waits for the user.

use serde::{Deserialize, Serialize};

use types::Timestamp;

/// A pause before a turn that ends the copied lines, in milliseconds. Why 75: copied lines were measured at most 12 ms apart on
/// a loaded machine, and the quickest turn (`/fork` with a prompt behind it) came 108 ms after them.
const PAUSE: i64 = 75;

/// The copied part of a file, while it is being read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Copies {
    /// The thread they come from. `None` where there are several ancestors, because no line names its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    /// The time of the last line.
    last: Timestamp,
    /// Turns have ids, which decide.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    turn_ids: bool,
    /// Calls and prompts of the parent, counted as in its own file.
    calls: u64,
    prompts: u64,
}

impl Copies {
    pub(super) fn of(parent: &str, at: Timestamp) -> Self {
        Self { of: Some(parent.to_owned()), last: at, ..Self::default() }
    }

    /// The parent is a fork itself.
    pub(super) fn further_ancestor(&mut self, at: Timestamp) {
        (self.of, self.last) = (None, at);
    }

    pub(super) fn call_key(&mut self) -> Option<String> {
        self.calls += 1;
        self.of.as_ref().map(|of| format!("{of}:{}", self.calls))
    }

    pub(super) fn prompt_key(&mut self) -> Option<String> {
        self.prompts += 1;
        self.of.as_ref().map(|of| format!("{of}:{}", self.prompts))
    }

    /// A line that begins nothing.
    pub(super) fn goes_on(&mut self, at: Timestamp) {
        self.last = self.last.max(at);
    }

    /// Whether the line that begins a turn, or the prompt before it, is the fork's own.
    pub(super) fn end_with(&mut self, turn: Option<&str>, thread: &str, at: Timestamp) -> bool {
        if let Some(turn) = turn {
            self.turn_ids = true;
            return turn > thread;
        }
        !self.turn_ids && at.0.saturating_sub(self.last.0) >= PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_parents_lines_is_found() {
        let mut copies = Copies::of("p", Timestamp(1000));
        for (turn, at, ends) in
            [(None, 1010, false), (None, 1074, false), (None, 1075, true), (None, 9000, true)]
        {
            assert_eq!(copies.end_with(turn, "t5", Timestamp(at)), ends, "{turn:?} {at}");
        }
        copies.goes_on(Timestamp(1040));
        assert!(!copies.end_with(None, "t5", Timestamp(1100)));
        assert!(!copies.end_with(Some("t4"), "t5", Timestamp(9000)), "a turn before the fork");
        assert!(!copies.end_with(None, "t5", Timestamp(9000)), "turns have ids, and decide");
        assert!(copies.end_with(Some("t6"), "t5", Timestamp(1040)));
    }

    #[test]
    fn keys_are_the_parents_own() {
        let mut copies = Copies::of("p", Timestamp(0));
        assert_eq!(copies.call_key().as_deref(), Some("p:1"));
        assert_eq!(copies.prompt_key().as_deref(), Some("p:1"));
        assert_eq!(copies.call_key().as_deref(), Some("p:2"));
        copies.further_ancestor(Timestamp(0));
        assert_eq!(copies.call_key(), None);
    }
}
