//! The recorded events, and malformed ones, posted to a real backend, and its answers to every question.

use std::fmt::Write;
use std::process::Command;

use os::clock::{Clock, SystemClock};
use report::read_model::LocalSessions;
use serde_json::{Value, json};

use super::fixture::{self, Comparison};
use super::served_reader::ServedReader;
use super::stable::{Stable, numbers, without_number};
use crate::sandbox::{CODEMIE, output_of};
use crate::support::http::ask;
use crate::support::postgres::Cluster;
use crate::support::served::Served;

/// The JSON arrays of a recording of requests.
fn bodies(recording: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    let mut body: Option<String> = None;
    for line in recording.lines() {
        if line == "[" {
            body = Some(String::new());
        }
        if let Some(body) = &mut body {
            body.push_str(line);
            body.push('\n');
        }
        if line == "]" {
            bodies.extend(body.take());
        }
    }
    assert!(!bodies.is_empty());
    bodies
}

const BASE: &str = "0f000000-0000-4000-8000-0000000000";

/// One malformed event per kind of rejection, each under an id of its own.
fn malformed() -> String {
    let long = "x".repeat(1025);
    let far = "x".repeat(513);
    let tags: Vec<String> = (0..101).map(|number: u32| number.to_string()).collect();
    let changes = [
        json!({"id": "no uuid"}),
        json!({"id": null}),
        json!({"rev": -1}),
        json!({"rev": 2_147_483_648_i64}),
        json!({"rev": "1"}),
        json!({"rev": 100_000_000}),
        json!({"seq": 0}),
        json!({"seq": 1.5}),
        json!({"seq": 2_000_000_000_i64}),
        json!({"seq": 20_000_000}),
        json!({"time": "yesterday"}),
        json!({"time": "2300-01-01T00:00:00.000Z"}),
        json!({"time": 1_790_000_000_000_i64}),
        json!({"type": ""}),
        json!({"type": 5}),
        json!({"sessionId": ""}),
        json!({"sessionId": long}),
        json!({"agent": ""}),
        json!({"agent": far}),
        json!({"user": far}),
        json!({"machine": "a\u{0}b"}),
        json!({"attributes": []}),
        json!({"attributes": null}),
        json!({"attributes": {}}),
        json!({"attributes": {"model": far}}),
        json!({"attributes": {"model": "m", "inputTokens": -1}}),
        json!({"attributes": {"model": "m", "outputTokens": 1_000_000_001}}),
        json!({"attributes": {"model": "m", "inputTokens": "many"}}),
        json!({"attributes": {"model": "m", "costUsd": 1001}}),
        json!({"attributes": {"model": "m", "costUsd": -0.5}}),
        json!({"attributes": {"model": "m", "source": "rumour"}}),
        json!({"attributes": {"model": "m", "latencyMs": -1}}),
        json!({"attributes": {"model": "m", "subagent": "yes"}}),
        json!({"type": "session.start", "attributes": {"reason": "boredom"}}),
        json!({"type": "session.start", "attributes": {"project": far}}),
        json!({"type": "session.start", "attributes": {"tags": tags}}),
        json!({"type": "session.start", "attributes": {"branch": long}}),
        json!({"type": "session.bound", "attributes": {}}),
        json!({"type": "session.bound", "attributes": {"agentSessionId": "x", "evidence": "a feeling"}}),
        json!({"type": "tool", "attributes": {"ok": true}}),
        json!({"type": "tool", "attributes": {"name": "Edit", "ok": "yes"}}),
        json!({"type": "tool", "attributes": {"name": "Edit", "kind": "dance"}}),
        json!({"type": "tool", "attributes": {"name": "Edit", "linesAdded": -1}}),
        json!({"type": "error", "attributes": {"status": "bad"}}),
        json!({"type": "error", "attributes": {"status": 100_000}}),
        json!({"type": "session.end", "attributes": {"lastSeq": 1, "status": "gone"}}),
        json!({"type": "session.end", "attributes": {"lastSeq": 1, "endReason": "magic"}}),
        json!({"type": "session.end", "attributes": {"lastSeq": 0}}),
        json!({"type": "session.end", "attributes": {"lastSeq": 1, "durationMs": -1}}),
        json!({"type": "session.end", "attributes": {"lastSeq": 1, "exitCode": "zero"}}),
        json!({"type": "session.end", "attributes": {"lastSeq": 1, "totals": 5}}),
        json!({"type": "session.end", "attributes": {"lastSeq": 1, "totals": {"coverage": "all"}}}),
    ];
    let mut events: Vec<Value> = Vec::new();
    for (number, change) in (1..).zip(&changes) {
        let mut event = json!({"id": format!("{BASE}{number:02}"), "rev": 0, "type": "usage",
            "sessionId": format!("malformed-{number}"), "seq": 1, "time": "2026-09-21T15:13:20.000Z", "agent": "claude",
            "machine": "m", "attributes": {"model": "m"}});
        event.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        events.push(event);
    }
    let mut text: Vec<String> = events.iter().map(Value::to_string).collect();
    // A field that is missing, and what is no event at all.
    for name in ["id", "rev", "type", "sessionId", "seq", "time", "agent", "attributes"] {
        let mut event = events[20].clone();
        event["machine"] = json!("m");
        event.as_object_mut().unwrap().remove(name);
        text.push(event.to_string());
    }
    text.extend(["5", "null", "[]", "{}", "\"text\""].map(str::to_owned));
    format!("[\n{}\n]\n", text.join(",\n"))
}

