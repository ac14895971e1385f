//! Who has the right to send to a sink. For economy: most receivers know an event that comes twice. The one that does not
//! (CodeMie v1) is told by processes of which there is one at a time ([`super::rest`]).
//!
//! A holder is named by its process, so that one that was killed is not waited for; where it cannot be seen (another pid
//! namespace) its time runs out.

use std::time::Duration;

use uuid::Uuid;

use super::backoff;
use crate::store::{Error, Realm, SinkRow, Tx};
use terminal::process::{Processes, SystemProcesses};
use wire::Timestamp;
use wire::{Pid, ProcessId, StartTime};

/// Longer than a step may take, which is two requests at most. It is renewed before each.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// This process, and which of its senders.
pub(super) fn holder() -> String {
    let me = Pid(i32::try_from(std::process::id()).unwrap_or(0));
    let start = SystemProcesses.start_time(me).unwrap_or(StartTime(0));
    let Realm { boot, pids } = Realm::here();
    format!("{boot} {pids} {me} {} {}", start.0, Uuid::new_v4())
}

/// Takes or renews the lease; false while another living sender has it.
pub(super) fn take(tx: &Tx<'_>, sink: &SinkRow, holder: &str, now: Timestamp) -> Result<bool, Error> {
    let until = now.after(LEASE);
    if tx.lease(&sink.name, holder, now, until)? {
        return Ok(true);
    }
    match &sink.lease_holder {
        Some(other) if !is_held(sink, now) => tx.seize(&sink.name, holder, other, until),
        _ => Ok(false),
    }
}

/// Whether somebody has the right to send, as far as can be seen from here.
pub(super) fn is_held(sink: &SinkRow, now: Timestamp) -> bool {
    let runs = sink.lease_until.is_some_and(|until| until > now) && !void(sink, now);
    let holder = sink.lease_holder.as_ref();
    runs && holder.is_some_and(|holder| !gone(holder, &SystemProcesses, &Realm::here()))
}

/// A lease that runs for longer than any is given out was given out before the clock was set back.
fn void(sink: &SinkRow, now: Timestamp) -> bool {
    sink.lease_until.is_some_and(|until| until > now.after(LEASE + backoff::OVERTAKEN))
}

/// Whether a holder is no more, by the process it names.
fn gone(holder: &str, processes: &dyn Processes, here: &Realm) -> bool {
    let mut parts = holder.split(' ');
    let (Some(boot), Some(pids)) = (parts.next(), parts.next()) else { return false };
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (Some(pid), Some(start)) = (number(), number()) else { return false };
    if boot != here.boot {
        return true;
    }
    let Ok(pid) = i32::try_from(pid) else { return false };
    pids == here.pids && !processes.alive(ProcessId { pid: Pid(pid), start: StartTime(start) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::World;

    #[test]
    fn the_dead_hold_nothing_and_the_living_keep_theirs() {
        let here = Realm::here();
        let mine = holder();
        assert!(!gone(&mine, &SystemProcesses, &here));
        let me = std::process::id();
        let other = |boot: &str, pids: &str, start: u64| format!("{boot} {pids} {me} {start} x");
        assert!(gone(&other(&here.boot, &here.pids, 1), &SystemProcesses, &here), "another with its pid");
        assert!(gone(&other("earlier", &here.pids, 1), &SystemProcesses, &here), "before the last boot");
        assert!(!gone(&other(&here.boot, "pid:[1]", 1), &SystemProcesses, &here), "cannot be seen from here");
        assert!(!gone("something else", &SystemProcesses, &here));
    }

    #[test]
    fn a_lease_is_taken_from_the_dead_and_from_the_future_only() {
        let mut world = World::new();
        let now = world.now;
        world.store.write(|tx| tx.add_sink("s")).unwrap();
        let mut take_as = |who: &str, now: Timestamp| {
            world
                .store
                .write(|tx| {
                    let row = tx.sink("s")?.unwrap();
                    take(tx, &row, who, now)
                })
                .unwrap()
        };
        let (a, b) = (holder(), holder());
        assert!(take_as(&a, now));
        assert!(!take_as(&b, now), "the same process, but another sender");
        assert!(take_as(&a, now), "renewed");
        let later = now.after(LEASE * 2);
        assert!(take_as(&b, later), "run out");
        let just_before = Timestamp(later.0 - 5);
        assert!(
            !take_as(&a, just_before),
            "who looked at the clock before it was given out takes it from nobody"
        );
        assert!(take_as(&a, Timestamp(now.0 - 60_000)), "given out before the clock was set back");
        let Realm { boot, pids } = Realm::here();
        let dead = format!("{boot} {pids} {} 1 x", std::process::id());
        world.store.write(|tx| tx.seize("s", &dead, &a, now.after(LEASE))).unwrap();
        let mut take_as = |who: &str| {
            world
                .store
                .write(|tx| {
                    let row = tx.sink("s")?.unwrap();
                    take(tx, &row, who, now)
                })
                .unwrap()
        };
        assert!(take_as(&b), "its holder is dead");
    }
}
