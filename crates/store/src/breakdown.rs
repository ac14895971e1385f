//! The sums that some receivers want in place of single events, each as of now.

use rusqlite::{Row, params};

use super::outbox::EventRow;
use super::row::read_row;
use super::total::{sum, usage_sums};
use super::{Error, View};
use types::row::RowColumns;
use types::{PicoDollars, Sums, Timestamp};

/// What one model was used for in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSum {
    pub model: String,
    pub calls: i64,
    pub input: i64,
    pub output: i64,
    pub cache_read: i64,
    pub cache_write: i64,
    pub reasoning: i64,
    pub cost: PicoDollars,
    pub last: Timestamp,
    /// How many of the calls have a price.
    pub priced: i64,
}

/// How often a tool was called in a session, by outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSum {
    pub tool: String,
    pub ok: bool,
    pub calls: i64,
    pub last: Timestamp,
}

impl ModelSum {
    /// With those of another model that is called the same.
    pub fn add(&mut self, more: &Self) {
        let numbers = [
            (&mut self.calls, more.calls),
            (&mut self.input, more.input),
            (&mut self.output, more.output),
            (&mut self.cache_read, more.cache_read),
            (&mut self.cache_write, more.cache_write),
            (&mut self.reasoning, more.reasoning),
            (&mut self.cost.0, more.cost.0),
            (&mut self.priced, more.priced),
        ];
        for (sum, more) in numbers {
            *sum = sum.saturating_add(more);
        }
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

fn read_model(row: &Row<'_>) -> rusqlite::Result<ModelSum> {
    Ok(ModelSum {
        model: row.get(0)?,
        calls: row.get(1)?,
        input: row.get(2)?,
        output: row.get(3)?,
        cache_read: row.get(4)?,
        cache_write: row.get(5)?,
        reasoning: row.get(6)?,
        cost: row.get(7)?,
        last: row.get(8)?,
        priced: row.get(9)?,
    })
}

impl View<'_> {
    pub fn event(&self, n: i64) -> Result<Option<EventRow>, Error> {
        self.maybe(&EventRow::select("FROM event e WHERE e.n = ?1"), [n], read_row)
    }

    /// By model, the most used last.
    pub fn model_sums(&self, session: i64) -> Result<Vec<ModelSum>, Error> {
        self.all(
            &format!(
                "SELECT ifnull(model, ''), count(*), {}, max(at), count(cost)
                 FROM record WHERE session = ?1 AND kind = 'usage' GROUP BY 1 ORDER BY 2, 1",
                usage_sums(),
            ),
            [session],
            read_model,
        )
    }

    pub fn tool_sums(&self, session: i64) -> Result<Vec<ToolSum>, Error> {
        self.all(
            "SELECT ifnull(tool, ''), ifnull(ok, 0), count(*), max(at) FROM record
             WHERE session = ?1 AND kind = 'tool' GROUP BY 1, 2 ORDER BY 1, 2",
            [session],
            |row| Ok(ToolSum { tool: row.get(0)?, ok: row.get(1)?, calls: row.get(2)?, last: row.get(3)? }),
        )
    }

    /// The sums over what was recorded in one opening of a session. A file changed in two openings counts in both.
    pub fn opening_totals(&self, session: i64, opening: u32) -> Result<Sums, Error> {
        self.one(
            &format!(
                "SELECT sum(r.kind = 'usage'), {}, {}, {}, {}, {}, {}, sum(r.kind = 'prompt'),
                   sum(r.kind = 'tool'), sum(r.kind = 'tool' AND r.ok = 0),
                   count(DISTINCT CASE WHEN r.ok = 1 AND r.tool_kind IN ('write', 'edit') THEN r.file END),
                   {}, {}, sum(r.kind = 'error')
                 FROM event e JOIN record r ON r.n = e.record WHERE e.session = ?1 AND e.opening = ?2",
                sum("r.input"),
                sum("r.output"),
                sum("r.cache_read"),
                sum("r.cache_write_5m + r.cache_write_1h"),
                sum("r.reasoning"),
                sum("r.cost"),
                sum("r.lines_added"),
                sum("r.lines_removed"),
            ),
            params![session, opening],
            |row| {
                let number = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
                Ok(Sums {
                    api_calls: number(0)?,
                    input: number(1)?,
                    output: number(2)?,
                    cache_read: number(3)?,
                    cache_write: number(4)?,
                    reasoning: number(5)?,
                    cost: PicoDollars(number(6)?),
                    prompts: number(7)?,
                    tool_calls: number(8)?,
                    tool_errors: number(9)?,
                    files_changed: number(10)?,
                    lines_added: number(11)?,
                    lines_removed: number(12)?,
                    api_errors: number(13)?,
                })
            },
        )
    }

    /// The tools called in one opening, by name, once per call; and how many files were written first, and how many edited.
    pub fn opening_tools(&self, session: i64, opening: u32) -> Result<(Vec<String>, i64, i64), Error> {
        let tools = self.all(
            "SELECT ifnull(r.tool, '') FROM event e JOIN record r ON r.n = e.record
             WHERE e.session = ?1 AND e.opening = ?2 AND r.kind = 'tool' ORDER BY 1",
            params![session, opening],
            |row| row.get(0),
        )?;
        let (written, edited) = self.one(
            "SELECT count(DISTINCT CASE WHEN r.tool_kind = 'write' THEN r.file END),
                 count(DISTINCT CASE WHEN r.tool_kind = 'edit' THEN r.file END)
             FROM event e JOIN record r ON r.n = e.record
             WHERE e.session = ?1 AND e.opening = ?2 AND r.kind = 'tool' AND r.ok = 1",
            params![session, opening],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok((tools, written, edited))
    }
}
