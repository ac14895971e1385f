//! Queries of commands: lists, lookups, and sessions that are to be published or may be pruned.

use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};

use super::row::{read_row, read_value};
use super::{Error, Phase, SessionRow, Tx, View};
use types::row::RowColumns;
use types::{EndReason, Filter, Status, Timestamp};

/// Which sessions a list shows, and in which order. The default is all that are not archived, the last used first.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    pub filter: Filter,
    pub show: Show,
    /// Ended for this reason, whatever its status: sessions that were stopped under earlier versions may be `failed`.
    pub ended_by: Option<EndReason>,
    pub sort: Sort,
}

impl SessionQuery {
    /// Of sessions that are not archived.
    pub fn of(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    pub fn showing(show: Show) -> Self {
        Self { show, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    #[default]
    NotArchived,
    Active,
    All,
    Archived,
}

/// What sessions can be filtered by, besides what is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labelled {
    Project,
    Branch,
    Group,
    Tag,
    Model,
}

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    LastUsed,
    Started,
    Cost,
    Tokens,
    Name,
}

/// The last activity in the session `s`; there is an index of it.
const ACTIVITY: &str = "max(s.started_at, ifnull(s.ended_at, 0), ifnull(s.active_at, 0))";

impl Sort {
    /// Of the session `s`.
    pub(super) fn order(self) -> String {
        let sum =
            |columns: &str| format!("(SELECT {columns} FROM total o WHERE o.session = s.n) DESC, s.n DESC");
        match self {
            Self::LastUsed => format!("{ACTIVITY} DESC, s.n DESC"),
            Self::Started => "s.started_at DESC, s.n DESC".to_owned(),
            Self::Cost => sum("o.cost"),
            Self::Tokens => sum("o.input + o.output + o.cache_read + o.cache_write"),
            Self::Name => "s.name".to_owned(),
        }
    }
}

/// A condition on the session `s`, and the values of its parameters.
pub(super) struct Condition {
    pub(super) sql: String,
    pub(super) values: [Value; 10],
}

impl SessionQuery {
    /// `with_words`: the numbers of the sessions that have the words, where there are any.
    ///
    /// A project is a folder's path; or, in any case, a part of its own name, with a slash of `owner/name` of the repository.
    /// A branch and a model are parts of their names, in any case. A session is within a span if it was open in it. All
    /// sessions are of one user on one machine, so these are not looked at.
    fn condition(&self, with_words: Option<&[i64]>) -> Condition {
        let Filter {
            agent,
            without_agent,
            project,
            branch,
            user: _,
            machine: _,
            model,
            tag,
            group,
            status,
            span,
            words: _,
        } = &self.filter;
        let show = match self.show {
            Show::NotArchived => "s.archived = 0",
            Show::Active => "s.phase <> 'closed'",
            Show::All => "1",
            Show::Archived => "s.archived = 1",
        };
        let status = match status {
            None => String::new(),
            Some(Status::Active) => " AND s.phase <> 'closed'".to_owned(),
            Some(status) => format!(" AND s.phase = 'closed' AND s.status = '{status}'"),
        };
        let ended_by = self.ended_by.map_or_else(String::new, |reason| {
            format!(" AND s.phase = 'closed' AND s.end_reason = '{reason}'")
        });
        let sql = format!(
            "{show}{status}{ended_by} AND (?1 IS NULL OR s.agent = ?1)
               AND (?2 IS NULL OR s.cwd = ?2
                 OR instr(lower(CASE instr(?2, '/') WHEN 0 THEN s.project ELSE s.repository END), lower(?2)))
               AND (?3 IS NULL OR EXISTS (SELECT 1 FROM tag t WHERE t.session = s.n AND t.tag = ?3))
               AND (?4 IS NULL OR s.grp = ?4)
               AND (?5 IS NULL OR s.ended_at IS NULL OR s.ended_at >= ?5)
               AND (?6 IS NULL OR instr(lower(s.branch), lower(?6)))
               AND (?7 IS NULL OR EXISTS (SELECT 1 FROM record r
                 WHERE r.session = s.n AND r.kind = 'usage' AND instr(lower(r.model), lower(?7))))
               AND (?8 IS NULL OR s.n IN (SELECT value FROM json_each(?8)))
               AND (?9 IS NULL OR s.agent <> ?9)
               AND (?10 IS NULL OR s.started_at < ?10)"
        );
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::Text);
        let time = |at: Option<Timestamp>| at.map_or(Value::Null, |at| Value::Integer(at.0));
        let numbers = with_words.map_or(Value::Null, |numbers| {
            let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
            Value::Text(format!("[{}]", numbers.join(",")))
        });
        let values = [
            text(agent),
            text(project),
            text(tag),
            text(group),
            time(span.since),
            text(branch),
            text(model),
            numbers,
            text(without_agent),
            time(span.until),
        ];
        Condition { sql, values }
    }
}

