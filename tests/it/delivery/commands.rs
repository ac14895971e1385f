//! `codemie sync` and its kin, and what other commands say of delivery.

use serde_json::{Value, json};

use super::{backend, first, honest, sinks};
use crate::commands::World;
use crate::sandbox::CODEMIE;
use crate::support::pty::Start;
use crate::support::receiver::Reply;

#[test]
fn sync_delivers_and_reports_it() {
    let (receiver, ledger) = first(vec![Reply::Status(500, String::new()), Reply::Cut]);
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    world.spoken("a", 2);
    let output = world.run(&["sync"]);
    assert_eq!((output.code, output.out.as_str()), (Some(0), ""), "{output:?}");
    assert_eq!(output.err, "codemie: backend: 5 events delivered, nothing is left\n");
    assert_eq!(ledger.events().len(), 5);
    let again = world.run(&["sync"]);
    assert_eq!(
        (again.code, again.err.as_str()),
        (Some(0), "codemie: backend: 0 events delivered, nothing is left\n")
    );
}

#[test]
fn sync_gives_up_when_its_time_is_up() {
    let receiver = crate::support::receiver::Receiver::start(|_| Reply::Status(503, String::new()));
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    world.spoken("a", 1);
    let output = world.run(&["sync", "--timeout", "3s"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("4 events still wait: answered 503"), "{output:?}");
    assert!(receiver.received().len() >= 2, "it was tried again");
    let status = world.json(&["sync", "--status", "--json"]);
    let sink = &status["sinks"][0];
    assert_eq!(sink["name"], "backend");
    assert_eq!(
        (&sink["pending"], &sink["dead"], &sink["lastError"]),
        (&json!(4), &json!(0), &json!("answered 503"))
    );
    assert_eq!(status["backlog"]["events"], 4);
    let told = world.out(&["sync", "--status"]);
    assert!(told.contains("answered 503") && !told.contains("canary"), "{told}");
}

#[test]
fn waiting_sync_shows_the_reason_and_control_c_leaves_a_clean_line() {
    let mut world = World::new();
    sinks(&world, "[backend]\nurl = 'http://127.0.0.1:1'\n");
    world.spoken("a", 1);
    let terminal = Start::new([CODEMIE, "sync"]).env("HOME", world.sandbox.home()).size(30, 120).spawn();
    terminal.wait_text("backend: 4 waiting, nobody listens at http://127.0.0.1:1, next try in 1 s");
    terminal.send("\x03");
    assert_eq!(terminal.wait_exit().shell_code(), 130);
    assert!(!terminal.text().contains("waiting"), "{}", terminal.text());
    assert!(world.out(&["sync", "status"]).contains("nobody listens at http://127.0.0.1:1"));
}

#[test]
fn sync_without_a_backend_fails_and_names_the_setting() {
    let world = World::new();
    let output = world.run(&["sync"]);
    assert_eq!(output.code, Some(1));
    assert!(output.err.contains("codemie config set backend.url"), "{output:?}");
    assert!(world.out(&["sync", "--status"]).contains("no backend is set up"));
    assert_eq!(world.json(&["sync", "--status", "--json"])["sinks"], json!([]));
}

#[test]
fn preview_is_what_is_sent_byte_for_byte() {
    let (receiver, _) = honest();
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    world.spoken("a", 3);
    let previewed = world.out(&["sync", "preview"]);
    assert_eq!(receiver.received().len(), 0, "nothing was sent");
    assert!(previewed.contains("authorization: (hidden)") && !previewed.contains("canary"), "{previewed}");
    assert_eq!(world.run(&["sync"]).code, Some(0));
    let sent = receiver.received();
    let body = String::from_utf8(sent[0].body.clone()).unwrap();
    assert!(sent.len() == 1 && previewed.contains(&body), "{previewed}\n{body}");
    let nothing = world.run(&["sync", "preview"]);
    assert_eq!(nothing.out, "");
    assert!(nothing.err.starts_with("codemie: backend: nothing waits; "), "{nothing:?}");
}

#[test]
fn what_left_already_is_shown_again() {
    let (receiver, _) = honest();
    let mut world = World::new();
    let without = world.run(&["sync", "preview", "--since", "7d"]);
    assert!(without.out.is_empty() && without.err.contains("no backend is set up"), "{without:?}");
    sinks(&world, &backend(&receiver));
    world.spoken("a", 3);
    let since = ["sync", "preview", "--since", "2000-01-01"];
    let before = world.run(&since);
    assert!(
        before.out.is_empty() && before.err.contains("backend: nothing left since 2000-01-01"),
        "{before:?}"
    );
    assert_eq!(world.run(&["sync"]).code, Some(0));
    let body = String::from_utf8(receiver.received()[0].body.clone()).unwrap();
    let after = world.run(&since);
    assert!(after.out.contains(&body) && after.out.contains("authorization: (hidden)"), "{after:?}\n{body}");
    assert!(after.err.contains("backend: 6 events left since 2000-01-01"), "{after:?}");
    let first = world.run(&[&since[..], &["--limit", "2"]].concat());
    assert!(first.err.contains("the first 2 events that left") && !first.out.contains(&body), "{first:?}");
    assert_eq!(receiver.received().len(), 1, "nothing was sent again");
    let later = world.run(&["sync", "preview", "--since", "2999-01-01"]);
    assert!(later.out.is_empty() && later.err.contains("nothing left since"), "{later:?}");
}

#[test]
fn history_is_sent_only_by_backfill() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    world.spoken("before", 2);
    let previewed = world.run(&["sync", "preview"]);
    assert!(previewed.err.contains("no backend") && previewed.out.contains("before-1"), "{previewed:?}");
    sinks(&world, &backend(&receiver));
    world.spoken("after", 1);
    assert_eq!(world.run(&["sync"]).code, Some(0));
    assert_eq!(ledger.events().len(), 4);
    assert_eq!(world.json(&["show", "before", "--json"])["sync"]["delivered"], 0);
    let output = world.run(&["sync", "--backfill"]);
    assert_eq!((output.code, ledger.events().len()), (Some(0), 9), "{output:?}");
    assert_eq!(world.json(&["show", "before", "--json"])["sync"]["delivered"], 5);
}

