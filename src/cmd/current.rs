//! `codemie current`: the session this process runs inside of, after any number of `/clear`s.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use super::find::no_such_session;
use super::format;
use super::open::open_existing;
use crate::cli::Current;
use crate::home::Home;
use crate::launch::{RUN_VARIABLE, SESSION_VARIABLE};
use crate::output::{Colour, Style, json};
use crate::session::record::record;
use crate::store::{self, SessionRow, View};
use human::text::clean;
use system::clock::{Clock, SystemClock};
use wire::SessionRecord;

pub fn run(args: &Current, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (run, session) = (variable(RUN_VARIABLE), variable(SESSION_VARIABLE));
    if run.is_none() && session.is_none() {
        return Err(no_such_session(format!(
            "this process runs inside no session: {RUN_VARIABLE} is not set. `codemie list --active` shows those that are running"
        )));
    }
    let found = match open_existing(home)? {
        Some(mut store) => store.read(|view| {
            let row = current(view, run.as_deref(), session.as_deref())?;
            row.map(|row| record(view, &row, SystemClock.now())).transpose()
        })?,
        None => None,
    };
    let Some(record) = found else {
        return Err(no_such_session(format!(
            "{} does not know the run of this process ({}). Is it another CODEMIE_HOME that the agent was started with?",
            home.database().display(),
            run.or(session).unwrap_or_default(),
        )));
    };
    if args.json {
        out.write_all(json::pretty(&record)?.as_bytes())?;
    } else {
        writeln!(out, "{}", line(&record, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The run says where it is now. The session it began with is older than the last `/clear`, but leads to the run.
fn current(
    view: &View<'_>,
    run: Option<&str>,
    session: Option<&str>,
) -> Result<Option<SessionRow>, store::Error> {
    if let Some(run) = run.and_then(|run| run.parse().ok())
        && let Some(row) = view.current(run)?
    {
        return Ok(Some(row));
    }
    let Some(first) =
        session.and_then(|id| id.parse().ok()).map(|id| view.session(id)).transpose()?.flatten()
    else {
        return Ok(None);
    };
    let run = first.run.map(|run| view.run_number(run)).transpose()?.flatten();
    let now_in = run.and_then(|run| run.session).map(|n| view.session_number(n)).transpose()?.flatten();
    Ok(Some(now_in.unwrap_or(first)))
}

fn line(record: &SessionRecord, style: Style) -> String {
    let name = style.paint(&record.name, Colour::Heading);
    let status = style.paint(record.status.as_str(), format::colour(record.status));
    let time = human::duration(Duration::from_millis(record.duration_ms));
    let (id, agent) = (clean(&record.session_id), clean(&record.agent));
    format!("{name}  {id}  {agent}  {status}  {time}")
}
