//! `codemie rename|tag|untag|group|archive|unarchive`: labels that people put on sessions afterwards.

use std::io::Write;
use std::process::ExitCode;

use super::{Failure, USAGE};
use crate::cli::{Archive, Group, Rename, Tags};
use format::text::shorten;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::find;
use report::open::{open, send_leftovers};
use runtime::launch::{Origin, receivers};
use store::session::publish::publish;
use store::session::{self, labels};
use store::{SessionRow, Tx};

pub fn rename(args: &Rename, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    change(home, &[&args.session], out, |tx, row| {
        let name = labels::rename(tx, row, &args.name)?;
        Ok(format!("{} is now {name}", row.name))
    })
}

pub fn tag(args: &Tags, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    change(home, &[&args.session], out, |tx, row| {
        for tag in &args.tags {
            labels::tag(tx, row, tag)?;
        }
        Ok(format!("{}: {}", row.name, tags(&tx.tags(row.n)?)))
    })
}

pub fn untag(args: &Tags, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    change(home, &[&args.session], out, |tx, row| {
        let before = tx.tags(row.n)?;
        for tag in &args.tags {
            if !labels::untag(tx, row, tag)? {
                anyhow::bail!("{} has no tag {tag:?}; it has {}", row.name, tags(&before));
            }
        }
        Ok(format!("{}: {}", row.name, tags(&tx.tags(row.n)?)))
    })
}

fn tags(tags: &[String]) -> String {
    if tags.is_empty() { "no tags".to_owned() } else { format!("tags {}", tags.join(", ")) }
}

pub fn group(args: &Group, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let group = args.group.as_deref();
    change(home, &[&args.session], out, |tx, row| {
        Ok(match labels::group(tx, row, group)? {
            Some(group) => format!("{} is in group {group}", row.name),
            None => format!("{} is in no group", row.name),
        })
    })
}

pub fn archive(args: &Archive, archived: bool, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let sessions: Vec<&str> = args.sessions.iter().map(String::as_str).collect();
    change(home, &sessions, out, |tx, row| {
        labels::archive(tx, row, archived)?;
        Ok(if archived {
            format!("{} is archived; `codemie list --all` shows it", row.name)
        } else {
            format!("{} is in the list again", row.name)
        })
    })
}

/// Changes one or more sessions in one transaction, publishes their records, and prints what each is now.
fn change(
    home: &Home,
    sessions: &[&str],
    out: &mut dyn Write,
    work: impl Fn(&Tx<'_>, &SessionRow) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    let mut store = open(home)?;
    // Looked up before anything is locked: a look through the agents' files takes its time.
    let origin = Origin::of_this_process();
    let found = store.read(|view| {
        let found = sessions.iter().map(|wanted| find::session(view, wanted, &origin));
        found.collect::<Result<Vec<_>, _>>()
    })?;
    let lines = store.write(|tx| {
        let each = found.iter().map(|found| {
            let row = tx.session_number(found.n)?.ok_or(session::Error::NoSession(found.id))?;
            work(tx, &row).map_err(usage_error)
        });
        each.collect::<anyhow::Result<Vec<_>>>()
    })?;
    publish(&mut store, home, SystemClock.now())?;
    if let Some(sinks) = receivers(home) {
        send_leftovers(&mut store, &sinks);
    }
    for line in lines {
        writeln!(out, "{}", shorten(&line, usize::MAX))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A name that cannot be one is the command line's mistake.
fn usage_error(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(session::Error::Name(error)) => Failure { code: USAGE, message: error.to_string() }.into(),
        _ => error,
    }
}
