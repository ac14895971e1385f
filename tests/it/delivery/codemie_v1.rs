//! The CodeMie v1 endpoint: each START and END once, in that server's words, when they are known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use delivery::{Drain, Idle, Pace};
use os::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use store::session::lifecycle;
use types::Timestamp;

use super::sinks;
use crate::commands::World;
use crate::support::receiver::{Receiver, Reply};

/// A clock that a test sets forward.
#[derive(Default)]
struct Later(AtomicI64);

impl Clock for Later {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::Relaxed))
    }
}

fn success() -> Reply {
    Reply::Status(200, json!({"success": true, "message": "Metric sent successfully"}).to_string())
}

fn v1(receiver: &Receiver) -> String {
    format!("[codemieV1]\nurl = '{}/api'\nauth = 'Cookie: canary=1'\n", receiver.url())
}

fn run(drain: &mut Drain, clock: &Later) -> Idle {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(drain.run(clock)).unwrap()
}

/// Metric, status, reason and agent session of each request.
fn told(receiver: &Receiver) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |body: &[u8]| {
        let body: Value = serde_json::from_slice(body).unwrap();
        let attributes = &body["attributes"];
        let parts = [&body["name"], &attributes["status"], &attributes["reason"], &attributes["session_id"]];
        parts.map(word).join(" ").replace("codemie_cli_", "")
    };
    receiver.received().iter().map(|one| line(&one.body)).collect()
}

#[test]
fn start_waits_for_the_agents_session_and_end_for_quiet_files_and_each_is_sent_once() {
    let receiver = Receiver::start(|_| success());
    let mut world = World::new();
    let mut drain = Drain::open_all(&sinks(&world, &v1(&receiver)), Pace::Background).unwrap().remove(0);
    let clock = Later::default();
    let first = world.start("a");
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None }, "it is not known yet");
    assert_eq!(told(&receiver), [""; 0]);
    world.bind(first, "agent-a", None);
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    assert_eq!(told(&receiver), ["session_total started startup agent-a"]);
    world.call(first, "a-1", "claude-sonnet-4-5", Some(1));
    let second = world.clear(first, "agent-b");
    let due = run(&mut drain, &clock);
    assert!(matches!(due, Idle::Empty { due: Some(_) }), "{due:?}");
    assert_eq!(told(&receiver)[1..], ["session_total started clear agent-b"]);
    // Lines that come late are told with the END, which is told once.
    world.call(first, "a-2", "claude-sonnet-4-5", Some(1));
    clock.0.store(60_000, Ordering::Relaxed);
    run(&mut drain, &clock);
    clock.0.store(120_000, Ordering::Relaxed);
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    assert_eq!(
        told(&receiver)[2..],
        ["session_total completed clear agent-a", "tool_usage_total - - agent-a"]
    );
    let usage: Value = serde_json::from_slice(&receiver.received()[3].body).unwrap();
    let usage = &usage["attributes"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(20), &json!(40)));
    assert_eq!(
        (&usage["cache_read_input_tokens"], &usage["llm_model"]),
        (&json!(2000), &json!("claude-sonnet-4-5"))
    );
    assert_eq!(
        (&usage["repository"], &usage["codemie_session_id"]),
        (&json!("acme/widgets"), &json!(first.session.to_string()))
    );

    // What changes afterwards, and a backfill, repeat nothing.
    world.call(first, "a-3", "claude-sonnet-4-5", Some(1));
    world.store.write(|tx| lifecycle::learn_version(tx, second.session, "2.2")).unwrap();
    world.store.write(|tx| tx.backfill("codemie-v1")).unwrap();
    clock.0.store(600_000, Ordering::Relaxed);
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    assert_eq!(receiver.received().len(), 4);
    let one = &receiver.received()[0];
    assert_eq!((one.path.as_str(), one.encoding.as_str()), ("/api/v1/metrics", "identity"));
    assert_eq!(
        (one.header("cookie"), one.header("x-codemie-client")),
        (Some("canary=1"), Some("codemie-claude"))
    );
    assert_eq!(
        (one.header("x-codemie-repository"), one.header("x-codemie-branch")),
        (Some("acme/widgets"), Some("main"))
    );
    assert!(world.run(&["doctor"]).out.contains("codemie-v1 keeps no event ids"));
}

