//! Which commit and branch are checked out, and how HEAD moved: from git's files alone.
//!
//! `logs/HEAD` of a worktree has one line for each move, with the time in whole seconds and what moved it. It is only ever read:
//! bounded, and as a file that anybody may have written.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::{common, repository_of, text};
use crate::file::{Stamp, open_regular};
use types::Timestamp;

/// The end of a log that is read: some five thousand moves.
const LOG_BYTES: u64 = 1 << 20;

/// Packed references of a large repository have some megabytes.
const PACKED_BYTES: u64 = 16 << 20;

/// As many digits of a hash as are kept and shown.
pub const SHORT: usize = 12;

/// Git's folders of one worktree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worktree {
    /// HEAD and its log; of a linked worktree its own.
    git: PathBuf,
    /// Branches and packed references, which all worktrees share.
    common: PathBuf,
    /// The folder that is checked out.
    pub root: PathBuf,
}

/// What is checked out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `None` on a detached HEAD.
    pub branch: Option<String>,
    /// The whole hash; `None` before the first commit, and where references are in a form that is not read.
    pub commit: Option<String>,
}

/// HEAD went from one commit to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// All zeros before the first commit.
    pub from: String,
    pub to: String,
    /// In whole seconds, rounded down.
    pub at: Timestamp,
    /// It is exact to the millisecond: the log was written then, and holds no later line.
    pub is_exact: bool,
    pub kind: MoveKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveKind {
    /// A commit was made.
    Commit,
    /// A commit was made in place of `from`.
    Amend,
    /// To another branch, or a commit; the names as git has them.
    Checkout { from: String, to: String },
    /// A reset, a rebase, a fast-forward: to a commit that was there, or that holds work which was committed before.
    Other,
}

impl MoveKind {
    pub fn is_commit(&self) -> bool {
        matches!(self, Self::Commit | Self::Amend)
    }

