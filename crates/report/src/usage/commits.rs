//! Which commit a call was spent on: the one that HEAD moved to next in the call's worktree.
//!
//! The HEAD of the call's time was noted with it; git's log of the worktree's HEAD says what came after. A checkout, a reset or a
//! rebase makes no commit of new work. A commit that was amended counts as the one in its place. What is not certain belongs to
//! no commit, and neither does what is not committed yet.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use os::project::head::{Move, MoveKind, Worktree, is_zero, places};
use types::Timestamp;
use usage::SpentCall;

/// As many of the latest commits are looked up by their patches.
const MOST_COMMITS: usize = 1000;

/// The logs that were read, each once.
#[derive(Debug, Default)]
pub(super) struct CommitFinder {
    histories: HashMap<PathBuf, Option<History>>,
    /// The worktrees that calls were spent in.
    found: HashSet<PathBuf>,
    /// The commits that they were spent on.
    spent: HashMap<String, Made>,
}

/// Where a commit was made, and when.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) root: PathBuf,
    /// `None`: what git's log of HEAD says no more.
    pub(super) at: Option<Timestamp>,
}

#[derive(Debug)]
struct History {
    root: PathBuf,
    moves: Vec<Move>,
    /// Commits that were amended, and by what.
    amended: HashMap<String, String>,
}

impl CommitFinder {
    pub(super) fn commit_of(&mut self, call: &SpentCall<'_>) -> Option<String> {
        self.history(call)?;
        let history = self.histories.get(call.owner.folder.as_ref()?)?.as_ref()?;
        let SpentOn::Commit(commit) = spent_on(&history.moves, call) else { return None };
        let (commit, root) = (history.latest(commit).to_owned(), history.root.clone());
        if !self.spent.contains_key(&commit) {
            let at = history.moves.iter().rfind(|step| step.to == commit && step.kind.is_commit());
            let made = Made { root: root.clone(), at: at.map(|step| step.at) };
            self.spent.insert(commit.clone(), made);
        }
        self.found.insert(root);
        Some(commit)
    }

    /// Where a commit was made that calls were spent on.
    pub(super) fn made(&self, commit: &str) -> Option<&Made> {
        self.spent.get(commit)
    }

    /// The worktrees with calls, each with the commits that were made there: what became of one is known by all of them.
    pub(super) fn commits(&self) -> HashMap<&Path, Vec<String>> {
        let histories =
            self.histories.values().flatten().filter(|history| self.found.contains(&history.root));
        let made = |history: &History| {
            let commits = history.moves.iter().rev().filter(|step| step.kind.is_commit()).take(MOST_COMMITS);
            commits.map(|step| step.to.clone()).collect()
        };
        histories.map(|history| (history.root.as_path(), made(history))).collect()
    }

    /// Whether it was made in this worktree, and no commit holds its work yet.
    pub(super) fn is_uncommitted(&mut self, call: &SpentCall<'_>, root: &Path) -> bool {
        self.history(call)
            .is_some_and(|history| history.root == root && spent_on(&history.moves, call) == SpentOn::NotYet)
    }

    fn history(&mut self, call: &SpentCall<'_>) -> Option<&History> {
        let folder = call.owner.folder.as_ref()?;
        if !self.histories.contains_key(folder) {
            self.histories.insert(folder.clone(), History::of(folder));
        }
        self.histories.get(folder)?.as_ref()
    }
}

impl History {
    fn of(folder: &Path) -> Option<Self> {
        let worktree = Worktree::of(folder)?;
        let moves = worktree.moves();
        let amends = moves.iter().filter(|step| step.kind == MoveKind::Amend);
        let amended = amends.map(|step| (step.from.clone(), step.to.clone())).collect();
        Some(Self { root: worktree.root, moves, amended })
    }

    /// The commit that stands in its place now.
    fn latest<'a>(&'a self, commit: &'a str) -> &'a str {
        let mut latest = commit;
        for _ in 0..self.amended.len() {
            match self.amended.get(latest) {
                Some(next) => latest = next,
                None => break,
            }
        }
        latest
    }
}

/// What became of a call's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpentOn<'a> {
    Commit(&'a str),
    /// No commit was made since.
    NotYet,
    /// Not certain.
    Unknown,
}

