//! What the loop makes of answers, good, bad and hostile: nothing is lost, nothing takes for ever.

use std::time::{Duration, Instant};

use codemie::forward::{Mode, Moved, Rest, Step};
use serde_json::{Value, json};

use super::{backend, drain, first, honest, run, sinks};
use crate::commands::World;
use crate::support::receiver::{Receiver, Reply};

fn delivered(events: usize) -> Step {
    Step::Moved(Moved { delivered: events, ..Moved::default() })
}

fn rubbish(text: &str) -> Reply {
    Reply::Status(200, text.to_owned())
}

fn events_in(body: &[u8]) -> usize {
    serde_json::from_slice::<Vec<Value>>(body).unwrap().len()
}

#[test]
fn everything_arrives_once_and_packed() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 600);
    assert_eq!(drain(&sinks, Mode::Usual), Rest::Empty { due: None });
    let received = receiver.received();
    assert_eq!(received.iter().map(|one| events_in(&one.body)).collect::<Vec<_>>(), [500, 103]);
    for one in &received {
        assert_eq!((one.path.as_str(), one.encoding.as_str()), ("/v1/events", "zstd"));
        assert_eq!(one.header("authorization"), Some("Bearer canary-token"));
    }
    let sessions = ledger.sessions();
    let told = sessions.values().next().unwrap();
    assert!(sessions.len() == 1 && told.complete);
    assert_eq!(told.totals, Some([600, 6000, 12_000, 600_000, 60_000]));
    assert_eq!(told.totals, Some(told.usage));
    let record = world.json(&["show", "a", "--json"]);
    assert_eq!(record["sync"]["pending"], 0);
    assert_eq!(record["sync"]["delivered"], 603);
    assert!(record["sync"]["lastDeliveredAt"].is_i64());
    // A further round has nothing to say, to nobody.
    assert_eq!(drain(&sinks, Mode::Usual), Rest::Empty { due: None });
    assert_eq!(receiver.received().len(), 2);
}

