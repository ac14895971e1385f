//! Nothing lost, nothing twice: wrappers killed at random moments, a receiver that fails in every way it can, and in the
//! end its numbers are those of the agent's own files.
//!
//! The seed is printed; `CODEMIE_TEST_SEED` plays the same dice again (the machine's own timing stays what it is).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::play::Play;
use crate::support::ledger::{Ledger, ReportedSession};
use crate::support::postgres::Cluster;
use crate::support::processes;
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::served::Served;

/// Two wrappers at a time, in one home.
const AT_ONCE: usize = 2;
const SURE: usize = 4;
/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Dice that can be cast again.
#[derive(Clone)]
struct Dice(Arc<Mutex<u64>>);

impl Dice {
    fn new() -> Self {
        let given = std::env::var("CODEMIE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0 | 1);
        println!("CODEMIE_TEST_SEED={seed}");
        Self(Arc::new(Mutex::new(seed)))
    }

    /// A number below `sides`; xorshift is chance enough.
    fn cast(&self, sides: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % sides
    }
}

/// What stands between the wrappers and the receiver.
struct Chaos {
    receiver: Receiver,
    calm: Arc<AtomicBool>,
}

impl Chaos {
    fn before(dice: Dice, keep: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let calm = Arc::<AtomicBool>::default();
        let (calmed, down) = (Arc::clone(&calm), Mutex::new(Instant::now()));
        let receiver = Receiver::start(move |received| {
            if calmed.load(Ordering::Relaxed) {
                return keep(received);
            }
            if Instant::now() < *down.lock().unwrap() {
                return Reply::Cut;
            }
            match dice.cast(100) {
                0..10 => Reply::Status(500, String::new()),
                10..18 => Reply::Headed(429, "retry-after: 0\r\n", String::new()),
                18..26 => Reply::Status(413, String::new()),
                26..34 => Reply::Cut,
                34..50 => {
                    keep(received);
                    Reply::Cut // after commit
                }
                50..52 => Reply::Hang,
                52..58 => {
                    *down.lock().unwrap() = Instant::now() + Duration::from_millis(200 + dice.cast(800));
                    Reply::Cut
                }
                58..62 => Reply::Status(200, "<html>".into()),
                _ => keep(received),
            }
        });
        Self { receiver, calm }
    }
}

/// Runs and kills, then lets everything come to rest and be sent.
fn play_and_kill(chaos: &Chaos, dice: &Dice, token: &str) -> Play {
    let runs = if std::env::var_os("CODEMIE_TEST_FULL").is_some() { 300 } else { 30 };
    let config = format!(
        "[backend]\nurl = '{}'\ntoken = '{token}'\n[sync]\ninterval = '200ms'\nexitTimeout = '200ms'\n",
        chaos.receiver.url()
    );
    let play = Play::new(&config);
    // How long a run takes on this machine: some are killed in it and some are not.
    let begun = Instant::now();
    play.start().wait_exit();
    let longest = u64::try_from(begun.elapsed().as_millis()).unwrap().max(1);
    for _ in 0..runs / AT_ONCE {
        let terminals: Vec<_> = (0..AT_ONCE).map(|_| play.start()).collect();
        for terminal in &terminals {
            std::thread::sleep(Duration::from_millis(dice.cast(longest))); // the random moment
            processes::signal(terminal.pid(), Signal::KILL);
        }
    }
    // And a few that are known to be in the middle of it, or at the end: on a busy machine chance may miss them all.
    for _ in 0..SURE {
        play.start().wait_exit();
        let slow = play.start_in_shell("exec \"$CODEMIE_UNDER_TEST\" claude", &[("PACE", String::new())]);
        let deadline = Instant::now() + TIMEOUT;
        while !play.records().iter().any(|record| record["status"] == "active") {
            assert!(Instant::now() < deadline, "a session that is not recorded");
        }
        processes::signal(slow.pid(), Signal::KILL);
    }
    // A monitor gives its agent some seconds; detached senders go on meanwhile.
    let deadline = Instant::now() + TIMEOUT;
    let agents = || {
        let mine = processes::started_in(play.sandbox.home()).into_iter();
        let line = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        mine.filter(|pid| line(pid).contains("claude") || line(pid).contains("demo-agent")).count()
    };
    while agents() > 0 {
        assert!(Instant::now() < deadline, "agents that do not end");
        std::thread::sleep(Duration::from_millis(50)); // they are nobody's children any more
    }
    chaos.calm.store(true, Ordering::Relaxed);
    let synced = play.codemie(&["sync", "--retry-dead", "--timeout", "100s"]);
    assert_eq!(synced.code, Some(0), "{synced:?}");
    play
}

/// The receiver's sessions and sums are those of the agent's own files.
fn compare(play: &Play, reported: impl Fn(&str) -> Option<ReportedSession>, count: usize) {
    let records = play.records();
    let mut spoken = 0;
    for record in &records {
        let id = record["sessionId"].as_str().unwrap();
        let reported = reported(id).unwrap_or_else(|| panic!("{id} never arrived: {record}\n{}", play.log()));
        assert!(reported.complete, "a gap in {id}: {reported:?}\n{record}\n{}", play.log());
        let conversation = record["correlation"]["agentSessionId"].as_str();
        assert_eq!(reported.agent_session.as_deref(), conversation);
        let truth = conversation.map_or([0; 5], |conversation| play.truth(conversation));
        assert_eq!(reported.usage, truth, "{id}: {record}\n{}", play.log());
        assert_eq!(reported.totals, Some(truth), "{id}: {record}");
        spoken += usize::from(truth[0] > 0);
    }
    assert_eq!(count, records.len(), "no session that is not here");
    assert!(spoken > 3, "hardly anything was said in {} sessions", records.len());
    let killed = records.iter().filter(|record| record["status"] == "interrupted").count();
    println!("{} sessions, {spoken} of them with calls, {killed} killed: all as they were", records.len());
    assert!(killed > 3, "hardly anything was killed");
}

#[test]
fn wrappers_killed_before_a_receiver_in_chaos_lose_nothing_and_count_nothing_twice() {
    let dice = Dice::new();
    let ledger = Arc::<Ledger>::default();
    let kept = Arc::clone(&ledger);
    let chaos = Chaos::before(dice.clone(), move |received| kept.take(received));
    let play = play_and_kill(&chaos, &dice, "token");
    let sessions = ledger.sessions();
    compare(&play, |id| sessions.get(id).cloned(), sessions.len());
}

#[test]
fn killed_wrappers_before_a_backend_on_sqlite_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    before_a_backend(&format!("sqlite:{}", folder.path().join("b.db").display()));
}

#[test]
fn killed_wrappers_before_a_backend_on_postgresql_lose_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    before_a_backend(&cluster.database("chaos"));
}

fn before_a_backend(database: &str) {
    let dice = Dice::new();
    let backend = Served::start(database);
    let url = backend.url();
    // What it agreed to have, for the totals of the ENDs.
    let ledger = Arc::<Ledger>::default();
    let kept = Arc::clone(&ledger);
    let chaos = Chaos::before(dice.clone(), move |received| {
        let reply = received.relay(&url);
        if matches!(reply, Reply::Status(200, _)) {
            kept.take(received);
        }
        reply
    });
    let play = play_and_kill(&chaos, &dice, &backend.token("ingest"));
    let agreed = ledger.sessions();
    let reported = |id: &str| {
        let totals = agreed.get(id).and_then(|session| session.totals);
        backend.session(id).map(|reported| ReportedSession { totals, ..reported })
    };
    compare(&play, reported, backend.sessions());
}
