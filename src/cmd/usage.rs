//! `codemie usage`: tokens and cost, added up by what is asked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::format::{self, Short, cost, costs, number};
use super::open::open_existing;
use crate::agent::{self, Agent};
use crate::cli::{Usage, UsageBy};
use crate::demo::{self, Demo};
use crate::home::Home;
use crate::output::failure::shown;
use crate::output::progress::Bar;
use crate::output::table::{Cell, Column, Table};
use crate::output::tilde::at_home;
use crate::output::{Colour, Style, json};
use crate::scan::{Days, Scanner, Watch};
use crate::store::{By, Filter, SessionRow, Show, Store, UsageRow, View, joined};
use human::text::clean;
use human::text::shorten;
use prices::unpriced;
use system::clock::{Clock, SystemClock};
use wire::AgentSessionId;
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
    let told = !(args.json || args.csv);
    let mut store = open_existing(home)?;
    let report = match &mut store {
        _ if args.scan => {
            let bar = Bar::on_terminal("reading session files", "B");
            let scanner = Scanner {
                folder: home.scans(),
                agents: &agent::ALL,
                var: &|name| std::env::var_os(name),
                days: Days::of(zone),
                watch: bar.as_ref().map(|bar| bar as &dyn Watch),
            };
            match &mut store {
                Some(store) => store.read(|view| scanned(&scanner, Some(view), by, since, told)),
                None => scanned(&scanner, None, by, since, told),
            }?
        }
        Some(store) => store.read(|view| {
            Ok::<_, anyhow::Error>(Report {
                by,
                rows: view.usage(by, since)?,
                unreadable: view.unreadable()?,
                files: view.files_read(&demo::folder(home))?,
                scan: None,
                played: !view
                    .list(&Filter {
                        agent: Some(Demo.name().to_owned()),
                        show: Show::All,
                        ..Filter::default()
                    })?
                    .is_empty(),
                refused: Vec::new(),
            })
        })?,
        None => Report { by, ..Report::default() },
    };
    let text = if args.json {
        report.json()?
    } else {
        let known = store.as_mut().filter(|_| by == By::Session).map(|store| Known::of(store, &report.rows));
        let known = known.transpose()?.unwrap_or_default();
        if args.csv {
            report.csv(&known)
        } else {
            report.draw(&known, &Moments::now(), since.is_some(), Style::of_stdout())
        }
    };
    out.write_all(text.as_bytes())?;
    if let Some(line) = report.left_out() {
        write!(err, "{}", shown(&format!("codemie: {line}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Watch for Bar {
    fn progress(&self, done: u64, of: u64) {
        self.draw(done, of);
    }
}

/// The store's calls and those of all files that are not the store's, in one look at the store.
fn scanned(
    scanner: &Scanner<'_>,
    store: Option<&View<'_>>,
    by: By,
    since: Option<Timestamp>,
    told: bool,
) -> anyhow::Result<Report> {
    let found = scanner.scan(store, since)?;
    for refused in found.refused.iter().chain(&found.unsaved) {
        tracing::warn!("scan: {refused}");
    }
    let owned = store.map(|view| view.usage(by, since)).transpose()?.unwrap_or_default();
    // The meter looks closer at the lines of the files it follows.
    let metered = store.map(View::unreadable).transpose()?.unwrap_or_default();
    let mut unreadable: BTreeMap<PathBuf, u64> = found.unreadable().into_iter().collect();
    for (path, lines) in metered {
        if let Some(known) = unreadable.get_mut(&path) {
            *known = lines.max(*known);
        }
    }
    let mut scan = Foreign::default();
    if told {
        let owned = store.map(|view| view.usage(By::Session, since)).transpose()?.unwrap_or_default();
        scan = Foreign::of(&joined(By::Session, owned, found.rows(By::Session)));
    }
    Ok(Report {
        by,
        rows: joined(by, owned, found.rows(by)),
        unreadable: unreadable.into_iter().collect(),
        files: found.files() as u64,
        scan: Some(scan),
        played: false,
        refused: found.refused,
    })
}

/// The conversations that never ran through codemie, of a scan.
#[derive(Clone, Debug, Default)]
struct Foreign {
    conversations: usize,
    sum: UsageRow,
}

impl Foreign {
    fn of(sessions: &[UsageRow]) -> Self {
        let mut all = Self::default();
        for row in sessions.iter().filter(|row| row.foreign) {
            all.conversations += 1;
            all.sum.add(row);
        }
        all
    }

    fn told(&self, by: By) -> String {
        let priced = self.sum.cost.0 > 0 || self.sum.unpriced_models.is_empty();
        let cost = priced.then(|| cost(self.sum.cost.dollars(), &self.sum.unpriced_models));
        let cost = cost.map_or(String::new(), |cost| format!(", {cost},"));
        let was = if self.conversations == 1 { "was" } else { "were" };
        let mark = if by == By::Session { ": foreign" } else { "" };
        match self.conversations {
            0 => "All of it was run through codemie.".into(),
            count => {
                let which = human::counted(count, "conversation");
                format!("{which}{cost} {was} not run through codemie{mark}.")
            }
        }
    }
}

/// What people call the session of a row, where it took place, and when it began.
#[derive(Clone, Debug, Default)]
struct Place {
    name: String,
    project: Option<String>,
    started: Option<Timestamp>,
}

/// What the store knows of the sessions that rows are of.
#[derive(Debug, Default)]
struct Known {
    /// One for each row.
    places: Vec<Place>,
    /// Of all sessions there are: what names one of the table must not name another that is not in it.
    ids: Vec<String>,
}

impl Known {
    fn of(store: &mut Store, rows: &[UsageRow]) -> anyhow::Result<Self> {
        store.read(|view| {
            let place = |row: &UsageRow| {
                let id = AgentSessionId(row.key.clone());
                let found =
                    row.agent.as_ref().map(|agent| view.session_by_agent_session(agent, &id)).transpose()?;
                let found = found.flatten().map(|found| Place {
                    name: found.name,
                    project: found.place.project,
                    started: Some(found.started_at),
                });
                if let (None, Some(agent)) = (&found, &row.agent) {
                    let pruned = view.pruned_session(agent, &id)?.map(|pruned| Place {
                        name: pruned.name,
                        project: pruned.project,
                        started: Some(pruned.started_at),
                    });
                    return Ok(pruned.unwrap_or_default());
                }
                anyhow::Ok(found.unwrap_or_default())
            };
            let sessions = view.list(&Filter { show: Show::All, ..Filter::default() })?;
            let ids =
                |row: SessionRow| [row.id.to_string()].into_iter().chain(row.agent_session.map(|id| id.0));
            Ok(Self {
                places: rows.iter().map(place).collect::<Result<_, _>>()?,
                ids: sessions.into_iter().flat_map(ids).collect(),
            })
        })
    }
}

/// How a time is told: as seen from when, and where.
#[derive(Debug)]
struct Moments {
    now: Timestamp,
    zone: TimeZone,
}

impl Moments {
    fn now() -> Self {
        Self { now: SystemClock.now(), zone: system::zone::local() }
    }

    fn tell(&self, at: Timestamp) -> String {
        human::moment(at, self.now, &self.zone)
    }
}

#[derive(Debug)]
struct Report {
    by: By,
    rows: Vec<UsageRow>,
    /// Files with lines that could not be read, and how many.
    unreadable: Vec<(PathBuf, u64)>,
    files: u64,
    /// What a scan found beside the store's, if there was one.
    scan: Option<Foreign>,
    /// The demonstration was played here.
    played: bool,
    /// Files and folders that could not be read, and why.
    refused: Vec<String>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            by: By::Day,
            rows: Vec::new(),
            unreadable: Vec::new(),
            files: 0,
            scan: None,
            played: false,
            refused: Vec::new(),
        }
    }
}

/// The sum of all rows, which has no key.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Total<'a> {
    input_tokens: i64,
    output_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    reasoning_tokens: i64,
    api_calls: i64,
    cost_usd: f64,
    unpriced_models: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unpriced_calls: &'a BTreeMap<String, i64>,
}

