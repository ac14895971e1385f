//! Queries of commands: lists, lookups, and sessions that are to be published or may be pruned.

use rusqlite::params;

use super::session::{COLUMNS, read};
use super::{Error, SessionRow, Tx, View};
use wire::Timestamp;

/// Which sessions a list shows. The default is all that are not archived.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub agent: Option<String>,
    /// The folder's own name, its path, or `owner/name` of the repository.
    pub project: Option<String>,
    pub tag: Option<String>,
    pub group: Option<String>,
    /// Open at this time or later.
    pub since: Option<Timestamp>,
    pub show: Show,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    #[default]
    NotArchived,
    Active,
    All,
    Archived,
}

impl Filter {
    /// Of the session `s`; its parameters are agent, project, tag, group and since.
    pub(super) fn condition(&self) -> String {
        let show = match self.show {
            Show::NotArchived => "s.archived = 0",
            Show::Active => "s.phase <> 'closed'",
            Show::All => "1",
            Show::Archived => "s.archived = 1",
        };
        format!(
            "{show} AND (?1 IS NULL OR s.agent = ?1)
               AND (?2 IS NULL OR s.project = ?2 OR s.cwd = ?2 OR s.repository = ?2)
               AND (?3 IS NULL OR EXISTS (SELECT 1 FROM tag t WHERE t.session = s.n AND t.tag = ?3))
               AND (?4 IS NULL OR s.grp = ?4)
               AND (?5 IS NULL OR s.ended_at IS NULL OR s.ended_at >= ?5)"
        )
    }
}

impl View<'_> {
    /// Newest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<SessionRow>, Error> {
        self.list_first(filter, usize::MAX)
    }

    /// The newest, so many of them.
    pub fn list_first(&self, filter: &Filter, most: usize) -> Result<Vec<SessionRow>, Error> {
        let Filter { agent, project, tag, group, since, .. } = filter;
        self.all(
            &format!(
                "SELECT {COLUMNS} FROM session s WHERE {} ORDER BY s.started_at DESC, s.n DESC LIMIT ?6",
                filter.condition()
            ),
            params![agent, project, tag, group, since, i64::try_from(most).unwrap_or(i64::MAX)],
            read,
        )
    }

    /// How many a list would show.
    pub fn count(&self, filter: &Filter) -> Result<usize, Error> {
        let Filter { agent, project, tag, group, since, .. } = filter;
        self.one(
            &format!("SELECT count(*) FROM session s WHERE {}", filter.condition()),
            params![agent, project, tag, group, since],
            |row| row.get::<_, i64>(0).map(|count| usize::try_from(count).unwrap_or_default()),
        )
    }

    pub(crate) fn sessions_named(&self, name: &str) -> Result<Vec<SessionRow>, Error> {
        self.all(&format!("SELECT {COLUMNS} FROM session s WHERE s.name = ?1"), [name], read)
    }

    /// Of any agent.
    pub(crate) fn sessions_of_agent_session(&self, id: &str) -> Result<Vec<SessionRow>, Error> {
        self.all(
            &format!("SELECT {COLUMNS} FROM session s WHERE s.agent_session = ?1 ORDER BY s.n"),
            [id],
            read,
        )
    }

    /// Sessions one of whose ids begins so.
    pub(crate) fn sessions_with_prefix(&self, prefix: &str) -> Result<Vec<SessionRow>, Error> {
        self.all(
            &format!(
                "SELECT {COLUMNS} FROM session s
                 WHERE substr(s.id, 1, length(?1)) = lower(?1) OR substr(s.agent_session, 1, length(?1)) = ?1
                    OR EXISTS (SELECT 1 FROM alias a WHERE a.session = s.n AND substr(a.id, 1, length(?1)) = ?1)
                 ORDER BY s.n"
            ),
            [prefix],
            read,
        )
    }

    /// Sessions with a conversation that ended by a crash or a signal after a time.
    pub(crate) fn broken_off_since(
        &self,
        at: Timestamp,
        in_background: Timestamp,
    ) -> Result<Vec<SessionRow>, Error> {
        self.all(&broken_off(), [at, in_background], read)
    }

    pub(crate) fn any_unpublished(&self) -> Result<bool, Error> {
        Ok(self.maybe("SELECT 1 FROM session WHERE unpublished = 1 LIMIT 1", [], |_| Ok(()))?.is_some())
    }

    pub(crate) fn unpublished(&self) -> Result<Vec<SessionRow>, Error> {
        self.all(&format!("SELECT {COLUMNS} FROM session s WHERE s.unpublished = 1 ORDER BY s.n"), [], read)
    }

    /// Sessions that ended before a time and may be removed; with `only`, that one if it is among them. A session stays while a
    /// sink has not received all of its events, or has refused some: tidying up loses nothing that was recorded. Events that
    /// are kept back (`change` is null: imported sessions), and those of the demonstration, are owed to no sink.
    pub fn prunable(&self, before: Timestamp, only: Option<i64>) -> Result<Vec<SessionRow>, Error> {
        // A range is found by its numbers; an OR would go through the whole table for each session that leaves.
        let (first, last) = only.map_or((i64::MIN, i64::MAX), |n| (n, n));
        self.all(
            &format!(
                "SELECT {COLUMNS} FROM session s WHERE s.phase = 'closed' AND s.ended_at < ?1 AND s.n BETWEEN ?2 AND ?3
                   AND (s.local_only = 1 OR NOT EXISTS (SELECT 1 FROM event e
                     WHERE e.session = s.n AND (e.change > (SELECT min(cursor) FROM sink) OR EXISTS (
                       SELECT 1 FROM letter l WHERE l.event = e.n AND l.fate IN ('deferred', 'dead')))))
                 ORDER BY s.ended_at"
            ),
            params![before, first, last],
            read,
        )
    }
}

/// Each half by the index of the few it is about; an OR would go through all sessions, at every command.
fn broken_off() -> String {
    format!(
        "SELECT {COLUMNS} FROM session s
         WHERE s.phase = 'closed' AND s.agent_session IS NOT NULL AND s.imported_from IS NULL AND s.n IN (
             SELECT b.n FROM session b
             WHERE b.ended_at > ?1 AND (b.end_reason = 'crash' OR b.signal IS NOT NULL)
             UNION ALL
             SELECT b.n FROM evidence e JOIN session b ON b.n = e.session
             WHERE e.source = 'handed-over' AND e.verdict = 'accepted'
               AND b.ended_at > ?2 AND b.end_reason = 'exit')
         ORDER BY s.ended_at"
    )
}

impl Tx<'_> {
    pub(crate) fn set_published(&self, session: i64) -> Result<(), Error> {
        self.run("UPDATE session SET unpublished = 0 WHERE n = ?1", [session]).map(drop)
    }

    /// Takes a session out with everything of its own. How far its files were read stays known, so that none of it
    /// comes back.
    pub(crate) fn delete_session(&self, session: i64) -> Result<(), Error> {
        self.run("DELETE FROM session WHERE n = ?1", [session]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::home::Home;
    use crate::store::Store;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Home::at(folder.path()), Timestamp(0)).unwrap();
        (folder, store)
    }

    #[test]
    fn looking_for_broken_off_sessions_goes_through_no_table() {
        let (_folder, store) = store();
        let mut plan = store.sql().prepare(&format!("EXPLAIN QUERY PLAN {}", broken_off())).unwrap();
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
