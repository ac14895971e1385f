//! The latest steps of a session, as far as numbers go: for views that follow it. Each query reads the end of an index, so that a
//! long session costs no more than a short one.

use rusqlite::params;

use super::total::sum;
use super::{Error, View};
use types::{PicoDollars, Timestamp};

/// One call or tool, as far as numbers go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Timestamp,
    pub kind: StepKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Everything that was sent, in tokens.
    Call {
        context: i64,
        cost: PicoDollars,
    },
    Tool {
        name: String,
        ok: bool,
        edits: bool,
    },
}

/// One ended tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRow {
    pub at: Timestamp,
    pub name: String,
    pub ok: bool,
    /// The file it worked on, if any.
    pub file: Option<String>,
}

fn recent_steps() -> String {
    let latest = |kind: &str| {
        format!(
            "SELECT * FROM (SELECT n, at, tool, ok, tool_kind IN ('write', 'edit') edits,
               ifnull(input, 0) + ifnull(cache_read, 0) + ifnull(cache_write_5m, 0) + ifnull(cache_write_1h, 0) context,
               ifnull(cost, 0) cost
             FROM record WHERE session = ?1 AND kind = '{kind}' AND subagent IS NULL ORDER BY at DESC, n DESC LIMIT ?2)"
        )
    };
    format!(
        "SELECT at, tool, ok, edits, context, cost FROM ({} UNION ALL {}) ORDER BY at DESC, n DESC LIMIT ?2",
        latest("usage"),
        latest("tool")
    )
}

impl View<'_> {
    /// A session's latest calls and tools, the oldest first: for signs that need no words.
    pub fn recent_steps(&self, session: i64, most: usize) -> Result<Vec<Step>, Error> {
        let mut steps =
            self.all(&recent_steps(), params![session, i64::try_from(most).unwrap_or(i64::MAX)], |row| {
                let kind = match row.get::<_, Option<String>>(1)? {
                    Some(name) => StepKind::Tool {
                        name,
                        ok: row.get::<_, Option<bool>>(2)?.unwrap_or(true),
                        edits: row.get::<_, Option<bool>>(3)?.unwrap_or(false),
                    },
                    None => StepKind::Call { context: row.get(4)?, cost: row.get(5)? },
                };
                Ok(Step { at: row.get(0)?, kind })
            })?;
        steps.reverse();
        Ok(steps)
    }

    /// Everything billed in a session since then, sub-agents too.
    pub fn tokens_since(&self, session: i64, since: Timestamp) -> Result<u64, Error> {
        let parts = ["input", "output", "cache_read", "cache_write_5m", "cache_write_1h"];
        let tokens = parts.map(|part| format!("ifnull({part}, 0)")).join(" + ");
        let sum = sum(&tokens);
        let tokens: i64 = self.one(
            &format!("SELECT {sum} FROM record WHERE session = ?1 AND kind = 'usage' AND at >= ?2"),
            params![session, since],
            |row| row.get(0),
        )?;
        Ok(u64::try_from(tokens).unwrap_or(0))
    }

    /// How many tokens the latest call of the conversation itself was given to read, and its model.
    pub fn last_context(&self, session: i64) -> Result<Option<(u64, String)>, Error> {
        let latest: Option<(i64, Option<String>)> = self.maybe(
            "SELECT ifnull(input, 0) + ifnull(cache_read, 0) + ifnull(cache_write_5m, 0) + ifnull(cache_write_1h, 0), model
             FROM record WHERE session = ?1 AND kind = 'usage' AND subagent IS NULL AND ifnull(call_kind, 'main') = 'main'
             ORDER BY at DESC, n DESC LIMIT 1",
            [session],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(latest.and_then(|(tokens, model)| Some((u64::try_from(tokens).ok()?, model.unwrap_or_default()))))
    }

    /// The latest tools of a session, the latest first.
    pub fn last_tools(&self, session: i64, most: usize) -> Result<Vec<ToolRow>, Error> {
        self.all(
            "SELECT at, tool, ok, file FROM record WHERE session = ?1 AND kind = 'tool' AND tool IS NOT NULL
             ORDER BY at DESC, n DESC LIMIT ?2",
            params![session, i64::try_from(most).unwrap_or(i64::MAX)],
            |row| {
                let ok = row.get::<_, Option<bool>>(2)?.unwrap_or(true);
                Ok(ToolRow { at: row.get(0)?, name: row.get(1)?, ok, file: row.get(3)? })
            },
        )
    }
}
