//! The shapes of what is sent and answered, as JSON schemas.

use serde_json::{Map, Value, json};

use super::read::OF_NO_MODEL;
use crate::attributes::{MOST_ADDED, Source};
use crate::event::MOST_KEY_BYTES;
use crate::seqs;
use wire::Coverage;
use wire::{EndReason, EventType, EvidenceKind, Link, StartReason, Status};

fn text() -> Value {
    json!({"type": "string", "maxLength": 1024})
}

/// What sums are split by.
fn dimension() -> Value {
    json!({"type": "string", "maxLength": MOST_KEY_BYTES})
}

fn number() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// Of what sums are made of.
fn added() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": MOST_ADDED})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": 1_000_000_000_000_i64})
}

fn any_int() -> Value {
    json!({"type": "integer"})
}

fn dollars() -> Value {
    json!({"type": "number", "minimum": 0})
}

fn word(all: &[&str]) -> Value {
    json!({"type": "string", "enum": all})
}

fn or_null(mut schema: Value) -> Value {
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        values.push(Value::Null);
    }
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// An object in which the named fields are required.
fn object(required: &[&str], fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object of which every field is there.
fn whole(fields: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    object(&names, fields)
}

macro_rules! words {
    ($name:ty) => {
        word(&<$name>::ALL.iter().map(|word| word.as_str()).collect::<Vec<_>>())
    };
}

/// One of the types, with its attributes.
fn event(kind: EventType, attributes: &Value) -> Value {
    let seq = json!({"type": "integer", "minimum": 1, "maximum": seqs::HIGHEST});
    object(
        &["id", "rev", "type", "sessionId", "seq", "time", "agent", "attributes"],
        &[
            ("id", json!({"type": "string", "format": "uuid"})),
            ("rev", json!({"type": "integer", "minimum": 0, "maximum": i32::MAX})),
            ("type", json!({"const": kind})),
            ("sessionId", json!({"type": "string", "minLength": 1, "maxLength": 1024})),
            ("seq", seq),
            ("time", json!({"type": "string", "format": "date-time"})),
            ("agent", json!({"type": "string", "minLength": 1, "maxLength": MOST_KEY_BYTES})),
            ("machine", or_null(text())),
            ("user", or_null(dimension())),
            ("attributes", attributes.clone()),
        ],
    )
}

fn events() -> Value {
    let maybe = || or_null(text());
    let key = ("key", maybe());
    let start = object(
        &[],
        &[
            ("name", maybe()),
            ("reason", or_null(words!(StartReason))),
            ("agentVersion", maybe()),
            ("wrapperVersion", maybe()),
            ("project", or_null(dimension())),
            ("repository", maybe()),
            ("branch", maybe()),
            ("transitionedFrom", maybe()),
            ("parentSessionId", maybe()),
            ("tags", json!({"type": ["array", "null"], "items": text(), "maxItems": 100})),
            ("group", maybe()),
        ],
    );
    let bound = object(
        &["agentSessionId"],
        &[("agentSessionId", text()), ("evidence", or_null(words!(EvidenceKind)))],
    );
    let usage = object(
        &["model"],
        &[
            key.clone(),
            ("model", dimension()),
            ("inputTokens", or_null(added())),
            ("outputTokens", or_null(added())),
            ("cacheReadTokens", or_null(added())),
            ("cacheWriteTokens", or_null(added())),
            ("reasoningTokens", or_null(added())),
            ("costUsd", json!({"type": ["number", "null"], "minimum": 0, "maximum": 1000})),
            ("subagent", json!({"type": ["boolean", "null"]})),
            ("source", or_null(words!(Source))),
            ("latencyMs", or_null(count())),
            ("ttftMs", or_null(count())),
        ],
    );
    let tool = object(
        &["name"],
        &[
            key.clone(),
            ("name", text()),
            ("ok", json!({"type": ["boolean", "null"]})),
            ("kind", or_null(word(&["read", "write", "edit", "exec", "other"]))),
            ("fileExtension", maybe()),
            ("linesAdded", or_null(added())),
            ("linesRemoved", or_null(added())),
        ],
    );
    let error = object(&[], &[key.clone(), ("status", or_null(count())), ("kind", maybe())]);
    let totals = json!({"type": ["object", "null"],
        "description": "the record's usage; the backend adds up events and takes filesChanged and coverage from here",
        "properties": {"filesChanged": or_null(count()), "coverage": or_null(words!(Coverage))}});
    let end = object(
        &["status", "lastSeq"],
        &[
            ("status", words!(Status)),
            ("endReason", or_null(words!(EndReason))),
            ("exitCode", json!({"type": ["integer", "null"], "minimum": i32::MIN, "maximum": i32::MAX})),
            ("durationMs", or_null(count())),
            ("transitionedTo", maybe()),
            ("totals", totals),
            ("lastSeq", json!({"type": "integer", "minimum": 1, "maximum": seqs::HIGHEST})),
        ],
    );
    json!({"oneOf": [
        event(EventType::Start, &start),
        event(EventType::Bound, &bound),
        event(EventType::Usage, &usage),
        event(EventType::Tool, &tool),
        event(EventType::Prompt, &object(&[], &[key])),
        event(EventType::Error, &error),
        event(EventType::End, &end),
    ]})
}

fn record() -> Value {
    let maybe = || or_null(text());
    let time = any_int;
    let list = || json!({"type": "array", "items": text()});
    let mut usage = whole(&[
        ("apiCalls", number()),
        ("inputTokens", number()),
        ("outputTokens", number()),
        ("cacheReadTokens", number()),
        ("cacheWriteTokens", number()),
        ("reasoningTokens", number()),
        ("costUsd", dollars()),
        ("unpricedModels", list()),
        ("prompts", number()),
        ("toolCalls", number()),
        ("toolErrors", number()),
        ("filesChanged", number()),
        ("linesAdded", number()),
        ("linesRemoved", number()),
        ("apiErrors", number()),
        ("coverage", words!(Coverage)),
    ]);
    // Where there are any.
    usage["properties"]["unpricedCalls"] = json!({"type": "object", "additionalProperties": any_int()});
    let correlation = whole(&[
        ("status", words!(Link)),
        ("agentSessionId", maybe()),
        ("agentSessionFile", maybe()),
        ("evidence", or_null(words!(EvidenceKind))),
        ("boundAt", or_null(time())),
    ]);
    let range = json!({"type": "array", "items": number(), "minItems": 2, "maxItems": 2});
    whole(&[
        ("sessionId", text()),
        ("name", text()),
        ("agent", text()),
        ("agentVersion", maybe()),
        ("wrapperVersion", maybe()),
        ("status", words!(Status)),
        ("endReason", or_null(words!(EndReason))),
        ("exitCode", or_null(any_int())),
        ("signal", or_null(any_int())),
        ("startTime", time()),
        ("endTime", or_null(time())),
        ("durationMs", number()),
        ("workingDirectory", maybe()),
        ("project", maybe()),
        ("repository", maybe()),
        ("branch", maybe()),
        ("pid", or_null(any_int())),
        ("wrapperPid", or_null(any_int())),
        ("runId", maybe()),
        ("parentSessionId", maybe()),
        ("transitionedFrom", maybe()),
        ("transitionedTo", maybe()),
        ("correlation", correlation),
        ("usage", usage),
        ("tags", list()),
        ("group", maybe()),
        ("machine", maybe()),
        ("user", maybe()),
        ("complete", json!({"type": "boolean", "description": "START, END and every seq are there"})),
        ("missingSeq", json!({"type": "array", "items": range})),
        ("lastEventAt", time()),
        ("receivedAt", time()),
    ])
}

/// Sums, with what stands before them.
fn sums(first: &[(&str, Value)]) -> Value {
    let mut fields = first.to_vec();
    fields.extend([
        ("sessions", any_int()),
        ("apiCalls", any_int()),
        ("inputTokens", any_int()),
        ("outputTokens", any_int()),
        ("cacheReadTokens", any_int()),
        ("cacheWriteTokens", any_int()),
        ("reasoningTokens", any_int()),
        ("costUsd", json!({"type": "number"})),
        ("unpricedModels", json!({"type": "array", "items": text()})),
        ("prompts", any_int()),
        ("toolCalls", any_int()),
        ("toolErrors", any_int()),
        ("linesAdded", any_int()),
        ("linesRemoved", any_int()),
        ("apiErrors", any_int()),
    ]);
    for (_, schema) in fields.iter_mut().filter(|(name, _)| OF_NO_MODEL.contains(name)) {
        *schema = or_null(schema.take());
        schema["description"] = json!("null where the sums are of one model: no model does this");
    }
    whole(&fields)
}

pub(super) fn all() -> Value {
    let rejected =
        whole(&[("id", json!({"type": ["string", "null"]})), ("error", json!({"type": "string"}))]);
    let timeline_event = whole(&[
        ("seq", number()),
        ("rev", number()),
        (
            "type",
            json!({"type": "string", "description": "one of the event's types, or one that this version does not know"}),
        ),
        ("time", any_int()),
        ("attributes", json!({"type": "object"})),
    ]);
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    json!({
        "Error": whole(&[("error", json!({"type": "string"}))]),
        "Status": whole(&[("status", json!({"type": "string"}))]),
        "Event": events(),
        "Ingested": whole(&[
            ("accepted", number()),
            ("duplicates", number()),
            ("rejected", json!({"type": "array", "items": rejected})),
        ]),
        "Record": record(),
        "Sessions": whole(&[
            ("sessions", json!({"type": "array", "items": reference("Record")})),
            ("next", json!({"type": ["string", "null"], "description": "the cursor of the next page"})),
        ]),
        "Timeline": whole(&[
            ("events", json!({"type": "array", "items": timeline_event})),
            ("next", json!({"type": ["string", "null"], "description": "`after` of the next page"})),
        ]),
        "Usage": whole(&[
            ("by", json!({"type": "string"})),
            ("rows", json!({"type": "array", "items": sums(&[("key", text()), ("agent", or_null(text()))])})),
            ("more", json!({"type": "boolean", "description": "there are more rows than limit allows: earlier days, or less cost"})),
            ("next", json!({"type": ["string", "null"], "description": "to be given as cursor for them; sums move, so pages fit together as long as nothing arrives"})),
            ("total", sums(&[])),
        ]),
    })
}
