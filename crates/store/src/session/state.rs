//! The life of a session as a pure machine: a state and a move give the next state, or a refusal.
//!
//! Nothing else decides what a session may do next. [`crate::session::lifecycle`] asks here first, then writes; a move
//! that is refused changes nothing. The table test at the end names every state with every move.

use std::fmt;

use types::{EndReason, Link, Status};

use crate::SessionRow;
pub use crate::{Exit, Phase};

/// Every state a stored session can be in. A provisional session found to be a known one is no longer stored: its id
/// has become an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Continues a conversation that is not known yet; nothing of it has been reported.
    ProvisionalPending,
    ProvisionalAmbiguous,
    OpenPending,
    OpenAmbiguous,
    OpenMatched,
    ClosedMatched,
    /// Ended without the agent's session ever being known.
    ClosedFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// The evidence allows two conversations.
    Doubt,
    /// The agent's session is known, and no other session has it.
    BindNew,
    /// The agent's session is known, and it is that of a session already here.
    BindKnown,
    /// A second run takes up the same conversation.
    Join,
    /// A run leaves, another stays.
    LeaveOne,
    /// The last run leaves: exit, `/clear`, switch, stop, signal, crash alike.
    LeaveLast,
    /// A run continues a conversation that had ended.
    Reopen,
    /// Something new was read from its file.
    Learn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    State(State),
    /// The session was another one all along.
    Merged,
}

/// A move that is not allowed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session that is {from} cannot {attempted}")]
pub struct Illegal {
    pub from: State,
    pub attempted: Move,
}

impl State {
    pub const ALL: [Self; 7] = [
        Self::ProvisionalPending,
        Self::ProvisionalAmbiguous,
        Self::OpenPending,
        Self::OpenAmbiguous,
        Self::OpenMatched,
        Self::ClosedMatched,
        Self::ClosedFailed,
    ];

    /// The state of a stored session. A pair that no move leads to was not written by codemie.
    pub fn of_row(row: &SessionRow) -> Result<Self, crate::Error> {
        Self::of(row.phase, row.link).ok_or_else(|| {
            crate::Error::Inconsistent(format!("session {} is {} and {}", row.id, row.phase, row.link))
        })
    }

    /// `None` for a pair that no move leads to.
    pub fn of(phase: Phase, link: Link) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.parts() == (phase, link))
    }

    pub fn parts(self) -> (Phase, Link) {
        match self {
            Self::ProvisionalPending => (Phase::Provisional, Link::Pending),
            Self::ProvisionalAmbiguous => (Phase::Provisional, Link::Ambiguous),
            Self::OpenPending => (Phase::Open, Link::Pending),
            Self::OpenAmbiguous => (Phase::Open, Link::Ambiguous),
            Self::OpenMatched => (Phase::Open, Link::Matched),
            Self::ClosedMatched => (Phase::Closed, Link::Matched),
            Self::ClosedFailed => (Phase::Closed, Link::Failed),
        }
    }

    pub fn step(self, attempted: Move) -> Result<Next, Illegal> {
        use State as S;
        Ok(Next::State(match (self, attempted) {
            (S::ProvisionalPending | S::ProvisionalAmbiguous, Move::BindKnown) => return Ok(Next::Merged),
            (S::ProvisionalPending | S::ProvisionalAmbiguous, Move::Doubt) => S::ProvisionalAmbiguous,
            (S::OpenPending | S::OpenAmbiguous, Move::Doubt) => S::OpenAmbiguous,
            (
                S::ProvisionalPending | S::ProvisionalAmbiguous | S::OpenPending | S::OpenAmbiguous,
                Move::BindNew,
            )
            | (S::OpenMatched, Move::Join | Move::LeaveOne | Move::Learn)
            | (S::ClosedMatched, Move::Reopen) => S::OpenMatched,
            (
                S::ProvisionalPending | S::ProvisionalAmbiguous | S::OpenPending | S::OpenAmbiguous,
                Move::LeaveLast,
            ) => S::ClosedFailed,
            (S::OpenMatched, Move::LeaveLast)
            | (S::ClosedMatched, Move::Learn)
            | (S::ClosedFailed, Move::BindNew) => S::ClosedMatched,
            (from, attempted) => return Err(Illegal { from, attempted }),
        }))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (phase, link) = self.parts();
        write!(f, "{phase} and {link}")
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Doubt => "become ambiguous",
            Self::BindNew => "be bound to a new agent session",
            Self::BindKnown => "become an alias of a known session",
            Self::Join => "be joined by a further run",
            Self::LeaveOne => "be left by one run of several",
            Self::LeaveLast => "be ended",
            Self::Reopen => "be re-opened",
            Self::Learn => "take up records",
        })
    }
}

/// Why and how a run ends its stay in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub reason: EndReason,
    pub exit: Option<Exit>,
}

impl Ending {
    /// The agent's process ended by itself or by a signal of someone else's.
    pub fn exited(exit: Exit) -> Self {
        let reason = match exit {
            Exit::Code(_) => EndReason::Exit,
            Exit::Signal(_) => EndReason::Signal,
        };
        Self { reason, exit: Some(exit) }
    }

