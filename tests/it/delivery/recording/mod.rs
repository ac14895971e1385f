//! Every event as it leaves the machine and as the backend takes it in, compared byte for byte with recordings in
//! `tests/fixtures/events`.
//!
//! These tests know the program by its commands, its files and HTTP, so that they stay as they are when its inside changes.
//! Two places look into the store: the event of a newer codemie is put into its table `event`, and the scripted agent waits
//! for a row of `session`. What is recorded:
//!
//! - `import.*`: an export (`sessions.export.json`, with every event type, revisions and names that are not plain), old stores,
//!   an event of a type that only a newer codemie knows, and session files of three agents that never ran through codemie,
//!   sent to all three kinds of receivers; `show`, `list` and `export` of them.
//! - `live.*`: runs of a scripted agent, with each way to begin and to end that can be had cheaply.
//! - `backend.*`: what a real backend answers to the recorded events, to malformed ones, and to every question. SQLite and
//!   PostgreSQL have the same recording.
//! - `dashboard.*`: the events of the import in the copy of the store that the dashboard reads.
//!
//! Ids, times and the rest of what differs between runs are replaced as `stable.rs` says. Prices of live runs and foreign
//! conversations are those of the price table: where it changes, so do the recordings.
//!
//! `CODEMIE_TEST_RECORD=1 cargo test --test it delivery::recording` writes the recordings anew; the difference is then for a
//! person to read. Without it a difference is a failure, always.

mod consumer;
mod fixture;
mod live;
mod protobuf;
mod served_reader;
mod stable;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use self::fixture::Comparison;
use self::stable::{Stable, without_number};
use crate::sandbox::{CommandOutput, Sandbox, output_of};
use crate::support::receiver::{Received, Receiver, Reply};

/// A receiver that believes everything, for all three kinds of senders.
fn receiver() -> Receiver {
    Receiver::start(|received| match received.path.as_str() {
        "/v1/events" => {
            let events: Vec<Value> = serde_json::from_slice(&received.body).unwrap();
            Reply::Status(200, json!({"accepted": events.len(), "duplicates": 0, "rejected": []}).to_string())
        }
        "/old/v1/metrics" => Reply::Status(200, json!({"success": true}).to_string()),
        _ => Reply::Bytes(Vec::new(), "application/x-protobuf"),
    })
}

/// The settings that send to it.
fn settings(receiver: &Receiver) -> String {
    let url = receiver.url();
    format!(
        "[backend]\nurl = '{url}'\ntoken = 'secret-1'\n[otlp]\nendpoint = '{url}'\nheaders = 'x-key=secret-2'\n\
         [codemieV1]\nurl = '{url}/old'\nauth = 'Cookie: session=secret-3'\n[identity]\nuser = 'dev'\n"
    )
}

/// codemie in the sandbox. Names may hold the local time, so the zone is given.
fn codemie(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.codemie(args);
    command.env("TZ", "UTC");
    command
}

fn successful_output(sandbox: &Sandbox, args: &[&str]) -> CommandOutput {
    let output = output_of(&mut codemie(sandbox, args));
    assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
    output
}

/// The headers that are the program's choice, and not that of the connection.
fn head(request: &Received) -> String {
    let mut head = format!("POST {}\n", request.path);
    for (name, value) in &request.headers {
        if !matches!(name.as_str(), "host" | "content-length" | "connection" | "accept" | "accept-encoding") {
            writeln!(head, "{name}: {value}").unwrap();
        }
    }
    head
}

/// The requests to one receiver in their order, bodies unpacked. Each receiver is recorded alone: they are sent to side by side.
fn requests(received: &[Received], path: &str, body: impl Fn(&Received) -> String) -> String {
    let mut text = String::new();
    for one in received.iter().filter(|one| one.path == path) {
        writeln!(text, "{}\n{}", head(one), body(one)).unwrap();
    }
    text
}

fn plain(request: &Received) -> String {
    String::from_utf8(request.body.clone()).unwrap()
}

/// What each receiver got.
fn compare_requests(comparison: &mut Comparison, stable: &mut Stable, name: &str, received: &[Received]) {
    let native = requests(received, "/v1/events", plain);
    stable.learn(&native);
    let otlp = |path: &str| requests(received, path, |one| protobuf::text(path, &one.body));
    let all = [
        ("native", native),
        ("otlp-metrics", otlp("/v1/metrics")),
        ("otlp-logs", otlp("/v1/logs")),
        ("codemie-v1", requests(received, "/old/v1/metrics", plain)),
    ];
    for (kind, text) in all {
        assert!(!text.is_empty(), "nothing was sent: {kind}");
        comparison.add(&format!("{name}.{kind}.txt"), &stable.apply(&text));
    }
}

/// Session files of agents that nobody wrapped, from the recordings of each agent.
fn foreign(sandbox: &Sandbox) {
    let claude = "-home-dev-project/07000000-0000-4000-8000-000000000007";
    let part = |name: &str| format!("{claude}/subagents/agent-{name}.jsonl");
    let mut files: Vec<(String, String)> = Vec::new();
    for file in [format!("{claude}.jsonl"), part("a5d0c878158073cce"), part("a693cc2c20c079667")] {
        files.push((format!("claude/07-subagent/projects/{file}"), format!(".claude/projects/{file}")));
    }
    for (scene, file) in [
        ("plain", "rollout-2026-11-15T23-31-34-01a1e18d-46b4-7352-92dc-1e28b60230dc.jsonl"),
        ("resume", "rollout-2026-11-15T23-33-16-01a1e18e-d62f-7a33-9328-be1c37355c9c.jsonl"),
    ] {
        let place = format!("sessions/2026/11/15/{file}");
        files.push((format!("codex/{scene}/{place}"), format!(".codex/{place}")));
    }
    for (scene, file) in [
        ("plain", "session-2026-11-15T23-44-11111111.jsonl"),
        ("resume", "session-2026-11-15T23-46-a8867c7a.jsonl"),
    ] {
        files.push((format!("gemini/{scene}/{file}"), format!(".gemini/tmp/project/chats/{file}")));
    }
    for (from, to) in files {
        sandbox.file(&to, &fs::read_to_string(fixture::path(&from)).unwrap());
    }
}

