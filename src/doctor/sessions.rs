//! The store of sessions: can it be used, was it ever damaged, could every line be read, does it know everything that runs.

use super::hosts::unknown_hosts;
use super::{Finding, Machine};
use agents::registry;
use config::Config;
use format::counted;
use format::shell;
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use report::budget;
use store::{Error, Filter, Show, Store};

const AREA: &str = "sessions";

pub fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(home) = &machine.home else { return Vec::new() };
    let mut findings = Vec::new();
    if home.may_have_database() {
        findings = examine_store(home).unwrap_or_else(|error| vec![unusable(&error, home)]);
    }
    findings.extend(unknown_hosts(AREA, home, SystemClock.now()));
    findings
}

fn examine_store(home: &Home) -> Result<Vec<Finding>, Error> {
    let mut store = Store::open(home, SystemClock.now())?;
    store.read(|view| {
        let all = view.list(&Filter { show: Show::All, ..Filter::default() })?;
        let active = all.iter().filter(|session| session.is_active()).count();
        let mut findings = vec![Finding::ok(
            AREA,
            format!("{} recorded, {active} running now", counted(all.len(), "session")),
        )];
        for incident in view.incidents()? {
            findings.push(Finding::warn(
                AREA,
                format!("{}: {} ({})", incident.kind, incident.detail, incident.at),
                "nothing to do; the file that was set aside can be sent in or deleted",
            ));
        }
        let (waiting, since) = view.waiting_count()?;
        if let (1.., Some(since)) = (waiting, since) {
            let calls = counted(usize::try_from(waiting).unwrap_or(usize::MAX), "call");
            findings.push(Finding::note(
                AREA,
                format!(
                    "{calls} that the proxy saw since {since} belong to no session and are counted nowhere"
                ),
                "nothing to do: agents that were started inside a run without codemie made them",
            ));
        }
        let config = Config::load(Some(&home.config_file()), own_var, registry::names());
        let not_enforced = budget::not_enforced(view, &config.budgets)?;
        if !not_enforced.is_empty() {
            findings.push(Finding::warn(
                AREA,
                format!("an enforced budget is {}", budget::not_enforced_words(&not_enforced)),
                "start it again: runs that begin now go through the proxy where that is possible",
            ));
        }
        if let (calls @ 1.., Some(last)) = view.unread_usage()? {
            findings.push(Finding::note(
                AREA,
                format!(
                    "the API reported usage of {} that the proxy could not read in full, the last at {last}: what it could read is counted",
                    counted(usize::try_from(calls).unwrap_or(usize::MAX), "call")
                ),
                "see that the gateway in between passes on whole, uncompressed numbers; the log has a line for each",
            ));
        }
        let unreadable = view.unreadable()?;
        let lines: u64 = unreadable.iter().map(|(_, lines)| lines).sum();
        if let Some((file, _)) = unreadable.first() {
            findings.push(Finding::note(
                AREA,
                format!(
                    "{} in {} could not be read and were passed over, the first in {}",
                    counted(usize::try_from(lines).unwrap_or(usize::MAX), "line"),
                    counted(unreadable.len(), "file"),
                    file.display()
                ),
                "nothing to do if the agent crashed while it wrote; otherwise update codemie",
            ));
        }
        Ok(findings)
    })
}

fn unusable(error: &Error, home: &Home) -> Finding {
    let fix = match error {
        Error::Newer { .. } => "update codemie; agents run meanwhile, but are not recorded".to_owned(),
        Error::Full => format!("free some space where {} is", home.path().display()),
        Error::Unreadable(_) => format!("run: chmod u+rwx {}", shell::path(home.path())),
        Error::ReadOnly(_) => format!("make {} writable for you", home.path().display()),
        Error::Busy => "find out which process keeps it locked: fuser codemie.db".to_owned(),
        _ => format!("move {} away; codemie begins a fresh one", home.database().display()),
    };
    Finding::error(AREA, error.to_string(), fix)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_store_is_counted_and_a_newer_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        drop(Store::open(&home, SystemClock.now()).unwrap());
        let findings = examine_store(&home).unwrap();
        assert_eq!(findings, [Finding::ok(AREA, "0 sessions recorded, 0 running now")]);
        rusqlite::Connection::open(home.database())
            .unwrap()
            .execute("INSERT INTO unread_usage VALUES ('claude', 'msg_1', 1794819900000)", [])
            .unwrap();
        let findings = examine_store(&home).unwrap();
        assert!(findings[1].what.contains("usage of 1 call that the proxy could not read"), "{findings:?}");
        rusqlite::Connection::open(home.database())
            .unwrap()
            .pragma_update(None, "user_version", 999)
            .unwrap();
        let error = examine_store(&home).unwrap_err();
        let finding = unusable(&error, &home);
        assert_eq!(finding.level, Level::Error);
        assert!(finding.what.contains("newer") && finding.fix.unwrap().contains("update"));
    }
}
