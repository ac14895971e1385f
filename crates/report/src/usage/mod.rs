//! Tokens and cost, added up by what is asked: of the sessions in the store, or of every conversation on this machine.
//!
//! Store and scan give sums by owner, model and quarter of an hour ([`Spending`]); [`tally`] makes the table of them.

mod commits;
mod git;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Serialize;

use agents::Agent;
use agents::demo::Demo;
use commits::CommitFinder;
use os::calendar::LocalClock;
use os::home::Home;
use os::project::head;
use scan::Scanner;
use store::{self, SessionQuery, Show, View};
use types::{Filter, Span, Timestamp};
use usage::{By, Numbers, Tally, UsageQuery, UsageRow, tally};
use usage::{CommitFacts, Place, Spending, SpentCall};

/// Tokens and cost by row, and what could not be read.
#[derive(Clone, Debug)]
pub struct UsageReport {
    pub by: By,
    pub tally: Tally,
    /// Files with lines that could not be read, and how many.
    pub unreadable: Vec<(PathBuf, u64)>,
    /// Calls whose usage the proxy could not read in full.
    pub unread_calls: u64,
    pub files: u64,
    /// What a scan found beside the store's sessions, if there was a scan.
    pub scan: Option<ForeignUsage>,
    /// The store holds sessions of the demonstration, which are left out.
    pub has_demo: bool,
    /// Nothing ran through codemie yet, and there are so many session files of agents.
    pub unwrapped_files: usize,
    /// Files and folders that could not be read, and why.
    pub refused: Vec<String>,
    /// The ids of all sessions in the store: a short id in the table must not fit a session that is not in it.
    pub ids: Vec<String>,
}

