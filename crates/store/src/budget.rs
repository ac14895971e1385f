//! What budgets are counted by: sums of calls over a time, reservations of calls under way, raises, and what was notified.

use rusqlite::params;

use super::record::UNPRICED;
use super::row::{insert, read_row, read_value};
use super::total::sum;
use super::{BootAndPidNs, Error, Tx, View};
use types::row::RowColumns;
use types::{PicoDollars, ProcessId, SessionId, Timestamp, row};

/// The units of time in which sums are kept (`width`). Days of every zone begin at a quarter of an hour; most of a month are whole
/// days of UTC.
const QUARTERS: Width = Width { number: 0, ms: 900_000 };
const DAYS: Width = Width { number: 1, ms: 86_400_000 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    number: i64,
    ms: i64,
}

/// A stretch of time in pieces: quarters of an hour up to the first whole day, days, quarters after the last.
fn pieces(begin: Timestamp, end: Timestamp) -> [(Width, i64, i64); 3] {
    let quarter = |at: Timestamp| at.0.div_euclid(QUARTERS.ms);
    let per_day = DAYS.ms / QUARTERS.ms;
    let (from, to) = (quarter(begin), quarter(end));
    let (first, last) =
        (from.div_euclid(per_day) + i64::from(from.rem_euclid(per_day) > 0), to.div_euclid(per_day));
    if first >= last {
        return [(QUARTERS, from, to), (DAYS, 0, 0), (QUARTERS, 0, 0)];
    }
    [(QUARTERS, from, first * per_day), (DAYS, first, last), (QUARTERS, last * per_day, to)]
}

/// Which calls are added up, by what their sessions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpentBy<'a> {
    All,
    Agent(&'a str),
    /// The folder's own name, its path, or `owner/name` of the repository.
    Project(&'a str),
    Branch(&'a str),
    Tag(&'a str),
}

row! {
    /// What calls cost, and how many have no price.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Spent {
        pub cost: PicoDollars,
        pub calls: i64,
        pub unpriced: i64,
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.cost.0 = self.cost.0.saturating_add(more.cost.0);
        self.calls += more.calls;
        self.unpriced += more.unpriced;
    }
}

row! {
    /// What a call under way may cost, for one budget.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Hold {
        pub call: String,
        pub amount: PicoDollars,
        pub at: Timestamp,
        pub agent: String,
        /// The call is over, and its record will have this key: its session is not known yet.
        pub key: Option<String>,
        /// The call has not begun: it waits for others, since `at`.
        pub waits: bool,
        pub owner: ProcessId = "owner_pid, owner_start" [row],
        pub realm: BootAndPidNs [row],
    }
}

row! {
    /// What a model was priced at by its user, and how much came of it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OwnPriceUse {
        pub model: String,
        /// Which of the prices that were set.
        pub version: String,
        pub calls: i64,
        pub cost: PicoDollars,
        pub first_at: Timestamp,
    }
}

impl<'a> SpentBy<'a> {
    /// On a session `s`, or a pruned one; `None`: every session counts. Its parameter is the fourth.
    fn condition(self, pruned: bool) -> Option<&'static str> {
        Some(match (self, pruned) {
            (Self::All, _) => return None,
            (Self::Agent(_), _) => "s.agent = ?4",
            (Self::Project(_), false) => "(s.project = ?4 OR s.cwd = ?4 OR s.repository = ?4)",
            (Self::Project(_), true) => "(s.project = ?4 OR s.repository = ?4)",
            (Self::Branch(_), _) => "s.branch = ?4",
            (Self::Tag(_), false) => "EXISTS (SELECT 1 FROM tag t WHERE t.session = s.n AND t.tag = ?4)",
            (Self::Tag(_), true) => "EXISTS (SELECT 1 FROM json_each(s.tags) t WHERE t.value = ?4)",
        })
    }

    fn name(self) -> Option<&'a str> {
        match self {
            Self::All => None,
            Self::Agent(name) | Self::Project(name) | Self::Branch(name) | Self::Tag(name) => Some(name),
        }
    }
}

