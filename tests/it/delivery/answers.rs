//! What the loop makes of answers, good, bad and hostile: nothing is lost, nothing takes for ever.

use std::time::{Duration, Instant};

use delivery::{DeliveryCount, Drain, Idle, Pace, Progress};
use serde_json::{Value, json};

use super::{backend, drain, first, honest, run, sinks};
use crate::commands::World;
use crate::support::receiver::{Receiver, Reply};

fn delivered(events: usize) -> Progress {
    Progress::Advanced(DeliveryCount { delivered: events, ..DeliveryCount::default() })
}

fn rubbish(text: &str) -> Reply {
    Reply::Status(200, text.to_owned())
}

fn events_in(body: &[u8]) -> usize {
    serde_json::from_slice::<Vec<Value>>(body).unwrap().len()
}

#[test]
fn every_event_arrives_once_and_compressed() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 600);
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
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
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    assert_eq!(receiver.received().len(), 2);
}

#[test]
fn failed_batch_is_sent_again_and_no_event_is_lost() {
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
        let Idle::Waiting { why, .. } = drain(&sinks, Pace::Background) else { panic!("{reply:?}") };
        assert!(!why.is_empty() && !why.contains("canary"), "{reply:?}: {why}");
        let row = world.sink("backend");
        assert!(row.failures == 1 && row.retry_at.is_some() && row.lease_holder.is_none(), "{row:?}");
        assert_eq!(row.cursor, 0, "{reply:?}");
        assert!(matches!(drain(&sinks, Pace::Background), Idle::Waiting { .. }), "in backoff");
        assert_eq!(receiver.received().len(), 1, "{reply:?}: in backoff nothing is sent");
        assert_eq!(drain(&sinks, Pace::Interactive), Idle::Empty { due: None }, "{reply:?}");
        assert!(ledger.sessions().values().all(|session| session.complete), "{reply:?}");
        let row = world.sink("backend");
        assert_eq!((row.failures, row.trouble, row.retry_at), (0, None, None), "{reply:?}");
    }
}