impl View<'_> {
    pub(super) fn condition(&self, query: &SessionQuery) -> Result<Condition, Error> {
        let words = &query.filter.words;
        let with_words = if words.is_empty() { None } else { Some(self.with_words(words)?) };
        Ok(query.condition(with_words.as_deref()))
    }

    /// The sessions that have each of the words in their name, title, project, branch or a tag. Not in SQL, which knows the cases of ASCII alone.
    fn with_words(&self, words: &[String]) -> Result<Vec<i64>, Error> {
        let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        let known: Vec<(i64, String)> = self.all(
            "SELECT n, concat_ws(char(10), name, title, project, branch,
               (SELECT group_concat(tag, char(10)) FROM tag WHERE session = n))
             FROM session",
            [],
            read_row,
        )?;
        let known = known.into_iter().map(|(n, text)| (n, text.to_lowercase()));
        let matching = known.filter(|(_, text)| words.iter().all(|word| text.contains(word.as_str())));
        Ok(matching.map(|(n, _)| n).collect())
    }

    /// In the order of the query.
    pub fn list(&self, query: &SessionQuery) -> Result<Vec<SessionRow>, Error> {
        self.list_first(query, usize::MAX)
    }

    /// The first, so many of them.
    pub fn list_first(&self, query: &SessionQuery, most: usize) -> Result<Vec<SessionRow>, Error> {
        let Condition { sql, values } = self.condition(query)?;
        let (order, most) = (query.sort.order(), i64::try_from(most).unwrap_or(i64::MAX));
        self.all(
            &SessionRow::select(&format!("FROM session s WHERE {sql} ORDER BY {order} LIMIT {most}")),
            params_from_iter(values),
            read_row,
        )
    }

    /// How many a list would show.
    pub fn count(&self, query: &SessionQuery) -> Result<usize, Error> {
        let Condition { sql, values } = self.condition(query)?;
        let count: i64 = self.one(
            &format!("SELECT count(*) FROM session s WHERE {sql}"),
            params_from_iter(values),
            read_value,
        )?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// The values that sessions have in one of their columns, the last used first, so many of them.
    pub fn values_of(&self, what: Labelled, most: usize) -> Result<Vec<String>, Error> {
        let from = match what {
            Labelled::Project => "s.project AS label FROM session s",
            Labelled::Branch => "s.branch AS label FROM session s",
            Labelled::Group => "s.grp AS label FROM session s",
            Labelled::Tag => "t.tag AS label FROM tag t JOIN session s ON s.n = t.session",
            Labelled::Model => {
                "r.model AS label FROM record r JOIN session s ON s.n = r.session AND r.kind = 'usage'"
            }
        };
        self.all(
            &format!(
                "SELECT {from} WHERE label <> '' GROUP BY label ORDER BY max({ACTIVITY}) DESC, label LIMIT {most}"
            ),
            [],
            read_value,
        )
    }

    pub fn sessions_named(&self, name: &str) -> Result<Vec<SessionRow>, Error> {
        let numbers = self.all("SELECT n FROM session WHERE name = ?1", [name], read_value)?;
        self.sessions_numbered(numbers)
    }

    /// Of any agent.
    pub fn sessions_of_agent_session(&self, id: &str) -> Result<Vec<SessionRow>, Error> {
        self.all(
            &SessionRow::select("FROM session s WHERE s.agent_session = ?1 ORDER BY s.n"),
            [id],
            read_row,
        )
    }

    /// Sessions one of whose ids, or whose name, begins so.
    pub fn sessions_with_prefix(&self, prefix: &str) -> Result<Vec<SessionRow>, Error> {
        self.all(
            &SessionRow::select("FROM session s
                 WHERE substr(s.id, 1, length(?1)) = lower(?1) OR substr(s.agent_session, 1, length(?1)) = ?1
                    OR substr(s.name, 1, length(?1)) = ?1
                    OR EXISTS (SELECT 1 FROM alias a WHERE a.session = s.n AND substr(a.id, 1, length(?1)) = ?1)
                 ORDER BY s.n"),
            [prefix],
            read_row,
        )
    }

    /// Sessions with a conversation that ended by a crash or a signal after a time.
    pub fn broken_off_since(
        &self,
        at: Timestamp,
        in_background: Timestamp,
    ) -> Result<Vec<SessionRow>, Error> {
        let numbers = self.all(BROKEN_OFF, [at, in_background], read_value)?;
        let mut rows = self.sessions_numbered(numbers)?;
        rows.retain(|row| {
            row.phase == Phase::Closed && row.agent_session.is_some() && row.imported_from.is_none()
        });
        rows.sort_by_key(|row| (row.ended_at, row.n));
        rows.dedup_by_key(|row| row.n);
        Ok(rows)
    }

    pub fn any_unpublished(&self) -> Result<bool, Error> {
        Ok(self.maybe("SELECT 1 FROM session WHERE unpublished = 1 LIMIT 1", [], |_| Ok(()))?.is_some())
    }

    pub fn unpublished(&self) -> Result<Vec<SessionRow>, Error> {
        let numbers = self.all("SELECT n FROM session WHERE unpublished = 1 ORDER BY n", [], read_value)?;
        self.sessions_numbered(numbers)
    }

    /// Sessions that ended before a time and may be removed; with `only`, that one if it is among them. A session stays while a
    /// sink has not received all of its events, or has refused some: tidying up loses nothing that was recorded. Events that
    /// are kept back (`change` is null: imported sessions), and those of the demonstration, are owed to no sink.
    pub fn prunable(&self, before: Timestamp, only: Option<i64>) -> Result<Vec<SessionRow>, Error> {
        // A range is found by its numbers; an OR would go through the whole table for each session that leaves.
        let (first, last) = only.map_or((i64::MIN, i64::MAX), |n| (n, n));
        self.all(
            &SessionRow::select(
                "FROM session s WHERE s.phase = 'closed' AND s.ended_at < ?1 AND s.n BETWEEN ?2 AND ?3
                   AND (s.local_only = 1 OR NOT EXISTS (SELECT 1 FROM event e
                     WHERE e.session = s.n AND (e.change > (SELECT min(cursor) FROM sink) OR EXISTS (
                       SELECT 1 FROM letter l WHERE l.event = e.n AND l.fate IN ('deferred', 'dead')))))
                 ORDER BY s.ended_at",
            ),
            params![before, first, last],
            read_row,
        )
    }
}

/// Each half by the index of the few it is about; an OR would go through all sessions, at every command.
const BROKEN_OFF: &str = "
    SELECT n FROM session WHERE ended_at > ?1 AND (end_reason = 'crash' OR signal IS NOT NULL)
    UNION ALL
    SELECT b.n FROM evidence e JOIN session b ON b.n = e.session
    WHERE e.source = 'handed-over' AND e.verdict = 'accepted' AND b.ended_at > ?2 AND b.end_reason = 'exit'";

impl Tx<'_> {
    pub fn set_published(&self, session: i64) -> Result<(), Error> {
        self.execute("UPDATE session SET unpublished = 0 WHERE n = ?1", [session]).map(drop)
    }

    /// Takes a session out with everything of its own. How far its files were read stays known, so that none of it
    /// comes back.
    pub fn delete_session(&self, session: i64) -> Result<(), Error> {
        self.execute("DELETE FROM session WHERE n = ?1", [session]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::Store;
    use os::home::Home;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Home::at(folder.path()), Timestamp(0)).unwrap();
        (folder, store)
    }

    #[test]
    fn looking_for_broken_off_sessions_goes_through_no_table() {
        let (_folder, store) = store();
        let mut plan = store.sql().prepare(&format!("EXPLAIN QUERY PLAN {BROKEN_OFF}")).unwrap();
        let steps = plan.query_map([0, 0], |row| row.get::<_, String>(3)).unwrap();
        for step in steps.map(Result::unwrap) {
            let by_index = step.contains("INDEX") || step.contains("PRIMARY KEY");
            assert!(!step.starts_with("SCAN") || by_index, "{step}");
            assert!(!step.starts_with("SEARCH") || by_index, "{step}");
        }
    }

    #[test]
    fn another_value_does_not_have_a_statement_parsed_again() {
        let (_folder, store) = store();
        let mut statement =
            store.sql().prepare("SELECT n FROM session WHERE run = ?1 AND phase = ?2").unwrap();
        for run in 0..3 {
            assert!(!statement.exists((run, "closed")).unwrap());
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
