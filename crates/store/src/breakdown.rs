//! The sums that some receivers want in place of single events, each as of now.

use rusqlite::params;

use super::outbox::EventRow;
use super::row::{read_row, read_value};
use super::total::{call_sums, record_sums};
use super::{Error, View};
use types::row::RowColumns;
use types::{CallSums, Sums, Timestamp, row};

row! {
    /// What one model was used for in a session.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ModelSum {
        pub model: String,
        pub calls: CallSums [row],
        pub last: Timestamp,
        /// How many of the calls have a price.
        pub priced: i64,
    }
}

row! {
    /// How often a tool was called in a session, by outcome.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ToolSum {
        pub tool: String,
        pub ok: bool,
        pub calls: i64,
        pub last: Timestamp,
    }
}

impl ModelSum {
    /// With those of another model that is called the same.
    pub fn add(&mut self, more: &Self) {
        self.calls.add(&more.calls);
        self.priced = self.priced.saturating_add(more.priced);
        self.last = self.last.max(more.last);
    }
}

impl ToolSum {
    /// With those of another tool that is called the same.
    pub fn add(&mut self, more: &Self) {
        self.calls = self.calls.saturating_add(more.calls);
        self.last = self.last.max(more.last);
    }
}

impl View<'_> {
    pub fn event(&self, n: i64) -> Result<Option<EventRow>, Error> {
        self.maybe(&EventRow::select("FROM event e WHERE e.n = ?1"), [n], read_row)
    }

    /// By model, the most used last.
    pub fn model_sums(&self, session: i64) -> Result<Vec<ModelSum>, Error> {
        self.all(
            &format!(
                "SELECT ifnull(model, ''), {}, max(at), count(cost)
                 FROM record r WHERE session = ?1 AND kind = 'usage' GROUP BY 1 ORDER BY 2, 1",
                call_sums(),
            ),
            [session],
            read_row,
        )
    }

    pub fn tool_sums(&self, session: i64) -> Result<Vec<ToolSum>, Error> {
        self.all(
            "SELECT ifnull(tool, ''), ifnull(ok, 0), count(*), max(at) FROM record
             WHERE session = ?1 AND kind = 'tool' GROUP BY 1, 2 ORDER BY 1, 2",
            [session],
            read_row,
        )
    }

    /// The sums over what was recorded in one opening of a session. A file changed in two openings counts in both.
    pub fn opening_totals(&self, session: i64, opening: u32) -> Result<Sums, Error> {
        let files = "count(DISTINCT CASE WHEN r.ok = 1 AND r.tool_kind IN ('write', 'edit') THEN r.file END)";
        let sql = format!(
            "SELECT {} FROM event e JOIN record r ON r.n = e.record WHERE e.session = ?1 AND e.opening = ?2",
            record_sums(files)
        );
        self.one(&sql, params![session, opening], read_row)
    }

    /// The tools called in one opening, by name, once per call; and how many files were written first, and how many edited.
    pub fn opening_tools(&self, session: i64, opening: u32) -> Result<(Vec<String>, i64, i64), Error> {
        let tools = self.all(
            "SELECT ifnull(r.tool, '') FROM event e JOIN record r ON r.n = e.record
             WHERE e.session = ?1 AND e.opening = ?2 AND r.kind = 'tool' ORDER BY 1",
            params![session, opening],
            read_value,
        )?;
        let (written, edited) = self.one(
            "SELECT count(DISTINCT CASE WHEN r.tool_kind = 'write' THEN r.file END),
                 count(DISTINCT CASE WHEN r.tool_kind = 'edit' THEN r.file END)
             FROM event e JOIN record r ON r.n = e.record
             WHERE e.session = ?1 AND e.opening = ?2 AND r.kind = 'tool' AND r.ok = 1",
            params![session, opening],
            read_row,
        )?;
        Ok((tools, written, edited))
    }
}
