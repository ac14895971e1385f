//! `codemie usage`: tokens and cost, added up by what is asked.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

use super::format::{self, ShortIds, cost, costs, number};
use crate::cli::{Usage, UsageBy};
use crate::home::Home;
use crate::output::failure::shown;
use crate::output::progress::Bar;
use crate::output::table::{Cell, Column, Table};
use crate::output::tilde::at_home;
use crate::output::{Colour, Style, json};
use crate::registry;
use crate::report::open::open_existing;
use crate::report::usage::{ForeignUsage, SessionLabel, SessionLabels, UsageQuery, UsageReport};
use crate::scan::{Days, Progress, Scanner};
use crate::store::{By, UsageRow};
use human::text::{clean, shorten};
use prices::unpriced;
use system::clock::{Clock, SystemClock};
use wire::Timestamp;

pub fn run(args: &Usage, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let by = match args.by {
        UsageBy::Day => By::Day,
        UsageBy::Session => By::Session,
        UsageBy::Model => By::Model,
        UsageBy::Project => By::Project,
        UsageBy::Agent => By::Agent,
        UsageBy::Branch => By::Branch,
    };
    let zone = system::zone::local();
    let since = args.since.map(|since| since.before(SystemClock.now(), &zone));
    let query = UsageQuery { by, since };
    let for_people = !(args.json || args.csv);
    let mut store = open_existing(home)?;
    let report = match &mut store {
        _ if args.scan => {
            let bar = Bar::on_terminal("reading session files", human::bytes);
            let scanner = Scanner {
                folder: home.scans(),
                agents: registry::AGENTS,
                var: &|name| std::env::var_os(name),
                days: Days::of(zone),
                watch: bar.as_ref().map(|bar| bar as &dyn Progress),
            };
            match &mut store {
                Some(store) => {
                    store.read(|view| UsageReport::scanned(&scanner, Some(view), query, for_people))
                }
                None => UsageReport::scanned(&scanner, None, query, for_people),
            }?
        }
        Some(store) => store.read(|view| UsageReport::recorded(view, home, query))?,
        None => UsageReport::empty(by),
    };
    let text = if args.json {
        json::pretty(&report.record())?
    } else {
        let known = store.as_mut().filter(|_| by == By::Session);
        let known =
            known.map(|store| SessionLabels::of(store, &report.rows)).transpose()?.unwrap_or_default();
        let drawing = Drawing { report: &report, known: &known };
        if args.csv {
            drawing.csv()
        } else {
            drawing.draw(&Moments::now(), since.is_some(), Style::of_stdout())
        }
    };
    out.write_all(text.as_bytes())?;
    if let Some(line) = unread_files(&report.refused) {
        write!(err, "{}", shown(&format!("codemie: {line}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Progress for Bar {
    fn progress(&self, done: u64, of: u64) {
        self.draw(done, of);
    }
}

/// How much of a scan never ran through codemie.
fn foreign_share(foreign: &ForeignUsage, by: By) -> String {
    let ForeignUsage { conversations, sum } = foreign;
    let priced = sum.cost.0 > 0 || sum.unpriced_models.is_empty();
    let cost = priced.then(|| cost(sum.cost.dollars(), &sum.unpriced_models));
    let cost = cost.map_or(String::new(), |cost| format!(", {cost},"));
    let was = if *conversations == 1 { "was" } else { "were" };
    let mark = if by == By::Session { ": foreign" } else { "" };
    match *conversations {
        0 => "All of it was run through codemie.".into(),
        count => {
            let which = human::counted(count, "conversation");
            format!("{which}{cost} {was} not run through codemie{mark}.")
        }
    }
}

/// Files that could not even be opened; reported beside the figures, whatever form they have.
fn unread_files(refused: &[String]) -> Option<String> {
    let (first, others) = refused.split_first()?;
    let first = shorten(first, usize::MAX);
    Some(match others.len() {
        0 => format!("not counted, because it cannot be read: {first}"),
        count => format!("not counted, because they cannot be read: {first}, and {count} more (see the log)"),
    })
}

/// How a time is shown: as seen from when, and where.
#[derive(Debug)]
struct Moments {
    now: Timestamp,
    zone: TimeZone,
}

impl Moments {
    fn now() -> Self {
        Self { now: SystemClock.now(), zone: system::zone::local() }
    }

    fn show(&self, at: Timestamp) -> String {
        human::moment(at, self.now, &self.zone)
    }
}

/// A report on its way to a reader. `known`: of the sessions, where the rows are sessions.
struct Drawing<'a> {
    report: &'a UsageReport,
    known: &'a SessionLabels,
}

impl Drawing<'_> {
    /// Names are those of sessions, and their column is there where the rows are.
    fn csv(&self) -> String {
        let mut text = String::from(
            "key,agent,inputTokens,outputTokens,cacheReadTokens,cacheWriteTokens,reasoningTokens,apiCalls,costUsd,unpricedModels,foreign",
        );
        let by_session = self.report.by == By::Session;
        text.push_str(if by_session { ",name\n" } else { "\n" });
        for (at, row) in self.report.rows.iter().enumerate() {
            let UsageRow { input, output, cache_read, cache_write, reasoning, api_calls, .. } = row;
            let (key, agent) = (quoted(&row.key), quoted(row.agent.as_deref().unwrap_or("")));
            let (cost, unpriced) = (row.cost.dollars(), quoted(&row.unpriced_models.join(" ")));
            let foreign = row.foreign;
            let name = self.known.labels.get(at).map_or(String::new(), |label| quoted(&label.name));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{key},{agent},{input},{output},{cache_read},{cache_write},{reasoning},{api_calls},{cost},{unpriced},{foreign}{}",
                if by_session { format!(",{name}") } else { String::new() }
            );
        }
        text
    }

    fn draw(&self, moments: &Moments, since: bool, style: Style) -> String {
        let mut text = if self.report.rows.is_empty() {
            style.fold(self.nothing(since))
        } else {
            self.table(moments).render(style)
        };
        let total = self.report.total();
        if !total.unpriced_models.is_empty() {
            let models = unpriced::named(&total.unpriced_models, &total.unpriced_calls);
            note(
                &mut text,
                &format!("+ No price is known for {models}: the tokens are counted, the cost is not."),
                style,
            );
        }
        if let [(first, _), ..] = self.report.unreadable.as_slice() {
            let lines = usize::try_from(self.report.unreadable_lines()).unwrap_or(usize::MAX);
            let lines = human::counted(lines, "line");
            let line = if self.report.scan.is_some() {
                let first = at_home(&first.display().to_string(), style);
                format!("{lines} could not be read, the first in {first}.")
            } else {
                format!("{lines} could not be read; `codemie doctor` says where.")
            };
            note(&mut text, &line, style);
        }
        if let Some(foreign) = self.report.scan.as_ref().filter(|_| !self.report.rows.is_empty()) {
            note(&mut text, &foreign_share(foreign, self.report.by), style);
        }
        text
    }

    fn nothing(&self, since: bool) -> &'static str {
        if since {
            "No usage since then. `codemie usage` shows all there is."
        } else if self.report.scan.is_some() {
            "No calls in any session file on this machine. Run your agent, for example `codemie claude`."
        } else if self.report.has_demo {
            "Only the demonstration was recorded, which is not counted. Run your agent through codemie, for example `codemie claude`."
        } else {
            "No usage recorded yet. Run your agent through codemie, for example `codemie claude`."
        }
    }

    fn table(&self, moments: &Moments) -> Table {
        let by_session = self.report.by == By::Session;
        let ids: ShortIds<'_> = self
            .known
            .ids
            .iter()
            .chain(self.report.rows.iter().map(|row| &row.key))
            .map(String::as_str)
            .collect();
        let foreign = |row: &UsageRow| format!("foreign {}", ids.of(&row.key));
        // The id of a foreign conversation is all it can be named by.
        let widest = self.report.rows.iter().filter(|row| row.foreign).map(|row| foreign(row).width()).max();
        let mut columns = vec![match self.report.by {
            By::Day => Column::text("DAY", usize::MAX),
            By::Session => Column::text("SESSION", format::NAME.max(widest.unwrap_or(0))),
            By::Model => Column::text("MODEL", 16),
            By::Project => Column::text("PROJECT", 12),
            By::Agent => Column::text("AGENT", usize::MAX),
            By::Branch => Column::text("BRANCH", 12),
        }];
        if by_session {
            columns.push(Column::text("STARTED", usize::MAX).dispensable(4));
            columns.push(Column::text("PROJECT", 8).dispensable(5));
        }
        // The id of a foreign one stands in the first column.
        let conversations = by_session && self.report.rows.iter().any(|row| !row.foreign);
        columns.extend(conversations.then(|| Column::text("CONVERSATION", usize::MAX).dispensable(11)));
        // `--by agent` shows which agents share a row.
        let agents = self.report.by != By::Agent && self.report.rows.iter().all(|row| row.agent.is_some());
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
        let reasoning = self.report.rows.iter().any(|row| row.reasoning > 0);
        columns.extend(reasoning.then(|| Column::number("REASONING").dispensable(10)));
        columns.extend([Column::number("TOKENS").dispensable(1), Column::number("COST")]);
        let mut table = Table::new(columns);
        let cells = |row: &UsageRow, first: Cell<'static>, label: Option<&SessionLabel>, cost: String| {
            let name = label.map(|label| label.name.as_str()).filter(|name| !name.is_empty());
            let mut cells = vec![name.map_or(first, |name| name.to_owned().into())];
            if by_session {
                let project = row.project.as_deref().or_else(|| label?.project.as_deref());
                // The start of a foreign conversation is known by its first call alone.
                let started = label.and_then(|label| label.started).unwrap_or(row.first_at);
                let started = if row.key.is_empty() { String::new() } else { moments.show(started) };
                cells.extend([started.into(), project.unwrap_or("").to_owned().into()]);
            }
            let id = if row.foreign { "" } else { ids.of(&row.key) }.to_owned();
            cells.extend(conversations.then(|| Cell::painted(id, Colour::Faint)));
            if agents {
                cells.push(row.agent.clone().unwrap_or_default().into());
            }
            let parts = [row.input, row.output, row.cache_read, row.cache_write].map(number);
            let counts = [number(row.api_calls)].into_iter().chain(parts);
            let counts = counts.chain(reasoning.then(|| number(row.reasoning)));
            let all = parts.into_iter().fold(0, u64::saturating_add);
            cells.extend(counts.chain([all]).map(|count| human::count(count).into()));
            cells.push(cost.into());
            cells
        };
        let total = UsageRow { agent: None, ..self.report.total() };
        let amounts = self.report.rows.iter().chain([&total]);
        let mut costs =
            costs(amounts.map(|row| Some((row.cost, row.unpriced_models.as_slice())))).into_iter();
        let mut next = || costs.next().unwrap_or_default();
        for (at, row) in self.report.rows.iter().enumerate() {
            let first = if by_session && row.foreign {
                Cell::painted(foreign(row), Colour::Faint)
            } else {
                row.key.clone().into()
            };
            table.row(cells(row, first, self.known.labels.get(at), next()));
        }
        table.total(cells(&total, "total".into(), None, next()));
        table
    }
}

fn note(text: &mut String, line: &str, style: Style) {
    for line in style.fold(line).lines() {
        *text += &(style.paint(line, Colour::Note) + "\n");
    }
}

/// As RFC 4180 has it, and on one line: names come from the agents' files, which may hold anything. A text that a spreadsheet
/// would take for a formula gets an apostrophe in front, which makes it text there; numbers are not written by this.
fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = format!("{}{}", if formula { "'" } else { "" }, clean(field));
    if formula || field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests;
