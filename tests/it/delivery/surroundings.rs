//! A full disk, a home that cannot be written, a clock that is set back: agents run, and what was recorded is delivered
//! when it can be.

use std::sync::atomic::{AtomicI64, Ordering};

use delivery::{Drain, Idle, Pace};
use os::clock::{Clock, SystemClock};
use types::Timestamp;

use super::{backend, first, honest, sinks};
use crate::commands::World;
use crate::support::mounts::with_mounts;
use crate::support::receiver::Reply;

#[test]
fn agent_runs_on_a_full_disk_and_no_event_is_lost() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    world.spoken("a", 20);
    // The database moves to a small disk, which is then filled to its last byte.
    let script = r#"
        cp -r .codemie before; mount -t tmpfs -o size=4m none .codemie; cp -r before/. .codemie
        dd if=/dev/zero of=.codemie/ballast bs=4096 2>/dev/null || :
        code=0; "$codemie" run -- sh -c 'echo it runs; exit 5' || code=$?; echo "code $code"
        code=0; "$codemie" sync --timeout 2s || code=$?; echo "full $code"
        rm .codemie/ballast
        "$codemie" run -- true
        "$codemie" sync --timeout 20s; echo "free $?"
        "$codemie" list --json | grep -c '"sessionId"'
    "#;
    let Some(output) = with_mounts(&world.sandbox, script) else { return };
    assert_eq!(output.out, "it runs\ncode 5\nfull 1\nfree 0\n2\n", "{output:?}");
    let sessions = ledger.sessions();
    assert!(sessions.len() == 2 && sessions.values().all(|session| session.complete), "{sessions:?}");
    assert!(sessions.values().any(|session| session.usage[0] == 20));
}

#[test]
fn agent_runs_with_a_read_only_home() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let script = r#"
        mount --bind .codemie .codemie; mount -o remount,ro,bind .codemie
        code=0; "$codemie" run -- sh -c 'echo it runs; exit 5' || code=$?; echo "code $code"
        code=0; "$codemie" sync --timeout 2s || code=$?; echo "sync $code"
        mount -o remount,rw,bind .codemie
        "$codemie" sync --timeout 20s; echo "sync $?"
    "#;
    let Some(output) = with_mounts(&world.sandbox, script) else { return };
    assert_eq!(output.out, "it runs\ncode 5\nsync 1\nsync 0\n", "{output:?}");
    assert_eq!(ledger.events().len(), 4);
}

struct Shifted(AtomicI64);

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::Relaxed))
    }
}

#[test]
fn clock_set_back_by_a_year_delays_delivery_by_minutes_at_most() {
    const YEAR: i64 = 365 * 24 * 3_600_000;
    let wish = Reply::Headed(503, "retry-after: 30\r\n", String::new());
    let (receiver, ledger) = first(vec![wish, Reply::Status(500, String::new())]);
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let clock = Shifted(AtomicI64::new(YEAR));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut drain = Drain::open_all(&sinks, Pace::Background).unwrap().remove(0);
    let mut run = || runtime.block_on(drain.run(&clock)).unwrap();
    assert!(matches!(run(), Idle::Waiting { .. }));
    assert!(matches!(run(), Idle::Waiting { .. }), "a wish is a wish");
    assert_eq!(receiver.received().len(), 1);
    clock.0.store(0, Ordering::Relaxed);
    assert!(matches!(run(), Idle::Waiting { .. }), "tried at once, and failed once more");
    assert_eq!(receiver.received().len(), 2);
    clock.0.store(300_000, Ordering::Relaxed);
    assert_eq!(run(), Idle::Empty { due: None });
    assert!(ledger.sessions().values().all(|session| session.complete));
}
