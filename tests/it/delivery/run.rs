//! A run sends while it goes on, keeps nobody waiting at its end, and leaves the rest to a detached process.

use std::fs;
use std::sync::Arc;

use delivery::{Idle, Pace};
use serde_json::Value;

use super::play::Play;
use super::{backend, drain, first, honest, sinks};
use crate::commands::World;
use crate::support::ledger::Ledger;
use crate::support::processes;
use crate::support::pty::{Exit, TIMEOUT};
use crate::support::receiver::{Received, Receiver, Reply};

/// The types of the events received, in their order.
fn types(received: &[Received]) -> Vec<String> {
    let of = |one: &Received| serde_json::from_slice::<Vec<Value>>(&one.body).unwrap_or_default();
    received.iter().flat_map(of).map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

fn seen(what: &str, times: usize) -> impl FnMut(&[Received]) -> Option<()> {
    move |received| (types(received).iter().filter(|seen| *seen == what).count() >= times).then_some(())
}

#[test]
fn run_is_sent_while_active_and_completely_at_its_end() {
    let (receiver, ledger) = honest();
    // What is metered may take its time; what begins and ends may not.
    let play = Play::new(&format!("{}[sync]\ninterval = '1h'\nexitTimeout = '30s'\n", backend(&receiver)));
    let terminal = play.start();
    receiver.wait("the START and what it is", |received| {
        let types = types(received);
        types
            .starts_with(&["session.start".into()])
            .then_some(())
            .filter(|()| types.contains(&"session.bound".into()))
    });
    receiver.wait("the END of the first and the START of the second", seen("session.start", 2));
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    // The shell has waited for it: nothing is left.
    let records = play.records();
    assert_eq!(records.len(), 2);
    let sessions = ledger.sessions();
    for record in &records {
        let told = &sessions[record["sessionId"].as_str().unwrap()];
        let conversation = record["correlation"]["agentSessionId"].as_str().unwrap();
        let truth = play.truth(conversation);
        assert!(truth[0] > 0 && told.complete, "{told:?}\n{}", play.log());
        assert_eq!((told.totals, told.usage), (Some(truth), truth));
        assert_eq!((&record["sync"]["pending"], &record["sync"]["dead"]), (&0.into(), &0.into()), "{record}");
        let id = record["sessionId"].as_str().unwrap();
        let published = fs::read(play.sandbox.path(&format!(".codemie/metrics/sessions/{id}.json"))).unwrap();
        let published: Value = serde_json::from_slice(&published).unwrap();
        assert_eq!(published["sync"], record["sync"], "the published file says so too");
    }
    assert_eq!(sessions.len(), 2);
}

#[test]
fn hanging_receiver_delays_exit_by_the_timeout_and_a_detached_process_finishes() {
    let (receiver, ledger) = first(vec![Reply::Hang]);
    let play = Play::new(&format!("{}[sync]\nexitTimeout = '200ms'\n", backend(&receiver)));
    let terminal = play.start_as(&["run", "--", "sh", "-c", "exit 7"]);
    assert_eq!(terminal.wait_exit(), Exit::Code(7), "the agent's own");
    // The first request may hold the END already, but nobody kept it.
    receiver.wait("somebody who finishes", |_| {
        let ended = ledger.events().iter().any(|event| event["type"] == "session.end");
        ended.then_some(())
    });
    let told = ledger.sessions();
    assert!(told.len() == 1 && told.values().all(|session| session.complete), "{told:?}");
}

#[test]
fn exit_does_not_wait_for_a_receiver_in_backoff() {
    let receiver = Receiver::start(|_| Reply::Headed(503, "retry-after: 3600\r\n", String::new()));
    // Were it waited for, this test would not end in time.
    let play = Play::new(&format!("{}[sync]\nexitTimeout = '1h'\n", backend(&receiver)));
    for _ in 0..2 {
        assert_eq!(play.start_as(&["run", "--", "true"]).wait_exit(), Exit::Code(0));
    }
    assert_eq!(receiver.received().len(), 1, "it asked to be left alone");
    assert_eq!(play.records().len(), 2);
}

#[test]
fn next_command_starts_a_detached_process_that_inherits_nothing() {
    let (receiver, ledger) = first(vec![Reply::Hang]);
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    world.spoken("left", 2);
    // Its pipes would not end if somebody had inherited them.
    let listed = world.out(&["list"]);
    assert!(listed.contains("left"), "{listed}");
    receiver.wait("somebody who sends", |received| (!received.is_empty()).then_some(()));
    let home = world.sandbox.home().to_owned();
    let detached: Vec<i32> = processes::started_in(&home);
    assert_eq!(detached.len(), 1, "one detached process");
    let pid = detached[0];
    assert_eq!(processes::process(pid).unwrap().session, pid, "a session of its own");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let Ok(target) = fs::read_link(descriptor.unwrap().path()) else { continue }; // closed meanwhile
        let target = target.to_str().unwrap().to_owned();
        let own = target.starts_with(home.to_str().unwrap()) || target.starts_with("socket:");
        assert!(own || target == "/dev/null" || target.starts_with("anon_inode:"), "{target}");
    }
    // It hangs; nobody else sends meanwhile, and whoever is in a hurry takes over when it is gone.
    processes::signal(pid, rustix::process::Signal::KILL);
    assert!(processes::wait_dead(pid, TIMEOUT));
    let output = world.run(&["sync"]);
    assert_eq!((output.code, ledger.events().len()), (Some(0), 5), "{output:?}");
}

