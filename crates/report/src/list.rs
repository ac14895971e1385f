//! Sessions as a list: the first of those that match, and what a table shows of each.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::budget::Marks;
use super::state::{Asked, RunningSession};
use config::RunawayLimits;
use runtime::budget::{Budget, BudgetStatus};
use store::session::record::{open_time, records};
use store::session::runaway::{Runaway, runaway_of};
use store::{self, ListedSession, SessionQuery, Sort, Store, View};
use types::{
    LiveState, SessionRecord, Status, Timestamp, UNATTRIBUTED, is_unattributed, name_of_unattributed,
};

/// The first sessions that match, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing<T> {
    pub sessions: Vec<T>,
    pub more: usize,
}

impl<T> Listing<T> {
    /// Keeps the wanted ones of a listing that has all, as many as `shown` allows of those.
    pub fn keep(&mut self, wanted: impl Fn(&T) -> bool, shown: impl Fn(usize) -> usize) {
        self.sessions.retain(wanted);
        let count = self.sessions.len();
        self.sessions.truncate(shown(count));
        self.more = count - self.sessions.len();
    }
}

/// The records of the first sessions that match. `shown` returns how many are shown if that many match.
pub fn recorded(
    store: Option<&mut Store>,
    query: &SessionQuery,
    shown: impl Fn(usize) -> usize,
    now: Timestamp,
) -> Result<Listing<SessionRecord>, store::Error> {
    first(store, query, shown, |view, most| records(view, &view.list_first(query, most)?, now))
}

/// What a table shows of the first sessions that match. `wide`: with their branches, tags and models.
pub fn summarised(
    store: Option<&mut Store>,
    query: &SessionQuery,
    shown: impl Fn(usize) -> usize,
    now: Timestamp,
    wide: bool,
) -> Result<Listing<SessionLine>, store::Error> {
    first(store, query, shown, |view, most| SessionLine::of(view, view.listed(query, most)?, now, wide))
}

/// Stands for any number of sessions; small enough that a caller may add to it.
const ENDLESS: usize = usize::MAX / 2;

/// Makes something of the first sessions, as many as `shown` allows.
fn first<T>(
    store: Option<&mut Store>,
    query: &SessionQuery,
    shown: impl Fn(usize) -> usize,
    of: impl Fn(&View<'_>, usize) -> Result<Vec<T>, store::Error>,
) -> Result<Listing<T>, store::Error> {
    let Some(store) = store else { return Ok(Listing { sessions: Vec::new(), more: 0 }) };
    let shows_all = shown(ENDLESS) == ENDLESS;
    store.read(|view| {
        // Counting reads all sessions once more, so it is left out where all are shown.
        let count = if shows_all { ENDLESS } else { view.count(query)? };
        let sessions = of(view, shown(count))?;
        let more = if shows_all { 0 } else { count - sessions.len() };
        Ok(Listing { sessions, more })
    })
}

/// What the table shows of a session: less than its record.
#[derive(Clone, Debug)]
pub struct SessionLine {
    pub row: ListedSession,
    /// Looked up only for wide tables.
    pub tags: Vec<String>,
    /// How long it was open, all openings together.
    pub open: Duration,
    pub unpriced_models: Vec<String>,
    /// The models it used, the most used first. Looked up only for wide tables.
    pub models: Vec<String>,
    /// What it does now; `None` once it has ended, and before [`add_states`].
    pub state: Option<LiveState>,
    /// Of one that runs, the percentage of the most used budget that it counts towards, from 80 % on; see [`add_budgets`].
    pub budget: Option<i64>,
    /// Of one that runs, the sign that it has run away; see [`add_runaways`].
    pub runaway: Option<Runaway>,
    /// It is a conversation that never ran through codemie, in this file.
    pub unwrapped: Option<PathBuf>,
}

/// A session as `list --json` has it: its record, and what is known on this machine alone.
#[derive(Clone, Debug, Serialize)]
pub struct ListedRecord {
    #[serde(flatten)]
    pub record: SessionRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runaway: Option<RunawayRecord>,
}

/// A sign that a session has run away, as programs read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunawayRecord {
    pub sign: &'static str,
    pub why: String,
}

