//! What runs now, for a view that stays: every running session with what it does and costs, and more of one of them.
//!
//! Promises: sessions that have ended cost nothing but the query that leaves them out, and hosts are asked only while they have not
//! reported by themselves ([`Changes`]).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

use super::changes::Changes;
use super::context::ContextFill;
use super::details::Chain;
use super::find::where_it_runs;
use super::list::{self, SessionLine};
use super::state::{Asked, RunningSession};
use super::{budget, statusline::Amount};
use runtime::budget::{BudgetStatus, CurrentBudgets};
use runtime::remote::address;
use store::session::runaway::runaway_of;
use store::{self, ChainSpent, SessionQuery, Show, Store, ToolRow, View};
use types::{LiveState, RunId, Timestamp};

/// The time whose tokens are counted: long enough that one call does not make a rate, short enough to show what goes on now.
pub const RATE: i64 = 5;
const MINUTE: i64 = 60_000;

/// One running session.
#[derive(Clone, Debug)]
pub struct TopSession {
    pub line: SessionLine,
    pub run: Option<RunId>,
    /// It runs in the background, so that it can be attached to.
    pub hosted: bool,
    /// Tokens a minute of late, everything billed.
    pub rate: u64,
    pub context: Option<ContextFill>,
    /// The budget that it counts towards and that is used most.
    pub budget: Option<BudgetStatus>,
}

/// More of one session.
#[derive(Clone, Debug, Default)]
pub struct TopDetails {
    pub chain: Chain,
    /// What the whole chain cost.
    pub spent: ChainSpent,
    /// The latest first.
    pub tools: Vec<ToolRow>,
    /// Those that it counts towards, the most used first.
    pub budgets: Vec<BudgetStatus>,
    /// Where it runs, unless it is in the background.
    pub place: Option<String>,
}

/// Whose sessions are looked at, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Looked<'a> {
    pub asked: Asked<'a>,
    pub zone: &'a TimeZone,
}

impl Looked<'_> {
    /// Every running session, and what is to be followed from here on so that its next change is noticed.
    pub fn sessions(
        &self,
        store: &mut Store,
        settings: &mut CurrentBudgets,
        changes: &mut Changes,
    ) -> Result<Vec<TopSession>, store::Error> {
        let now = self.asked.now;
        let active = SessionQuery::showing(Show::Active);
        let lines = list::summarised(Some(store), &active, |count| count, now, true)?.sessions;
        let numbers: Vec<i64> = lines.iter().map(|line| line.row.n).collect();
        let running = store.read(|view| RunningSession::numbered(view, &numbers))?;
        let states = self.states(&running, &lines, changes);
        settings.look(now);
        let settings = &*settings;
        store.read(|view| {
            let all = lines.into_iter().zip(running).zip(states);
            // One that has ended meanwhile is nowhere.
            let all = all.filter_map(|((line, running), state)| Some((line, running?, state)));
            all.map(|(line, running, state)| self.session(view, line, &running, state, settings)).collect()
        })
    }

    fn session(
        &self,
        view: &View<'_>,
        mut line: SessionLine,
        running: &RunningSession,
        state: Option<LiveState>,
        settings: &CurrentBudgets,
    ) -> Result<TopSession, store::Error> {
        let (now, n, run) = (self.asked.now, line.row.n, running.run());
        line.state = state;
        line.runaway = runaway_of(view, n, settings.runaway(), now)?;
        Ok(TopSession {
            run,
            hosted: run.is_some_and(|run| address::exists(self.asked.home, run)),
            rate: rate(view.tokens_since(n, Timestamp(now.0 - RATE * MINUTE))?, line.row.started_at, now),
            context: ContextFill::of(view, n)?,
            budget: self.budgets(view, n, settings)?.into_iter().next(),
            line,
        })
    }

    fn budgets(
        &self,
        view: &View<'_>,
        n: i64,
        settings: &CurrentBudgets,
    ) -> Result<Vec<BudgetStatus>, store::Error> {
        let budgets = settings.budgets();
        let row = if budgets.is_empty() { None } else { view.session_number(n)? };
        row.map_or(Ok(Vec::new()), |row| budget::of_session(view, budgets, &row, self.asked.now, self.zone))
    }

    /// What each does: as its host has reported, else as it is found by a look. Has their next change noticed.
    fn states(
        &self,
        running: &[Option<RunningSession>],
        lines: &[SessionLine],
        changes: &mut Changes,
    ) -> Vec<Option<LiveState>> {
        let mut hosts: HashSet<RunId> = HashSet::new();
        let mut files: HashSet<PathBuf> = HashSet::new();
        for (session, line) in running.iter().zip(lines) {
            let Some(session) = session else { continue };
            match session.run().filter(|run| address::exists(self.asked.home, *run)) {
                Some(run) => drop(hosts.insert(run)),
                None => files.extend(
                    session.watched(self.asked.origin, Path::new(line.row.cwd.as_deref().unwrap_or("/"))),
                ),
            }
        }
        changes.follow(&hosts, files);
        let reported: Vec<Option<LiveState>> = running
            .iter()
            .map(|session| session.as_ref().and_then(RunningSession::run).and_then(|run| changes.state(run)))
            .collect();
        let unknown = running.iter().zip(&reported);
        let unknown = unknown.map(|(session, state)| session.clone().filter(|_| state.is_none()));
        let looked = self.asked.states(&unknown.collect::<Vec<_>>());
        reported.into_iter().zip(looked).map(|(reported, looked)| reported.or(looked)).collect()
    }

    /// More of one of them.
    pub fn details(
        &self,
        store: &mut Store,
        session: &TopSession,
        tools: usize,
        settings: &CurrentBudgets,
    ) -> Result<TopDetails, store::Error> {
        let n = session.line.row.n;
        store.read(|view| {
            let Some(row) = view.session_number(n)? else { return Ok(TopDetails::default()) };
            let run = view.live_runs_in(n)?.into_iter().next_back().filter(|_| !session.hosted);
            Ok(TopDetails {
                chain: Chain::around(view, &row)?,
                spent: view.spent_in_chain(n)?,
                tools: view.last_tools(n, tools)?,
                budgets: self.budgets(view, n, settings)?,
                place: run.as_ref().map(where_it_runs),
            })
        })
    }

    /// What was spent today, by all sessions there are.
    pub fn today(&self, store: &mut Store) -> Result<Amount, store::Error> {
        store.read(|view| Amount::of_today(view, self.asked.now, self.zone))
    }
}

