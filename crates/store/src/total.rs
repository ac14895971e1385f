//! The sums over a session's records, kept by the transactions that store them, so that a list of ten thousand sessions
//! adds nothing up.

use rusqlite::params;

use super::row::read_row;
use super::{Error, Tx, View};
use types::Sums;
use types::row::RowColumns;

/// An exact sum that stops at the largest integer, and is 0 over nothing: SQLite's own fails there, and an older version
/// may have stored what cannot be added up.
pub(super) fn sum(of: &str) -> String {
    format!(
        "CAST(ifnull(sum(CAST({of} AS INTEGER) >> 32) * 4294967296 + sum(CAST({of} AS INTEGER) & 4294967295), 0) AS INTEGER)"
    )
}

/// The calls among the records `r`, in the columns of [`CallSums`](types::CallSums).
pub(super) fn call_sums() -> String {
    let sums = ["input", "output", "cache_read", "cache_write_5m + r.cache_write_1h", "reasoning", "cost"];
    let sums = sums.map(|of| sum(&format!("r.{of}"))).join(", ");
    format!("count(*) FILTER (WHERE r.kind = 'usage'), {sums}")
}

/// The records `r`, in the columns of [`Sums`]; `files_changed` counts their files.
pub(super) fn record_sums(files_changed: &str) -> String {
    format!(
        "{}, count(*) FILTER (WHERE r.kind = 'prompt'), count(*) FILTER (WHERE r.kind = 'tool'),
         count(*) FILTER (WHERE r.kind = 'tool' AND r.ok = 0), {files_changed}, {}, {},
         count(*) FILTER (WHERE r.kind = 'error')",
        call_sums(),
        sum("r.lines_added"),
        sum("r.lines_removed"),
    )
}

impl View<'_> {
    pub fn totals(&self, session: i64) -> Result<Sums, Error> {
        let found = self.maybe(&Sums::select("FROM total WHERE session = ?1"), [session], read_row)?;
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
        let add = Sums::COLUMNS
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
                more.calls.api_calls,
                more.calls.input,
                more.calls.output,
                more.calls.cache_read,
                more.calls.cache_write,
                more.calls.reasoning,
                more.calls.cost,
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
                "INSERT INTO total SELECT ?1, {} FROM record r WHERE r.session = ?1",
                record_sums("(SELECT count(*) FROM changed_file WHERE session = ?1)")
            ),
            [session],
        )
        .map(drop)
    }
}
