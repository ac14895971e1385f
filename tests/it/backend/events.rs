//! Short constructors of events for tests, and all answers of a storage in one value to compare.
use std::fmt::Write;

use backend::Record;
use backend::storage::{Ingested, Storage};
use reader::token::Owner;
use reader::{By, Page, SessionFilter, TimelinePosition, UsageFilter};
use serde_json::{Value, json};
use types::Event;
use types::Timestamp;
use uuid::Uuid;

/// 2026-11-16T00:00:00Z
pub(super) const MIDNIGHT: i64 = 1_794_787_200_000;
pub(super) const NOW: Timestamp = Timestamp(MIDNIGHT + 3_600_000);

/// A session's id that a test can write down.
pub(super) fn session(number: u32) -> String {
    format!("5e551011-0000-4000-8000-{number:012x}")
}

pub(super) fn event(session: &str, seq: i64, kind: &str, attributes: &Value) -> Value {
    let key = attributes.get("key").map_or_else(|| format!("{session} {seq}"), Value::to_string);
    json!({
        "id": Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{kind} {key}").as_bytes()),
        "rev": 0, "type": kind, "sessionId": session, "seq": seq,
        "time": Timestamp(MIDNIGHT + seq * 1000).to_string(),
        "agent": "claude", "machine": "m1", "user": "dev", "attributes": attributes,
    })
}

/// The event with some of its fields, or of its attributes (with a dot in front), set to something else.
pub(super) fn but(mut event: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        match name.strip_prefix('.') {
            Some(attribute) => event["attributes"][attribute] = value.clone(),
            None => event[name] = value.clone(),
        }
    }
    event
}

pub(super) fn start(session: &str, seq: i64, project: &str) -> Value {
    event(
        session,
        seq,
        "session.start",
        &json!({"name": format!("name-{session}"), "reason": "startup", "agentVersion": "2.1", "wrapperVersion": "0.1.0",
            "project": project, "repository": "acme/widgets", "branch": "main", "transitionedFrom": null,
            "parentSessionId": null, "tags": ["blue"], "group": null}),
    )
}

pub(super) fn bound(session: &str, seq: i64) -> Value {
    event(
        session,
        seq,
        "session.bound",
        &json!({"agentSessionId": format!("agent-{session}"), "evidence": "assigned"}),
    )
}

pub(super) fn usage(session: &str, seq: i64, output: i64) -> Value {
    event(
        session,
        seq,
        "usage",
        &json!({"key": format!("msg-{session}-{seq}"), "model": "claude-sonnet-4-5", "inputTokens": 10, "outputTokens": output,
            "cacheReadTokens": 1000, "cacheWriteTokens": 100, "reasoningTokens": 1, "costUsd": 0.0123, "subagent": false,
            "source": "transcript"}),
    )
}

pub(super) fn tool(session: &str, seq: i64, ok: bool) -> Value {
    event(
        session,
        seq,
        "tool",
        &json!({"key": format!("tool-{session}-{seq}"), "name": "Edit", "ok": ok, "kind": "edit", "fileExtension": "rs",
            "linesAdded": 3, "linesRemoved": 1}),
    )
}

pub(super) fn prompt(session: &str, seq: i64) -> Value {
    event(session, seq, "prompt", &json!({"key": format!("prompt-{session}-{seq}")}))
}

pub(super) fn end(session: &str, seq: i64, last_seq: i64) -> Value {
    event(
        session,
        seq,
        "session.end",
        &json!({"status": "completed", "endReason": "exit", "exitCode": 0, "durationMs": seq * 1000, "transitionedTo": null,
            "totals": {"filesChanged": 2, "coverage": "transcript"}, "lastSeq": last_seq}),
    )
}

/// A whole life: START, bound, prompt, two calls, two tools, an error, END.
pub(super) fn life(session: &str, project: &str) -> Vec<Value> {
    vec![
        start(session, 1, project),
        bound(session, 2),
        prompt(session, 3),
        usage(session, 4, 50),
        tool(session, 5, true),
        tool(session, 6, false),
        usage(session, 7, 70),
        event(
            session,
            8,
            "error",
            &json!({"key": format!("error-{session}"), "status": 529, "kind": "overloaded"}),
        ),
        end(session, 9, 9),
    ]
}

pub(super) fn parsed(events: &[Value]) -> Vec<Event> {
    events.iter().map(|event| Event::parse(&event.to_string()).unwrap()).collect()
}

/// Takes a batch in; how many were accepted, duplicates, rejected.
pub(super) async fn post(storage: &dyn Storage, events: &[Value]) -> (usize, usize, usize) {
    let ingested = storage.ingest(&Owner::default(), parsed(events), NOW).await.unwrap();
    (ingested.accepted, ingested.duplicates, ingested.rejected.len())
}

/// The same, as this owner.
pub(super) async fn post_as(storage: &dyn Storage, owner: &str, events: &[Value]) -> Ingested {
    storage.ingest(&Owner::new(owner).unwrap(), parsed(events), NOW).await.unwrap()
}

pub(super) async fn record(storage: &dyn Storage, id: &str) -> Value {
    let detail = storage.session(id).await.unwrap().expect("a session");
    serde_json::to_value(Record::of(&detail.session, NOW)).unwrap()
}

/// Everything a storage answers about everything.
pub(super) async fn everything(storage: &dyn Storage) -> String {
    let mut answers = String::new();
    let mut page = Page::first(500);
    loop {
        let found = storage.sessions(SessionFilter::default(), page).await.unwrap();
        for session in &found.sessions {
            let detail = storage.session(&session.id).await.unwrap().unwrap();
            let record = record(storage, &session.id).await;
            let timeline = storage.timeline(&session.id, TimelinePosition::default(), 10_000).await.unwrap();
            writeln!(answers, "{record}\n{:?}\n{:?}\n{timeline:?}", detail.models, detail.tools).unwrap();
        }
        match found.next {
            Some(next) => page = Page { after: Some(next), limit: 500 },
            None => break,
        }
    }
    for by in By::ALL {
        let usage = storage.usage(*by, UsageFilter::default(), 0..10_000).await.unwrap();
        let series = storage.series(*by, UsageFilter::default()).await.unwrap();
        writeln!(answers, "{by} {usage:?}\n{by} {series:?}").unwrap();
    }
    let mut health = storage.health(100).await.unwrap();
    health.gaps.sort_by(|a, b| a.id.cmp(&b.id));
    writeln!(answers, "{:?}\n{health:?}", storage.facets().await.unwrap()).unwrap();
    answers
}

/// Says in which line two answers differ, not all of both.
pub(super) fn assert_same(answers: &str, expected: &str) {
    for (answer, expected) in answers.lines().zip(expected.lines()) {
        assert_eq!(answer, expected);
    }
    assert_eq!(answers.lines().count(), expected.lines().count());
}