    /// By the message that git notes with a move.
    fn of(message: &str) -> Self {
        let (what, rest) = message.split_once(": ").unwrap_or((message, ""));
        // `commit`, `commit (initial)`, `merge feature`, `rebase (pick)`, `pull --rebase origin main`.
        let (word, more) = what.split_once(' ').unwrap_or((what, ""));
        match word {
            "commit" if more.starts_with("(amend)") => Self::Amend,
            "commit" | "cherry-pick" | "revert" | "am" => Self::Commit,
            "merge" | "pull" if rest.starts_with("Merge made") => Self::Commit,
            "checkout" => {
                match rest.strip_prefix("moving from ").and_then(|names| names.split_once(" to ")) {
                    Some((from, to)) => Self::Checkout { from: from.to_owned(), to: to.to_owned() },
                    None => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }
}

impl Worktree {
    /// The worktree that a folder lies in.
    pub fn of(folder: &Path) -> Option<Self> {
        let (root, git) = repository_of(folder)?;
        Some(Self { common: common(&git), git, root })
    }

    /// What is checked out now; `None` where that cannot be read.
    pub fn head(&self) -> Option<Head> {
        let head = text(&self.git.join("HEAD")).ok()?;
        let Some(name) = head.trim().strip_prefix("ref: ") else {
            return hash(head.trim()).map(|commit| Head { branch: None, commit: Some(commit.to_owned()) });
        };
        // In a repository with reftable, HEAD names a branch that no repository has.
        if name == "refs/heads/.invalid" || self.common.join("reftable").is_dir() {
            return None;
        }
        let branch = name.strip_prefix("refs/heads/").map(str::to_owned);
        // A reference is a path below git's folder, and git allows no other names.
        let plain = name.starts_with("refs/")
            && !name.split('/').any(|part| part.is_empty() || part.starts_with('.'));
        let loose = plain.then(|| text(&self.common.join(name)).ok()).flatten();
        let loose = loose.and_then(|text| hash(text.trim()).map(str::to_owned));
        Some(Head { branch, commit: loose.or_else(|| self.packed(name)) })
    }

    fn packed(&self, name: &str) -> Option<String> {
        let packed = crate::file::read_at_most(&self.common.join("packed-refs"), PACKED_BYTES).ok()?;
        let packed = String::from_utf8_lossy(&packed);
        packed.lines().find_map(|line| {
            let (commit, found) = line.split_once(' ')?;
            (found == name).then(|| hash(commit).map(str::to_owned)).flatten()
        })
    }

    /// The log, if there is one; its length and the time of its last change show whether it is worth reading again.
    pub fn log(&self) -> PathBuf {
        self.git.join("logs").join("HEAD")
    }

    /// How HEAD moved, the oldest first. Lines that are none of git's are passed over.
    pub fn moves(&self) -> Vec<Move> {
        let read = || {
            let mut file = open_regular(&self.log())?;
            let meta = file.metadata()?;
            let skipped = meta.len().saturating_sub(LOG_BYTES);
            file.seek(SeekFrom::Start(skipped))?;
            let mut bytes = Vec::new();
            file.take(LOG_BYTES).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>((bytes, skipped > 0, crate::file::modified(&meta)))
        };
        let Ok((bytes, cut, written)) = read() else { return Vec::new() };
        let text = String::from_utf8_lossy(&bytes);
        let mut moves: Vec<Move> = text.lines().skip(usize::from(cut)).filter_map(parse).collect();
        if let Some(last) = moves.last_mut() {
            // Written once, at the time of its last line: unless somebody touched it since.
            if (last.at.0..last.at.0 + 1000).contains(&written.0) {
                (last.at, last.is_exact) = (written, true);
            }
        }
        moves
    }
}

/// `OLD NEW Name <address> 1794900000 +0100<tab>message`
fn parse(line: &str) -> Option<Move> {
    let (facts, message) = line.split_once('\t').unwrap_or((line, ""));
    let (from, rest) = facts.split_once(' ')?;
    let (to, rest) = rest.split_once(' ')?;
    let seconds: i64 = rest.rsplit(' ').nth(1)?.parse().ok()?;
    let at = Timestamp(seconds.checked_mul(1000)?);
    let (from, to) = (hash(from)?.to_owned(), hash(to)?.to_owned());
    Some(Move { from, to, at, is_exact: false, kind: MoveKind::of(message) })
}

/// Forty or sixty-four digits.
pub fn hash(text: &str) -> Option<&str> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (digits && matches!(text.len(), 40 | 64)).then_some(text)
}

pub fn is_zero(hash: &str) -> bool {
    hash.bytes().all(|byte| byte == b'0')
}

pub fn short(commit: &str) -> &str {
    commit.get(..SHORT).unwrap_or(commit)
}

/// Where in a list of moves a moment lies: how many are before it. More than one number is possible where the clock is too
/// coarse to tell.
pub fn places(moves: &[Move], at: Timestamp) -> std::ops::RangeInclusive<usize> {
    // Moves are in order, whatever their clocks say: one that is surely before a moment has all earlier ones before it.
    let is_before =
        |step: &Move| at.0 >= if step.is_exact { step.at.0 } else { step.at.0.saturating_add(1000) };
    let surely = moves.iter().rposition(is_before).map_or(0, |last| last + 1);
    let maybe = moves.iter().position(|step| at < step.at).unwrap_or(moves.len());
    // A clock that was set back contradicts itself.
    surely.min(maybe)..=surely.max(maybe)
}

// Which commit was checked out when a call was made. Looked at with every batch of lines that is read, so at each turn and tool:
// a move of HEAD is then known to the millisecond, where git's own log has whole seconds.

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
    use std::fs;

    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn git_says_what_moved_its_head() {
        let checkout = MoveKind::Checkout { from: "main".into(), to: "fix: x".into() };
        for (message, kind) in [
            ("commit: add: a thing", MoveKind::Commit),
            ("commit (initial): first", MoveKind::Commit),
            ("commit (merge): Merge branch 'x'", MoveKind::Commit),
            ("commit (amend): again", MoveKind::Amend),
            ("cherry-pick: one", MoveKind::Commit),
            ("merge feature: Merge made by the 'ort' strategy.", MoveKind::Commit),
            ("merge feature: Fast-forward", MoveKind::Other),
            ("pull: Fast-forward", MoveKind::Other),
            ("checkout: moving from main to fix: x", checkout),
            ("reset: moving to HEAD~1", MoveKind::Other),
            ("rebase (start): checkout main", MoveKind::Other),
            ("rebase (pick): one", MoveKind::Other),
            ("rebase (finish): returning to refs/heads/fix", MoveKind::Other),
            ("clone: from /somewhere", MoveKind::Other),
            ("", MoveKind::Other),
        ] {
            assert_eq!(MoveKind::of(message), kind, "{message}");
        }
    }

    #[test]
    fn references_are_read_loose_packed_detached_and_of_worktrees() {
        let root = tempfile::tempdir().unwrap();
        let main = root.path().join("repo");
        let git = main.join(".git");
        fs::create_dir_all(git.join("refs/heads")).unwrap();
        fs::create_dir_all(git.join("worktrees/w")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let head = |folder: &Path| Worktree::of(folder).unwrap().head();
        let some = |branch: Option<&str>, commit: Option<&str>| {
            Some(Head { branch: branch.map(str::to_owned), commit: commit.map(str::to_owned) })
        };
        assert_eq!(head(&main), some(Some("main"), None), "before the first commit");
        fs::write(git.join("packed-refs"), format!("# pack-refs with: peeled\n{A} refs/heads/main\n^{B}\n"))
            .unwrap();
        assert_eq!(head(&main), some(Some("main"), Some(A)));
        fs::write(git.join("refs/heads/main"), format!("{B}\n")).unwrap();
        assert_eq!(head(&main), some(Some("main"), Some(B)), "a loose one is newer");
        let tree = root.path().join("tree");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", git.join("worktrees/w").display())).unwrap();
        fs::write(git.join("worktrees/w/commondir"), "../..\n").unwrap();
        fs::write(git.join("worktrees/w/HEAD"), format!("{A}\n")).unwrap();
        assert_eq!(head(&tree), some(None, Some(A)));
        fs::write(git.join("worktrees/w/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(head(&tree), some(Some("main"), Some(B)));
        for odd in ["ref: refs/../../../etc/passwd", "ref: refs/heads/.invalid", "rubbish", ""] {
            fs::write(git.join("HEAD"), odd).unwrap();
            assert_eq!(head(&main).and_then(|head| head.commit), None, "{odd}");
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir(git.join("reftable")).unwrap();
        assert_eq!(head(&main), None, "not read");
    }

    #[test]
    fn a_log_is_read_and_only_its_last_line_is_dated_exactly() {
        let root = tempfile::tempdir().unwrap();
        let git = root.path().join(".git");
        fs::create_dir_all(git.join("logs")).unwrap();
        let now = crate::clock::Clock::now(&crate::clock::SystemClock).0 / 1000;
        let line = |from: &str, to: &str, at: i64, message: &str| {
            format!("{from} {to} A B C <a@b> {at} +0100\t{message}\n")
        };
        let log = line(A, B, now - 5, "commit: one")
            + "rubbish\n"
            + &line(B, A, now, "reset: moving to HEAD~1")
            + &line(A, B, now, "commit: two");
        fs::write(git.join("logs/HEAD"), log).unwrap();
        let moves = Worktree::of(root.path()).unwrap().moves();
        assert_eq!(moves.len(), 3);
        assert_eq!((moves[0].at, moves[0].is_exact), (Timestamp((now - 5) * 1000), false));
        // The file was written in this second or the next: the last line is exact, or as coarse as the others.
        assert!(!moves[1].is_exact && moves[2].at.0 >= now * 1000, "{moves:?}");
    }

    #[test]
    fn a_moment_within_the_second_of_a_move_lies_before_or_after_it() {
        let at = |at: i64, is_exact| Move {
            from: A.into(),
            to: B.into(),
            at: Timestamp(at),
            is_exact,
            kind: MoveKind::Commit,
        };
        let moves = [at(1000, false), at(5000, false), at(9000, false), at(9400, true)];
        for (moment, expected) in [
            (999, 0..=0),
            (1000, 0..=1),
            (1999, 0..=1),
            (2000, 1..=1),
            (5500, 1..=2),
            (9399, 2..=3),
            (9400, 4..=4),
        ] {
            assert_eq!(places(&moves, Timestamp(moment)), expected, "{moment}");
        }
    }
}

#[cfg(test)]
mod head_log_tests {
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