/// Calls of sessions that are here.
fn spent_here(by: SpentBy<'_>) -> String {
    let cost = sum("p.cost");
    let sums = format!("SELECT {cost}, ifnull(sum(p.calls), 0), ifnull(sum(p.unpriced), 0)");
    let time = "p.width = ?1 AND p.slot >= ?2 AND p.slot < ?3";
    match by.condition(false) {
        None => format!("{sums} FROM spent p WHERE {time}"),
        // CROSS JOIN holds SQLite to this order: by time first, which is the part of all calls that is small.
        Some(which) => {
            format!("{sums} FROM spent p CROSS JOIN session s ON s.n = p.session WHERE {time} AND {which}")
        }
    }
}

fn spent_by_pruned(by: SpentBy<'_>) -> String {
    let cost = sum("c.cost");
    let sums = format!("SELECT {cost}, count(*), ifnull(sum(c.cost IS NULL), 0)");
    // Times are counted in units, as above.
    let time = "c.at >= ?1 * ?2 AND c.at < ?1 * ?3";
    match by.condition(true) {
        None => format!("{sums} FROM pruned_call c WHERE {time}"),
        Some(which) => {
            format!(
                "{sums} FROM pruned_call c CROSS JOIN pruned_session s ON s.n = c.session WHERE {time} AND {which}"
            )
        }
    }
}

impl View<'_> {
    /// The calls between two times, those of pruned sessions included; local ones, the demonstration's, are left out. The times
    /// are those of calls in whole quarters of an hour.
    pub fn spent(&self, by: SpentBy<'_>, begin: Timestamp, end: Timestamp) -> Result<Spent, Error> {
        let ask = |sql: &str, number: i64, from: i64, to: i64| match by.name() {
            None => self.one(sql, params![number, from, to], read_row),
            Some(name) => self.one(sql, params![number, from, to, name], read_row),
        };
        let (from, to) = (begin.0.div_euclid(QUARTERS.ms), end.0.div_euclid(QUARTERS.ms));
        let mut spent = ask(&spent_by_pruned(by), QUARTERS.ms, from, to)?;
        let here = spent_here(by);
        for (width, from, to) in pieces(begin, end) {
            if from < to {
                spent += ask(&here, width.number, from, to)?;
            }
        }
        Ok(spent)
    }

    /// The calls of one session.
    pub fn spent_in_session(&self, session: i64) -> Result<Spent, Error> {
        let calls = self.totals(session)?.calls;
        let unpriced =
            self.one(&format!("SELECT count(*) FROM {UNPRICED} AND session = ?1"), [session], read_value)?;
        Ok(Spent { cost: calls.cost, calls: calls.api_calls, unpriced })
    }

    /// What was added to a budget: for everybody, and for this session alone.
    pub fn budget_raised(
        &self,
        budget: &str,
        span: &str,
        session: Option<SessionId>,
    ) -> Result<PicoDollars, Error> {
        let amount = sum("amount");
        self.one(
            &format!(
                "SELECT {amount} FROM budget_raise WHERE budget = ?1 AND span = ?2 AND (session IS NULL OR session = ?3)"
            ),
            params![budget, span, session],
            read_value,
        )
    }

    /// The reservations that count towards a budget, and the calls that wait for it.
    pub fn budget_holds(&self, budget: &str, span: &str) -> Result<Vec<Hold>, Error> {
        let sql = Hold::select("FROM budget_hold WHERE budget = ?1 AND span = ?2");
        self.all(&sql, [budget, span], read_row)
    }

    /// What a session's last calls cost, of one model or of any; those without a price are left out.
    pub fn latest_costs(
        &self,
        session: i64,
        model: Option<&str>,
        most: u32,
    ) -> Result<Vec<PicoDollars>, Error> {
        self.all(
            "SELECT cost FROM record WHERE session = ?1 AND kind = 'usage' AND (?2 IS NULL OR model = ?2)
               AND cost IS NOT NULL
             ORDER BY at DESC LIMIT ?3",
            params![session, model, most],
            read_value,
        )
    }

    /// What prices of the user's own were used for, by model. `prefix`: how their versions begin.
    pub fn own_price_uses(&self, prefix: &str) -> Result<Vec<OwnPriceUse>, Error> {
        let cost = sum("cost");
        self.all(
            &format!(
                "SELECT model, prices, count(*), {cost}, min(at) FROM record
                 WHERE kind = 'usage' AND substr(prices, 1, length(?1)) = ?1 GROUP BY 1, 2 ORDER BY 1, 5"
            ),
            [prefix],
            read_row,
        )
    }
}