    /// It was asked to end by a signal. Agents catch it and exit by themselves.
    pub fn asked(exit: Exit) -> Self {
        Self { reason: EndReason::Signal, exit: Some(exit) }
    }

    /// It was ended by `codemie stop`, or by another codemie that goes on with its conversation.
    pub fn stopped(exit: Exit) -> Self {
        Self { reason: EndReason::Stopped, exit: Some(exit) }
    }

    pub fn crashed() -> Self {
        Self { reason: EndReason::Crash, exit: None }
    }

    pub fn status(self) -> Status {
        match (self.reason, self.exit) {
            (EndReason::Crash, _) => Status::Interrupted,
            // Agents exit with 0, 143 or by the signal when they are stopped, each in its own way: that says nothing of the session.
            (EndReason::Clear | EndReason::Switch | EndReason::Stopped, _)
            | (_, Some(Exit::Code(0)) | None) => Status::Completed,
            (_, Some(Exit::Code(_) | Exit::Signal(_))) => Status::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVES: [Move; 8] = [
        Move::Doubt,
        Move::BindNew,
        Move::BindKnown,
        Move::Join,
        Move::LeaveOne,
        Move::LeaveLast,
        Move::Reopen,
        Move::Learn,
    ];

    /// Rows are states, columns are moves in the order of `MOVES`; `-` is refused.
    const TABLE: [(State, [&str; 8]); 7] = [
        //                         doubt, bind new, bind known, join, leave one, leave last, reopen, learn
        (State::ProvisionalPending, ["PA", "OM", "merged", "-", "-", "CF", "-", "-"]),
        (State::ProvisionalAmbiguous, ["PA", "OM", "merged", "-", "-", "CF", "-", "-"]),
        (State::OpenPending, ["OA", "OM", "-", "-", "-", "CF", "-", "-"]),
        (State::OpenAmbiguous, ["OA", "OM", "-", "-", "-", "CF", "-", "-"]),
        (State::OpenMatched, ["-", "-", "-", "OM", "OM", "CM", "-", "OM"]),
        (State::ClosedMatched, ["-", "-", "-", "-", "-", "-", "OM", "CM"]),
        (State::ClosedFailed, ["-", "CM", "-", "-", "-", "-", "-", "-"]),
    ];

    fn outcome(state: State, attempted: Move) -> &'static str {
        match state.step(attempted) {
            Err(_) => "-",
            Ok(Next::Merged) => "merged",
            Ok(Next::State(State::ProvisionalPending)) => "PP",
            Ok(Next::State(State::ProvisionalAmbiguous)) => "PA",
            Ok(Next::State(State::OpenPending)) => "OP",
            Ok(Next::State(State::OpenAmbiguous)) => "OA",
            Ok(Next::State(State::OpenMatched)) => "OM",
            Ok(Next::State(State::ClosedMatched)) => "CM",
            Ok(Next::State(State::ClosedFailed)) => "CF",
        }
    }

    #[test]
    fn every_state_with_every_move() {
        for (state, row) in TABLE {
            for (attempted, expected) in MOVES.into_iter().zip(row) {
                assert_eq!(outcome(state, attempted), expected, "{state}: {attempted}");
            }
        }
        assert_eq!(TABLE.map(|(state, _)| state), State::ALL);
    }

    #[test]
    fn only_pairs_that_moves_lead_to_are_states() {
        assert_eq!(State::of(Phase::Open, Link::Failed), None);
        assert_eq!(State::of(Phase::Provisional, Link::Matched), None);
        assert_eq!(State::of(Phase::Closed, Link::Pending), None);
        for state in State::ALL {
            let (phase, link) = state.parts();
            assert_eq!(State::of(phase, link), Some(state));
        }
    }

    #[test]
    fn status_follows_reason_and_exit() {
        let table = [
            (EndReason::Exit, Some(Exit::Code(0)), Status::Completed),
            (EndReason::Exit, Some(Exit::Code(1)), Status::Failed),
            (EndReason::Exit, None, Status::Completed),
            (EndReason::Clear, None, Status::Completed),
            (EndReason::Switch, None, Status::Completed),
            (EndReason::Signal, Some(Exit::Signal(15)), Status::Failed),
            (EndReason::Signal, Some(Exit::Code(143)), Status::Failed),
            (EndReason::Stopped, Some(Exit::Signal(9)), Status::Completed),
            (EndReason::Stopped, Some(Exit::Code(143)), Status::Completed),
            (EndReason::Stopped, Some(Exit::Code(0)), Status::Completed),
            (EndReason::Crash, None, Status::Interrupted),
            (EndReason::Crash, Some(Exit::Code(0)), Status::Interrupted),
        ];
        for (reason, exit, status) in table {
            assert_eq!(Ending { reason, exit }.status(), status, "{reason} {exit:?}");
        }
    }
}