#[test]
fn request_to_a_receiver_that_hangs_or_drips_times_out() {
    for reply in [Reply::Hang, Reply::Drip] {
        let (receiver, _ledger) = first(vec![reply.clone()]);
        let mut world = World::new();
        let sinks = sinks(&world, &backend(&receiver));
        world.spoken("a", 1);
        let begun = Instant::now();
        assert!(matches!(drain(&sinks, Pace::Background), Idle::Waiting { .. }), "{reply:?}");
        // Not a measurement: without a limit this would never end.
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
}

#[test]
fn unreachable_receiver_is_retried_and_named_without_its_path() {
    let port = 1; // nobody else's either
    let mut world = World::new();
    let sinks = sinks(&world, &format!("backend.url = 'http://127.0.0.1:{port}/hidden'"));
    world.spoken("a", 1);
    let Idle::Waiting { why, .. } = drain(&sinks, Pace::Background) else { panic!() };
    assert_eq!(
        why,
        format!("nobody listens at http://127.0.0.1:{port}"),
        "who is meant, and no more of the address"
    );
}

#[test]
fn retry_after_is_honoured_even_when_somebody_waits() {
    let (receiver, _) = first(vec![Reply::Headed(429, "retry-after: 86400000\r\n", String::new())]);
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    for pace in [Pace::Background, Pace::Interactive, Pace::Background] {
        let Idle::Waiting { until, .. } = drain(&sinks, pace) else { panic!() };
        let wait = until.since(os::clock::Clock::now(&os::clock::SystemClock));
        assert!(wait > Duration::from_secs(3500) && wait <= Duration::from_hours(1), "{wait:?}");
    }
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn retry_after_zero_still_waits_half_a_second() {
    let (receiver, _) = first(vec![Reply::Headed(429, "retry-after: 0\r\n", String::new())]);
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let begun = os::clock::Clock::now(&os::clock::SystemClock);
    let Idle::Waiting { until, .. } = drain(&sinks, Pace::Interactive) else { panic!() };
    assert!(until.since(begun) >= Duration::from_millis(500), "{:?}", until.since(begun));
}

#[test]
fn batch_too_large_is_halved_until_the_large_event_is_alone() {
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
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    assert_eq!(world.dead("backend"), ["too large (413)"]);
    assert_eq!(ledger.events().len(), 22);
    let record = world.json(&["show", "a", "--json"]);
    assert_eq!((&record["sync"]["dead"], &record["sync"]["delivered"]), (&json!(1), &json!(22)));
}

#[test]
fn refused_event_is_isolated_and_the_others_arrive() {
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
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    assert_eq!(world.dead("backend"), [r#"refused (400): {"error":"cannot stand it"}"#]);
    assert_eq!(ledger.events().len(), 22);
}

#[test]
fn receiver_without_zstd_gets_uncompressed_requests() {
    let (receiver, ledger) = first(vec![Reply::Status(415, String::new())]);
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    let encodings: Vec<_> = receiver.received().into_iter().map(|one| one.encoding).collect();
    assert_eq!(encodings, ["zstd", "identity"]);
    assert_eq!(ledger.events().len(), 4);
}

#[test]
fn rejected_and_refused_events_are_kept_and_can_be_sent_again() {
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
        assert_eq!(drain(&refusing, Pace::Background), Idle::Empty { due: None });
        assert_eq!(world.dead("backend"), [reason; 4]);
        assert_eq!(world.json(&["show", "a", "--json"])["sync"]["dead"], 4);
        world.run(&["config", "set", "backend.url", &receiver.url()]);
        let output = world.run(&["sync", "--retry-dead"]);
        let refused = "codemie: backend: 0 events delivered, 4 refused for good (see: codemie sync --status), nothing is left\n";
        assert_eq!((output.code, output.err.as_str()), (Some(1), refused));
        // An empty sync asks whether events would be taken, and tells none.
        let told = || receiver.received().into_iter().filter(|one| one.text().contains("sessionId")).count();
        let requests = told();
        let output = world.run(&["sync"]);
        let code = i32::from(status == 404);
        assert_eq!((output.code, told()), (Some(code), requests), "dead is dead: {output:?}");

        // Another address has refused nothing.
        let (honest, ledger) = honest();
        let output = world.run(&["config", "set", "backend.url", &honest.url()]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let output = world.run(&["sync"]);
        assert_eq!((output.code, ledger.events().len()), (Some(0), 4), "{output:?}");
        assert_eq!(world.dead("backend"), [""; 0]);
    }
}

#[test]
fn refused_credentials_pause_delivery_until_they_change() {
    let ledger = std::sync::Arc::<crate::support::ledger::Ledger>::default();
    let kept = std::sync::Arc::clone(&ledger);
    let receiver = Receiver::start(move |received| match received.header("authorization") {
        Some("Bearer right") => kept.take(received),
        _ => Reply::Status(401, String::new()),
    });
    let mut world = World::new();
    let wrong = sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let mut drains = Drain::open_all(&wrong, Pace::Background).unwrap();
    for _ in 0..3 {
        assert_eq!(run(&mut drains[0]), Idle::Paused("refused the credentials (401)".into()));
    }
    assert_eq!(receiver.received().len(), 1, "nothing is sent while it pauses");
    let listed = world.out(&["list"]);
    assert!(listed.contains("Delivery to backend is paused: it refused the credentials (401)"), "{listed}");
    let found = world.run(&["doctor"]).out;
    assert!(
        found.contains("is paused") && found.contains("codemie sync") && !found.contains("canary"),
        "{found}"
    );
    let output = world.run(&["sync", "--timeout", "5s"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("refused the credentials (401)"), "{output:?}");
    assert_eq!(receiver.received().len(), 2, "sync tried once more");

    let right = sinks(&world, &backend(&receiver).replace("canary-token", "right"));
    assert_eq!(drain(&right, Pace::Background), Idle::Empty { due: None });
    assert_eq!(ledger.events().len(), 4);
    assert!(!world.out(&["list"]).contains("is paused"));
}

#[test]
fn two_processes_at_once_send_once_and_a_dead_ones_lease_is_taken() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    let sinks = sinks(&world, &backend(&receiver));
    world.spoken("a", 50);
    let mut both: Vec<_> =
        (0..2).map(|_| Drain::open_all(&sinks, Pace::Background).unwrap().remove(0)).collect();
    // The first holds the lease between two steps.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut step = |at: usize| runtime.block_on(both[at].step(&os::clock::SystemClock)).unwrap();
    assert_eq!(step(0), delivered(53));
    world.spoken("b", 1);
    assert!(matches!(step(1), Progress::Idle(Idle::LeaseHeld { .. })));
    assert_eq!(step(0), delivered(4));
    assert_eq!(step(0), Progress::Idle(Idle::Empty { due: None }));
    assert_eq!(step(1), Progress::Idle(Idle::Empty { due: None }));
    assert_eq!((receiver.received().len(), ledger.events().len()), (2, 57));

    world.spoken("c", 1);
    let dead = store::BootAndPidNs::here();
    let dead = format!("{} {} {} 1 x", dead.boot, dead.pids, std::process::id());
    let (now, later) = (world.now, types::Timestamp(i64::MAX / 2));
    assert!(world.store.write(|tx| tx.lease("backend", &dead, now, later)).unwrap());
    assert_eq!(step(1), delivered(4));
}
