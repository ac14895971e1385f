//! `codemie usage`: tokens and cost, added up by what is asked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::open::open_existing;
use super::words::{self, cost, number, short};
use crate::agent::{self, Agent};
use crate::cli::{Usage, UsageBy};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::demo::{self, Demo};
use crate::home::Home;
use crate::output::progress::Bar;
use crate::output::table::{Cell, Column, Table, shorten};
use crate::output::wrap::wrap;
use crate::output::{Colour, Style, human};
use crate::scan::{Days, Scanner, Watch};
use crate::session::id::AgentSessionId;
use crate::store::{By, Filter, Show, Store, UsageRow, View, joined};

pub fn run(args: &Usage, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let by = match args.by {
        UsageBy::Day => By::Day,
        UsageBy::Session => By::Session,
        UsageBy::Model => By::Model,
        UsageBy::Project => By::Project,
        UsageBy::Agent => By::Agent,
        UsageBy::Branch => By::Branch,
    };
    let zone = crate::zone::local();
    let since = args.since.map(|since| since.before(SystemClock.now(), &zone));
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
                Some(store) => store.read(|view| scanned(&scanner, Some(view), by, since)),
                None => scanned(&scanner, None, by, since),
            }?
        }
        Some(store) => store.read(|view| {
            Ok::<_, anyhow::Error>(Report {
                by,
                rows: view.usage(by, since)?,
                unreadable: view.unreadable()?,
                files: view.files_read(&demo::folder(home))?,
                scan: false,
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
    } else if args.csv {
        report.csv()
    } else {
        let places = store.as_mut().filter(|_| by == By::Session).map(|store| places(store, &report.rows));
        let places = places.transpose()?.unwrap_or_default();
        report.draw(&places, &Moments::now(), since.is_some(), Style::of_stdout())
    };
    out.write_all(text.as_bytes())?;
    if let Some(line) = report.left_out() {
        writeln!(err, "codemie: {line}")?;
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
    Ok(Report {
        by,
        rows: joined(by, owned, found.rows(by)),
        unreadable: unreadable.into_iter().collect(),
        files: found.files() as u64,
        scan: true,
        played: false,
        refused: found.refused,
    })
}

/// What people call the session of a row, and where it took place.
#[derive(Clone, Debug, Default)]
struct Place {
    name: String,
    project: Option<String>,
}

fn places(store: &mut Store, rows: &[UsageRow]) -> anyhow::Result<Vec<Place>> {
    store.read(|view| {
        let place = |row: &UsageRow| {
            let id = AgentSessionId(row.key.clone());
            let found =
                row.agent.as_ref().map(|agent| view.session_by_agent_session(agent, &id)).transpose()?;
            let found = found.flatten().map(|found| Place { name: found.name, project: found.place.project });
            anyhow::Ok(found.unwrap_or_default())
        };
        rows.iter().map(place).collect()
    })
}

/// How a time is told: as seen from when, and where.
#[derive(Debug)]
struct Moments {
    now: Timestamp,
    zone: TimeZone,
}

impl Moments {
    fn now() -> Self {
        Self { now: SystemClock.now(), zone: crate::zone::local() }
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
    scan: bool,
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
            scan: false,
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
            },
            unreadable_lines: self.unreadable_lines(),
            files: self.files,
        };
        Ok(serde_json::to_string_pretty(&shape)? + "\n")
    }

    fn csv(&self) -> String {
        let mut text = String::from(
            "key,agent,inputTokens,outputTokens,cacheReadTokens,cacheWriteTokens,reasoningTokens,apiCalls,costUsd,unpricedModels\n",
        );
        for row in &self.rows {
            let UsageRow { input, output, cache_read, cache_write, reasoning, api_calls, .. } = row;
            let (key, agent) = (quoted(&row.key), quoted(row.agent.as_deref().unwrap_or("")));
            let (cost, unpriced) = (row.cost.dollars(), quoted(&row.unpriced_models.join(" ")));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{key},{agent},{input},{output},{cache_read},{cache_write},{reasoning},{api_calls},{cost},{unpriced}"
            );
        }
        text
    }

    /// `places`: of the sessions, where the rows are sessions.
    fn draw(&self, places: &[Place], moments: &Moments, since: bool, style: Style) -> String {
        let mut text = if self.rows.is_empty() {
            self.nothing(since).to_owned() + "\n"
        } else {
            self.table(places, moments).render(style)
        };
        let unpriced = self.total().unpriced_models;
        if !unpriced.is_empty() {
            let models = unpriced.join(", ");
            note(
                &mut text,
                &format!("+ No price is known for {models}: the tokens are counted, the cost is not."),
                style,
            );
        }
        if let [(first, _), ..] = self.unreadable.as_slice() {
            let lines = human::grouped(self.unreadable_lines());
            let line = if self.scan {
                format!("{lines} lines could not be read, the first of them in {}.", first.display())
            } else {
                format!("{lines} lines could not be read; `codemie doctor` says in which files.")
            };
            note(&mut text, &line, style);
        }
        let foreign = self.rows.iter().filter(|row| row.foreign).count();
        if self.by == By::Session && foreign > 0 {
            let which = human::counted(foreign, "conversation");
            note(&mut text, &format!("{which} not run through codemie: foreign."), style);
        }
        text
    }

    fn nothing(&self, since: bool) -> &'static str {
        if since {
            "No usage since then. `codemie usage` shows all there is."
        } else if self.scan {
            "No calls in any session file on this machine. Run your agent, for example `codemie claude`."
        } else if self.played {
            "Only the demonstration's, which is left out. Run your agent through codemie, for example `codemie claude`."
        } else {
            "No usage recorded yet. Run your agent through codemie, for example `codemie claude`."
        }
    }

    fn table(&self, places: &[Place], moments: &Moments) -> Table {
        let by_session = self.by == By::Session;
        let mut columns = vec![match self.by {
            By::Day => Column::text("DAY", usize::MAX),
            By::Session => Column::text("SESSION", words::NAME),
            By::Model => Column::text("MODEL", 16),
            By::Project => Column::text("PROJECT", 12),
            By::Agent => Column::text("AGENT", usize::MAX),
            By::Branch => Column::text("BRANCH", 12),
        }];
        if by_session {
            columns.push(Column::text("DATE", usize::MAX).dispensable(1));
            columns.push(Column::text("PROJECT", 8).dispensable(2));
            columns.push(Column::text("CONVERSATION", usize::MAX).dispensable(9));
        }
        if self.by != By::Agent {
            columns.push(Column::text("AGENT", 6).dispensable(6));
        }
        columns.extend([
            Column::number("CALLS").dispensable(5),
            Column::number("INPUT"),
            Column::number("OUTPUT"),
            Column::number("CACHE READ").dispensable(3),
            Column::number("CACHE WRITE").dispensable(4),
            Column::number("REASONING").dispensable(8),
            Column::number("COST"),
        ]);
        let mut table = Table::new(columns);
        let cells = |row: &UsageRow, first: Cell, place: Option<&Place>| {
            let name = place.map(|place| place.name.as_str()).filter(|name| !name.is_empty());
            let mut cells = vec![name.map_or(first, Cell::from)];
            if by_session {
                let project = row.project.as_deref().or_else(|| place?.project.as_deref());
                // A foreign one has no name; its id stands in the first column.
                let id = if row.foreign { String::new() } else { short(&row.key) };
                let date = if row.key.is_empty() { String::new() } else { moments.tell(row.first_at) };
                cells.extend([date.into(), project.unwrap_or("").into(), Cell::painted(id, Colour::Faint)]);
            }
            if self.by != By::Agent {
                cells.push(row.agent.as_deref().unwrap_or("").into());
            }
            let counts =
                [row.api_calls, row.input, row.output, row.cache_read, row.cache_write, row.reasoning];
            cells.extend(counts.map(|count| human::count(number(count)).into()));
            cells.push(cost(row.cost.dollars(), &row.unpriced_models).into());
            cells
        };
        for (at, row) in self.rows.iter().enumerate() {
            let first = if by_session && row.foreign {
                Cell::painted(format!("foreign {}", short(&row.key)), Colour::Faint)
            } else {
                row.key.as_str().into()
            };
            table.row(cells(row, first, places.get(at)));
        }
        table.total(cells(&UsageRow { agent: None, ..self.total() }, "total".into(), None));
        table
    }
}

