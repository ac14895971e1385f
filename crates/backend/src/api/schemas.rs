//! The bodies of requests and answers, as JSON schemas.

use serde_json::{Map, Value, json};

use super::read::OF_NO_MODEL;
use types::event::{Field, Text, or_null};
use types::{Coverage, EndReason, Event, EvidenceKind, Link, Status};

fn text() -> Value {
    Text::schema()
}

fn number() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn any_int() -> Value {
    json!({"type": "integer"})
}

fn dollars() -> Value {
    json!({"type": "number", "minimum": 0})
}

/// A reference to one of the schemas of this file.
pub(super) fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// An object of which every field is there.
fn whole(fields: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "required": names, "properties": properties})
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
        ("coverage", Coverage::schema()),
    ]);
    // Where there are any.
    usage["properties"]["unpricedCalls"] = json!({"type": "object", "additionalProperties": any_int()});
    let correlation = whole(&[
        ("status", Link::schema()),
        ("agentSessionId", maybe()),
        ("agentSessionFile", maybe()),
        ("evidence", or_null(EvidenceKind::schema())),
        ("boundAt", or_null(time())),
    ]);
    let range = json!({"type": "array", "items": number(), "minItems": 2, "maxItems": 2});
    whole(&[
        ("sessionId", text()),
        ("name", text()),
        ("agent", text()),
        ("agentVersion", maybe()),
        ("wrapperVersion", maybe()),
        ("status", Status::schema()),
        ("endReason", or_null(EndReason::schema())),
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
    json!({
        "Error": whole(&[("error", json!({"type": "string"}))]),
        "Status": whole(&[("status", json!({"type": "string"}))]),
        "Event": Event::schema(),
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
