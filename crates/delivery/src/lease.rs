//! The lease: which process may send to a sink. It saves requests, and correctness does not depend on it: most receivers know
//! an event that comes twice. The one that does not (CodeMie v1) gets its events from processes of which there is one at a
//! time ([`super::detached`]).
//!
//! A holder is named by its process, so that nobody waits for one that was killed. Where the process cannot be seen (another
//! pid namespace), the lease runs out.

use std::time::Duration;

use uuid::Uuid;

use super::answer;
use pty::process::{Processes, SystemProcesses};
use store::{BootAndPidNs, Error, SinkRow, Tx};
use types::Timestamp;
use types::{Pid, ProcessId, StartTime};

/// Longer than a step takes, which is two requests at most. The lease is renewed before each step.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// A name for one sender of this process.
pub(super) fn holder() -> String {
    let me = Pid(i32::try_from(std::process::id()).unwrap_or(0));
    let start = SystemProcesses.start_time(me).unwrap_or(StartTime(0));
    let BootAndPidNs { boot, pids } = BootAndPidNs::here();
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

/// Whether a living process holds the lease, as far as can be seen from here.
pub(super) fn is_held(sink: &SinkRow, now: Timestamp) -> bool {
    let runs = sink.lease_until.is_some_and(|until| until > now) && !is_from_the_future(sink, now);
    let holder = sink.lease_holder.as_ref();
    runs && holder.is_some_and(|holder| !has_ended(holder, &SystemProcesses, &BootAndPidNs::here()))
}

/// Whether a lease runs for longer than any is given out: then the clock was set back since, and it does not count.
fn is_from_the_future(sink: &SinkRow, now: Timestamp) -> bool {
    sink.lease_until.is_some_and(|until| until > now.after(LEASE + answer::OVERTAKEN))
}

/// Whether the process that a holder names has ended.
fn has_ended(holder: &str, processes: &dyn Processes, here: &BootAndPidNs) -> bool {
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
    use store::session::testing::World;

    #[test]
    fn holder_has_ended_when_its_process_is_gone_or_of_another_boot() {
        let here = BootAndPidNs::here();
        let mine = holder();
        assert!(!has_ended(&mine, &SystemProcesses, &here));
        let me = std::process::id();
        let other = |boot: &str, pids: &str, start: u64| format!("{boot} {pids} {me} {start} x");
        assert!(
            has_ended(&other(&here.boot, &here.pids, 1), &SystemProcesses, &here),
            "another with its pid"
        );
        assert!(has_ended(&other("earlier", &here.pids, 1), &SystemProcesses, &here), "before the last boot");
        assert!(
            !has_ended(&other(&here.boot, "pid:[1]", 1), &SystemProcesses, &here),
            "cannot be seen from here"
        );
        assert!(!has_ended("something else", &SystemProcesses, &here));
    }

    #[test]
    fn lease_is_taken_when_run_out_from_the_future_or_held_by_the_dead() {
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
        let BootAndPidNs { boot, pids } = BootAndPidNs::here();
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
