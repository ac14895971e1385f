//! `codemie list`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::open::open_existing;
use super::words::{self, colour, cost, short, tokens};
use crate::cli::List;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::home::Home;
use crate::output::table::{Cell, Column, Table};
use crate::output::{Colour, Style, human};
use crate::session::record::{SessionRecord, record};
use crate::store::{Filter, Show};

pub fn run(args: &List, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (now, zone) = (SystemClock.now(), TimeZone::system());
    let records = match open_existing(home)? {
        Some(mut store) => store.read(|view| {
            let rows = view.list(&filter(args, now, &zone))?;
            rows.iter().map(|row| Ok(record(view, row, now)?)).collect::<anyhow::Result<Vec<_>>>()
        })?,
        None => Vec::new(),
    };
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&records)?)?;
    } else if records.is_empty() {
        writeln!(out, "{}", nothing(args))?;
    } else {
        out.write_all(table(&records, now, &zone).render(Style::of_stdout()).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn filter(args: &List, now: Timestamp, zone: &TimeZone) -> Filter {
    Filter {
        agent: args.agent.clone(),
        project: args.project.as_deref().map(project),
        tag: args.tag.clone(),
        group: args.group.clone(),
        since: args.since.map(|since| since.before(now, zone)),
        show: if args.all {
            Show::All
        } else if args.active {
            Show::Active
        } else {
            Show::NotArchived
        },
    }
}

/// A path as the store holds it; a name stays what it is, whatever lies in this folder.
fn project(wanted: &str) -> String {
    let path = Path::new(wanted);
    if !(wanted.starts_with('.') || path.is_absolute()) {
        return wanted.to_owned();
    }
    path.canonicalize().map_or_else(|_| wanted.to_owned(), |path| path.to_string_lossy().into_owned())
}

fn nothing(args: &List) -> &'static str {
    let List { all: _, active, agent, project, tag, group, since, json: _ } = args;
    let narrowed = [agent, project, tag, group].iter().any(|filter| filter.is_some()) || since.is_some();
    if narrowed {
        "No session matches. `codemie list --all` shows every one there is."
    } else if *active {
        "No session is running. `codemie claude` starts one; `codemie list` shows those that ended."
    } else {
        "No sessions yet. Run your agent through codemie, for example `codemie claude`, and it is listed here."
    }
}

/// On 80 columns what tells sessions apart stays: name, status, place, time, cost and the id to name it by.
fn table(records: &[SessionRecord], now: Timestamp, zone: &TimeZone) -> Table {
    let mut table = Table::new([
        Column::text("NAME", words::NAME),
        Column::text("AGENT", 6).dispensable(4),
        Column::text("STATUS", usize::MAX),
        Column::text("PROJECT", 7).dispensable(3),
        Column::text("STARTED", usize::MAX).dispensable(2),
        Column::number("TIME").dispensable(6),
        Column::number("TOKENS").dispensable(5),
        Column::number("COST").dispensable(1),
        Column::text("ID", usize::MAX),
    ]);
    for record in records {
        let usage = &record.usage;
        let calls = usage.api_calls > 0;
        table.row([
            record.name.as_str().into(),
            record.agent.as_str().into(),
            Cell::painted(record.status.as_str(), colour(record.status)),
            record.project.as_deref().unwrap_or("").into(),
            human::moment(record.start_time, now, zone).into(),
            human::duration(Duration::from_millis(record.duration_ms)).into(),
            if calls { human::count(tokens(usage)) } else { String::new() }.into(),
            if calls { cost(usage.cost_usd, &usage.unpriced_models) } else { String::new() }.into(),
            Cell::painted(short(&record.session_id), Colour::Faint),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::words::sample;

    fn records() -> Vec<SessionRecord> {
        let first = sample();
        let mut second = SessionRecord { name: "fix-auth.2".into(), ..sample() };
        second.session_id = "9f3c77aa-0000-4000-8000-000000000002".into();
        second.status = crate::session::state::Status::Interrupted;
        second.project = Some("a-rather-long-name-of-a-project".into());
        second.usage.api_calls = 0;
        second.start_time = Timestamp::parse("2026-10-02T08:00:00Z").unwrap();
        vec![first, second]
    }

    fn drawn(columns: usize) -> String {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        table(&records(), now, &TimeZone::UTC).render(Style { colour: false, columns })
    }

    #[test]
    fn a_wide_terminal_shows_everything() {
        assert_eq!(
            drawn(200),
            "\
NAME        AGENT   STATUS       PROJECT                          STARTED       TIME  TOKENS     COST  ID
fix-auth    claude  completed    project                          09:05          47s   6.91k  $0.0123  01a1e2f3
fix-auth.2  claude  interrupted  a-rather-long-name-of-a-project  Oct 02 08:00   47s                   9f3c77aa
"
        );
    }

    #[test]
    fn eighty_columns_keep_what_tells_sessions_apart() {
        assert_eq!(
            drawn(80),
            "\
NAME        AGENT   STATUS       PROJECT         STARTED          COST  ID
fix-auth    claude  completed    project         09:05         $0.0123  01a1e2f3
fix-auth.2  claude  interrupted  a-rather-long…  Oct 02 08:00           9f3c77aa
"
        );
    }
}
