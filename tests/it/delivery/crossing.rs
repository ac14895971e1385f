//! Two at once: a command and a batch on its way, two tokens, two addresses, two receivers, a backend that comes late.

use delivery::{Drain, Idle, Pace};
use os::home::Home;
use store::Store;

use super::changes::names;
use super::play::Play;
use super::{backend, drain, honest, run, sinks};
use crate::commands::World;
use crate::support::ledger::Ledger;
use crate::support::pty::Exit;
use crate::support::receiver::{Receiver, Reply};
use std::sync::{Arc, OnceLock};

#[test]
fn backfill_during_a_request_sends_everything() {
    let ledger = Arc::<Ledger>::default();
    let (kept, home) = (Arc::clone(&ledger), Arc::<OnceLock<Home>>::default());
    let at = Arc::clone(&home);
    let asked = std::sync::atomic::AtomicBool::default();
    let receiver = Receiver::start(move |received| {
        if !asked.swap(true, std::sync::atomic::Ordering::Relaxed) {
            let mut store = Store::open(at.get().unwrap(), types::Timestamp(0)).unwrap();
            store.write(|tx| tx.backfill("backend")).unwrap();
        }
        kept.take(received)
    });
    let mut world = World::new();
    home.set(world.home.clone()).unwrap();
    world.spoken("history", 1);
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("new", 1);
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    assert_eq!(names(&ledger), ["history", "new"]);
    assert_eq!(world.json(&["show", "history", "--json"])["sync"]["delivered"], 4);
}

#[test]
fn two_tokens_for_one_address_both_keep_sending() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    let config = backend(&receiver);
    let mut one = Drain::open_all(&sinks(&world, &config), Pace::Background).unwrap().remove(0);
    world.spoken("a", 1);
    // A command in a terminal with another token in its environment.
    let mut other =
        Drain::open_all(&sinks(&world, &config.replace("canary-token", "another")), Pace::Background)
            .unwrap()
            .remove(0);
    assert_eq!(run(&mut one), Idle::Empty { due: None });
    assert_eq!(names(&ledger), ["a"]);
    world.spoken("b", 1);
    assert_eq!(run(&mut other), Idle::Empty { due: None });
    assert_eq!((names(&ledger), receiver.received().len()), (vec!["a".to_owned(), "b".to_owned()], 2));
}

#[test]
fn switching_between_two_addresses_skips_and_repeats_nothing() {
    let ((here, here_ledger), (there, there_ledger)) = (honest(), honest());
    let mut world = World::new();
    for (name, receiver) in [("a", &here), ("b", &there), ("c", &here), ("d", &there), ("e", &here)] {
        let sinks = sinks(&world, &backend(receiver));
        world.spoken(name, 1);
        assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    }
    assert_eq!(names(&here_ledger), ["a", "b", "c", "d", "e"]);
    assert_eq!(names(&there_ledger), ["b", "c", "d"], "`a` was history when it came");
    let sent = |receiver: &Receiver| {
        let bodies = receiver.received().into_iter().map(|received| received.body);
        bodies
            .map(|body| serde_json::from_slice::<Vec<serde_json::Value>>(&body).unwrap().len())
            .sum::<usize>()
    };
    assert_eq!((sent(&here), sent(&there)), (5 * 4, 3 * 4));
    assert!(!world.out(&["sync", "--status"]).contains("before"), "nothing is from before it was set up");
}

#[test]
fn token_of_a_backend_first_started_during_a_run_is_used() {
    let ledger = Arc::<Ledger>::default();
    let kept = Arc::clone(&ledger);
    let receiver = Receiver::start(move |received| match received.header("authorization") {
        Some("Bearer left-here") => kept.take(received),
        _ => Reply::Status(503, String::new()), // nobody listens yet
    });
    let mut world = World::new();
    let sinks = sinks(&world, &format!("[backend]\nurl = '{}'\n", receiver.url()));
    let mut running = Drain::open_all(&sinks, Pace::Interactive).unwrap().remove(0);
    world.spoken("a", 1);
    assert!(matches!(run(&mut running), Idle::Waiting { .. }));
    std::fs::create_dir_all(world.home.backend_tokens().parent().unwrap()).unwrap();
    std::fs::write(world.home.backend_tokens(), r#"{"ingest":"left-here"}"#).unwrap();
    assert_eq!(run(&mut running), Idle::Empty { due: None });
    assert_eq!(names(&ledger), ["a"]);
}

#[test]
fn unreachable_receiver_does_not_delay_detached_delivery_to_others() {
    let (good, ledger) = honest();
    let bad = Receiver::start(|_| Reply::Hang);
    let only = format!("otlp.endpoint = '{}'\nsync.exitTimeout = '50ms'\n", bad.url());
    let play = Play::new(&only);
    // A detached process waits for the receiver that is away.
    assert_eq!(play.start_as(&["run", "--", "true"]).wait_exit(), Exit::Code(0));
    bad.wait("somebody who sends", |received| (!received.is_empty()).then_some(()));
    assert_eq!(play.codemie(&["config", "set", "backend.token", "canary-token"]).code, Some(0));
    assert_eq!(play.codemie(&["config", "set", "backend.url", &good.url()]).code, Some(0));
    assert_eq!(play.start_as(&["run", "--", "true"]).wait_exit(), Exit::Code(0));
    good.wait("the other's END", |_| {
        ledger.sessions().values().any(|session| session.complete).then_some(())
    });
}

#[test]
fn renamed_session_is_sent_without_another_command() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    world.out(&["rename", "a", "b"]);
    receiver.wait("its other name", |_| (names(&ledger) == ["b"]).then_some(()));
}
