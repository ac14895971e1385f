//! Lists of sessions: what a table shows of each, in one query; and what lists ask of many sessions at once, with one query for all
//! instead of one for each. Among ten thousand sessions that is the difference between at once and soon.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Row, params_from_iter};

use super::outgoing::began_before;
use super::query::Condition;
use super::record::UNPRICED;
use super::row::{read_keyed, read_row, read_value, uncount};
use super::{Error, Fate, OpeningRow, SessionQuery, SessionRow, View};
use types::row::{RowColumns, RowReader};
use types::{EndReason, PicoDollars, Pid, RunId, Status, Sums, Sync, Timestamp, row};

row! {
    /// What a table of sessions shows of one.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListedSession from "s" {
        pub n: i64,
        /// The id people and scripts see.
        pub id: String = "ifnull(s.former_id, s.id)",
        pub name: String,
        pub agent: String,
        pub status: Status = "CASE s.phase WHEN 'closed' THEN s.status END" as Option<Status>
            => |status| status.unwrap_or(Status::Active),
        pub archived: bool,
        pub project: Option<String>,
        pub branch: Option<String>,
        /// How often it was opened.
        pub opening: u32,
        pub started_at: Timestamp,
        pub ended_at: Option<Timestamp>,
        /// When something happened in it last.
        pub active_at: Timestamp = "max(s.started_at, ifnull(s.ended_at, 0), ifnull(s.active_at, 0))",
        pub end_reason: Option<EndReason>,
        pub title: Option<String>,
        /// Whether anybody has looked for its title: sessions of earlier versions have none.
        pub title_sought: bool = "s.title_rank IS NOT NULL",
        pub cwd: Option<String>,
        /// Whether its conversation is known, so that it can be resumed.
        pub bound: bool = "s.agent_session IS NOT NULL",
        pub api_calls: i64 = "ifnull(t.api_calls, 0)",
        /// Everything billed.
        /// Beyond the largest integer a sum is a real number, and the cast ends it there.
        pub tokens: u64 = "CAST(t.input + t.output + t.cache_read + t.cache_write AS INTEGER)" as Option<i64>
            => |tokens| tokens.map_or(0, uncount),
        pub cost: PicoDollars = "ifnull(t.cost, 0)",
    }
}

impl View<'_> {
    /// The titles of these sessions, under the ids that people see.
    pub fn titles(&self, ids: &[String]) -> Result<Vec<(String, String)>, Error> {
        let ids = serde_json::to_string(ids).unwrap_or_default();
        let sql = "SELECT id, title FROM session
                     WHERE id IN (SELECT value FROM json_each(?1)) AND former_id IS NULL AND title IS NOT NULL
                   UNION ALL SELECT former_id, title FROM session
                     WHERE former_id IN (SELECT value FROM json_each(?1)) AND title IS NOT NULL";
        self.all(sql, [ids], read_row)
    }

    /// The sessions with this text in their title, the newest first and no more than `most`. Not in SQL, which knows the cases
    /// of ASCII alone.
    pub fn titled(&self, text: &str, most: usize) -> Result<Vec<String>, Error> {
        let text = text.to_lowercase();
        let sql = "SELECT ifnull(former_id, id), title FROM session WHERE title IS NOT NULL ORDER BY started_at DESC";
        let titled: Vec<(String, String)> = self.all(sql, [], read_row)?;
        let with = titled.into_iter().filter(|(_, title)| title.to_lowercase().contains(&text));
        Ok(with.map(|(id, _)| id).take(most).collect())
    }

    /// The first, so many of them.
    pub fn listed(&self, query: &SessionQuery, most: usize) -> Result<Vec<ListedSession>, Error> {
        let Condition { sql, values } = self.condition(query)?;
        let (order, most) = (query.sort.order(), i64::try_from(most).unwrap_or(i64::MAX));
        let from = format!(
            "FROM session s LEFT JOIN total t ON t.session = s.n WHERE {sql} ORDER BY {order} LIMIT {most}"
        );
        self.all(&ListedSession::select(&from), params_from_iter(values), read_row)
    }
}

/// Up to so many sessions are asked for one by one: what is read then does not grow with the store.
const FEW: usize = 64;

