//! `codemie usage`: tokens and cost, added up by what is asked.

mod drawing;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use jiff::tz::TimeZone;

use super::scanner::with_scanner;
use crate::cli::Usage;
use crate::failure::shown;
use drawing::{Drawing, Moments};
use format::output::{Style, json};
use format::text::shorten;
use os::calendar::LocalClock;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::open::open_existing;
use report::plan::{PlanWorth, month};
use report::usage::{UsageReport, commits_named};
use runtime::launch::{Origin, settings};
use store::View;
use types::{Filter, Span, Timestamp};
use usage::{By, UsageQuery};

pub fn run(args: &Usage, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let commits = args.commit.as_deref().map(commits).transpose()?;
    let zone = args.timezone.clone().unwrap_or_else(os::zone::local);
    let now = SystemClock.now();
    let query = query(args, commits, now, &zone);
    let clock = LocalClock::of(zone.clone());
    let for_people = !(args.json || args.csv);
    let mut store = open_existing(home)?;
    let everything = query.filter == Filter::default() && query.commits.is_none();
    let plans = if for_people { settings(Some(home), &Origin::of_this_process()).plans } else { Vec::new() };
    let (report, worth) = with_scanner(home, args.scan, |scanner| {
        let mut of = |query: &UsageQuery, compare| {
            let scanned =
                |view: Option<&View<'_>>| UsageReport::scanned(scanner, view, query, &clock, compare);
            anyhow::Ok(match &mut store {
                Some(store) if args.scan => store.read(|view| scanned(Some(view)))?,
                None if args.scan => scanned(None)?,
                Some(store) => store.read(|view| UsageReport::recorded(view, home, query, &clock))?,
                None => UsageReport::empty(query.by),
            })
        };
        let mut report = of(&query, for_people)?;
        let worth = match month(now, &zone).filter(|_| !plans.is_empty()) {
            Some(month) => {
                let filter = Filter { span: month, ..Filter::default() };
                let spent = of(&UsageQuery { filter, ..UsageQuery::by(By::Agent) }, false)?;
                PlanWorth::among(spent.rows(), &plans)
            }
            None => Vec::new(),
        };
        if for_people && !args.scan && everything && report.rows().is_empty() {
            report.unwrapped_files = scanner.count_files();
        }
        anyhow::Ok((report, worth))
    })?;
    let text = if args.json {
        json::pretty(&report.record())?
    } else {
        let moments = Moments { now, zone };
        let drawing =
            Drawing { report: &report, moments: &moments, exact: args.exact, everything, worth: &worth };
        if args.csv { drawing.csv() } else { drawing.draw(Style::of_stdout()) }
    };
    out.write_all(text.as_bytes())?;
    if let Some(line) = unread_files(&report.refused) {
        write!(err, "{}", shown(&format!("codemie: {line}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The commits that `--commit` names, here.
fn commits(revision: &str) -> anyhow::Result<Vec<String>> {
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    commits_named(&here, revision).with_context(|| {
        format!("{revision} names no commit here. Give a revision like HEAD~1 or a range like main..fix, inside its repository")
    })
}

fn query(args: &Usage, commits: Option<Vec<String>>, now: Timestamp, zone: &TimeZone) -> UsageQuery {
    UsageQuery {
        by: args.by,
        filter: Filter {
            project: args.project.clone(),
            agent: args.agent.clone(),
            model: args.model.clone(),
            tag: args.tag.clone(),
            group: args.group.clone(),
            branch: args.branch.clone(),
            span: Span {
                since: args.since.map(|since| since.before(now, zone)),
                until: args.until.map(|until| until.end(now, zone)),
            },
            ..Filter::default()
        },
        commits,
        breakdown: args.breakdown,
        order: args.order,
        most: args.limit.filter(|most| *most > 0),
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

#[cfg(test)]
mod tests;