impl Report {
    fn total(&self) -> UsageRow {
        self.rows.iter().fold(UsageRow::default(), |mut sum, row| {
            sum.add(row);
            sum
        })
    }

    /// What could not even be opened; beside the figures, whatever form they have.
    fn left_out(&self) -> Option<String> {
        let (first, others) = self.refused.split_first()?;
        let first = shorten(first, usize::MAX);
        Some(match others.len() {
            0 => format!("not counted, because it cannot be read: {first}"),
            count => {
                format!("not counted, because they cannot be read: {first}, and {count} more (see the log)")
            }
        })
    }

    fn unreadable_lines(&self) -> u64 {
        self.unreadable.iter().map(|(_, lines)| lines).sum()
    }

    fn json(&self) -> anyhow::Result<String> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape<'a> {
            by: By,
            rows: &'a [UsageRow],
            total: Total<'a>,
            unreadable_lines: u64,
            files: u64,
        }
        let total = self.total();
        let shape = Shape {
            by: self.by,
            rows: &self.rows,
            total: Total {
                input_tokens: total.input,
                output_tokens: total.output,
                cache_read_tokens: total.cache_read,
                cache_write_tokens: total.cache_write,
                reasoning_tokens: total.reasoning,
                api_calls: total.api_calls,
                cost_usd: total.cost.dollars(),
                unpriced_models: &total.unpriced_models,
                unpriced_calls: &total.unpriced_calls,
            },
            unreadable_lines: self.unreadable_lines(),
            files: self.files,
        };
        Ok(json::pretty(&shape)?)
    }

    /// Names are those of sessions, and their column is there where the rows are.
    fn csv(&self, known: &Known) -> String {
        let mut text = String::from(
            "key,agent,inputTokens,outputTokens,cacheReadTokens,cacheWriteTokens,reasoningTokens,apiCalls,costUsd,unpricedModels,foreign",
        );
        let by_session = self.by == By::Session;
        text.push_str(if by_session { ",name\n" } else { "\n" });
        for (at, row) in self.rows.iter().enumerate() {
            let UsageRow { input, output, cache_read, cache_write, reasoning, api_calls, .. } = row;
            let (key, agent) = (quoted(&row.key), quoted(row.agent.as_deref().unwrap_or("")));
            let (cost, unpriced) = (row.cost.dollars(), quoted(&row.unpriced_models.join(" ")));
            let foreign = row.foreign;
            let name = known.places.get(at).map_or(String::new(), |place| quoted(&place.name));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{key},{agent},{input},{output},{cache_read},{cache_write},{reasoning},{api_calls},{cost},{unpriced},{foreign}{}",
                if by_session { format!(",{name}") } else { String::new() }
            );
        }
        text
    }

    /// `known`: of the sessions, where the rows are sessions.
    fn draw(&self, known: &Known, moments: &Moments, since: bool, style: Style) -> String {
        let mut text = if self.rows.is_empty() {
            style.fold(self.nothing(since))
        } else {
            self.table(known, moments).render(style)
        };
        let total = self.total();
        if !total.unpriced_models.is_empty() {
            let models = unpriced::named(&total.unpriced_models, &total.unpriced_calls);
            note(
                &mut text,
                &format!("+ No price is known for {models}: the tokens are counted, the cost is not."),
                style,
            );
        }
        if let [(first, _), ..] = self.unreadable.as_slice() {
            let lines = usize::try_from(self.unreadable_lines()).unwrap_or(usize::MAX);
            let lines = human::counted(lines, "line");
            let line = if self.scan.is_some() {
                let first = at_home(&first.display().to_string(), style);
                format!("{lines} could not be read, the first in {first}.")
            } else {
                format!("{lines} could not be read; `codemie doctor` says where.")
            };
            note(&mut text, &line, style);
        }
        if let Some(foreign) = self.scan.as_ref().filter(|_| !self.rows.is_empty()) {
            note(&mut text, &foreign.told(self.by), style);
        }
        text
    }

    fn nothing(&self, since: bool) -> &'static str {
        if since {
            "No usage since then. `codemie usage` shows all there is."
        } else if self.scan.is_some() {
            "No calls in any session file on this machine. Run your agent, for example `codemie claude`."
        } else if self.played {
            "Only the demonstration's, which is left out. Run your agent through codemie, for example `codemie claude`."
        } else {
            "No usage recorded yet. Run your agent through codemie, for example `codemie claude`."
        }
    }

    fn table(&self, known: &Known, moments: &Moments) -> Table {
        let by_session = self.by == By::Session;
        let ids: Short = known.ids.iter().chain(self.rows.iter().map(|row| &row.key)).cloned().collect();
        let foreign = |row: &UsageRow| format!("foreign {}", ids.of(&row.key));
        // The id of a foreign conversation is all it can be named by.
        let widest = self.rows.iter().filter(|row| row.foreign).map(|row| foreign(row).width()).max();
        let mut columns = vec![match self.by {
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
        let conversations = by_session && self.rows.iter().any(|row| !row.foreign);
        columns.extend(conversations.then(|| Column::text("CONVERSATION", usize::MAX).dispensable(11)));
        // Which agents share a row `--by agent` tells.
        let agents = self.by != By::Agent && self.rows.iter().all(|row| row.agent.is_some());
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
        let reasoning = self.rows.iter().any(|row| row.reasoning > 0);
        columns.extend(reasoning.then(|| Column::number("REASONING").dispensable(10)));
        columns.extend([Column::number("TOKENS").dispensable(1), Column::number("COST")]);
        let mut table = Table::new(columns);
        let cells = |row: &UsageRow, first: Cell, place: Option<&Place>, cost: String| {
            let name = place.map(|place| place.name.as_str()).filter(|name| !name.is_empty());
            let mut cells = vec![name.map_or(first, Cell::from)];
            if by_session {
                let project = row.project.as_deref().or_else(|| place?.project.as_deref());
                // When a foreign one began nobody knows but by its first call.
                let started = place.and_then(|place| place.started).unwrap_or(row.first_at);
                let started = if row.key.is_empty() { String::new() } else { moments.tell(started) };
                cells.extend([started.into(), project.unwrap_or("").into()]);
            }
            let id = if row.foreign { String::new() } else { ids.of(&row.key) };
            cells.extend(conversations.then(|| Cell::painted(id, Colour::Faint)));
            if agents {
                cells.push(row.agent.as_deref().unwrap_or("").into());
            }
            let parts = [row.input, row.output, row.cache_read, row.cache_write].map(number);
            let counts = [number(row.api_calls)].into_iter().chain(parts);
            let counts = counts.chain(reasoning.then(|| number(row.reasoning)));
            let all = parts.into_iter().fold(0, u64::saturating_add);
            cells.extend(counts.chain([all]).map(|count| human::count(count).into()));
            cells.push(cost.into());
            cells
        };
        let total = UsageRow { agent: None, ..self.total() };
        let amounts = self.rows.iter().chain([&total]);
        let mut costs =
            costs(amounts.map(|row| Some((row.cost, row.unpriced_models.as_slice())))).into_iter();
        let mut next = || costs.next().unwrap_or_default();
        for (at, row) in self.rows.iter().enumerate() {
            let first = if by_session && row.foreign {
                Cell::painted(foreign(row), Colour::Faint)
            } else {
                row.key.as_str().into()
            };
            table.row(cells(row, first, known.places.get(at), next()));
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
