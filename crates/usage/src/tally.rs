//! From sums by owner, model and quarter of an hour to the table that is asked for: pure.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::filter::Choice;
use crate::row::{CommitLabel, SessionLabel, UsageRow};
use crate::{CommitFacts, Owner, OwnerSession, Portion, Spending};
use os::calendar;
use pricing::Prices;
use types::{Filter, UNATTRIBUTED, spelled};

spelled!(
    /// What the rows of a table are.
    By {
        Hour = "hour",
        Day = "day",
        Week = "week",
        Month = "month",
        Session = "session",
        Chain = "chain",
        Root = "root",
        Model = "model",
        Project = "project",
        Agent = "agent",
        Branch = "branch",
        Commit = "commit",
        Tag = "tag",
        Group = "group",
    }
);

impl By {
    /// Rows that follow each other in time.
    pub fn is_time(self) -> bool {
        matches!(self, Self::Hour | Self::Day | Self::Week | Self::Month)
    }

    /// Rows that are sessions, and have a name and a start.
    pub fn is_sessions(self) -> bool {
        matches!(self, Self::Session | Self::Chain | Self::Root)
    }

    fn is_chronological(self) -> bool {
        self.is_time() || self.is_sessions() || self == Self::Commit
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// How calls are added up, and which of them count.
#[derive(Clone, Debug)]
pub struct UsageQuery {
    pub by: By,
    pub filter: Filter,
    /// The beginnings of commits' hashes: only calls that went into one of them.
    pub commits: Option<Vec<String>>,
    /// Rows below each row.
    pub breakdown: Option<By>,
    /// By time where rows follow each other, else by cost.
    pub order: Option<Order>,
    /// At most so many rows: the latest, or those that cost most.
    pub most: Option<usize>,
}

impl UsageQuery {
    pub fn by(by: By) -> Self {
        Self { by, filter: Filter::default(), commits: None, breakdown: None, order: None, most: None }
    }
}

/// The rows of a table, and what is beyond them.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub rows: Vec<UsageRow>,
    /// Of all that counts, also where a call is in several rows or in none that is shown.
    pub total: UsageRow,
    pub left_out: usize,
    /// Some calls are in several rows: their session has several tags.
    pub overlap: bool,
}

/// What a row is known by: a text, or a local quarter of an hour, the first of an hour or a day; and the agent where two agents
/// may use the same text.
type Key<'a> = (Option<&'a str>, i32, &'a str);

pub fn tally(sources: &[Spending], query: &UsageQuery) -> Tally {
    let known = known_owners(sources);
    let choice = Choice::of(sources, &known, &query.filter, query.commits.as_deref());
    let mut table = Table::default();
    let mut total = UsageRow::default();
    let mut overlap = false;
    for (number, source) in sources.iter().enumerate() {
        for portion in source.portions.iter().filter(|portion| choice.holds(number, portion)) {
            let Some(call) = Call::of(source, portion) else { continue };
            let known = known[number][portion.owner as usize];
            total.take(&call);
            let keys = call.keys(query.by, known);
            overlap |= keys.len() > 1;
            for key in keys {
                let at = table.row(key, || call.new_row(query.by, known, key));
                table.rows[at].take(&call);
                if let Some(commit) = &mut table.rows[at].commit
                    && commit.project != known.project
                {
                    commit.project = None;
                }
                if let Some(breakdown) = query.breakdown {
                    for below in call.keys(breakdown, known) {
                        let part = table.part(at, below, || call.new_row(breakdown, known, below));
                        table.rows[at].breakdown[part].take(&call);
                    }
                }
            }
        }
    }
    let mut rows = table.rows;
    if query.by == By::Root {
        name_roots(&mut rows, sources);
    }
    for row in rows.iter_mut().chain([&mut total]) {
        row.unpriced_models.sort_unstable();
        row.breakdown.sort_by(|a, b| (Reverse(a.sums.cost), &a.key).cmp(&(Reverse(b.sums.cost), &b.key)));
    }
    let left_out = arrange(&mut rows, query);
    Tally { rows, total, left_out, overlap }
}

/// For each owner of each source, itself, or the session that it is the rest of: a conversation that went on without codemie is
/// still the session's.
fn known_owners(sources: &[Spending]) -> Vec<Vec<&Owner>> {
    let mut sessions: HashMap<(&str, &str), &Owner> = HashMap::new();
    for owner in sources.iter().flat_map(|source| &source.owners).filter(|owner| owner.session.is_some()) {
        if let Some(conversation) = &owner.conversation {
            sessions.insert((&owner.agent, conversation), owner);
        }
    }
    let session_of = |owner: &Owner| {
        let conversation = owner.conversation.as_deref().filter(|_| owner.session.is_none())?;
        sessions.get(&(owner.agent.as_str(), conversation)).copied()
    };
    sources
        .iter()
        .map(|source| source.owners.iter().map(|owner| session_of(owner).unwrap_or(owner)).collect())
        .collect()
}

/// Names rows by the sessions at their tops, which may have made no call that counts.
fn name_roots(rows: &mut [UsageRow], sources: &[Spending]) {
    let owners = sources.iter().flat_map(|source| &source.owners);
    let roots: HashMap<&str, (&OwnerSession, &Owner)> = owners
        .filter_map(|owner| owner.session.as_ref().map(|session| (session.id.as_str(), (session, owner))))
        .collect();
    for row in rows {
        if let Some((session, owner)) = row.key.as_deref().and_then(|key| roots.get(key)) {
            row.label = Some(label(session, owner));
        }
    }
}

fn label(session: &OwnerSession, owner: &Owner) -> SessionLabel {
    SessionLabel {
        id: Some(session.id.clone()),
        name: session.name.clone(),
        project: owner.project.clone(),
        started: Some(session.started_at),
    }
}

/// Puts rows in order and keeps those that are wanted; how many were left out.
fn arrange(rows: &mut Vec<UsageRow>, query: &UsageQuery) -> usize {
    if query.by.is_time() {
        rows.sort_by(|a, b| a.key.cmp(&b.key));
    } else if query.by == By::Commit {
        // What has no commit comes before all that have one, in this order.
        let made = |row: &UsageRow| {
            row.key.as_ref().map(|_| row.commit.as_ref().and_then(|commit| commit.at).unwrap_or(row.first_at))
        };
        rows.sort_by(|a, b| (made(a), a.first_at, &a.key).cmp(&(made(b), b.first_at, &b.key)));
    } else if query.by.is_chronological() {
        rows.sort_by(|a, b| (a.first_at, &a.key).cmp(&(b.first_at, &b.key)));
    } else {
        rows.sort_by(|a, b| (Reverse(a.sums.cost), &a.key).cmp(&(Reverse(b.sums.cost), &b.key)));
    }
    let most = query.most.unwrap_or(usize::MAX);
    let left_out = rows.len().saturating_sub(most);
    if query.by.is_chronological() {
        rows.drain(..left_out);
    } else {
        rows.truncate(most);
    }
    let sorted = if query.by.is_chronological() { Order::Ascending } else { Order::Descending };
    // Of commits the newest come first, as git's own log has them.
    let usual = if query.by == By::Commit { Order::Descending } else { sorted };
    if query.order.unwrap_or(usual) != sorted {
        rows.reverse();
    }
    left_out
}

#[derive(Default)]
struct Table<'a> {
    rows: Vec<UsageRow>,
    places: HashMap<Key<'a>, usize>,
    parts: HashMap<(usize, Key<'a>), usize>,
}

impl<'a> Table<'a> {
    fn row(&mut self, key: Key<'a>, new: impl FnOnce() -> UsageRow) -> usize {
        let rows = &mut self.rows;
        *self.places.entry(key).or_insert_with(|| {
            rows.push(new());
            rows.len() - 1
        })
    }