impl UsageReport {
    /// Of a machine without a store.
    pub fn empty(by: By) -> Self {
        Self {
            by,
            tally: Tally::default(),
            unreadable: Vec::new(),
            unread_calls: 0,
            files: 0,
            scan: None,
            has_demo: false,
            unwrapped_files: 0,
            refused: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Of the sessions in the store.
    pub fn recorded(
        view: &View<'_>,
        home: &Home,
        query: &UsageQuery,
        clock: &LocalClock,
    ) -> Result<Self, store::Error> {
        let demo = Filter { agent: Some(Demo.name().to_owned()), ..Filter::default() };
        let demo = SessionQuery { show: Show::All, ..SessionQuery::of(demo) };
        let spending = recorded_spending(view, query, clock)?;
        Ok(Self {
            ids: ids(&spending),
            tally: tally(&[spending], query),
            unreadable: view.unreadable()?,
            unread_calls: view.unread_usage()?.0,
            files: view.files_read(&agents::demo::folder(home))?,
            has_demo: !view.list_first(&demo, 1)?.is_empty(),
            ..Self::empty(query.by)
        })
    }

    /// Of the sessions in the store and of all files that belong to none, in one look at the store. `compare`: how much of it
    /// never ran through codemie is counted as well.
    pub fn scanned(
        scanner: &Scanner<'_>,
        store: Option<&View<'_>>,
        query: &UsageQuery,
        clock: &LocalClock,
        compare: bool,
    ) -> anyhow::Result<Self> {
        let found = scanner.scan_by(store, query.filter.span, clock, query.by == By::Hour)?;
        for refused in found.refused.iter().chain(&found.unsaved) {
            tracing::warn!("scan: {refused}");
        }
        // The meter looks closer at the lines of the files it follows.
        let metered = store.map(View::unreadable).transpose()?.unwrap_or_default();
        let mut unreadable: BTreeMap<PathBuf, u64> = found.unreadable().into_iter().collect();
        for (path, lines) in metered {
            if let Some(known) = unreadable.get_mut(&path) {
                *known = lines.max(*known);
            }
        }
        let recorded =
            store.map(|view| recorded_spending(view, query, clock)).transpose()?.unwrap_or_default();
        let ids = ids(&recorded);
        let sources = [recorded, found.spending()];
        let scan = if compare { ForeignUsage::among(&sources, query) } else { ForeignUsage::default() };
        Ok(Self {
            tally: tally(&sources, query),
            unreadable: unreadable.into_iter().collect(),
            unread_calls: store.map(View::unread_usage).transpose()?.map_or(0, |(calls, _)| calls),
            files: found.files() as u64,
            scan: Some(scan),
            refused: found.refused,
            ids,
            ..Self::empty(query.by)
        })
    }

    pub fn rows(&self) -> &[UsageRow] {
        &self.tally.rows
    }

    pub fn unreadable_lines(&self) -> u64 {
        self.unreadable.iter().map(|(_, lines)| lines).sum()
    }

    /// As programs get it.
    pub fn record(&self) -> UsageRecord<'_> {
        UsageRecord {
            by: self.by,
            rows: &self.tally.rows,
            total: (&self.tally.total).into(),
            unreadable_lines: self.unreadable_lines(),
            unread_calls: self.unread_calls,
            files: self.files,
        }
    }
}

/// What the store knows, with the places that the question needs.
fn recorded_spending(
    view: &View<'_>,
    query: &UsageQuery,
    clock: &LocalClock,
) -> Result<Spending, store::Error> {
    let (span, branch) = (query.filter.span, |call: &SpentCall<'_>| call.branch.map(str::to_owned));
    if query.by == By::Commit || query.commits.is_some() {
        let mut finder = CommitFinder::default();
        let mut place = |call: &SpentCall<'_>| Place { branch: branch(call), commit: finder.commit_of(call) };
        let mut spending = view.spending_by_place(clock, span, Some(&mut place))?;
        name_commits(&mut spending, &finder, query.commits.as_deref(), query.by == By::Commit);
        return Ok(spending);
    }
    if query.by == By::Branch || query.filter.branch.is_some() {
        let mut place = |call: &SpentCall<'_>| Place { branch: branch(call), commit: None };
        return view.spending_by_place(clock, span, Some(&mut place));
    }
    view.spending(clock, span)
}

/// Puts commits that a rebase or a squash made in the place of those that they replaced, and shortens all. `describe`: with what
/// their repositories say of them.
fn name_commits(spending: &mut Spending, finder: &CommitFinder, wanted: Option<&[String]>, describe: bool) {
    let made = finder.commits().into_iter();
    let replaced: HashMap<String, String> =
        made.flat_map(|(root, commits)| git::replacements(root, &commits, wanted)).collect();
    let mut repositories: BTreeMap<&Path, Vec<String>> = BTreeMap::new();
    for place in &mut spending.places {
        if let Some(commit) = &mut place.commit {
            let latest = replaced.get(commit.as_str()).unwrap_or(commit).clone();
            if let Some(made) = finder.made(commit).filter(|_| describe) {
                // Of one that took another's place, git alone knows the date.
                let at = made.at.filter(|_| latest == *commit);
                let facts = spending.commits.entry(head::short(&latest).to_owned()).or_default();
                facts.at = facts.at.or(at);
                repositories.entry(&made.root).or_default().push(latest.clone());
            }
            head::short(&latest).clone_into(commit);
        }
    }
    for (root, mut commits) in repositories {
        commits.sort_unstable();
        commits.dedup();
        for (commit, seconds, subject) in git::described(root, &commits) {
            let at = Some(Timestamp(seconds.saturating_mul(1000)));
            let facts = CommitFacts { subject: Some(subject), at };
            spending.commits.insert(head::short(&commit).to_owned(), facts);
        }
    }
}

/// The commits that a revision or a range names in the repository of a folder, or, without git, those of which it is the beginning.
pub fn commits_named(folder: &Path, revision: &str) -> Option<Vec<String>> {
    let digits = revision.len() >= 4 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    git::commits_of(folder, revision).or_else(|| digits.then(|| vec![revision.to_lowercase()]))
}

/// What was spent in the worktree of a folder since its last commit.
pub fn uncommitted(view: &View<'_>, folder: &Path) -> Result<UsageRow, store::Error> {
    let Some(worktree) = head::Worktree::of(folder) else { return Ok(UsageRow::default()) };
    let mut finder = CommitFinder::default();
    // A mark instead of a name: what is wanted is what has no commit.
    let mut place = |call: &SpentCall<'_>| Place {
        branch: None,
        commit: finder.is_uncommitted(call, &worktree.root).then(|| "uncommitted".to_owned()),
    };
    let clock = LocalClock::of(jiff::tz::TimeZone::UTC);
    let spending = view.spending_by_place(&clock, Span::default(), Some(&mut place))?;
    let commits = Some(vec!["uncommitted".to_owned()]);
    Ok(tally(&[spending], &UsageQuery { commits, ..UsageQuery::by(By::Agent) }).total)
}

/// Of the sessions, and of their conversations.
fn ids(spending: &Spending) -> Vec<String> {
    let owners = spending.owners.iter();
    owners
        .flat_map(|owner| [owner.session.as_ref().map(|session| &session.id), owner.conversation.as_ref()])
        .flatten()
        .cloned()
        .collect()
}

/// The conversations that never ran through codemie, of a scan.
#[derive(Clone, Debug, Default)]
pub struct ForeignUsage {
    pub conversations: usize,
    pub sum: UsageRow,
}

impl ForeignUsage {
    fn among(sources: &[Spending], query: &UsageQuery) -> Self {
        let by_session = UsageQuery {
            filter: query.filter.clone(),
            commits: query.commits.clone(),
            ..UsageQuery::by(By::Session)
        };
        Self::of(&tally(sources, &by_session).rows)
    }

    pub fn of(sessions: &[UsageRow]) -> Self {
        let mut all = Self::default();
        for row in sessions.iter().filter(|row| row.foreign) {
            all.conversations += 1;
            all.sum.sums.add(&row.sums);
            all.sum.unpriced_models.extend(row.unpriced_models.iter().cloned());
        }
        all
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRecord<'a> {
    by: By,
    rows: &'a [UsageRow],
    total: Numbers<'a>,
    unreadable_lines: u64,
    /// Left out where there is none, as there hardly ever is.
    #[serde(skip_serializing_if = "is_zero")]
    unread_calls: u64,
    files: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod heads_tests;
#[cfg(test)]
mod tests;
