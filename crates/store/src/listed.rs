//! What the table of `list` shows of each session, in one query: a third of a session's columns, beside its sums.

use rusqlite::{Row, params_from_iter};

use super::Phase;
use super::query::{ACTIVITY, Condition};
use super::{Error, Filter, View};
use types::EndReason;
use types::PicoDollars;
use types::Status;
use types::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSession {
    pub n: i64,
    /// The id people and scripts see.
    pub id: String,
    pub name: String,
    pub agent: String,
    pub status: Status,
    pub archived: bool,
    pub project: Option<String>,
    pub branch: Option<String>,
    /// How often it was opened.
    pub opening: u32,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// When something happened in it last.
    pub active_at: Timestamp,
    pub end_reason: Option<EndReason>,
    pub title: Option<String>,
    /// Whether anybody has looked for its title: sessions of earlier versions have none.
    pub title_sought: bool,
    pub cwd: Option<String>,
    /// Whether its conversation is known, so that it can be resumed.
    pub bound: bool,
    pub api_calls: i64,
    /// Everything billed.
    pub tokens: u64,
    pub cost: PicoDollars,
}

fn read(row: &Row<'_>) -> rusqlite::Result<ListedSession> {
    let active = row.get::<_, Phase>(4)? != Phase::Closed;
    let status = row.get::<_, Option<Status>>(5)?.filter(|_| !active);
    let count = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
    let billed = |at: usize| Ok::<_, rusqlite::Error>(u64::try_from(count(at)?).unwrap_or(0));
    Ok(ListedSession {
        n: row.get(0)?,
        id: row.get(1)?,
        name: row.get(2)?,
        agent: row.get(3)?,
        status: status.unwrap_or(Status::Active),
        archived: row.get(6)?,
        project: row.get(7)?,
        branch: row.get(8)?,
        opening: row.get(9)?,
        started_at: row.get(10)?,
        ended_at: row.get(11)?,
        api_calls: count(12)?,
        tokens: [billed(13)?, billed(14)?, billed(15)?, billed(16)?].into_iter().fold(0, u64::saturating_add),
        cost: PicoDollars(count(17)?),
        active_at: row.get(18)?,
        end_reason: row.get(19)?,
        title: row.get(20)?,
        cwd: row.get(21)?,
        bound: row.get(22)?,
        title_sought: row.get(23)?,
    })
}

impl View<'_> {
    /// The titles of these sessions, under the ids that people see.
    pub fn titles(&self, ids: &[String]) -> Result<Vec<(String, String)>, Error> {
        let ids = serde_json::to_string(ids).unwrap_or_default();
        let sql = "SELECT id, title FROM session
                     WHERE id IN (SELECT value FROM json_each(?1)) AND former_id IS NULL AND title IS NOT NULL
                   UNION ALL SELECT former_id, title FROM session
                     WHERE former_id IN (SELECT value FROM json_each(?1)) AND title IS NOT NULL";
        self.all(sql, [ids], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// The sessions with this text in their title, the newest first and no more than `most`. Not in SQL, which knows the cases
    /// of ASCII alone.
    pub fn titled(&self, text: &str, most: usize) -> Result<Vec<String>, Error> {
        let (text, read) = (text.to_lowercase(), |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?)));
        let sql = "SELECT ifnull(former_id, id), title FROM session WHERE title IS NOT NULL ORDER BY started_at DESC";
        let with =
            self.all(sql, [], read)?.into_iter().filter(|(_, title)| title.to_lowercase().contains(&text));
        Ok(with.map(|(id, _)| id).take(most).collect())
    }

    /// The first, so many of them.
    pub fn listed(&self, filter: &Filter, most: usize) -> Result<Vec<ListedSession>, Error> {
        let Condition { sql, values } = self.condition(filter)?;
        let (order, most) = (filter.sort.order(), i64::try_from(most).unwrap_or(i64::MAX));
        self.all(
            &format!(
                "SELECT s.n, ifnull(s.former_id, s.id), s.name, s.agent, s.phase, s.status, s.archived, s.project, s.branch,
                   s.opening, s.started_at, s.ended_at, t.api_calls, t.input, t.output, t.cache_read, t.cache_write, t.cost,
                   {ACTIVITY}, s.end_reason, s.title, s.cwd, s.agent_session IS NOT NULL, s.title_rank IS NOT NULL
                 FROM session s LEFT JOIN total t ON t.session = s.n
                 WHERE {sql} ORDER BY {order} LIMIT {most}"
            ),
            params_from_iter(values),
            read,
        )
    }
}