fn note(text: &mut String, line: &str, style: Style) {
    for line in wrap(line, style.columns) {
        text.push_str(&style.paint(&shorten(&line, usize::MAX), Colour::Note));
        text.push('\n');
    }
}

/// As RFC 4180 has it, and on one line: names come from the agents' files, which may hold anything.
fn quoted(field: &str) -> String {
    let field: String = field.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::PicoDollars;

    fn row(key: &str, calls: i64, pico: i64, unpriced: &[&str]) -> UsageRow {
        UsageRow {
            key: key.into(),
            agent: Some("claude".into()),
            api_calls: calls,
            input: 1234 * calls,
            output: 56 * calls,
            cache_read: 120_000 * calls,
            cache_write: 4000,
            reasoning: 0,
            cost: PicoDollars(pico),
            unpriced_models: unpriced.iter().map(|&model| model.to_owned()).collect(),
            ..UsageRow::default()
        }
    }

    fn report(by: By) -> Report {
        let rows = vec![row("2026-11-15", 3, 123_400_000_000, &[]), row("a, \"b\"", 1, 0, &["new-model"])];
        Report {
            by,
            rows,
            unreadable: vec![("/p/x.jsonl".into(), 2)],
            files: 4,
            scan: false,
            played: false,
            refused: Vec::new(),
        }
    }

    fn moments() -> Moments {
        Moments { now: Timestamp::parse("2026-11-16T12:00:00Z").unwrap(), zone: TimeZone::UTC }
    }

    #[test]
    fn a_table_has_a_total_and_names_what_is_missing() {
        assert_eq!(
            report(By::Day).draw(&[], &moments(), false, Style { colour: false, columns: 80 }),
            "\
DAY         AGENT   CALLS  INPUT  OUTPUT  CACHE READ  CACHE WRITE      COST
2026-11-15  claude      3  3.70k     168        360k        4.00k   $0.1234
a, \"b\"      claude      1  1.23k      56        120k        4.00k  no price
total                   4  4.94k     224        480k        8.00k  $0.1234+
+ No price is known for new-model: the tokens are counted, the cost is not.
2 lines could not be read; `codemie doctor` says in which files.
"
        );
    }

    #[test]
    fn a_scan_marks_what_it_alone_found() {
        let mut report = report(By::Session);
        report.scan = true;
        report.rows[1].foreign = true;
        report.rows[1].key = "0123456789abcdef".into();
        report.rows[1].first_at = Timestamp::parse("2026-11-15T09:05:00Z").unwrap();
        report.rows[1].project = Some("widgets".into());
        let text = report.draw(&[], &moments(), false, Style { colour: false, columns: 200 });
        assert!(text.contains("\nforeign 01234567  Nov 15 09:05  widgets "), "{text}");
        assert_eq!(text.matches("01234567").count(), 1, "{text}");
        assert!(text.contains("\n1 conversation not run through codemie: foreign.\n"), "{text}");
        assert!(text.contains("2 lines could not be read, the first of them in /p/x.jsonl."), "{text}");
        let value: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!((&value["rows"][0]["foreign"], &value["rows"][1]["foreign"]), (&().into(), &true.into()));
    }

    #[test]
    fn sessions_are_shown_by_name() {
        let text = report(By::Session).draw(
            &[Place { name: "fix-auth".into(), project: Some("shop".into()) }, Place::default()],
            &moments(),
            false,
            Style { colour: false, columns: 200 },
        );
        let first = text.lines().nth(1).unwrap();
        assert!(
            first.starts_with("fix-auth  ") && first.contains("  shop ") && first.contains("  2026-11-  "),
            "{text}"
        );
        assert!(text.contains("\na, \"b\""), "one without a name is shown by its key: {text}");
    }

    #[test]
    fn every_table_fits() {
        use unicode_width::UnicodeWidthStr;
        for (by, columns) in By::ALL.iter().flat_map(|by| [(by, 80), (by, 50)]) {
            let mut report = report(*by);
            report.rows[0].key = "0123456789abcdef-0123-456789-abcdef0123456789".into();
            report.rows[0].cost = PicoDollars(12_345_670_000_000_000);
            if *by == By::Day || *by == By::Agent {
                report.rows[0].key = "2026-11-15".into();
            }
            let text = report.draw(&[], &moments(), false, Style { colour: false, columns });
            assert!(text.lines().all(|line| line.width() <= columns), "{by}:\n{text}");
        }
    }

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        assert_eq!(
            report(By::Day).csv(),
            "key,agent,inputTokens,outputTokens,cacheReadTokens,cacheWriteTokens,reasoningTokens,apiCalls,costUsd,unpricedModels\n\
             2026-11-15,claude,3702,168,360000,4000,0,3,0.1234,\n\
             \"a, \"\"b\"\"\",claude,1234,56,120000,4000,0,1,0,new-model\n"
        );
    }

    #[test]
    fn what_stands_in_an_agents_file_moves_no_cursor() {
        let mut report = report(By::Model);
        report.rows[0].key = "evil\x1b[2J\u{9b}31m\nmodel".into();
        report.rows[1].unpriced_models = vec!["a\x07b".into()];
        let drawn = report.draw(&[], &moments(), false, Style { colour: false, columns: 200 });
        for text in [report.csv(), drawn] {
            assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
        }
        assert_eq!(report.csv().lines().count(), 3);
    }

    #[test]
    fn the_json_is_the_one_promised() {
        let value: serde_json::Value = serde_json::from_str(&report(By::Session).json().unwrap()).unwrap();
        assert_eq!(value["by"], "session");
        assert_eq!(value["rows"][0]["key"], "2026-11-15");
        assert_eq!(
            value["total"],
            serde_json::json!({"inputTokens": 4936, "outputTokens": 224, "cacheReadTokens": 480_000,
                "cacheWriteTokens": 8000, "reasoningTokens": 0, "apiCalls": 4, "costUsd": 0.1234,
                "unpricedModels": ["new-model"]})
        );
        assert_eq!((&value["unreadableLines"], &value["files"]), (&2.into(), &4.into()));
    }

    #[test]
    fn what_could_not_be_opened_is_told_beside_the_figures() {
        let told = |refused: &[&str]| {
            let refused = refused.iter().map(|&one| one.to_owned()).collect();
            Report { refused, ..Report::default() }.left_out().unwrap_or_default()
        };
        assert_eq!(told(&[]), "");
        assert_eq!(told(&["/p\u{1b}: denied"]), "not counted, because it cannot be read: /p : denied");
        assert!(
            told(&["/p: denied", "/q: denied", "/r: denied"])
                .ends_with("/p: denied, and 2 more (see the log)")
        );
    }

    #[test]
    fn nothing_says_what_to_do_next() {
        let empty = Report::default();
        let style = Style { colour: false, columns: 80 };
        assert!(empty.draw(&[], &moments(), false, style).contains("codemie claude"));
        assert!(empty.draw(&[], &moments(), true, style).contains("codemie usage"));
        let played = Report { played: true, ..Report::default() };
        assert!(played.draw(&[], &moments(), false, style).starts_with("Only the demonstration's"));
    }
}