/// A store into which a newer codemie has written an event of a type that this one does not know.
fn become_unknown(sandbox: &Sandbox) {
    let store = rusqlite::Connection::open(sandbox.path(".codemie/codemie.db")).unwrap();
    let attributes = json!({"window": "5h", "used": 0.25, "limit": null, "ok": true, "words": "what /home/dev says",
        "parts": [1, "plain-name", "two words"]});
    let id = uuid::Uuid::from_u128(0x0c00_0000_0000_4000_8000_0000_0000_0001);
    let changed = store
        .execute(
            "UPDATE event SET type = 'forecast', attributes = ?1, record = NULL WHERE id = ?2",
            rusqlite::params![attributes.to_string(), id.as_bytes().as_slice()],
        )
        .unwrap();
    assert_eq!(changed, 1);
}

/// A home with everything that can be imported.
fn imported() -> (Sandbox, String) {
    let sandbox = Sandbox::new();
    let mut printed = String::new();
    for name in [
        "events/sessions.export.json",
        "events/sessions.export.json",
        "events/newer.export.json",
        "old-stores/genie/v3.json",
        "old-stores/codemie/5f1c2a3b-1111-4222-8333-444455556666.json",
    ] {
        let place = fs::canonicalize(sandbox.home()).unwrap().with_file_name(name.replace('/', "-"));
        fs::copy(fixture::path(name), &place).unwrap();
        let CommandOutput { out, err, .. } =
            output_of(&mut codemie(&sandbox, &["import", place.to_str().unwrap()]));
        write!(printed, "import {name}\n{out}{err}").unwrap();
    }
    become_unknown(&sandbox);
    (sandbox, printed)
}

#[test]
fn imported_sessions_and_foreign_conversations_are_sent_as_recorded() {
    let mut comparison = Comparison::default();
    send_imported(&mut comparison);
    comparison.finish();
}

fn send_imported(comparison: &mut Comparison) {
    let (sandbox, mut printed) = imported();
    let receiver = receiver();
    let mut stable = Stable::imported();
    let folder = fs::canonicalize(sandbox.home().parent().unwrap()).unwrap();
    stable.replace(folder.to_str().unwrap(), "@folder@");

    let sent_by_backfill = successful_output(&sandbox, &["sync", "preview", "--limit", "10000"]).out;
    sandbox.file(".codemie/config.toml", &settings(&receiver));
    let synced = successful_output(&sandbox, &["sync", "--backfill"]);
    let received = receiver.received();
    compare_requests(comparison, &mut stable, "import", &received);
    let bodies: String = received.iter().filter(|one| one.path == "/v1/events").map(plain).collect();
    let user = previewed_user(&sent_by_backfill);
    assert_eq!(
        body_lines(&sent_by_backfill.replace(&user, "\"user\":\"dev\"")),
        body_lines(&bodies),
        "preview"
    );
    write!(printed, "sync --backfill\n{}", synced.err).unwrap();

    // The backfill sends the sessions of the store once more; the foreign conversations are a request of their own.
    foreign(&sandbox);
    let scanned = successful_output(&sandbox, &["sync", "--backfill", "--scan"]);
    let received = receiver.received().split_off(received.len());
    let foreign: Vec<Received> =
        received.into_iter().filter(|one| plain_contains(one, "\"foreign\"")).collect();
    comparison.add("import.foreign.txt", &stable.apply(&requests(&foreign, "/v1/events", plain)));
    write!(printed, "sync --backfill --scan\n{}", scanned.err).unwrap();
    comparison.add("import.printed.txt", &stable.apply(&printed));

    let delivered = "\"lastDeliveredAt\": ";
    let mut shown = String::new();
    for args in [
        &["show", "alpha", "--json"][..],
        &["show", "theta", "--json"],
        &["list", "--all", "--agent", "gemini", "--json"],
        &["export", "delta"],
    ] {
        let out = successful_output(&sandbox, args).out;
        let out = stable.apply(&without_number(&without_number(&out, delivered), "\"exportedAt\": "));
        write!(shown, "codemie {}\n{out}", args.join(" ")).unwrap();
    }
    comparison.add("import.shown.txt", &shown);
}

fn plain_contains(request: &Received, text: &str) -> bool {
    request.path == "/v1/events" && plain(request).contains(text)
}

/// The events of bodies, one per line.
fn body_lines(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| line.trim_end_matches(',')).collect()
}

/// `"user":"NAME"` as a preview without settings has it: the login name, if there is one.
fn previewed_user(text: &str) -> String {
    let start = text.find("\"user\":").unwrap();
    let end = text[start..].find(",\"attributes\"").unwrap();
    text[start..start + end].to_owned()
}

/// A published record, or any other file of the home.
fn file(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
