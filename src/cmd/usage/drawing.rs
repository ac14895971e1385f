//! A report of `usage` as a table or as CSV.

use agents::registry::EXAMPLE;
use std::fmt::Write as _;

use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

use crate::cmd::session_text::{self, ShortIds, cost, costs, number};
use format::output::table::{Cell, Column, Table};
use format::output::wrap::at_home;
use format::output::{Colour, Style};
use format::text::clean;
use pricing::unpriced;
use report::plan::PlanWorth;
use report::usage::{ForeignUsage, UsageReport};
use types::{CallSums, Timestamp};
use usage::{By, UsageRow};

/// A row of what belongs to none.
const NONE: &str = "(none)";
/// In the column of agents, for a row that more than one agent shares.
const SEVERAL: &str = "several";

/// How a time is shown: as seen from when, and where.
#[derive(Debug)]
pub(super) struct Moments {
    pub(super) now: Timestamp,
    pub(super) zone: TimeZone,
}

/// A report on its way to a reader.
pub(super) struct Drawing<'a> {
    pub(super) report: &'a UsageReport,
    pub(super) moments: &'a Moments,
    /// Whole numbers.
    pub(super) exact: bool,
    /// Nothing was left out by a filter.
    pub(super) everything: bool,
    /// What is paid by the month, beside the costs of this one.
    pub(super) worth: &'a [PlanWorth],
}