#[test]
fn what_fails_is_sent_again_and_nothing_is_lost() {
    let replies = [
        Reply::Status(500, String::new()),
        Reply::Status(503, "<html>".into()),
        Reply::Status(429, String::new()),
        Reply::Status(202, json!({"accepted": 4, "duplicates": 0, "rejected": []}).to_string()),
        Reply::Headed(302, "location: http://127.0.0.1:1/elsewhere\r\n", String::new()),
        Reply::Headed(301, "location: /v1/events\r\n", String::new()),
        Reply::Cut,
        rubbish(""),
        rubbish("<html>please log in</html>"),
        rubbish(r#"{"accepted":99,"duplicates":0,"rejected":[]}"#),
        rubbish(
            r#"{"accepted":3,"duplicates":0,"rejected":[{"id":"00000000-0000-4000-8000-000000000000","error":"x"}]}"#,
        ),
        Reply::Endless,
        Reply::Bytes(vec![0; 1_000_000], "application/json"),
    ];
    for reply in replies {
        let (receiver, ledger) = first(vec![reply.clone()]);
        let mut world = World::new();
        let sinks = sinks(&world, &backend(&receiver));
        world.spoken("a", 1);
        let Rest::Waits { why, .. } = drain(&sinks, Mode::Usual) else { panic!("{reply:?}") };
        assert!(!why.is_empty() && !why.contains("canary"), "{reply:?}: {why}");
        let row = world.sink("backend");
        assert!(row.failures == 1 && row.retry_at.is_some() && row.lease_holder.is_none(), "{row:?}");
        assert_eq!(row.cursor, 0, "{reply:?}");
        assert!(matches!(drain(&sinks, Mode::Usual), Rest::Waits { .. }), "in backoff");
        assert_eq!(receiver.received().len(), 1, "{reply:?}: in backoff nothing is sent");
        assert_eq!(drain(&sinks, Mode::Pressing), Rest::Empty { due: None }, "{reply:?}");
        assert!(ledger.sessions().values().all(|told| told.complete), "{reply:?}");
        let row = world.sink("backend");
        assert_eq!((row.failures, row.trouble, row.retry_at), (0, None, None), "{reply:?}");
    }
}

#[test]
fn a_receiver_that_hangs_or_drips_is_given_up() {
    for reply in [Reply::Hang, Reply::Drip] {
        let (receiver, _ledger) = first(vec![reply.clone()]);
        let mut world = World::new();
        let sinks = sinks(&world, &backend(&receiver));
        world.spoken("a", 1);
        let begun = Instant::now();
        assert!(matches!(drain(&sinks, Mode::Usual), Rest::Waits { .. }), "{reply:?}");
        // Not a measurement: without a limit this would never end.
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
}

#[test]
fn nobody_there_is_waited_for() {
    let port = 1; // nobody else's either
    let mut world = World::new();
    let sinks = sinks(&world, &format!("backend.url = 'http://127.0.0.1:{port}/hidden'"));
    world.spoken("a", 1);
    let Rest::Waits { why, .. } = drain(&sinks, Mode::Usual) else { panic!() };
    assert_eq!(
        why,
        format!("nobody listens at http://127.0.0.1:{port}"),
        "who is meant, and no more of the address"
    );
}

#[test]
fn a_wish_to_be_left_alone_is_granted_even_when_somebody_waits() {
    let (receiver, _) = first(vec![Reply::Headed(429, "retry-after: 86400000\r\n", String::new())]);
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    for mode in [Mode::Usual, Mode::Pressing, Mode::Usual] {
        let Rest::Waits { until, .. } = drain(&sinks, mode) else { panic!() };
        let wait = until.since(system::clock::Clock::now(&system::clock::SystemClock));
        assert!(wait > Duration::from_secs(3500) && wait <= Duration::from_hours(1), "{wait:?}");
    }
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn who_may_come_back_at_once_does_not_come_at_once_when_somebody_waits() {
    let (receiver, _) = first(vec![Reply::Headed(429, "retry-after: 0\r\n", String::new())]);
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let begun = system::clock::Clock::now(&system::clock::SystemClock);
    let Rest::Waits { until, .. } = drain(&sinks, Mode::Pressing) else { panic!() };
    assert!(until.since(begun) >= Duration::from_millis(500), "{:?}", until.since(begun));
}

#[test]
fn what_is_too_large_is_halved_down_to_the_one_that_is() {
    let (ledger, most) = (std::sync::Arc::<crate::support::ledger::Ledger>::default(), 3);
    let kept = std::sync::Arc::clone(&ledger);
    let receiver = Receiver::start(move |received| {
        let body = String::from_utf8_lossy(&received.body).into_owned();
        if events_in(&received.body) > most || body.contains("\"a-7\"") {
            return Reply::Status(413, String::new());
        }
        kept.take(received)
    });
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 20);
    assert_eq!(drain(&sinks, Mode::Usual), Rest::Empty { due: None });
    assert_eq!(world.dead("backend"), ["too large (413)"]);
    assert_eq!(ledger.events().len(), 22);
    let record = world.json(&["show", "a", "--json"]);
    assert_eq!((&record["sync"]["dead"], &record["sync"]["delivered"]), (&json!(1), &json!(22)));
}

#[test]
fn one_poisoned_event_costs_no_other() {
    let (ledger, kept) = {
        let ledger = std::sync::Arc::<crate::support::ledger::Ledger>::default();
        (std::sync::Arc::clone(&ledger), ledger)
    };
    let receiver = Receiver::start(move |received| {
        if String::from_utf8_lossy(&received.body).contains("\"a-7\"") {
            return Reply::Status(400, json!({"error": "cannot stand it"}).to_string());
        }
        kept.take(received)
    });
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 20);
    assert_eq!(drain(&sinks, Mode::Usual), Rest::Empty { due: None });
    assert_eq!(world.dead("backend"), [r#"refused (400): {"error":"cannot stand it"}"#]);
    assert_eq!(ledger.events().len(), 22);
}

#[test]
fn a_receiver_without_zstd_is_spoken_to_plainly() {
    let (receiver, ledger) = first(vec![Reply::Status(415, String::new())]);
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    assert_eq!(drain(&sinks, Mode::Usual), Rest::Empty { due: None });
    let encodings: Vec<_> = receiver.received().into_iter().map(|one| one.encoding).collect();
    assert_eq!(encodings, ["zstd", "identity"]);
    assert_eq!(ledger.events().len(), 4);
}

#[test]
fn rejected_and_refused_are_kept_and_can_be_sent_again() {
    for (status, reason) in [(200, "rejected: no such thing"), (404, "refused (404)")] {
        let receiver = Receiver::start(move |received| {
            let events: Vec<Value> = serde_json::from_slice(&received.body).unwrap();
            let rejected: Vec<_> =
                events.iter().map(|event| json!({"id": event["id"], "error": "no such thing"})).collect();
            match status {
                200 => Reply::Status(
                    200,
                    json!({"accepted": 0, "duplicates": 0, "rejected": rejected}).to_string(),
                ),
                other => Reply::Status(other, String::new()),
            }
        });
        let mut world = World::new();
        let refusing = sinks(&world, &backend(&receiver));
        world.spoken("a", 1);
        assert_eq!(drain(&refusing, Mode::Usual), Rest::Empty { due: None });
        assert_eq!(world.dead("backend"), [reason; 4]);
        assert_eq!(world.json(&["show", "a", "--json"])["sync"]["dead"], 4);
        world.run(&["config", "set", "backend.url", &receiver.url()]);
        let said = world.run(&["sync", "--retry-dead"]);
        let refused = "codemie: backend: 0 events delivered, 4 refused for good (see: codemie sync --status), nothing is left\n";
        assert_eq!((said.code, said.err.as_str()), (Some(1), refused));
        // An empty sync asks whether events would be taken, and tells none.
        let told = || receiver.received().into_iter().filter(|one| one.text().contains("sessionId")).count();
        let requests = told();
        let said = world.run(&["sync"]);
        let code = i32::from(status == 404);
        assert_eq!((said.code, told()), (Some(code), requests), "dead is dead: {said:?}");

        // Another address has refused nothing.
        let (honest, ledger) = honest();
        let said = world.run(&["config", "set", "backend.url", &honest.url()]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let said = world.run(&["sync"]);
        assert_eq!((said.code, ledger.events().len()), (Some(0), 4), "{said:?}");
        assert_eq!(world.dead("backend"), [""; 0]);
    }
}

#[test]
fn refused_credentials_pause_until_others_are_there() {
    let ledger = std::sync::Arc::<crate::support::ledger::Ledger>::default();
    let kept = std::sync::Arc::clone(&ledger);
    let receiver = Receiver::start(move |received| match received.header("authorization") {
        Some("Bearer right") => kept.take(received),
        _ => Reply::Status(401, String::new()),
    });
    let mut world = World::new();
    let wrong = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let mut drains = wrong.drains(Mode::Usual).unwrap();
    for _ in 0..3 {
        assert_eq!(run(&mut drains[0]), Rest::Paused("refused the credentials (401)".into()));
    }
    assert_eq!(receiver.received().len(), 1, "nothing is sent while it pauses");
    let listed = world.out(&["list"]);
    assert!(listed.contains("Delivery to backend is paused: it refused the credentials (401)"), "{listed}");
    let found = world.run(&["doctor"]).out;
    assert!(
        found.contains("is paused") && found.contains("codemie sync") && !found.contains("canary"),
        "{found}"
    );
    let said = world.run(&["sync", "--timeout", "5s"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("refused the credentials (401)"), "{said:?}");
    assert_eq!(receiver.received().len(), 2, "sync tried once more");

    let right = sinks(&world, &backend(&receiver).replace("canary-token", "right"));
    assert_eq!(drain(&right, Mode::Usual), Rest::Empty { due: None });
    assert_eq!(ledger.events().len(), 4);
    assert!(!world.out(&["list"]).contains("is paused"));
}

#[test]
fn two_processes_at_once_send_once_and_a_dead_ones_lease_is_taken() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 50);
    let mut both: Vec<_> = (0..2).map(|_| sinks.drains(Mode::Usual).unwrap().remove(0)).collect();
    // The first holds the lease between two steps.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut step = |at: usize| runtime.block_on(both[at].step(&system::clock::SystemClock)).unwrap();
    assert_eq!(step(0), delivered(53));
    world.spoken("b", 1);
    assert!(matches!(step(1), Step::Rest(Rest::Held { .. })));
    assert_eq!(step(0), delivered(4));
    assert_eq!(step(0), Step::Rest(Rest::Empty { due: None }));
    assert_eq!(step(1), Step::Rest(Rest::Empty { due: None }));
    assert_eq!((receiver.received().len(), ledger.events().len()), (2, 57));

    world.spoken("c", 1);
    let dead = codemie::store::Realm::here();
    let dead = format!("{} {} {} 1 x", dead.boot, dead.pids, std::process::id());
    let (now, later) = (world.now, wire::Timestamp(i64::MAX / 2));
    assert!(world.store.write(|tx| tx.lease("backend", &dead, now, later)).unwrap());
    assert_eq!(step(1), delivered(4));
}
