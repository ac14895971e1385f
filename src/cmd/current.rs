//! `codemie current`: the session this process runs inside of, after any number of `/clear`s.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use super::{no_such_session, session_text};
use crate::cli::Current;
use format::output::{Colour, Style, json};
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::current::current;
use report::open::open_existing;
use report::state::Asked;
use runtime::launch::{Origin, RUN_VARIABLE, lineage};
use store::session::lineage::Lineage;
use store::session::record::record;
use types::SessionRecord;

pub fn run(args: &Current, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let origin = Origin::of_this_process();
    let lineage = lineage(&origin);
    let found = match open_existing(home)? {
        Some(mut store) => store.read(|view| {
            current(view, &lineage)?.map(|row| record(view, &row, SystemClock.now())).transpose()
        })?,
        None => None,
    };
    let Some(mut record) = found else {
        return Err(no_such_session(not_inside(&lineage, home)));
    };
    if args.json {
        Asked { home, origin: &origin, now: SystemClock.now() }.fill(std::slice::from_mut(&mut record));
        out.write_all(json::pretty(&record)?.as_bytes())?;
    } else {
        writeln!(out, "{}", line(&record, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn not_inside(lineage: &Lineage, home: &Home) -> String {
    match lineage.named() {
        None => {
            "this process runs inside no session. `codemie list --active` shows the running ones".to_owned()
        }
        Some(run) => format!(
            "this process runs inside no session that {} knows: {RUN_VARIABLE} names {run}, which is no evidence, and none of its ancestors is the wrapper of a running session. Was the agent started with another CODEMIE_HOME?",
            home.database().display(),
        ),
    }
}

fn line(record: &SessionRecord, style: Style) -> String {
    let name = style.paint(&record.name, Colour::Heading);
    let status =
        style.paint(&session_text::status(record), session_text::colour(record.status, record.end_reason));
    let time = format::duration(Duration::from_millis(record.duration_ms));
    let (id, agent) = (clean(&record.session_id), clean(&record.agent));
    format!("{name}  {id}  {agent}  {status}  {time}")
}