/// Later, earlier and equal revisions of events, and a session with holes.
fn revisions() -> [String; 4] {
    let event = |number: u32, rev: u32, kind: &str, seq: u32, attributes: Value| {
        json!({"id": format!("{BASE}{number:02}"), "rev": rev, "type": kind, "sessionId": "revised", "seq": seq,
            "time": "2026-09-21T15:13:20.000Z", "agent": "claude", "attributes": attributes})
    };
    let start =
        |rev: u32| event(91, rev, "session.start", 1, json!({"name": format!("name-{rev}"), "project": "p"}));
    let usage = |rev: u32| {
        event(92, rev, "usage", 3, json!({"model": "m", "outputTokens": 10 * rev, "costUsd": 0.5}))
    };
    let end = |rev: u32| {
        event(
            93,
            rev,
            "session.end",
            9,
            json!({"status": "failed", "endReason": "exit", "exitCode": 3, "lastSeq": 9 + rev}),
        )
    };
    // In one batch and over several: the highest counts, whatever the order.
    [
        json!([start(1), usage(1), end(0)]),
        json!([start(0), usage(3), usage(2), end(1)]),
        json!([start(2), usage(3), end(1)]),
        json!([start(5), usage(4), end(0), start(4)]),
    ]
    .map(|batch| batch.to_string())
}

/// Everything that a backend answered, one after the other.
struct Conversation<'a> {
    url: String,
    /// By role.
    token: &'a dyn Fn(&str) -> String,
    text: String,
}

impl<'a> Conversation<'a> {
    fn new(url: String, token: &'a dyn Fn(&str) -> String) -> Self {
        Self { url, token, text: String::new() }
    }

    fn ask(&mut self, method: &str, path: &str, role: Option<&str>, body: &str) -> String {
        let token = role.map(self.token);
        self.ask_with(method, path, role.unwrap_or("nobody"), token, body)
    }

    fn ask_with(&mut self, method: &str, path: &str, who: &str, token: Option<String>, body: &str) -> String {
        let json = ("content-type".to_owned(), "application/json".to_owned());
        let token = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        let headers: Vec<_> = [json].into_iter().chain(token).collect();
        let (status, _, answer) = ask(&self.url, method, path, &headers, body.as_bytes()).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        // Objects of a list on lines of their own, so that a difference is found by eye.
        let shown = sorted_models(&answer).replace("},{", "},\n{");
        writeln!(self.text, "{method} {path} {who}\n{status} {shown}\n").unwrap();
        answer
    }

    fn get(&mut self, path: &str) -> String {
        self.ask("GET", path, Some("read"), "")
    }
}

/// The models without a price in the order of their names. In the rows of `/v1/usage` SQLite gives them in another order than
/// PostgreSQL, and neither is promised.
fn sorted_models(answer: &str) -> String {
    let key = "\"unpricedModels\":[";
    let mut parts = answer.split(key);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (models, rest) = part.split_once(']').unwrap();
        let mut models: Vec<&str> = models.split(',').collect();
        models.sort_unstable();
        write!(out, "{key}{}]{rest}", models.join(",")).unwrap();
    }
    out
}

/// Times of now become a word: when something was received, or how long a session that has not ended goes on.
fn without_now(text: &str, began: i64) -> String {
    numbers(&without_number(text, "\"endTime\":null,\"durationMs\":"), |number| {
        let at: i64 = number.parse().ok().filter(|_| number.len() == 13)?;
        (at >= began).then(|| "@now@".to_owned())
    })
}

/// More separate ranges of numbers than are kept: the last of them is refused.
fn holes() -> String {
    let event = |number: u32| {
        format!(
            r#"{{"id":"0f000000-0000-4000-8001-{number:012}","rev":0,"type":"prompt","sessionId":"holes","seq":{},"time":"2026-09-21T15:13:20.000Z","agent":"claude","attributes":{{}}}}"#,
            2 * number
        )
    };
    format!("[{}]", (1..=4097).map(event).collect::<Vec<_>>().join(","))
}

