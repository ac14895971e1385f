//! Receivers that are set up anew, taken away, or away for long; and senders that were killed.

use std::time::{Duration, Instant};

use delivery::{Drain, Idle, Pace, needs_delivery};
use serde_json::Value;
use store::session::lifecycle::{ConversationStart, RunStart};
use store::{BootAndPidNs, Store};
use types::AgentSessionId;
use types::Timestamp;

use super::play::Play;
use super::{backend, drain, honest, run, sinks};
use crate::commands::World;
use crate::support::ledger::Ledger;
use crate::support::processes;
use crate::support::pty::Exit;
use crate::support::receiver::{Receiver, Reply};

/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How long one of several processes is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Which sessions were told of, by name.
pub(super) fn names(ledger: &Ledger) -> Vec<String> {
    let start = |event: &Value| event["type"] == "session.start";
    let mut names: Vec<String> = ledger
        .events()
        .iter()
        .filter(|event| start(event))
        .map(|event| event["attributes"]["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn changed_address_gets_open_sessions_whole_and_the_old_one_nothing_more() {
    let ((old, old_ledger), (new, new_ledger)) = (honest(), honest());
    let mut world = World::new();
    let mut before = Drain::open_all(&sinks(&world, &backend(&old)), Pace::Background).unwrap().remove(0);
    world.spoken("ended", 1);
    let open = world.start("open");
    world.bind(open, "agent", None);
    assert_eq!(run(&mut before), Idle::Empty { due: None });
    let after = sinks(&world, &backend(&new));
    world.spoken("later", 1);
    // A wrapper that has been running since knows the old address only.
    assert_eq!(run(&mut before), Idle::Reconfigured);
    assert_eq!(names(&old_ledger), ["ended", "open"]);
    assert_eq!(drain(&after, Pace::Background), Idle::Empty { due: None });
    assert_eq!(names(&new_ledger), ["later", "open"]);
    // Other credentials for the same address repeat nothing.
    let count = new_ledger.events().len();
    let rotated = sinks(&world, &backend(&new).replace("canary-token", "another"));
    assert_eq!(drain(&rotated, Pace::Background), Idle::Empty { due: None });
    assert_eq!((new_ledger.events().len(), new.received().len()), (count, 1));
}

#[test]
fn active_loop_notices_a_removed_and_a_changed_address() {
    let ((old, old_ledger), (new, new_ledger)) = (honest(), honest());
    let mut world = World::new();
    let set_up = sinks(&world, &backend(&old));
    let mut running = Drain::open_all(&set_up, Pace::Background).unwrap().remove(0);
    world.spoken("before", 1);
    assert_eq!(run(&mut running), Idle::Empty { due: None });
    let config = |args: &[&str]| {
        let output = world.run(&[&["config"], args].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
    };
    config(&["unset", "backend.url"]);
    world.spoken("unset", 1);
    assert_eq!(run(&mut running), Idle::Paused("is not set up any more".into()));
    // The same again: what waited meanwhile is for it, and nothing is told twice.
    let config = |args: &[&str]| {
        let output = world.run(&[&["config"], args].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
    };
    config(&["set", "backend.url", &old.url()]);
    // Sent by a detached process; `sync` waits for its lease.
    assert_eq!(world.run(&["sync"]).code, Some(0));
    assert_eq!(run(&mut running), Idle::Empty { due: None });
    assert_eq!((names(&old_ledger), old_ledger.events().len()), (vec!["before".into(), "unset".into()], 8));
    config(&["set", "backend.url", &new.url()]);
    world.spoken("after", 1);
    assert_eq!(run(&mut running), Idle::Reconfigured);
    assert_eq!(world.run(&["sync"]).code, Some(0));
    assert_eq!((names(&new_ledger), old_ledger.events().len()), (vec!["after".to_owned()], 8));
}

#[test]
fn session_older_than_its_receiver_is_not_sent_in_part() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    // Somebody else has had them.
    let v1 = Receiver::start(|_| Reply::Status(200, r#"{"success":true}"#.into()));
    assert_eq!(world.run(&["config", "set", "codemieV1.url", &v1.url()]).code, Some(0));
    world.spoken("labelled", 1);
    let late = world.start("resumed");
    world.bind(late, "agent-of-resumed", None);
    world.end(late, 0);
    let output = world.run(&["config", "set", "backend.url", &receiver.url()]);
    assert!(output.err.contains("2 sessions that ended before this are not sent there"), "{output:?}");
    assert_eq!(world.run(&["config", "set", "backend.token", "canary-token"]).err, "");
    // A label tells nobody of a session that nobody knows of, nor does what it writes late.
    assert_eq!(world.run(&["tag", "labelled", "blue"]).code, Some(0));
    world.call(late, "late", "claude-sonnet-4-5", Some(2_000_000_000));
    assert_eq!(world.run(&["sync"]).code, Some(0));
    assert_eq!(ledger.events().len(), 0);
    assert_eq!(world.json(&["show", "labelled", "--json"])["sync"]["dead"], 0);
    // One that goes on is told from its first event on.
    let again = world.start_as(&RunStart {
        conversation: ConversationStart::Named(AgentSessionId("agent-of-resumed".into())),
        ..World::begin("again")
    });
    world.call(again, "resumed-later", "claude-sonnet-4-5", Some(2_000_000_000));
    world.end(again, 0);
    assert_eq!(world.run(&["sync"]).code, Some(0));
    assert_eq!(ledger.sessions().len(), 1);
    assert!(ledger.sessions().values().all(|session| session.complete && session.usage[0] == 2));
    let status = world.json(&["sync", "--status", "--json"]);
    assert_eq!(status["sinks"][0]["sessionsBefore"], 1);
    assert!(world.out(&["sync", "--status"]).contains("1 session from before it was set up"));
    assert_eq!(world.run(&["sync", "--backfill"]).code, Some(0));
    assert_eq!(ledger.sessions().len(), 2);
    assert_eq!(world.json(&["sync", "--status", "--json"])["sinks"][0]["sessionsBefore"], 0);
}

#[test]
fn changed_address_starts_with_nothing_delivered() {
    let ((old, _), (new, ledger)) = (honest(), honest());
    let mut world = World::new();
    drop(sinks(&world, &backend(&old)));
    world.spoken("told", 1);
    assert_eq!(world.run(&["sync"]).code, Some(0));
    // Its START is there, its END is not.
    let halfway = world.start("halfway");
    assert_eq!(world.run(&["sync"]).code, Some(0));
    world.end(halfway, 0);
    let output = world.run(&["config", "set", "backend.url", &new.url()]);
    assert!(output.err.contains("1 session that ended before this is not sent there"), "{output:?}");
    assert_eq!(world.run(&["sync"]).code, Some(0));
    assert_eq!(names(&ledger), ["halfway"]);
    assert!(ledger.sessions().values().all(|session| session.complete));
    let record = world.json(&["show", "told", "--json"]);
    assert_eq!((&record["sync"]["delivered"], &record["sync"]["pending"]), (&0.into(), &0.into()));
}

#[test]
fn changed_token_does_not_retire_an_address_from_the_environment() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    // As a run has it from its environment.
    let mut running =
        Drain::open_all(&sinks(&world, &backend(&receiver)), Pace::Background).unwrap().remove(0);
    world.sandbox.file(".codemie/config.toml", "");
    assert_eq!(world.run(&["config", "set", "backend.token", "another"]).code, Some(0));
    world.spoken("a", 1);
    assert_eq!(run(&mut running), Idle::Empty { due: None });
    assert_eq!(names(&ledger), ["a"]);
}

#[test]
fn refusal_of_old_credentials_does_not_pause_the_new_ones() {
    let ledger = std::sync::Arc::<Ledger>::default();
    let kept = std::sync::Arc::clone(&ledger);
    let receiver = Receiver::start(move |received| match received.header("authorization") {
        Some("Bearer right") => kept.take(received),
        _ => Reply::Status(401, String::new()),
    });
    let mut world = World::new();
    let mut before =
        Drain::open_all(&sinks(&world, &backend(&receiver)), Pace::Background).unwrap().remove(0);
    let right = sinks(&world, &backend(&receiver).replace("canary-token", "right"));
    world.spoken("a", 1);
    assert_eq!(run(&mut before), Idle::Reconfigured);
    assert_eq!(world.sink("backend").paused, None);
    assert_eq!(drain(&right, Pace::Background), Idle::Empty { due: None });
    assert_eq!(names(&ledger), ["a"]);
}

#[test]
fn run_continues_at_a_changed_address() {
    let ((old, _), (new, ledger)) = (honest(), honest());
    let play = Play::new(&backend(&old));
    let terminal = play.start_as(&["run", "--", "sh", "-c", "echo up; read line; echo on; read line"]);
    terminal.wait_text("up");
    old.wait("the START", |received| (!received.is_empty()).then_some(()));
    play.sandbox.file(".codemie/config.toml", &backend(&new));
    // The next command makes the new address known.
    assert_eq!(play.codemie(&["list"]).code, Some(0));
    new.wait("the open session", |_| (names(&ledger).len() == 1).then_some(()));
    terminal.send("\n\n");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    new.wait("its END", |_| ledger.sessions().values().all(|session| session.complete).then_some(()));
}

#[test]
fn run_started_without_a_receiver_is_sent_to_one_set_up_later() {
    let (receiver, ledger) = honest();
    let play = Play::new("");
    // Asked from inside it, codemie waits until the session is recorded.
    let script = "\"$CODEMIE_UNDER_TEST\" current >current; echo up; read line";
    let terminal = play.start_as(&["run", "--", "sh", "-c", script]);
    terminal.wait_text("up");
    assert_eq!(play.records().len(), 1);
    assert_eq!(play.codemie(&["config", "set", "backend.url", &receiver.url()]).code, Some(0));
    receiver.wait("the open session", |_| (names(&ledger).len() == 1).then_some(()));
    terminal.send("\n");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    // Nobody runs another command.
    receiver.wait("its END", |_| ledger.sessions().values().all(|session| session.complete).then_some(()));
}

#[test]
fn detached_process_with_the_old_address_sends_nothing() {
    let ((old, _), (new, ledger)) = (honest(), honest());
    let mut world = World::new();
    let before = sinks(&world, &backend(&old));
    let after = sinks(&world, &backend(&new));
    world.spoken("a", 1);
    delivery::deliver_pending(&before).unwrap();
    assert_eq!((old.received().len(), world.sink("backend").cursor), (0, 0));
    assert!(world.sink("backend").leads_to(&after.targets()[0].fingerprint));
    delivery::deliver_pending(&after).unwrap();
    assert_eq!(names(&ledger), ["a"]);
}

#[test]
fn detached_process_does_not_stay_for_deferred_events() {
    let receiver = Receiver::start(|_| Reply::Status(200, r#"{"success":true}"#.into()));
    let mut world = World::new();
    let sinks = sinks(&world, &format!("[codemieV1]\nurl = '{}/api'\n", receiver.url()));
    // Its START waits until the agent's session is known, which may be never.
    world.start("a");
    let begun = Instant::now();
    delivery::deliver_pending(&sinks).unwrap();
    assert_eq!(receiver.received().len(), 0);
    // Not a measurement: it would stay for a minute.
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn lease_of_a_killed_sender_does_not_prevent_delivery() {
    let (receiver, _) = honest();
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let mut store = Store::open(&world.home, world.now).unwrap();
    let now = os::clock::Clock::now(&os::clock::SystemClock);
    let here = BootAndPidNs::here();
    let holder = |start: u64| format!("{} {} {} {start} x", here.boot, here.pids, std::process::id());
    let until = Timestamp(now.0 + 20_000);
    // One of whom it cannot be said that it is gone, and one that is.
    for (holder, expected) in [("somewhere else".to_owned(), false), (holder(1), true)] {
        world.store.write(|tx| tx.lease("backend", &holder, now, until)).unwrap();
        assert_eq!(needs_delivery(&mut store, &sinks).unwrap(), expected, "{holder}");
        world.store.write(|tx| tx.release("backend", &holder)).unwrap();
    }
}

#[test]
fn no_process_is_started_while_retry_after_lasts() {
    let receiver = Receiver::start(|_| Reply::Headed(503, "retry-after: 1800\r\n", String::new()));
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    assert!(matches!(drain(&sinks, Pace::Background), Idle::Waiting { .. }));
    let mut store = Store::open(&world.home, world.now).unwrap();
    assert!(!needs_delivery(&mut store, &sinks).unwrap());
}

#[test]
fn interactive_attempts_do_not_lengthen_the_backoff() {
    let receiver = Receiver::start(|_| Reply::Status(503, String::new()));
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    assert!(matches!(drain(&sinks, Pace::Background), Idle::Waiting { .. }));
    let before = world.sink("backend");
    for _ in 0..5 {
        assert!(matches!(drain(&sinks, Pace::Interactive), Idle::Waiting { .. }));
    }
    let after = world.sink("backend");
    assert_eq!((before.failures, before.retry_at), (after.failures, after.retry_at));
    assert_eq!(receiver.received().len(), 6);
}

#[test]
fn one_detached_process_per_receiver_however_many_runs_end() {
    let receiver = Receiver::start(|_| Reply::Hang);
    let play = Play::new(&format!("{}[sync]\nexitTimeout = '50ms'\n", backend(&receiver)));
    for _ in 0..4 {
        assert_eq!(play.start_as(&["run", "--", "true"]).wait_exit(), Exit::Code(0));
    }
    // Those who came too late have gone when only one is left.
    let home = play.sandbox.home().to_owned();
    let deadline = Instant::now() + TIMEOUT;
    let mut waiting = processes::started_in(&home);
    while waiting.len() > 1 {
        assert!(Instant::now() < deadline, "all of {waiting:?} wait");
        waiting.retain(|&pid| !processes::wait_dead(pid, LOOK));
    }
    assert_eq!(waiting.len(), 1);
    processes::kill_started_in(&home);
}

#[test]
fn retired_receiver_can_be_forgotten() {
    let ((good, ledger), bad) = (honest(), Receiver::start(|_| Reply::Status(503, String::new())));
    let mut world = World::new();
    sinks(&world, &format!("{}[otlp]\nendpoint = '{}'\n", backend(&good), bad.url()));
    world.spoken("a", 1);
    assert_eq!(drain(&sinks(&world, &backend(&good)), Pace::Background), Idle::Empty { due: None });
    sinks(&world, &format!("{}[otlp]\nendpoint = '{}'\n", backend(&good), bad.url()));
    world.fails(&["sync", "--forget", "otlp"], 1, "set up");
    sinks(&world, &backend(&good));
    assert_eq!(names(&ledger), ["a"]);
    let record = |world: &World| world.json(&["show", "a", "--json"])["sync"]["pending"].clone();
    assert_eq!(record(&world), 4, "they wait for the other");
    assert!(world.out(&["sync", "--status"]).contains("codemie sync --forget otlp"));
    let output = world.run(&["sync", "--forget", "otlp"]);
    assert_eq!((output.code, output.err.contains("4 events")), (Some(0), true), "{output:?}");
    assert_eq!(record(&world), 0);
    world.fails(&["sync", "--forget", "otlp"], 1, "nothing waits");
}

#[test]
fn collector_without_logs_gets_metrics_and_no_event_is_buried() {
    let receiver = Receiver::start(|received| match received.path.as_str() {
        "/v1/logs" => Reply::Status(404, String::new()),
        _ => Reply::Status(200, String::new()),
    });
    let nowhere = Receiver::start(|_| Reply::Status(404, String::new()));
    for (receiver, dead) in [(receiver, 0), (nowhere, 4)] {
        let mut world = World::new();
        let sinks = sinks(&world, &format!("otlp.endpoint = '{}'\n", receiver.url()));
        world.spoken("a", 1);
        assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
        assert_eq!(world.dead("otlp").len(), dead);
        let (status, doctor) = (world.out(&["sync", "--status"]), world.run(&["doctor"]).out);
        assert!(status.contains("takes nothing at /v1/logs"), "{status}");
        let note = "otlp takes nothing at /v1/logs: refused (404)";
        assert_eq!(doctor.contains(note), dead == 0, "{doctor}");
    }
}