    fn part(&mut self, row: usize, key: Key<'a>, new: impl FnOnce() -> UsageRow) -> usize {
        let parts = &mut self.rows[row].breakdown;
        *self.parts.entry((row, key)).or_insert_with(|| {
            parts.push(new());
            parts.len() - 1
        })
    }
}

/// A portion with its texts.
pub(crate) struct Call<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) model: &'a str,
    branch: Option<&'a str>,
    commit: Option<&'a str>,
    commits: &'a HashMap<String, CommitFacts>,
    pub(crate) portion: &'a Portion,
}

impl<'a> Call<'a> {
    fn of(source: &'a Spending, portion: &'a Portion) -> Option<Self> {
        let owner = source.owners.get(portion.owner as usize)?;
        let model = source.models.get(portion.model as usize)?;
        let place = portion.place.and_then(|place| source.places.get(place as usize));
        Some(Self {
            owner,
            model,
            branch: place.and_then(|place| place.branch.as_deref()),
            commit: place.and_then(|place| place.commit.as_deref()),
            commits: &source.commits,
            portion,
        })
    }

    /// The rows that it counts in; `known` is the session that its owner belongs to.
    fn keys(&self, by: By, known: &'a Owner) -> Vec<Key<'a>> {
        let text = |text: Option<&'a str>| vec![(text, 0, "")];
        let quarter = self.portion.quarter;
        let time = |start: fn(i32) -> i32| vec![(Some(""), start(quarter), "")];
        let session = known.session.as_ref();
        match by {
            By::Hour => time(calendar::start_of_hour),
            By::Day => time(calendar::start_of_day),
            By::Week => time(calendar::start_of_week),
            By::Month => time(calendar::start_of_month),
            By::Session | By::Chain | By::Root if known.is_unattributed() => text(Some(UNATTRIBUTED)),
            By::Session => {
                let id = || session.map(|session| session.id.as_str());
                vec![(self.owner.conversation.as_deref().or_else(id), 0, &self.owner.agent)]
            }
            By::Chain => text(session.map(|session| session.chain.as_str())),
            By::Root => text(session.map(|session| session.root.as_str())),
            By::Model => text(Some(self.model)),
            By::Project => text(known.project.as_deref()),
            By::Agent => text(Some(&self.owner.agent)),
            By::Branch => text(self.branch.or(known.branch.as_deref())),
            By::Commit => text(self.commit),
            By::Group => text(session.and_then(|session| session.group.as_deref())),
            By::Tag => match session.map(|session| session.tags.as_slice()) {
                None | Some([]) => text(None),
                Some(tags) => tags.iter().map(|tag| (Some(tag.as_str()), 0, "")).collect(),
            },
        }
    }

    fn new_row(&self, by: By, known: &Owner, key: Key<'_>) -> UsageRow {
        let (text, quarter, _) = key;
        let session = known.session.as_ref();
        let label = |session| label(session, known);
        UsageRow {
            key: match by {
                By::Hour => Some(calendar::hour(quarter)),
                By::Day => Some(calendar::day(quarter)),
                By::Week => Some(calendar::week(quarter)),
                By::Month => Some(calendar::month(quarter)),
                _ => text.map(str::to_owned),
            },
            agent: Some(self.owner.agent.clone()),
            label: match by {
                By::Session | By::Chain | By::Root if known.is_unattributed() => {
                    Some(SessionLabel { name: UNATTRIBUTED.to_owned(), ..SessionLabel::default() })
                }
                By::Session => session.map(label).or_else(|| {
                    Some(SessionLabel { project: known.project.clone(), ..SessionLabel::default() })
                }),
                By::Chain | By::Root => session.map(label),
                _ => None,
            },
            commit: text.filter(|_| by == By::Commit).map(|commit| {
                let facts = self.commits.get(commit).cloned().unwrap_or_default();
                CommitLabel { subject: facts.subject, at: facts.at, project: known.project.clone() }
            }),
            first_at: self.portion.sums.first,
            foreign: true,
            ..UsageRow::default()
        }
    }
}

impl UsageRow {
    /// Adds the calls of a portion.
    fn take(&mut self, call: &Call<'_>) {
        let sums = &call.portion.sums;
        self.sums.add(&sums.calls);
        self.first_at = self.first_at.min(sums.first);
        self.foreign &= call.owner.session.is_none();
        if self.agent.as_ref().is_some_and(|agent| *agent != call.owner.agent) {
            self.agent = None;
        }
        if sums.unpriced > 0 {
            if !self.unpriced_models.iter().any(|known| known == call.model) {
                self.unpriced_models.push(call.model.to_owned());
            }
            if Prices::of(call.model).is_some() {
                *self.unpriced_calls.entry(call.model.to_owned()).or_default() += sums.unpriced;
            }
        }
    }
}