#[test]
fn hanging_receiver_does_not_delay_the_others() {
    let (good, ledger) = honest();
    let bad = Receiver::start(|_| Reply::Hang);
    let config =
        format!("{}[otlp]\nendpoint = '{}'\n[sync]\nexitTimeout = '100ms'\n", backend(&good), bad.url());
    let play = Play::new(&config);
    assert_eq!(play.start_as(&["run", "--", "true"]).wait_exit(), Exit::Code(0));
    good.wait("the END", seen("session.end", 1));
    assert!(ledger.sessions().values().all(|session| session.complete));
    bad.wait("an attempt", |received| (!received.is_empty()).then_some(()));
    assert!(bad.received().iter().all(|one| one.path.starts_with("/v1/metrics")));
}

#[test]
fn broken_delivery_settings_do_not_affect_the_run() {
    let nobody = "[backend]\nurl = 'http://127.0.0.1:1'\n";
    let no_such_file = "[backend]\nurl = 'https://127.0.0.1:1'\n[tls]\ncaFile = '/nonexistent.pem'\n";
    let no_address = "[backend]\nurl = 'not an address'\n";
    for config in [nobody, no_such_file, no_address] {
        let play = Play::new(config);
        let terminal = play.start_as(&["run", "--", "sh", "-c", "echo all is well; exit 3"]);
        assert_eq!(terminal.wait_exit(), Exit::Code(3), "{config}");
        assert!(terminal.text().contains("all is well"), "{config}");
        let records = play.records();
        assert_eq!((records.len(), &records[0]["status"]), (1, &"failed".into()), "{config}");
    }
}

#[test]
fn no_sender_thread_without_a_receiver() {
    let play = Play::new("");
    let terminal = play.start_as(&["run", "--", "sh", "-c", "echo ready; read line"]);
    terminal.wait_text("ready");
    let tasks = fs::read_dir(format!("/proc/{}/task", terminal.pid())).unwrap();
    let mut names: Vec<String> =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap()).collect();
    names.sort();
    assert!(!names.iter().any(|name| name.starts_with("sender")), "{names:?}");
    terminal.send("\n");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
}

#[test]
fn loopback_backend_gets_the_token_it_left() {
    let kept = Arc::<Ledger>::default();
    let ledger = Arc::clone(&kept);
    let receiver = Receiver::start(move |received| match received.header("authorization") {
        Some("Bearer local-ingest") => kept.take(received),
        _ => Reply::Status(401, String::new()),
    });
    let mut world = World::new();
    world.sandbox.file(".codemie/backend/tokens.json", r#"{"ingest":"local-ingest","read":"r","admin":"a"}"#);
    let sinks = sinks(&world, &format!("backend.url = '{}'", receiver.url()));
    world.spoken("a", 1);
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    assert_eq!(ledger.events().len(), 4);
}

#[test]
fn session_id_chosen_by_the_user_binds_the_session() {
    let play = Play::new("");
    let id = "22222222-2222-4222-8222-222222222222";
    assert_eq!(play.start_as(&["claude", "--session-id", id]).wait_exit(), Exit::Code(0));
    let records = play.records();
    let correlation = &records.last().unwrap()["correlation"];
    assert_eq!(correlation["agentSessionId"], id, "{correlation}");
    assert_eq!(correlation["evidence"], "assigned", "{correlation}");
}