/// And more of them where they are less than one in so many of all sessions. To ask for one costs what it costs to read the
/// rows of three in passing.
const ONE_IN: usize = 4;

row! {
    /// A run's processes, for the record of its session.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RunProcesses {
        pub id: RunId,
        pub wrapper: Pid = "wrapper_pid",
        pub agent: Option<Pid> = "agent_pid",
    }
}

impl View<'_> {
    pub fn totals_of(&self, sessions: &[i64]) -> Result<HashMap<i64, Sums>, Error> {
        self.by_session(
            sessions,
            |n| self.totals(n),
            || {
                let sql = format!("SELECT session, {} FROM total", Sums::COLUMNS);
                Ok(self.all(&sql, [], read_keyed)?.into_iter().collect())
            },
        )
    }

    pub fn unpriced_models_of(&self, sessions: &[i64]) -> Result<HashMap<i64, Vec<String>>, Error> {
        self.by_session(
            sessions,
            |n| self.unpriced_models(n),
            || {
                let sql = format!("SELECT DISTINCT session, model FROM {UNPRICED} ORDER BY session, model");
                self.grouped(&sql, |columns| columns.column())
            },
        )
    }

    pub fn unpriced_calls_of(&self, sessions: &[i64]) -> Result<HashMap<i64, BTreeMap<String, i64>>, Error> {
        self.by_session(
            sessions,
            |n| self.unpriced_calls(n),
            || {
                let sql = format!("SELECT session, model, count(*) FROM {UNPRICED} GROUP BY session, model");
                let calls = self.grouped(&sql, |columns| columns.row::<(String, i64)>())?;
                Ok(calls.into_iter().map(|(session, calls)| (session, calls.into_iter().collect())).collect())
            },
        )
    }

    pub fn tags_of(&self, sessions: &[i64]) -> Result<HashMap<i64, Vec<String>>, Error> {
        self.by_session(
            sessions,
            |n| self.tags(n),
            || self.grouped("SELECT session, tag FROM tag ORDER BY session, tag", |columns| columns.column()),
        )
    }

    /// The models each used, the most used first.
    pub fn models_of(&self, sessions: &[i64]) -> Result<HashMap<i64, Vec<String>>, Error> {
        const USED: &str = "FROM record WHERE kind = 'usage' AND model <> ''";
        self.by_session(
            sessions,
            |n| {
                let sql = format!(
                    "SELECT model {USED} AND session = ?1 GROUP BY model ORDER BY count(*) DESC, model"
                );
                self.all(&sql, [n], read_value)
            },
            || {
                let order = "GROUP BY session, model ORDER BY session, count(*) DESC, model";
                self.grouped(&format!("SELECT session, model {USED} {order}"), |columns| columns.column())
            },
        )
    }

    pub fn openings_of(&self, sessions: &[i64]) -> Result<HashMap<i64, Vec<OpeningRow>>, Error> {
        self.by_session(
            sessions,
            |n| self.openings(n),
            || {
                let columns = OpeningRow::COLUMNS;
                let sql = format!("SELECT session, {columns} FROM opening ORDER BY session, number");
                self.grouped(&sql, |columns| columns.row())
            },
        )
    }

    /// By the number of the run.
    pub fn processes_of(&self, rows: &[SessionRow]) -> Result<HashMap<i64, RunProcesses>, Error> {
        let sql = format!("SELECT n, {} FROM run", RunProcesses::COLUMNS);
        if !self.are_few(rows.len())? {
            return Ok(self.all(&sql, [], read_keyed)?.into_iter().collect());
        }
        let runs = rows.iter().filter_map(|row| row.run);
        let found = runs.map(|run| self.maybe(&format!("{sql} WHERE n = ?1"), [run], read_keyed));
        found.filter_map(Result::transpose).collect()
    }

    /// The ids that are shown of the sessions that others were started inside of, by their numbers.
    pub fn parents_of(&self, rows: &[SessionRow]) -> Result<HashMap<i64, String>, Error> {
        let mut parents: Vec<i64> = rows.iter().filter_map(|row| row.parent).collect();
        parents.sort_unstable();
        parents.dedup();
        let found = parents.into_iter().map(|parent| self.session_number(parent));
        found
            .filter_map(|found| Some(found.transpose()?.map(|parent| (parent.n, parent.shown_id()))))
            .collect()
    }

    /// How far the events of each have got, as [`View::sync`] says of one.
    pub fn syncs_of(&self, rows: &[SessionRow]) -> Result<HashMap<i64, Sync>, Error> {
        if self.are_few(rows.len())? {
            return rows.iter().map(|row| Ok((row.n, self.sync(row)?))).collect();
        }
        let slowest: (Option<i64>, Option<i64>) =
            self.one("SELECT min(since), min(cursor) FROM sink", [], read_row)?;
        let (Some(since), Some(cursor)) = slowest else { return Ok(HashMap::new()) };
        let counts = |sql: &str| -> Result<HashMap<i64, i64>, Error> {
            Ok(self.all(sql, [], read_row)?.into_iter().collect())
        };
        // All by an index that holds what is asked for, less the few that are kept back: the events' own rows, of which one
        // count alone would need every one, are ten times as much to read.
        let all = counts("SELECT session, count(*) FROM event GROUP BY session")?;
        let kept_back = counts(
            "SELECT session, count(*) FROM event INDEXED BY event_kept_back WHERE change IS NULL GROUP BY session",
        )?;
        let waiting =
            counts(&format!("SELECT session, count(*) FROM event WHERE change > {cursor} GROUP BY session"))?;
        let before =
            counts(&format!("SELECT session, count(*) FROM event WHERE change <= {since} GROUP BY session"))?;
        let history =
            counts(&format!("SELECT s.n, 1 FROM session s WHERE {}", began_before(&since.to_string())))?;
        let letters = |fate: Fate| {
            counts(&format!(
                "SELECT e.session, count(DISTINCT l.event) FROM letter l JOIN event e ON e.n = l.event
                 WHERE l.fate = '{}' AND l.fate <> 'done' AND e.change <= {cursor} GROUP BY 1",
                fate.as_str()
            ))
        };
        let (dead, deferred) = (letters(Fate::Dead)?, letters(Fate::Deferred)?);
        let sync = |row: &SessionRow| {
            if row.local_only {
                return Sync::default();
            }
            let last_delivered_at = row.last_delivered_at;
            if history.contains_key(&row.n) {
                return Sync { last_delivered_at, ..Sync::default() };
            }
            let of = |counts: &HashMap<i64, i64>| counts.get(&row.n).copied().unwrap_or(0);
            let passed = of(&all) - of(&kept_back) - of(&waiting) - of(&before);
            Sync {
                pending: of(&waiting) + of(&deferred),
                delivered: (passed - of(&dead) - of(&deferred)).max(0),
                dead: of(&dead),
                last_delivered_at,
            }
        };
        Ok(rows.iter().map(|row| (row.n, sync(row))).collect())
    }

    /// Rows that begin with the number of their session.
    fn grouped<T>(
        &self,
        sql: &str,
        read: impl for<'r> Fn(&mut RowReader<'_, Row<'r>>) -> rusqlite::Result<T>,
    ) -> Result<HashMap<i64, Vec<T>>, Error> {
        let mut grouped: HashMap<i64, Vec<T>> = HashMap::new();
        let rows = self.all(sql, [], |row| {
            let mut columns = RowReader::new(row);
            Ok((columns.column::<i64>()?, read(&mut columns)?))
        })?;
        for (session, value) in rows {
            grouped.entry(session).or_default().push(value);
        }
        Ok(grouped)
    }

    /// Values by session: one query for each session where they are few, else one query over all sessions there are.
    fn by_session<T>(
        &self,
        sessions: &[i64],
        one: impl Fn(i64) -> Result<T, Error>,
        all: impl FnOnce() -> Result<HashMap<i64, T>, Error>,
    ) -> Result<HashMap<i64, T>, Error> {
        if !self.are_few(sessions.len())? {
            return all();
        }
        sessions.iter().map(|n| Ok((*n, one(*n)?))).collect()
    }

    fn are_few(&self, sessions: usize) -> Result<bool, Error> {
        if sessions <= FEW {
            return Ok(true);
        }
        let all = self.one("SELECT count(*) FROM session", [], read_value::<i64>)?;
        Ok(sessions.saturating_mul(ONE_IN) < usize::try_from(all).unwrap_or(0))
    }
}