impl Drawing<'_> {
    /// Names are those of sessions, and their columns are there where the rows are. Rows of a breakdown follow their row, and
    /// have its key in front of their own.
    pub(super) fn csv(&self) -> String {
        let parts = self.report.rows().iter().any(|row| !row.breakdown.is_empty());
        let sessions = self.report.by.is_sessions();
        let mut text = String::from(if parts { "key,breakdown" } else { "key" });
        text.push_str(
            ",agent,inputTokens,outputTokens,cacheReadTokens,cacheWriteTokens,reasoningTokens,apiCalls,costUsd,unpricedModels,foreign",
        );
        text.push_str(match self.report.by {
            _ if sessions => ",name,sessionId,project,startTime\n",
            By::Commit => ",subject,commitTime,project\n",
            _ => "\n",
        });
        for row in self.report.rows() {
            let key = quoted(row.key.as_deref().unwrap_or_default());
            self.csv_line(&mut text, &if parts { format!("{key},") } else { key.clone() }, row);
            for part in &row.breakdown {
                let below = quoted(part.key.as_deref().unwrap_or(NONE));
                self.csv_line(&mut text, &format!("{key},{below}"), part);
            }
        }
        text
    }

    fn csv_line(&self, text: &mut String, key: &str, row: &UsageRow) {
        let CallSums { api_calls, input, output, cache_read, cache_write, reasoning, cost } = row.sums;
        let agent = quoted(row.agent.as_deref().unwrap_or(""));
        let (unpriced, foreign) = (quoted(&row.unpriced_models.join(" ")), row.foreign);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{key},{agent},{input},{output},{cache_read},{cache_write},{reasoning},{api_calls},{cost},{unpriced},{foreign}"
        );
        if self.report.by.is_sessions() {
            let label = row.label.clone().unwrap_or_default();
            let [name, id, project] =
                [label.name, label.id.unwrap_or_default(), label.project.unwrap_or_default()]
                    .map(|field| quoted(&field));
            let _ = write!(text, ",{name},{id},{project},{}", label.started.unwrap_or(row.first_at));
        }
        if self.report.by == By::Commit {
            let label = row.commit.clone().unwrap_or_default();
            let [subject, project] =
                [label.subject, label.project].map(|field| quoted(&field.unwrap_or_default()));
            let at = label.at.map(|at| at.to_string()).unwrap_or_default();
            let _ = write!(text, ",{subject},{at},{project}");
        }
        text.push('\n');
    }

    pub(super) fn draw(&self, style: Style) -> String {
        let report = self.report;
        let mut text =
            if report.rows().is_empty() { style.fold(&self.nothing()) } else { self.table().render(style) };
        let total = &report.tally.total;
        if !total.unpriced_models.is_empty() {
            let models = unpriced::named(&total.unpriced_models, &total.unpriced_calls);
            note(
                &mut text,
                &format!("+ No price is known for {models}: the tokens are counted, the cost is not."),
                style,
            );
        }
        if report.tally.left_out > 0 {
            let rows = format::counted(report.tally.left_out, "row");
            note(&mut text, &format!("Not shown: {rows}. The total counts everything."), style);
        }
        if report.tally.overlap {
            note(&mut text, "What has several tags is in several rows, and once in the total.", style);
        }
        if let [(first, _), ..] = report.unreadable.as_slice() {
            let lines = usize::try_from(report.unreadable_lines()).unwrap_or(usize::MAX);
            let lines = format::counted(lines, "line");
            let line = if report.scan.is_some() {
                let first = at_home(&first.display().to_string(), style);
                format!("{lines} could not be read, the first in {first}.")
            } else {
                format!("{lines} could not be read; `codemie doctor` says where.")
            };
            note(&mut text, &line, style);
        }
        if report.unread_calls > 0 {
            let calls = format::counted(usize::try_from(report.unread_calls).unwrap_or(usize::MAX), "call");
            let line = format!(
                "The API reported usage of {calls} that the proxy could not read in full; `codemie doctor` says more."
            );
            note(&mut text, &line, style);
        }
        if let Some(foreign) = report.scan.as_ref().filter(|_| !report.rows().is_empty()) {
            note(&mut text, &foreign_share(foreign, report.by), style);
        }
        if total.sums.cost.0 > 0 {
            text += &session_text::at_list_price(self.worth, style);
        }
        text
    }

    fn nothing(&self) -> String {
        if !self.everything {
            return "No usage that fits. `codemie usage` shows all there is.".into();
        }
        if self.report.scan.is_some() {
            return format!(
                "No calls in any session file on this machine. Run your agent, for example `codemie {EXAMPLE}`."
            );
        }
        let first = if self.report.has_demo {
            "Only the demonstration was recorded, which is not counted."
        } else {
            "No usage recorded yet."
        };
        match self.report.unwrapped_files {
            0 => format!("{first} Run your agent through codemie, for example `codemie {EXAMPLE}`."),
            files => format!(
                "{first} But there {} {} on this machine: `codemie usage --scan` counts what was not run through codemie.",
                if files == 1 { "is" } else { "are" },
                format::counted(files, "session file"),
            ),
        }
    }

    fn table(&self) -> Table {
        let rows = self.report.rows();
        let sessions = self.report.by.is_sessions();
        let keys = rows.iter().filter_map(|row| row.key.as_ref());
        let ids: ShortIds<'_> = self.report.ids.iter().chain(keys).map(String::as_str).collect();
        let none = if self.report.by == By::Commit { "(no commit)" } else { NONE };
        let key = |row: &UsageRow| row.key.clone().unwrap_or_else(|| none.to_owned());
        let foreign =
            |row: &UsageRow| format!("not wrapped {}", ids.of(row.key.as_deref().unwrap_or_default()));
        let is_foreign = |row: &UsageRow| row.foreign && self.report.by == By::Session;
        // The id of a foreign conversation is all it can be named by.
        let widest = rows.iter().filter(|row| is_foreign(row)).map(|row| foreign(row).width()).max();
        let mut columns = vec![match self.report.by {
            By::Hour => Column::text("HOUR", usize::MAX),
            By::Day => Column::text("DAY", usize::MAX),
            By::Week => Column::text("WEEK", usize::MAX),
            By::Month => Column::text("MONTH", usize::MAX),
            By::Session => Column::text("SESSION", session_text::NAME.max(widest.unwrap_or(0))),
            By::Chain => Column::text("CHAIN", session_text::NAME),
            By::Root => Column::text("ROOT", session_text::NAME),
            By::Model => Column::text("MODEL", 16),
            By::Project => Column::text("PROJECT", 12),
            By::Agent => Column::text("AGENT", usize::MAX),
            By::Branch => Column::text("BRANCH", 12),
            By::Commit => Column::text("COMMIT", usize::MAX),
            By::Tag => Column::text("TAG", 12),
            By::Group => Column::text("GROUP", 12),
        }];
        if rows.iter().any(|row| !row.breakdown.is_empty()) {
            // What stands below a row must be readable: it is what was asked for.
            columns[0].least = columns[0].least.min(16);
        }
        if sessions {
            columns.push(Column::text("STARTED", usize::MAX).dispensable(4));
            columns.push(Column::text("PROJECT", 8).dispensable(5));
        }
        let commits = self.report.by == By::Commit;
        if commits {
            columns.push(Column::text("DATE", usize::MAX).dispensable(4));
            columns.push(Column::text("SUBJECT", 16).dispensable(2));
            columns.push(Column::text("PROJECT", 8).dispensable(5));
        }
        // The id of a foreign one stands in the first column.
        let conversations = self.report.by == By::Session && rows.iter().any(|row| !row.foreign);
        columns.extend(conversations.then(|| Column::text("CONVERSATION", usize::MAX).dispensable(11)));
        // Of a row that agents share `--by agent` shows which.
        let agents = self.report.by != By::Agent && !rows.is_empty();
        if agents {
            columns.push(Column::text("AGENT", 6).dispensable(9));
        }
        columns.extend([
            Column::number("CALLS").dispensable(8),
            Column::number("INPUT").dispensable(3),
            Column::number("OUTPUT").dispensable(2),
            Column::number("CACHE READ").dispensable(6),
            Column::number("CACHE WRITE").dispensable(7),
        ]);
        let reasoning = rows.iter().any(|row| row.sums.reasoning > 0);
        columns.extend(reasoning.then(|| Column::number("REASONING").dispensable(10)));
        columns.extend([Column::number("TOKENS").dispensable(1), Column::number("COST")]);
        let mut table = Table::new(columns);
        let count = |count: u64| if self.exact { format::grouped(count) } else { format::count(count) };
        let zone = &self.moments.zone;
        let cells = |row: &UsageRow, first: Cell<'static>, cost: String, is_row: bool| {
            let mut cells = vec![first];
            if sessions {
                let label = row.label.as_ref();
                let project = label.and_then(|label| label.project.clone()).unwrap_or_default();
                // The start of a foreign conversation is known by its first call alone.
                let started = label.and_then(|label| label.started).unwrap_or(row.first_at);
                let started =
                    if is_row { format::moment(started, self.moments.now, zone) } else { String::new() };
                cells.extend([started.into(), project.into()]);
            }
            if commits {
                let label = row.commit.clone().unwrap_or_default();
                let made = label.at.map(|at| format::moment(at, self.moments.now, zone)).unwrap_or_default();
                cells.extend(
                    [made, label.subject.unwrap_or_default(), label.project.unwrap_or_default()]
                        .map(Into::into),
                );
            }
            if conversations {
                let id = row.key.as_deref().filter(|_| is_row && !row.foreign);
                cells.push(Cell::painted(id.map_or("", |id| ids.of(id)).to_owned(), Colour::Faint));
            }
            if agents {
                let agent = row.agent.as_deref().unwrap_or(SEVERAL);
                cells.push(if is_row { agent.to_owned() } else { String::new() }.into());
            }
            let parts =
                [row.sums.input, row.sums.output, row.sums.cache_read, row.sums.cache_write].map(number);
            let counts = [number(row.sums.api_calls)].into_iter().chain(parts);
            let counts = counts.chain(reasoning.then(|| number(row.sums.reasoning)));
            cells.extend(counts.chain([number(row.sums.tokens())]).map(|number| count(number).into()));
            cells.push(cost.into());
            cells
        };
        let total = UsageRow { agent: None, ..self.report.tally.total.clone() };
        let with_parts = rows.iter().flat_map(|row| std::iter::once(row).chain(&row.breakdown));
        let amounts = with_parts.chain([&total]);
        let amounts = amounts.map(|row| Some((row.sums.cost, row.unpriced_models.as_slice())));
        let mut costs = if self.exact { exact_costs(amounts) } else { costs(amounts) }.into_iter();
        let mut next = || costs.next().unwrap_or_default();
        for row in rows {
            let name = row.label.as_ref().map(|label| label.name.as_str()).filter(|name| !name.is_empty());
            let first = match name {
                Some(name) => name.to_owned().into(),
                None if is_foreign(row) => Cell::painted(foreign(row), Colour::Faint),
                None => key(row).into(),
            };
            table.row(cells(row, first, next(), true));
            for part in &row.breakdown {
                let first = Cell::painted(format!("  {}", key(part)), Colour::Faint);
                table.row(cells(part, first, next(), false));
            }
        }
        table.total(cells(&total, "total".into(), next(), false));
        table
    }
}

