//! `codemie prune`: sessions that ended long ago leave the store. The agents' own files are not touched.

use std::fs;
use std::io::{self, BufRead, Write, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use jiff::tz::TimeZone;
use serde_json::json;

use super::session_text::{self, ShortIds, date};
use super::{Failure, USAGE};
use crate::cli::Prune;
use agents::Agent;
use agents::demo::Demo;
use format::output::table::{Cell, Column, Table};
use format::output::{Colour, Style, json};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pty::is_terminal;
use report::open::open_existing;
use store::session::prune::prune;
use store::{self, SessionQuery, SessionRow, Show, View};
use types::{Filter, Timestamp};

/// The error of a call that names neither an age nor an agent.
const WHICH: &str = "say how old with --older-than: `codemie prune --older-than 90d --dry-run` shows which sessions ended \
                     more than 90 days ago, without --dry-run they are removed; `codemie prune --agent demo` removes the \
                     demonstration's, whatever their age";

/// What a removal deletes and what it keeps.
const TAKES: &str = "Their records, events and evidence go for good; their tokens and cost stay in `codemie usage`, and the \
                     agents' own files stay as they are.";

pub fn run(args: &Prune, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if args.older_than.is_none() && args.agent.as_deref() != Some(Demo.name()) {
        return Err(Failure { code: USAGE, message: WHICH.to_owned() }.into());
    }
    let (now, zone) = (SystemClock.now(), os::zone::local());
    let (before, agent) =
        (args.older_than.map_or(now, |then| then.before(now, &zone)), args.agent.as_deref());
    let mut store = open_existing(home)?;
    let asks = !(args.dry_run || args.yes || args.json) && is_terminal(&stdin()) && is_terminal(&stdout());
    if let Some(store) = store.as_mut().filter(|_| asks) {
        let rows = prune(store, home, before, agent, true)?;
        if !rows.is_empty() {
            let style = Style::of_stdout();
            out.write_all(table(&rows, now, &zone).render(style).as_bytes())?;
            write!(out, "{}", style.fold(TAKES))?;
            write!(out, "Remove {}? [y/N] ", sessions(rows.len()))?;
            out.flush()?;
            if !agreed(&mut stdin().lock())? {
                writeln!(out, "Nothing was removed.")?;
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    let (rows, kept) = match &mut store {
        Some(store) => {
            let rows = prune(store, home, before, agent, args.dry_run)?;
            let gone = if args.dry_run { rows.len() } else { 0 };
            let of_demo = agent == Some(Demo.name()) || rows.iter().any(|row| row.agent == Demo.name());
            if of_demo && !args.dry_run && store.read(played)?.is_empty() {
                sweep(&agents::demo::folder(home))?;
            }
            (rows, store.read(|view| old(view, before, agent))?.saturating_sub(gone))
        }
        None => (Vec::new(), 0),
    };
    if args.json {
        let sessions = rows.iter().map(|row| {
            json!({"sessionId": row.shown_id(), "name": row.name, "agent": row.agent, "endTime": row.ended_at})
        });
        let report = json!({"dryRun": args.dry_run, "sessions": sessions.collect::<Vec<_>>(), "kept": kept});
        out.write_all(json::pretty(&report)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    // The question showed them already.
    if !rows.is_empty() && !asks {
        out.write_all(table(&rows, now, &zone).render(Style::of_stdout()).as_bytes())?;
    }
    if !rows.is_empty() || kept == 0 {
        let before = args.older_than.map(|_| date(before, &zone));
        writeln!(out, "{}", summary(rows.len(), args.dry_run, agent, before.as_deref()))?;
    }
    if kept > 0 {
        writeln!(
            out,
            "Not yet removed, because not all of it is delivered: {}. Why: codemie sync --status",
            sessions(kept)
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads an answer to a question whose default is no.
fn agreed(input: &mut dyn BufRead) -> io::Result<bool> {
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

fn played(view: &View<'_>) -> Result<Vec<SessionRow>, store::Error> {
    view.list(&SessionQuery {
        show: Show::All,
        ..SessionQuery::of(Filter { agent: Some(Demo.name().to_owned()), ..Filter::default() })
    })
}

/// The demonstration's folder goes with its last session; its backend ends when it finds the folder gone.
fn sweep(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// How many ended before a time, prunable or not.
fn old(view: &View<'_>, before: Timestamp, agent: Option<&str>) -> anyhow::Result<usize> {
    let agent = agent.map(str::to_owned);
    let all = view
        .list(&SessionQuery { show: Show::All, ..SessionQuery::of(Filter { agent, ..Filter::default() }) })?;
    Ok(all.iter().filter(|row| !row.is_active() && row.ended_at.is_some_and(|at| at < before)).count())
}

fn summary(count: usize, dry_run: bool, agent: Option<&str>, before: Option<&str>) -> String {
    let of = agent.map_or(String::new(), |agent| format!(" of {agent}"));
    let ended = before.map_or("ended".to_owned(), |before| format!("ended before {before}"));
    match (count, dry_run) {
        (0, _) => format!("Nothing to remove: no session{of} {ended}."),
        (count, true) => {
            format!("{}{of} that {ended} would be removed; leave --dry-run out to do it.", sessions(count))
        }
        (count, false) => format!("{}{of} that {ended} removed.", sessions(count)),
    }
}

fn sessions(count: usize) -> String {
    format::counted(count, "session")
}

fn table(rows: &[SessionRow], now: Timestamp, zone: &TimeZone) -> Table {
    let mut table = Table::new([
        Column::text("NAME", session_text::NAME),
        Column::text("AGENT", 6).dispensable(2),
        Column::text("PROJECT", 7).dispensable(3),
        Column::text("ENDED", usize::MAX).dispensable(1),
        Column::text("ID", session_text::ID),
    ]);
    let shown: Vec<String> = rows.iter().map(SessionRow::shown_id).collect();
    let ids: ShortIds<'_> = shown.iter().map(String::as_str).collect();
    for (row, id) in rows.iter().zip(&shown) {
        table.row([
            row.name.as_str().into(),
            row.agent.as_str().into(),
            row.workspace.project.as_deref().unwrap_or("").into(),
            row.ended_at.map_or(String::new(), |at| format::moment(at, now, zone)).into(),
            Cell::painted(ids.of(id), Colour::Faint),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_drawn_harmlessly() {
        use store::session::lifecycle::ConversationStart;
        let mut world = store::session::testing::World::new();
        let (_, started) = world.start(ConversationStart::Fresh);
        let row = world.session(started.session);
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let mut row = row.clone();
            (row.name, row.agent, row.workspace.project) = (text.into(), text.into(), Some(text.into()));
            row.former_id = Some(text.into());
            table(&[row], Timestamp(0), &TimeZone::UTC).render(style)
        });
    }

    #[test]
    fn only_y_and_yes_agree() {
        for (answer, yes) in [
            ("y\n", true),
            ("YES\n", true),
            (" y ", true),
            ("", false),
            ("\n", false),
            ("n\n", false),
            ("yep\n", false),
        ] {
            assert_eq!(agreed(&mut answer.as_bytes()).unwrap(), yes, "{answer:?}");
        }
    }

    #[test]
    fn the_summary_repeats_agent_and_age() {
        for (count, dry_run, agent, before, expected) in [
            (0, false, None, Some("2026"), "Nothing to remove: no session ended before 2026."),
            (0, false, Some("demo"), None, "Nothing to remove: no session of demo ended."),
            (1200, false, None, Some("2026"), "1,200 sessions that ended before 2026 removed."),
            (
                2,
                true,
                Some("demo"),
                None,
                "2 sessions of demo that ended would be removed; leave --dry-run out to do it.",
            ),
        ] {
            assert_eq!(summary(count, dry_run, agent, before), expected);
        }
    }
}