impl Tx<'_> {
    pub fn raise_budget(
        &self,
        budget: &str,
        span: &str,
        session: Option<SessionId>,
        amount: PicoDollars,
        at: Timestamp,
    ) -> Result<(), Error> {
        insert!(self, "budget_raise": { budget, span, session, amount, at }).map(drop)
    }

    pub fn forget_budget_raises(&self, budget: &str) -> Result<(), Error> {
        self.execute("DELETE FROM budget_raise WHERE budget = ?1", [budget]).map(drop)
    }

    /// Reserves an amount for a call, or its place among those that wait.
    pub fn hold_budget(&self, budget: &str, span: &str, hold: &Hold) -> Result<(), Error> {
        let Hold { call, amount, at, agent, key, waits, owner, realm } = hold;
        insert!(self, "INSERT OR REPLACE" into "budget_hold": {
            call,
            budget,
            span,
            amount,
            at,
            owner_pid: owner.pid,
            owner_start: owner.start,
            boot: realm.boot,
            pids: realm.pids,
            agent,
            key,
            waits,
        })
        .map(drop)
    }

    /// The call is over and cost so much, but its record is not stored yet.
    pub fn keep_budget_hold(
        &self,
        call: &str,
        key: &str,
        cost: PicoDollars,
        at: Timestamp,
    ) -> Result<(), Error> {
        let sql = "UPDATE budget_hold SET key = ?2, amount = ?3, at = ?4 WHERE call = ?1";
        self.execute(sql, params![call, key, cost, at]).map(drop)
    }

    /// The call is over, or whoever made it is gone.
    pub fn release_budget(&self, call: &str) -> Result<(), Error> {
        self.execute("DELETE FROM budget_hold WHERE call = ?1", [call]).map(drop)
    }

    /// Whether it is the first time. Forgets the notices that are older than `oldest`.
    pub fn note_budget_notice(
        &self,
        budget: &str,
        span: &str,
        percent: i64,
        at: Timestamp,
        oldest: Timestamp,
    ) -> Result<bool, Error> {
        let notice = insert!(self, "INSERT OR IGNORE" into "budget_notice": { budget, span, percent, at });
        let first = notice? > 0;
        if first {
            self.execute("DELETE FROM budget_notice WHERE at < ?1", [oldest])?;
        }
        Ok(first)
    }

    /// The same for a sign of a session's own. It stands among the notices of budgets, under a name that no budget has, and is
    /// forgotten with them.
    pub fn note_session_notice(
        &self,
        sign: &str,
        session: SessionId,
        at: Timestamp,
        oldest: Timestamp,
    ) -> Result<bool, Error> {
        self.note_budget_notice(sign, &session.to_string(), 0, at, oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use os::home::Home;

    fn plan(store: &Store, sql: &str, parameters: usize) -> Vec<String> {
        let mut plan = store.sql().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = rusqlite::params_from_iter((0..parameters).map(|_| 0));
        plan.query_map(parameters, |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn every_sum_is_a_range_of_time_and_goes_through_no_table() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Home::at(folder.path()), Timestamp(0)).unwrap();
        for by in [
            SpentBy::All,
            SpentBy::Agent("a"),
            SpentBy::Project("a"),
            SpentBy::Branch("a"),
            SpentBy::Tag("a"),
        ] {
            let parameters = if by == SpentBy::All { 3 } else { 4 };
            let here = plan(&store, &spent_here(by), parameters);
            assert_eq!(here[0], "SEARCH p USING PRIMARY KEY (width=? AND slot>? AND slot<?)", "{by:?}");
            let pruned = plan(&store, &spent_by_pruned(by), parameters);
            assert!(
                pruned[0].contains("USING COVERING INDEX pruned_call_by_time (at>? AND at<?)"),
                "{pruned:?}"
            );
            for step in here.iter().chain(&pruned) {
                let table = step.starts_with("SCAN") && !step.contains("VIRTUAL TABLE");
                assert!(!table, "{by:?}: {step}");
            }
        }
    }

    #[test]
    fn a_stretch_of_time_is_days_and_the_quarters_around_them() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        for (begin, end) in [
            ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"),
            ("2026-11-01T18:15:00Z", "2026-11-02T18:15:00Z"),
            ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"),
            ("2026-11-01T01:00:00Z", "2026-11-01T02:00:00Z"),
            ("2026-11-01T23:45:00Z", "2026-11-03T00:15:00Z"),
        ] {
            let (mut next, mut rows) = (at(begin).0, 0);
            for (width, from, to) in pieces(at(begin), at(end)).into_iter().filter(|(_, from, to)| from < to)
            {
                assert_eq!(from * width.ms, next, "{begin}: no gap and no overlap");
                next = to * width.ms;
                rows += to - from;
            }
            assert_eq!(next, at(end).0, "{begin}");
            assert!(rows <= 31 + 2 * 95, "{begin}: {rows}");
        }
    }

    #[test]
    fn the_sums_follow_every_change_of_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&Home::at(folder.path()), Timestamp(0)).unwrap();
        let sql = |store: &Store, text: &str| store.sql().execute_batch(text).unwrap();
        for (n, local_only) in [(1, 0), (2, 0), (3, 1)] {
            sql(&store, &format!(
                "INSERT INTO session (n, id, name, name_base, name_number, named, agent, wrapper_version, phase, link,
                   opening, started_at, project, local_only)
                 VALUES ({n}, 's{n}', 's{n}', 's', {n}, 0, 'claude', '1', 'closed', 'matched', 1, 0, 'p{n}', {local_only})"
            ));
        }
        let call = |key: &str, session: i64, at: i64, cost: &str| {
            format!(
                "INSERT INTO record (agent, kind, key, session, at, model, cost) VALUES ('claude', 'usage', '{key}', {session}, {at}, 'm', {cost});"
            )
        };
        let spent = |store: &mut Store, by: SpentBy<'_>, begin: i64, end: i64| {
            let spent = store.read(|view| view.spent(by, Timestamp(begin), Timestamp(end))).unwrap();
            (spent.cost.0, spent.calls, spent.unpriced)
        };
        let quarter = QUARTERS.ms;
        sql(&store, &call("a", 1, 5, "100"));
        sql(&store, &call("b", 1, quarter - 1, "NULL"));
        sql(&store, &call("c", 2, quarter, "7"));
        sql(&store, &call("local", 3, 5, "1000"));
        sql(
            &store,
            "INSERT INTO record (agent, kind, key, session, at) VALUES ('claude', 'prompt', 'p', 1, 5)",
        );
        assert_eq!(spent(&mut store, SpentBy::All, 0, quarter), (100, 2, 1));
        assert_eq!(spent(&mut store, SpentBy::All, 0, 2 * quarter), (107, 3, 1));
        assert_eq!(spent(&mut store, SpentBy::Project("p2"), 0, 2 * quarter), (7, 1, 0));
        assert_eq!(spent(&mut store, SpentBy::Agent("codex"), 0, 2 * quarter), (0, 0, 0));
        // A later line has a price, a merged session's calls go over, one leaves.
        sql(&store, "UPDATE record SET cost = 50 WHERE key = 'b'");
        sql(&store, "UPDATE record SET session = 2 WHERE key = 'a'");
        assert_eq!(spent(&mut store, SpentBy::Project("p2"), 0, 2 * quarter), (107, 2, 0));
        assert_eq!(spent(&mut store, SpentBy::All, 0, 2 * quarter), (157, 3, 0));
        sql(&store, "DELETE FROM record WHERE key = 'c'");
        assert_eq!(spent(&mut store, SpentBy::All, 0, 2 * quarter), (150, 2, 0));
        // What cannot be added up does not keep a call from being stored.
        sql(&store, &call("huge", 1, 5, &i64::MAX.to_string()));
        sql(&store, &call("more", 1, 5, &i64::MAX.to_string()));
        sql(&store, "DELETE FROM record WHERE key IN ('huge', 'more')");
        sql(&store, "DELETE FROM session WHERE n = 2");
        let left: i64 = store
            .sql()
            .query_row("SELECT count(*) FROM spent WHERE session = 2", [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 0, "a session's sums leave with it");
    }
}
