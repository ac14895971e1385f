//! The calls of sessions that were pruned. Sums outlive the sessions: `usage` goes on counting them, and a scan of the agents'
//! files knows that they were counted.

use rusqlite::params;

use super::row::read_row;
use super::{Error, SessionRow, Tx, View};
use types::row::RowColumns;
use types::{AgentSessionId, Timestamp, row};

row! {
    /// The fields that are kept of a pruned session besides its calls.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PrunedSession {
        pub name: String,
        pub project: Option<String>,
        pub started_at: Timestamp,
    }
}

impl View<'_> {
    /// The pruned session that had this conversation; the latest, if it was taken up again and pruned again.
    pub fn pruned_session(
        &self,
        agent: &str,
        agent_session: &AgentSessionId,
    ) -> Result<Option<PrunedSession>, Error> {
        self.maybe(
            &PrunedSession::select(
                "FROM pruned_session WHERE agent = ?1 AND agent_session = ?2 ORDER BY started_at DESC LIMIT 1",
            ),
            params![agent, agent_session],
            read_row,
        )
    }

    /// Whether a call was counted by a session that has been pruned since.
    pub fn is_pruned_call(&self, agent: &str, key: &str) -> Result<bool, Error> {
        let found = self.maybe(
            "SELECT 1 FROM pruned_call WHERE agent = ?1 AND key = ?2
             UNION ALL SELECT 1 FROM pruned_alias WHERE agent = ?1 AND key = ?2",
            [agent, key],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }
}

impl Tx<'_> {
    /// Keeps the calls of a session that is about to leave, and what they are counted by. What made none leaves nothing, nor
    /// does the demonstration, whose calls are never counted.
    pub fn keep_calls(&self, session: &SessionRow) -> Result<(), Error> {
        if session.local_only {
            return Ok(());
        }
        self.execute(
            "INSERT INTO pruned_session (id, name, agent, agent_session, started_at, ended_at, transitioned_from, project,
               repository, branch, grp, tags)
             SELECT s.id, s.name, s.agent, s.agent_session, s.started_at, s.ended_at, s.transitioned_from, s.project,
               s.repository, s.branch, s.grp, (SELECT json_group_array(tag) FROM tag t WHERE t.session = s.n)
             FROM session s
             WHERE s.n = ?1 AND EXISTS (SELECT 1 FROM record r WHERE r.session = s.n AND r.kind = 'usage')
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, agent_session = excluded.agent_session,
               ended_at = excluded.ended_at, grp = excluded.grp, tags = excluded.tags",
            [session.n],
        )?;
        self.execute(
            "INSERT OR REPLACE INTO pruned_call
             SELECT r.agent, r.key, p.n, r.at, r.model, r.input, r.output, r.cache_read, r.cache_write_5m,
               r.cache_write_1h, r.reasoning, r.fast, r.cost
             FROM record r JOIN pruned_session p ON p.id = ?2 WHERE r.session = ?1 AND r.kind = 'usage'",
            params![session.n, session.id],
        )?;
        self.execute(
            "INSERT OR IGNORE INTO pruned_alias SELECT a.agent, a.key FROM record r JOIN record_alias a ON a.record = r.n
             WHERE r.session = ?1 AND r.kind = 'usage'",
            [session.n],
        )
        .map(drop)
    }

    /// A session that is here owns the call again.
    pub fn take_back_call(&self, agent: &str, key: &str) -> Result<(), Error> {
        self.execute("DELETE FROM pruned_call WHERE agent = ?1 AND key = ?2", [agent, key])?;
        self.execute("DELETE FROM pruned_alias WHERE agent = ?1 AND key = ?2", [agent, key]).map(drop)
    }
}