#[test]
fn changed_server_gets_an_open_session_from_its_start() {
    let (old, new) = (Receiver::start(|_| success()), Receiver::start(|_| success()));
    let mut world = World::new();
    let mut drain = Drain::open_all(&sinks(&world, &v1(&old)), Pace::Background).unwrap().remove(0);
    let clock = Later::default();
    let open = world.start("open");
    world.bind(open, "agent", None);
    run(&mut drain, &clock);
    assert_eq!(told(&old), ["session_total started startup agent"]);
    let mut drain = Drain::open_all(&sinks(&world, &v1(&new)), Pace::Background).unwrap().remove(0);
    run(&mut drain, &clock);
    assert_eq!(told(&new), ["session_total started startup agent"]);
    // Its END waits, and comes to a third one, which is told it whole.
    world.end(open, 0);
    let due = run(&mut drain, &clock);
    assert!(matches!(due, Idle::Empty { due: Some(_) }), "{due:?}");
    let third = Receiver::start(|_| success());
    let mut drain = Drain::open_all(&sinks(&world, &v1(&third)), Pace::Background).unwrap().remove(0);
    run(&mut drain, &clock);
    clock.0.store(60_000, Ordering::Relaxed);
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    assert_eq!(
        told(&third),
        ["session_total started startup agent", "session_total completed prompt_input_exit agent"]
    );
}

#[test]
fn accepted_metric_of_an_end_is_not_sent_again_with_its_revived_letter() {
    let refusing = Arc::new(AtomicBool::new(true));
    let refuse = Arc::clone(&refusing);
    let receiver = Receiver::start(move |received| {
        let body = String::from_utf8_lossy(&received.body);
        if refuse.load(Ordering::Relaxed) && body.contains("codemie_cli_tool_usage_total") {
            Reply::Status(400, "no such metric".into())
        } else {
            success()
        }
    });
    let mut world = World::new();
    let set_up = v1(&receiver);
    let mut drain = Drain::open_all(&sinks(&world, &set_up), Pace::Background).unwrap().remove(0);
    world.spoken("a", 1);
    let clock = Later::default();
    run(&mut drain, &clock);
    clock.0.store(600_000, Ordering::Relaxed);
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    assert_eq!(told(&receiver).len(), 3);
    assert_eq!(world.dead("codemie-v1").len(), 1);
    refusing.store(false, Ordering::Relaxed);
    world.store.write(|tx| tx.revive_letters("codemie-v1")).unwrap();
    clock.0.store(1_200_000, Ordering::Relaxed);
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    assert_eq!(told(&receiver)[3..].iter().map(|line| &line[..16]).collect::<Vec<_>>(), ["tool_usage_total"]);
}

#[test]
fn start_of_an_unbound_session_is_sent_with_its_end() {
    let receiver = Receiver::start(|_| success());
    let mut world = World::new();
    let mut drain = Drain::open_all(&sinks(&world, &v1(&receiver)), Pace::Background).unwrap().remove(0);
    let clock = Later::default();
    let run_of = world.start("a");
    run(&mut drain, &clock);
    world.end(run_of, 1);
    run(&mut drain, &clock);
    clock.0.store(60_000, Ordering::Relaxed);
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    let id = run_of.session;
    let expected = [
        format!("session_total started startup {id}"),
        format!("session_total failed prompt_input_exit {id}"),
    ];
    assert_eq!(told(&receiver), expected);
}

#[test]
fn login_page_pauses_delivery_and_a_failure_is_retried() {
    let pages = std::sync::Mutex::new(
        vec![
            Reply::Status(500, json!({"code": 500, "message": "no"}).to_string()),
            Reply::Bytes(b"<html>Keycloak</html>".to_vec(), "text/html"),
        ]
        .into_iter(),
    );
    let receiver = Receiver::start(move |_| pages.lock().unwrap().next().unwrap_or_else(success));
    let mut world = World::new();
    let sinks = sinks(&world, &v1(&receiver));
    let mut drain = Drain::open_all(&sinks, Pace::Interactive).unwrap().remove(0);
    let clock = Later::default();
    let first = world.start("a");
    world.bind(first, "agent-a", None);
    assert!(matches!(run(&mut drain, &clock), Idle::Waiting { .. }));
    assert!(matches!(run(&mut drain, &clock), Idle::Paused(_)));
    world.store.write(|tx| tx.pause("codemie-v1", None)).unwrap();
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    assert_eq!(told(&receiver), ["session_total started startup agent-a"; 3]);
}

#[test]
fn accepted_metric_of_an_end_is_not_sent_again_after_failures() {
    let failures = std::sync::atomic::AtomicUsize::new(3);
    let receiver = Receiver::start(move |received| {
        let usage = received.text().contains("tool_usage_total");
        if usage
            && failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            return Reply::Status(500, String::new());
        }
        success()
    });
    let mut world = World::new();
    let mut drain = Drain::open_all(&sinks(&world, &v1(&receiver)), Pace::Interactive).unwrap().remove(0);
    let clock = Later::default();
    world.spoken("a", 1);
    run(&mut drain, &clock);
    clock.0.store(60_000, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(matches!(run(&mut drain, &clock), Idle::Waiting { .. }));
    }
    assert_eq!(run(&mut drain, &clock), Idle::Empty { due: None });
    let told = told(&receiver);
    let completed = told.iter().filter(|line| line.starts_with("session_total completed")).count();
    let usage = told.iter().filter(|line| line.starts_with("tool_usage_total")).count();
    assert_eq!((completed, usage), (1, 4), "{told:?}");
}
