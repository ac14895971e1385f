//! Which commit was checked out when a call was made. Looked at with every batch of lines that is read, so at each turn and tool:
//! a move of HEAD is then known to the millisecond, where git's own log has whole seconds.

use std::path::Path;

use crate::file::Stamp;
use crate::project::head::{Head, Move, MoveKind, SHORT, Worktree, places, short};
use types::Timestamp;

/// The moves of HEAD in the worktree of one session.
#[derive(Debug, Default)]
pub struct HeadLog {
    worktree: Option<Worktree>,
    /// Of the log as it was read last.
    stamp: Option<Stamp>,
    moves: Vec<Move>,
    head: Option<Head>,
}

/// Where a call was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlace {
    pub branch: Option<String>,
    /// The first digits.
    pub head: String,
}

impl HeadLog {
    pub fn of(folder: &Path) -> Self {
        Self { worktree: Worktree::of(folder), ..Self::default() }
    }

    /// Reads what is new; costs one `stat` where nothing is.
    pub fn look(&mut self) {
        let Some(worktree) = &self.worktree else { return };
        let stamp = Stamp::of(&worktree.log());
        // Without a log, HEAD itself is looked at: it may be about to get its first commit.
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let moves = worktree.moves();
        self.head = worktree.head();
        self.moves = keep_exact(&self.moves, moves);
        self.stamp = stamp;
    }

    /// `None` where it is not certain.
    pub fn at(&self, at: Timestamp) -> Option<CallPlace> {
        if self.moves.is_empty() {
            return self.unborn();
        }
        let mut found = places(&self.moves, at).map(|place| self.place(place));
        let first = found.next()??;
        found.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    /// Before the first commit there is a branch without one, now and at every time before.
    fn unborn(&self) -> Option<CallPlace> {
        let head = self.head.as_ref().filter(|head| head.branch.is_some() && head.commit.is_none())?;
        Some(CallPlace { branch: head.branch.clone(), head: "0".repeat(SHORT) })
    }

    /// After so many moves.
    fn place(&self, place: usize) -> Option<CallPlace> {
        let commit = match place.checked_sub(1) {
            Some(last) => &self.moves.get(last)?.to,
            None => &self.moves.first()?.from,
        };
        let mut branch = self.head.as_ref().and_then(|head| head.branch.clone());
        for step in self.moves.get(place..)?.iter().rev() {
            if let MoveKind::Checkout { from, .. } = &step.kind {
                // A detached HEAD is named by its hash.
                branch = Some(from.clone()).filter(|name| crate::project::head::hash(name).is_none());
            }
        }
        Some(CallPlace { branch, head: short(commit).to_owned() })
    }
}

/// The log alone dates its last line exactly; what was the last line before stays exact.
fn keep_exact(before: &[Move], mut moves: Vec<Move>) -> Vec<Move> {
    // The beginning may have been cut off since.
    let mut known = before.iter().filter(|step| step.is_exact).peekable();
    for step in &mut moves {
        if let Some(exact) = known.peek()
            && (&exact.from, &exact.to, exact.at.0 / 1000) == (&step.from, &step.to, step.at.0 / 1000)
        {
            (step.at, step.is_exact) = (exact.at, true);
            known.next();
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from: char, to: char, at: i64, is_exact: bool, kind: MoveKind) -> Move {
        let hash = |letter: char| letter.to_string().repeat(40);
        Move { from: hash(from), to: hash(to), at: Timestamp(at), is_exact, kind }
    }

    #[test]
    fn a_call_is_on_the_head_of_its_time_if_that_is_certain() {
        let checkout = MoveKind::Checkout { from: "main".into(), to: "fix".into() };
        let log = HeadLog {
            head: Some(Head { branch: Some("fix".into()), commit: None }),
            moves: vec![
                step('a', 'b', 10_000, false, MoveKind::Commit),
                step('b', 'b', 20_000, false, checkout),
                step('b', 'c', 30_400, true, MoveKind::Commit),
            ],
            ..HeadLog::default()
        };
        let place = |at| log.at(Timestamp(at)).map(|place| (place.branch.unwrap_or_default(), place.head));
        let is = |branch: &str, letter: char| Some((branch.to_owned(), letter.to_string().repeat(12)));
        assert_eq!(place(9_999), is("main", 'a'));
        assert_eq!(place(10_500), None, "before or after, nobody knows");
        assert_eq!(place(11_000), is("main", 'b'));
        assert_eq!(place(20_500), None, "the same commit, on one of two branches");
        assert_eq!(place(30_399), is("fix", 'b'));
        assert_eq!(place(30_400), is("fix", 'c'));
        assert_eq!(HeadLog::default().at(Timestamp(5)), None);
    }

    #[test]
    fn a_move_that_was_dated_exactly_stays_so() {
        let before = [step('a', 'b', 10_123, true, MoveKind::Commit)];
        let now = vec![
            step('a', 'b', 10_000, false, MoveKind::Commit),
            step('b', 'c', 12_456, true, MoveKind::Commit),
        ];
        let kept = keep_exact(&before, now);
        assert_eq!(kept.iter().map(|step| step.at.0).collect::<Vec<_>>(), [10_123, 12_456]);
        assert!(kept.iter().all(|step| step.is_exact));
    }
}