/// Tokens a minute; of a session that is younger than the time that is counted, over its own age.
fn rate(tokens: u64, started: Timestamp, now: Timestamp) -> u64 {
    let minutes = u64::try_from((now.0 - started.0).clamp(MINUTE, RATE * MINUTE)).unwrap_or(1);
    tokens.saturating_mul(MINUTE.unsigned_abs()) / minutes
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::home::Home;
    use runtime::launch::Origin;
    use store::session::lifecycle::{self, ConversationStart};
    use store::session::state::{Ending, Exit};
    use store::session::testing::World;

    #[test]
    fn a_rate_is_that_of_the_last_minutes() {
        let at = |minutes: i64| Timestamp(minutes * MINUTE);
        for (tokens, started, now, expected) in [
            (0, 0, 60, 0),
            (10_000, 0, 60, 2000),
            (10_000, 58, 60, 5000),
            (10_000, 60, 60, 10_000),
            (10_000, 61, 60, 10_000),
        ] {
            assert_eq!(rate(tokens, at(started), at(now)), expected, "{tokens} {started} {now}");
        }
    }

    #[test]
    fn the_running_sessions_are_found_and_no_other() {
        let mut world = World::new();
        let folder = tempfile::tempdir().unwrap();
        let (home, origin) = (Home::at(folder.path()), Origin::given([], "/".into()));
        let (ended, _) = world.start(ConversationStart::Fresh);
        let (run, started) = world.start(ConversationStart::Fresh);
        let now = world.now;
        world.store.write(|tx| lifecycle::end(tx, now, ended, Ending::exited(Exit::Code(0)))).unwrap();
        let looked =
            Looked { asked: Asked { home: &home, origin: &origin, now }, zone: &jiff::tz::TimeZone::UTC };
        let mut settings = CurrentBudgets::of(&home);
        let mut changes = Changes::new(&home).unwrap();
        let sessions = looked.sessions(&mut world.store, &mut settings, &mut changes).unwrap();
        assert_eq!(sessions.len(), 1);
        let found = &sessions[0];
        assert_eq!(found.line.row.id, started.session.to_string());
        assert_eq!((found.run, found.hosted, found.rate), (Some(run), false, 0));
        assert!(found.line.state.is_some(), "unknown at the least");
        let details = looked.details(&mut world.store, found, 5, &settings).unwrap();
        assert_eq!((details.tools.len(), details.spent.sessions), (0, 1));
        assert!(details.place.is_some());
    }
}
