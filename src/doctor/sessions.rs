//! The store of sessions: can it be used, was it ever damaged, could every line be read, does it know everything that runs.

use std::path::Path;
use std::time::Duration;

use super::{Finding, Machine};
use agents::registry;
use config::Config;
use format::text::clean;
use format::{counted, shell};
use os::clock::{Clock, SystemClock};
use os::file::modified;
use os::home::{Home, own_var};
use report::budget;
use runtime::remote::{Connection, address};
use store::{Error, SessionQuery, Show, Store};
use types::{Pid, RunId, Timestamp};

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
        let all = view.list(&SessionQuery::showing(Show::All))?;
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

// Background sessions that run and that the store does not know, because a damaged store was set aside, or removed, while they
// ran: no list shows them and no command finds them.

/// A host answers from memory. One that is stopped does not, and is named without its session.
const ANSWER: Duration = Duration::from_millis(500);

/// A host binds its socket beside the START: a new one may not be stored yet.
const NEW: Duration = Duration::from_secs(10);

/// `area`: what the findings are listed under.
pub fn unknown_hosts(area: &str, home: &Home, now: Timestamp) -> Vec<Finding> {
    let mut sockets = address::sockets(home);
    sockets.retain(|(_, socket)| is_old(socket, now));
    if sockets.is_empty() || !forget_known(&mut sockets, home) {
        return Vec::new();
    }
    let found = sockets.into_iter().filter_map(|(run, socket)| {
        let (pid, name) = host_of(home, run)?;
        Some(finding(area, pid, name.as_deref(), &socket))
    });
    found.collect()
}

fn is_old(socket: &Path, now: Timestamp) -> bool {
    std::fs::symlink_metadata(socket).is_ok_and(|meta| now.since(modified(&meta)) >= NEW)
}

/// Leaves out the runs that the store knows; false if it cannot be asked, which is a finding of its own.
fn forget_known<T>(sockets: &mut Vec<(RunId, T)>, home: &Home) -> bool {
    if !home.may_have_database() {
        return true;
    }
    let known = Store::open_to_read(home).and_then(|mut store| {
        store.read(|view| {
            sockets.iter().map(|(run, _)| Ok(view.run(*run)?.is_some())).collect::<Result<Vec<_>, _>>()
        })
    });
    let Ok(known) = known else { return false };
    let mut known = known.into_iter();
    sockets.retain(|_| known.next() != Some(true));
    true
}

/// The process at the other end and its session, by name or id, as far as they can be known; `None` where nobody listens any more.
fn host_of(home: &Home, run: RunId) -> Option<(Option<Pid>, Option<String>)> {
    let pid = pty::peer_process(&address::connect(home, run).ok()?);
    let welcome = Connection::open_within(home, run, ANSWER).ok().map(|connection| connection.welcome);
    let named = welcome.and_then(|welcome| match (welcome.name, welcome.session) {
        (name, id) if name.is_empty() => id.map(|id| id.to_string()),
        (name, _) => Some(name),
    });
    Some((pid, named))
}

fn finding(area: &str, pid: Option<Pid>, name: Option<&str>, socket: &Path) -> Finding {
    let name = name.unwrap_or("one that does not answer");
    let (process, end) = match pid {
        Some(pid) => (format!("pid {pid}"), format!("kill {pid}")),
        None => (format!("at {}", socket.display()), format!("fuser -k {}", shell::path(socket))),
    };
    Finding::warn(
        area,
        format!("a background session runs that the store does not know: {} ({process})", clean(name)),
        format!("what it does is not recorded; when its work is done, end it with: {end}"),
    )
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

#[cfg(test)]
mod hosts_tests {
    use super::*;
    use os::clock::{Clock, SystemClock};
    use store::session::lifecycle::ConversationStart;
    use store::session::testing::World;
    use types::Ids;

    const AREA: &str = "sessions";

    #[test]
    fn hosts_of_runs_that_the_store_does_not_know_are_named() {
        let mut world = World::new();
        let (known, _) = world.start(ConversationStart::Fresh);
        let (unknown, gone) = (world.ids.run(), world.ids.run());
        let home = &world.home;
        let _listening = [known, unknown].map(|run| address::bind(home, run).unwrap());
        drop(address::bind(home, gone).unwrap());
        let now = SystemClock.now();
        assert_eq!(unknown_hosts(AREA, home, now), [], "they may have begun this moment");
        let later = Timestamp(now.0 + 60_000);
        // Nobody answers here, so only the process is known.
        let expected = finding(AREA, Some(Pid(std::process::id().cast_signed())), None, Path::new("/"));
        assert_eq!(unknown_hosts(AREA, home, later), [expected]);
        std::fs::remove_file(home.database()).unwrap();
        assert_eq!(unknown_hosts(AREA, home, later).len(), 2, "no store knows nobody");
        std::fs::write(home.database(), "rubbish").unwrap();
        assert_eq!(unknown_hosts(AREA, home, later), [], "one that cannot be read says nothing");
    }

    #[test]
    fn each_is_named_with_what_ends_it() {
        let known = finding(AREA, Some(Pid(42)), Some("fix\u{202e}auth"), Path::new("/run/x.sock"));
        assert!(known.what.ends_with(": fix\u{fffd}auth (pid 42)"), "{known:?}");
        assert!(known.fix.unwrap().ends_with(": kill 42"));
        let elsewhere = finding(AREA, None, None, Path::new("/a b/x.sock"));
        assert!(elsewhere.fix.unwrap().ends_with(": fuser -k '/a b/x.sock'"));
    }
}
