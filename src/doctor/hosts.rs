//! Background sessions that run and that the store does not know, because a damaged store was set aside, or removed, while they
//! ran: no list shows them and no command finds them.

use std::path::Path;
use std::time::Duration;

use super::Finding;
use format::shell;
use format::text::clean;
use os::file::modified;
use os::home::Home;
use runtime::remote::{Connection, address};
use store::Store;
use types::{Pid, RunId, Timestamp};

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