fn converse(database: &str) -> [(&'static str, String); 3] {
    let began = jiff::Timestamp::now().as_millisecond() - 60_000;
    let served = Served::start(database);
    let token = |role: &str| served.token(role);
    let mut talk = Conversation::new(served.url(), &token);
    for name in ["import.native.txt", "import.foreign.txt"] {
        for body in bodies(&fixture::read(name)) {
            talk.ask("POST", "/v1/events", Some("ingest"), &body);
            talk.ask("POST", "/v1/events", Some("ingest"), &body);
        }
    }
    for body in revisions() {
        talk.ask("POST", "/v1/events", Some("ingest"), &body);
    }
    talk.ask("POST", "/v1/events", Some("ingest"), &malformed());
    for body in ["", "{}", "[", "5", "[1", "[]"] {
        talk.ask("POST", "/v1/events", Some("ingest"), body);
    }
    talk.ask("POST", "/v1/events", None, "[]");
    talk.ask("POST", "/v1/events", Some("read"), "[]");
    let too_many = format!("[{}]", vec!["1"; 10_001].join(","));
    talk.ask("POST", "/v1/events", Some("ingest"), &too_many);
    let create =
        ["backend", "token", "create", "--role", "ingest", "--name", "other", "--database", database];
    let home = tempfile::tempdir().unwrap();
    let other = output_of(Command::new(CODEMIE).args(create).env("CODEMIE_HOME", home.path())).out;
    let other = Some(other.trim().to_owned());
    talk.ask_with("POST", "/v1/events", "another owner", other, &revisions()[0]);
    let mut ingest = without_now(&std::mem::take(&mut talk.text), began);

    let page = talk.get("/v1/sessions?limit=4");
    let next = serde_json::from_str::<Value>(&page).unwrap()["next"].as_str().unwrap().to_owned();
    talk.get(&format!("/v1/sessions?limit=100&cursor={next}"));
    talk.get("/v1/sessions?agent=codex&status=interrupted");
    talk.get("/v1/sessions?status=lost");
    talk.get("/v1/sessions/0a000000-0000-4000-8000-000000000001");
    talk.get("/v1/sessions/nobody");
    talk.get("/v1/sessions/revised");
    talk.get("/v1/sessions/revised/events");
    talk.get("/v1/sessions?gaps=true");
    for number in [1, 4, 5, 7] {
        talk.get(&format!("/v1/sessions/0a000000-0000-4000-8000-{number:012}/events"));
    }
    talk.get("/v1/sessions/0a000000-0000-4000-8000-000000000001/events?limit=2");
    for by in ["day", "agent", "model", "project", "branch", "user", "session", "week", "month", "nothing"] {
        talk.get(&format!("/v1/usage?by={by}"));
    }
    talk.get("/v1/usage?by=day&model=claude-opus-4-8&since=2026-09-22");
    let answers = without_now(&std::mem::take(&mut talk.text), began);

    talk.ask("POST", "/v1/events", Some("ingest"), &holes());
    ingest += &std::mem::take(&mut talk.text);

    talk.ask("GET", "/openapi.json", None, "");
    talk.get("/openapi.json");
    let all = [
        ("backend.ingest.txt", ingest),
        ("backend.answers.txt", answers),
        ("backend.openapi.txt", talk.text),
    ];
    all.map(|(name, text)| (name, Stable::imported().apply(&text)))
}

#[test]
fn backends_answer_recorded_and_malformed_events_as_recorded() {
    let mut comparison = Comparison::default();
    if fixture::is_recording() {
        super::send_imported(&mut comparison);
    }
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("backend.db").display());
    for (name, text) in converse(&database) {
        comparison.add(name, &text);
    }
    comparison.finish();
}

#[test]
fn postgres_answers_as_sqlite_does() {
    if fixture::is_recording() {
        return; // the recording is SQLite's
    }
    let Some(cluster) = Cluster::start() else { return };
    let mut comparison = Comparison::default();
    for (name, text) in converse(&cluster.database("recording")) {
        comparison.add(name, &text);
    }
    comparison.finish();
}

/// The dashboard reads the store as it is; the backend's interface over that read model shows what it holds.
#[test]
fn dashboard_reads_the_events_as_recorded() {
    let (sandbox, _) = super::imported();
    let home = os::home::Home::at(sandbox.path(".codemie"));
    let connect = || store::Store::open(&home, SystemClock.now()).unwrap();
    let began = jiff::Timestamp::now().as_millisecond() - 60_000;
    let served = ServedReader::start(LocalSessions::new(connect(), connect()).reader());
    let token = |_: &str| served.token.clone();
    let mut talk = Conversation::new(format!("http://{}", served.address), &token);
    let imported = [1, 4, 5, 7].map(|number| format!("0a000000-0000-4000-8000-{number:012}"));
    for id in imported.iter().map(String::as_str).chain(["legacy-implementor-1760747400000"]) {
        talk.get(&format!("/v1/sessions/{id}"));
        talk.get(&format!("/v1/sessions/{id}/events"));
    }
    let mut comparison = Comparison::default();
    let text = Stable::imported().apply(&without_now(&talk.text, began));
    comparison.add("dashboard.answers.txt", &text);
    comparison.finish();
}
