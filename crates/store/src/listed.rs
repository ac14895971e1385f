//! What the table of `list` shows of each session, in one query: a third of a session's columns, beside its sums.

use rusqlite::params_from_iter;

use super::query::Condition;
use super::row::read_row;
use super::spelling::uncount;
use super::{Error, Filter, View};
use types::row::RowColumns;
use types::{EndReason, PicoDollars, Status, Timestamp, row};

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
    pub fn listed(&self, filter: &Filter, most: usize) -> Result<Vec<ListedSession>, Error> {
        let Condition { sql, values } = self.condition(filter)?;
        let (order, most) = (filter.sort.order(), i64::try_from(most).unwrap_or(i64::MAX));
        let from = format!(
            "FROM session s LEFT JOIN total t ON t.session = s.n WHERE {sql} ORDER BY {order} LIMIT {most}"
        );
        self.all(&ListedSession::select(&from), params_from_iter(values), read_row)
    }
}