#[test]
fn foreign_conversations_are_sent_only_by_scan() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    world.spoken("wrapped", 1);
    let file = "claude/02-tools/projects/-home-dev-project/02000000-0000-4000-8000-000000000002.jsonl";
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    let text = std::fs::read_to_string(fixture).unwrap();
    world
        .sandbox
        .file(".claude/projects/-home-dev-project/02000000-0000-4000-8000-000000000002.jsonl", &text);
    assert_eq!(world.run(&["sync", "--backfill"]).code, Some(0));
    assert_eq!(ledger.sessions().len(), 1);
    for _ in 0..2 {
        let output = world.run(&["sync", "--backfill", "--scan"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.err.contains("of 1 conversation delivered"), "{output:?}");
        let sessions = ledger.sessions();
        let foreign = sessions
            .values()
            .find(|session| session.agent_session.as_deref().is_some_and(|id| id.starts_with("02")));
        let foreign = foreign.unwrap();
        assert!(
            sessions.len() == 2 && foreign.complete && foreign.totals == Some(foreign.usage),
            "{sessions:?}"
        );
        let scanned = world.json(&["usage", "--scan", "--by", "session", "--json"]);
        let rows = scanned["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"].as_str().unwrap().starts_with("02")).unwrap();
        let told = crate::support::ledger::FIELDS.map(|field| row[field].as_i64().unwrap());
        assert!(told[0] > 0 && told == foreign.usage, "{row}");
    }
    assert_eq!(world.listed(&[]), ["wrapped"], "and it is no session of ours");
}

#[test]
fn the_demos_sessions_are_sent_nowhere() {
    let (receiver, ledger) = honest();
    let mut world = World::new();
    sinks(&world, &backend(&receiver));
    let begin = store::session::lifecycle::RunStart {
        agent: "demo".into(),
        local_only: true,
        ..World::begin("play")
    };
    let run = world.start_as(&begin);
    world.bind(run, "demo-1", None);
    world.call(run, "demo-call", "claude-sonnet-4-5", Some(1));
    world.end(run, 0);
    for args in [&["sync"][..], &["sync", "--backfill"]] {
        assert_eq!(world.run(args).code, Some(0));
    }
    assert_eq!(ledger.events(), [Value::Null; 0]);
    assert_eq!(world.json(&["show", "play", "--json"])["sync"]["pending"], 0);
    world.spoken("work", 1);
    assert_eq!(world.run(&["sync"]).code, Some(0));
    assert_eq!(ledger.sessions().len(), 1, "what comes after is sent");
}

#[test]
fn secrets_are_hidden_where_settings_are_listed() {
    let world = World::new();
    for (key, value) in [
        ("backend.token", "canary-a"),
        ("otlp.headers", "x=canary-b"),
        ("codemieV1.auth", "Cookie: canary-c"),
    ] {
        world.out(&["config", "set", key, value]);
        assert_eq!(world.out(&["config", "get", key]), format!("{value}\n"));
    }
    for args in [&["config", "show"][..], &["config", "show", "--json"]] {
        let shown = world.out(args);
        assert!(shown.contains("(hidden)") && !shown.contains("canary"), "{shown}");
    }
}
