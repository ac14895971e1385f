//! The sums over a session's records, kept by the transactions that store them, so that a list of ten thousand sessions
//! adds nothing up.

use rusqlite::{Row, params};

use super::{Error, Tx, View};
use types::Sums;

pub(super) const COLUMNS: &str = "api_calls, input, output, cache_read, cache_write, reasoning, cost, prompts, tool_calls, \
     tool_errors, files_changed, lines_added, lines_removed, api_errors";

pub(super) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Sums> {
    Ok(Sums {
        api_calls: row.get(first)?,
        input: row.get(first + 1)?,
        output: row.get(first + 2)?,
        cache_read: row.get(first + 3)?,
        cache_write: row.get(first + 4)?,
        reasoning: row.get(first + 5)?,
        cost: row.get(first + 6)?,
        prompts: row.get(first + 7)?,
        tool_calls: row.get(first + 8)?,
        tool_errors: row.get(first + 9)?,
        files_changed: row.get(first + 10)?,
        lines_added: row.get(first + 11)?,
        lines_removed: row.get(first + 12)?,
        api_errors: row.get(first + 13)?,
    })
}

/// An exact sum that stops at the largest integer, and is 0 over nothing: SQLite's own fails there, and an older version
/// may have stored what cannot be added up.
pub(super) fn sum(of: &str) -> String {
    format!(
        "CAST(ifnull(sum(CAST({of} AS INTEGER) >> 32) * 4294967296 + sum(CAST({of} AS INTEGER) & 4294967295), 0) AS INTEGER)"
    )
}

/// Tokens and cost of calls, in the order of [`Sums`].
pub(super) fn usage_sums() -> String {
    ["input", "output", "cache_read", "cache_write_5m + cache_write_1h", "reasoning", "cost"]
        .map(sum)
        .join(", ")
}

impl View<'_> {
    pub fn totals(&self, session: i64) -> Result<Sums, Error> {
        let found =
            self.maybe(&format!("SELECT {COLUMNS} FROM total WHERE session = ?1"), [session], |row| {
                read(row, 0)
            })?;
        Ok(found.unwrap_or_default())
    }
}

impl Tx<'_> {
    pub fn add_totals(&self, session: i64, more: &Sums) -> Result<(), Error> {
        if *more == Sums::default() {
            return Ok(());
        }
        // What was cut off at the largest integer cannot be taken back when a record is revised.
        if more.may_be_cut_off() || self.totals(session)?.may_be_cut_off() {
            return self.recount(session);
        }
        // A sum too large for an integer would become another kind of number, which the column refuses.
        let add = COLUMNS
            .split(", ")
            .map(|column| format!("{column} = CAST({column} + excluded.{column} AS INTEGER)"))
            .collect::<Vec<_>>()
            .join(", ");
        self.execute(
            &format!(
                "INSERT INTO total VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT (session) DO UPDATE SET {add}"
            ),
            params![
                session,
                more.api_calls,
                more.input,
                more.output,
                more.cache_read,
                more.cache_write,
                more.reasoning,
                more.cost,
                more.prompts,
                more.tool_calls,
                more.tool_errors,
                more.files_changed,
                more.lines_added,
                more.lines_removed,
                more.api_errors
            ],
        )
        .map(drop)
    }

    /// Computes the sums again from the records, and from the changed files that no record names.
    pub fn recount(&self, session: i64) -> Result<(), Error> {
        self.execute(
            "INSERT OR IGNORE INTO changed_file SELECT session, file FROM record
             WHERE session = ?1 AND kind = 'tool' AND ok AND tool_kind IN ('write', 'edit') AND file IS NOT NULL",
            [session],
        )?;
        self.execute("DELETE FROM total WHERE session = ?1", [session])?;
        self.execute(
            &format!(
                "INSERT INTO total SELECT ?1, count(*) FILTER (WHERE kind = 'usage'), {},
                   count(*) FILTER (WHERE kind = 'prompt'), count(*) FILTER (WHERE kind = 'tool'),
                   count(*) FILTER (WHERE kind = 'tool' AND NOT ok),
                   (SELECT count(*) FROM changed_file WHERE session = ?1), {}, {}, count(*) FILTER (WHERE kind = 'error')
                 FROM record WHERE session = ?1",
                usage_sums(),
                sum("lines_added"),
                sum("lines_removed"),
            ),
            [session],
        )
        .map(drop)
    }
}