/// Every digit there is, points below points.
fn exact_costs<'a>(
    amounts: impl IntoIterator<Item = Option<(types::PicoDollars, &'a [String])>>,
) -> Vec<String> {
    let amounts: Vec<_> = amounts.into_iter().flatten().collect();
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let places = amounts.iter().map(|(cost, _)| decimals(&cost.to_string())).max().unwrap_or(0).max(2);
    let shown = amounts.iter().map(|(cost, unpriced)| {
        let text = cost.to_string();
        let point = if decimals(&text) == 0 { "." } else { "" };
        let zeros = "0".repeat(places - decimals(&text));
        let mark = if unpriced.is_empty() { "" } else { "+" };
        format!("${text}{point}{zeros}{mark}")
    });
    shown.collect()
}

/// How much of a scan never ran through codemie.
fn foreign_share(foreign: &ForeignUsage, by: By) -> String {
    let ForeignUsage { conversations, sum } = foreign;
    let priced = sum.sums.cost.0 > 0 || sum.unpriced_models.is_empty();
    let cost = priced.then(|| cost(sum.sums.cost.dollars(), &sum.unpriced_models));
    let cost = cost.map_or(String::new(), |cost| format!(", {cost},"));
    let was = if *conversations == 1 { "was" } else { "were" };
    let mark = if by == By::Session { ": not wrapped" } else { "" };
    match *conversations {
        0 => "All of it was run through codemie.".into(),
        count => {
            let which = format::counted(count, "conversation");
            format!("{which}{cost} {was} not run through codemie{mark}.")
        }
    }
}

fn note(text: &mut String, line: &str, style: Style) {
    for line in style.fold(line).lines() {
        *text += &(style.paint(line, Colour::Note) + "\n");
    }
}

/// As RFC 4180 has it, and on one line: names come from the agents' files, which may hold anything. A text that a spreadsheet
/// would take for a formula gets an apostrophe in front, which makes it text there; numbers are not written by this.
pub(super) fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = format!("{}{}", if formula { "'" } else { "" }, clean(field));
    if formula || field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}