/// The commit that was made next, if it is certain which.
fn spent_on<'a>(moves: &'a [Move], call: &SpentCall<'_>) -> SpentOn<'a> {
    let is_head = |hash: &str| call.head.is_none_or(|head| !head.is_empty() && hash.starts_with(head));
    let Some(first) = moves.first() else { return SpentOn::Unknown };
    // Before all that the log holds, HEAD was its first one only if that was noted, or there was none at all.
    let is_proved = call.head.is_some() || is_zero(&first.from);
    if call.at < first.at && !is_proved {
        return SpentOn::Unknown;
    }
    let possible = places(moves, call.at)
        .filter(|&place| is_head(place.checked_sub(1).map_or(&first.from, |last| &moves[last].to)));
    let mut found = None;
    for place in possible {
        let next = moves[place..]
            .iter()
            .find(|step| step.kind.is_commit())
            .map_or(SpentOn::NotYet, |step| SpentOn::Commit(&step.to));
        if found.is_some_and(|known| known != next) {
            return SpentOn::Unknown;
        }
        found = Some(next);
    }
    found.unwrap_or(SpentOn::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usage::Owner;

    fn hash(letter: char) -> String {
        letter.to_string().repeat(40)
    }

    fn step(from: char, to: char, at: i64, kind: MoveKind) -> Move {
        Move { from: hash(from), to: hash(to), at: Timestamp(at), is_exact: false, kind }
    }

    #[test]
    fn a_call_is_spent_on_the_next_commit_that_is_certain() {
        let checkout = || MoveKind::Checkout { from: "main".into(), to: "x".into() };
        let moves = [
            step('a', 'b', 10_000, MoveKind::Commit),
            step('b', 'c', 20_000, checkout()),
            step('c', 'a', 30_000, MoveKind::Other),
            step('a', 'd', 40_000, MoveKind::Commit),
            step('d', 'e', 40_000, MoveKind::Commit),
            step('e', 'f', 50_000, MoveKind::Amend),
        ];
        let owner = Owner::default();
        let spent = |at, head: Option<char>| {
            let head = head.map(|letter| hash(letter)[..12].to_owned());
            let call = SpentCall { owner: &owner, at: Timestamp(at), branch: None, head: head.as_deref() };
            match spent_on(&moves, &call) {
                SpentOn::Commit(commit) => commit.chars().next(),
                SpentOn::NotYet => Some('-'),
                SpentOn::Unknown => None,
            }
        };
        for (at, head, expected, why) in [
            (9_000, Some('a'), Some('b'), "made on the log's first HEAD"),
            (9_000, None, None, "before the log, on an unknown HEAD"),
            (9_000, Some('x'), None, "before the log, on another HEAD"),
            (10_500, Some('a'), Some('b'), "in the second of the commit, and before it"),
            (10_500, Some('b'), Some('d'), "in the second of the commit, and after it"),
            (10_500, None, None, "in the second of the commit, on an unknown HEAD"),
            (15_000, Some('b'), Some('d'), "a checkout and a reset are no commits"),
            (20_500, None, Some('d'), "on either side of a checkout"),
            (35_000, None, Some('d'), "the time alone is certain"),
            (35_000, Some('x'), None, "the note contradicts the log"),
            (40_500, Some('a'), Some('d'), "before two commits of one second"),
            (40_500, Some('d'), Some('e'), "between them"),
            (40_500, Some('e'), Some('f'), "after them"),
            (45_000, Some('e'), Some('f'), "an amended commit is the next"),
            (60_000, Some('f'), Some('-'), "not committed yet"),
        ] {
            assert_eq!(spent(at, head), expected, "{why}");
        }
    }

    #[test]
    fn before_the_first_commit_of_all_there_is_no_head() {
        let zero = "0".repeat(40);
        let moves = [Move { from: zero, ..step('0', 'a', 10_000, MoveKind::Commit) }];
        let owner = Owner::default();
        let call = SpentCall { owner: &owner, at: Timestamp(5_000), branch: None, head: None };
        assert_eq!(spent_on(&moves, &call), SpentOn::Commit(&hash('a')));
    }
}