impl From<&Runaway> for RunawayRecord {
    fn from(runaway: &Runaway) -> Self {
        Self { sign: runaway.sign(), why: runaway.in_words() }
    }
}

impl ListedRecord {
    /// Looks at the running ones for signs that they have run away. Ended ones cost nothing.
    pub fn of(
        store: Option<&mut Store>,
        records: Vec<SessionRecord>,
        limits: RunawayLimits,
        now: Timestamp,
    ) -> Result<Vec<Self>, store::Error> {
        let plain = |record| Self { record, runaway: None };
        let mut listed: Vec<Self> = records.into_iter().map(plain).collect();
        let Some(store) = store else { return Ok(listed) };
        store.read(|view| {
            for one in listed.iter_mut().filter(|one| one.record.status == Status::Active) {
                let Ok(id) = one.record.session_id.parse() else { continue };
                let Some(row) = view.session(id)? else { continue };
                one.runaway = runaway_of(view, row.n, limits, now)?.as_ref().map(Into::into);
            }
            Ok(listed)
        })
    }
}

/// Puts lines in order that are not all from the store; equal ones stay as they are.
pub fn sort(lines: &mut [SessionLine], sort: Sort) {
    match sort {
        Sort::LastUsed => lines.sort_by_key(|line| Reverse(line.row.active_at)),
        Sort::Started => lines.sort_by_key(|line| Reverse(line.row.started_at)),
        Sort::Cost => lines.sort_by_key(|line| Reverse(line.row.cost)),
        Sort::Tokens => lines.sort_by_key(|line| Reverse(line.row.tokens)),
        Sort::Name => lines.sort_by(|a, b| a.row.name.cmp(&b.row.name)),
    }
}

/// Which of these lines are of calls that name no conversation.
fn unattributed(store: &mut Store, lines: &[SessionLine]) -> Result<HashSet<i64>, store::Error> {
    let may_be = |line: &&SessionLine| {
        line.unwrapped.is_none()
            && line.row.project.is_none()
            && line.row.name.starts_with(&name_of_unattributed(&line.row.agent))
    };
    let numbers: Vec<i64> = lines.iter().filter(may_be).map(|line| line.row.n).collect();
    if numbers.is_empty() {
        return Ok(HashSet::new());
    }
    let tags = store.read(|view| view.tags_of(&numbers))?;
    let is = |line: &&SessionLine| {
        tags.get(&line.row.n).is_some_and(|tags| is_unattributed(&line.row.agent, &line.row.name, tags))
    };
    Ok(lines.iter().filter(may_be).filter(is).map(|line| line.row.n).collect())
}

pub fn holds_unattributed(store: &mut Store, lines: &[SessionLine]) -> Result<bool, store::Error> {
    Ok(!unattributed(store, lines)?.is_empty())
}

/// Calls that name no conversation are one line, where the first of their sessions stood.
pub fn fold_unattributed(store: &mut Store, lines: &mut Vec<SessionLine>) -> Result<(), store::Error> {
    let unattributed = unattributed(store, lines)?;
    let mut folded: Option<usize> = None;
    let mut kept: Vec<SessionLine> = Vec::with_capacity(lines.len());
    for mut line in lines.drain(..) {
        if line.unwrapped.is_some() || !unattributed.contains(&line.row.n) {
            kept.push(line);
        } else if let Some(place) = folded {
            kept[place].take(line);
        } else {
            folded = Some(kept.len());
            UNATTRIBUTED.clone_into(&mut line.row.name);
            line.row.id = String::new();
            kept.push(line);
        }
    }
    *lines = kept;
    Ok(())
}

