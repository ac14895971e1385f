//! `codemie current`: the session this process runs inside of, after any number of `/clear`s.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use super::session_text::{cost, number};
use super::{no_such_session, session_text};
use crate::cli::Current;
use format::output::{Colour, Style, json};
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::find::current;
use report::open::open_existing;
use report::state::Asked;
use report::usage::uncommitted;
use runtime::launch::{Origin, RUN_VARIABLE, lineage};
use store::session::lineage::Lineage;
use store::session::record::record;
use types::SessionRecord;
use usage::UsageRow;

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

// `codemie commit-note`: a trailer for a commit message, for a hook of the user's own. Nothing is written into the repository.

/// Prints nothing where nothing was spent, and never keeps a commit from being made.
pub fn commit_note(home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir();
    let (Ok(here), Ok(Some(mut store))) = (here, open_existing(home)) else { return Ok(ExitCode::SUCCESS) };
    if let Ok(spent) = store.read(|view| uncommitted(view, &here)) {
        out.write_all(trailer(&spent).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn trailer(spent: &UsageRow) -> String {
    if spent.sums.api_calls == 0 {
        return String::new();
    }
    let calls = format::counted(usize::try_from(spent.sums.api_calls).unwrap_or(0), "call");
    let cost = cost(spent.sums.cost.dollars(), &spent.unpriced_models);
    format!("Agent-Usage: {cost}, {} tokens, {calls}\n", format::count(number(spent.sums.tokens())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{CallSums, PicoDollars};

    #[test]
    fn a_trailer_is_one_line_and_absent_where_nothing_was_spent() {
        assert_eq!(trailer(&UsageRow::default()), "");
        let spent = UsageRow {
            sums: CallSums {
                api_calls: 34,
                input: 5_000_000,
                output: 612_345,
                cost: PicoDollars(1_234_500_000_000),
                ..CallSums::default()
            },
            ..UsageRow::default()
        };
        assert_eq!(trailer(&spent), "Agent-Usage: $1.23, 5.61M tokens, 34 calls\n");
    }
}
