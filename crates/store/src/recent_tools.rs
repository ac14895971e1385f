//! The latest steps of a session, as far as numbers go: for views that follow it. Each query reads the end of an index, so that a
//! long session costs no more than a short one.

use rusqlite::params;

use super::row::{read_row, read_value};
use super::total::sum;
use super::{Error, View};
use types::row::RowColumns;
use types::{PicoDollars, Timestamp, row};

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

row! {
    /// One ended tool call.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ToolRow {
        pub at: Timestamp,
        pub name: String = "tool",
        pub ok: bool = "ifnull(ok, 1)",
        /// The file it worked on, if any.
        pub file: Option<String>,
    }
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
        "SELECT at, tool, ifnull(ok, 1), ifnull(edits, 0), context, cost FROM ({} UNION ALL {}) ORDER BY at DESC, n DESC LIMIT ?2",
        latest("usage"),
        latest("tool")
    )
}

impl View<'_> {
    /// A session's latest calls and tools, the oldest first: for signs that need no words.
    pub fn recent_steps(&self, session: i64, most: usize) -> Result<Vec<Step>, Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let steps: Vec<(Timestamp, Option<String>, bool, bool, i64, PicoDollars)> =
            self.all(&recent_steps(), params![session, most], read_row)?;
        let step = |(at, tool, ok, edits, context, cost)| {
            let kind = match tool {
                Some(name) => StepKind::Tool { name, ok, edits },
                None => StepKind::Call { context, cost },
            };
            Step { at, kind }
        };
        Ok(steps.into_iter().rev().map(step).collect())
    }

    /// Everything billed in a session since then, sub-agents too.
    pub fn tokens_since(&self, session: i64, since: Timestamp) -> Result<u64, Error> {
        let parts = ["input", "output", "cache_read", "cache_write_5m", "cache_write_1h"];
        let tokens = parts.map(|part| format!("ifnull({part}, 0)")).join(" + ");
        let sum = sum(&tokens);
        let tokens: i64 = self.one(
            &format!("SELECT {sum} FROM record WHERE session = ?1 AND kind = 'usage' AND at >= ?2"),
            params![session, since],
            read_value,
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
            read_row,
        )?;
        Ok(latest.and_then(|(tokens, model)| Some((u64::try_from(tokens).ok()?, model.unwrap_or_default()))))
    }

    /// The latest tools of a session, the latest first.
    pub fn last_tools(&self, session: i64, most: usize) -> Result<Vec<ToolRow>, Error> {
        self.all(
            &ToolRow::select(
                "FROM record WHERE session = ?1 AND kind = 'tool' AND tool IS NOT NULL ORDER BY at DESC, n DESC LIMIT ?2",
            ),
            params![session, i64::try_from(most).unwrap_or(i64::MAX)],
            read_row,
        )
    }
}