/// Looks at the running ones for signs that they have run away. Ended ones cost nothing.
pub fn add_runaways(
    store: &mut Store,
    lines: &mut [SessionLine],
    limits: RunawayLimits,
    now: Timestamp,
) -> Result<(), store::Error> {
    store.read(|view| {
        for line in lines.iter_mut().filter(|line| line.row.status == Status::Active) {
            line.runaway = runaway_of(view, line.row.n, limits, now)?;
        }
        Ok(())
    })
}

/// Looks how much of the budgets is used that the running ones count towards, and returns the used ones of the calendar.
pub fn add_budgets(
    store: &mut Store,
    lines: &mut [SessionLine],
    budgets: &[Budget],
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Vec<BudgetStatus>, store::Error> {
    if budgets.is_empty() {
        return Ok(Vec::new());
    }
    let running: Vec<i64> =
        lines.iter().filter(|line| line.row.status == Status::Active).map(|line| line.row.n).collect();
    let Marks { by_session, used } = store.read(|view| Marks::of(view, budgets, &running, now, zone))?;
    for line in lines {
        line.budget = by_session.get(&line.row.n).copied();
    }
    Ok(used)
}

/// Looks what the running ones do now. Ended ones cost nothing.
pub fn add_states(
    store: &mut Store,
    lines: &mut [SessionLine],
    asked: &Asked<'_>,
) -> Result<(), store::Error> {
    let mut running: Vec<&mut SessionLine> =
        lines.iter_mut().filter(|line| line.row.status == Status::Active).collect();
    if running.is_empty() {
        return Ok(());
    }
    let numbers: Vec<i64> = running.iter().map(|line| line.row.n).collect();
    let sessions = store.read(|view| RunningSession::numbered(view, &numbers))?;
    for (line, state) in running.iter_mut().zip(asked.states(&sessions)) {
        line.state = state;
    }
    Ok(())
}

impl SessionLine {
    /// What another one used, too.
    fn take(&mut self, other: Self) {
        let (row, more) = (&mut self.row, other.row);
        row.api_calls = row.api_calls.saturating_add(more.api_calls);
        row.tokens = row.tokens.saturating_add(more.tokens);
        row.cost.0 = row.cost.0.saturating_add(more.cost.0);
        row.started_at = row.started_at.min(more.started_at);
        row.active_at = row.active_at.max(more.active_at);
        if more.status == Status::Active {
            (row.status, row.end_reason) = (more.status, more.end_reason);
        }
        if row.agent != more.agent {
            row.agent = String::new();
        }
        self.open += other.open;
        for (list, more) in
            [(&mut self.models, other.models), (&mut self.unpriced_models, other.unpriced_models)]
        {
            list.extend(more);
            list.sort_unstable();
            list.dedup();
        }
    }

    fn of(
        view: &View<'_>,
        rows: Vec<ListedSession>,
        now: Timestamp,
        wide: bool,
    ) -> Result<Vec<Self>, store::Error> {
        let which = |wanted: fn(&ListedSession) -> bool| {
            rows.iter().filter(|row| wanted(row)).map(|row| row.n).collect::<Vec<_>>()
        };
        let openings = view.openings_of(&which(|row| row.opening > 1))?;
        let mut unpriced_models = view.unpriced_models_of(&which(|row| row.api_calls > 0))?;
        let mut tags = if wide { view.tags_of(&which(|_| true))? } else { HashMap::new() };
        let called = which(|row| row.api_calls > 0);
        let mut models = if wide { view.models_of(&called)? } else { HashMap::new() };
        let line = |mut row: ListedSession| {
            row.branch = row.branch.filter(|_| wide);
            Self {
                tags: tags.remove(&row.n).unwrap_or_default(),
                open: match openings.get(&row.n) {
                    Some(openings) => Duration::from_millis(open_time(openings, now)),
                    None => row.ended_at.unwrap_or(now).since(row.started_at),
                },
                unpriced_models: unpriced_models.remove(&row.n).unwrap_or_default(),
                models: models.remove(&row.n).unwrap_or_default(),
                state: None,
                budget: None,
                runaway: None,
                unwrapped: None,
                row,
            }
        };
        Ok(rows.into_iter().map(line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::session::lifecycle::ConversationStart;
    use store::session::testing::{World, rows_of, usage};

    #[test]
    fn the_newest_are_listed_and_the_others_counted() {
        let mut world = World::new();
        let started: Vec<String> =
            (0..3).map(|_| world.start(ConversationStart::Fresh).1.session.to_string()).collect();
        let (now, query) = (world.now, SessionQuery::default());
        for (limit, expected, more) in [(2, 2, 1), (3, 3, 0), (usize::MAX, 3, 0), (0, 0, 3)] {
            let shown = |count: usize| count.min(limit);
            let recorded = recorded(Some(&mut world.store), &query, shown, now).unwrap();
            let summarised = summarised(Some(&mut world.store), &query, shown, now, true).unwrap();
            assert_eq!((recorded.sessions.len(), recorded.more), (expected, more), "{limit}");
            assert_eq!((summarised.sessions.len(), summarised.more), (expected, more), "{limit}");
            let newest = summarised.sessions.first().map(|line| line.row.id.as_str());
            assert_eq!(newest, started.last().map(String::as_str).filter(|_| limit > 0), "{limit}");
        }
    }

    #[test]
    fn calls_without_a_conversation_are_one_line() {
        let mut world = World::new();
        let mut begin = |agent: &str, name: &str, tags: &[&str], project: Option<&str>| {
            let mut begin = world.begin(ConversationStart::Fresh);
            (begin.agent, begin.name) = (agent.to_owned(), Some(name.to_owned()));
            begin.workspace.project = project.map(str::to_owned);
            begin.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            world.wait(1000);
            world.start_as(&begin)
        };
        begin("anthropic", "proxy-anthropic", &["proxy"], None);
        begin("claude", "fix-auth", &[], Some("widgets"));
        let (_, second) = begin("openai", "proxy-openai", &["proxy"], None);
        // Named and tagged by a person.
        begin("claude", "proxy-claude-notes", &["proxy"], Some("widgets"));
        let at = world.now;
        world.bind(second.session, "conversation").unwrap();
        world.feed(second.session, 1, &[usage("m1", at, 20)]);
        let all = |count| count;
        let mut lines =
            summarised(Some(&mut world.store), &SessionQuery::default(), all, at, true).unwrap().sessions;
        assert!(holds_unattributed(&mut world.store, &lines).unwrap());
        fold_unattributed(&mut world.store, &mut lines).unwrap();
        assert!(!holds_unattributed(&mut world.store, &lines).unwrap());
        let told = |line: &SessionLine| (line.row.name.clone(), line.row.agent.clone(), line.row.api_calls);
        let told: Vec<_> = lines.iter().map(told).collect();
        assert_eq!(
            told,
            [
                ("proxy-claude-notes".into(), "claude".into(), 0),
                ("unattributed".into(), String::new(), 1),
                ("fix-auth".into(), "claude".into(), 0)
            ]
        );
        let by_session = world.store.read(|view| rows_of(view, usage::By::Session, None)).unwrap();
        let keys: Vec<_> = by_session.iter().map(|row| row.key.as_deref()).collect();
        assert_eq!(keys, [Some("unattributed")]);
    }

    #[test]
    fn without_a_store_there_is_no_session() {
        let listing = recorded(None, &SessionQuery::default(), |count| count, Timestamp(0)).unwrap();
        assert_eq!((listing.sessions.len(), listing.more), (0, 0));
    }

    #[test]
    fn branches_are_looked_up_for_wide_tables_alone() {
        let mut world = World::new();
        world.start(ConversationStart::Fresh);
        let now = world.now;
        for (wide, branch) in [(true, Some("main")), (false, None)] {
            let listing =
                summarised(Some(&mut world.store), &SessionQuery::default(), |count| count, now, wide)
                    .unwrap();
            assert_eq!(listing.sessions[0].row.branch.as_deref(), branch);
        }
    }
}
