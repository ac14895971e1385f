//! The description of the API, made from the table of routes: a route that is not described cannot be reached.

use serde_json::{Map, Value, json};

use super::auth::Need;
use super::read::{DEFAULT_ROWS, DEFAULT_SESSIONS, MAX_ROWS};
use super::routes::ROUTES;
use super::schemas::{self, reference};
use crate::event::MOST_EVENTS;
use crate::limits;
use reader::{By, Page};
use types::Status;

/// The description of a route.
pub(super) struct Operation {
    summary: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    /// Status, what it means, content type, schema.
    responses: Vec<(u16, &'static str, &'static str, Value)>,
}

const JSON: &str = "application/json";

fn operation(summary: &'static str, content: &'static str, schema: Value) -> Operation {
    Operation {
        summary,
        parameters: Vec::new(),
        body: None,
        responses: vec![(200, "the answer", content, schema)],
    }
}

impl Operation {
    fn with(mut self, parameters: Vec<Value>) -> Self {
        self.parameters = parameters;
        self.refused(400, "a parameter makes no sense")
    }

    fn refused(mut self, status: u16, meaning: &'static str) -> Self {
        self.responses.push((status, meaning, JSON, reference("Error")));
        self
    }
}

fn query(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": schema})
}

/// No text of a database holds NUL, so none is looked for.
fn text(name: &str, description: &str) -> Value {
    query(name, description, &json!({"type": "string", "pattern": "^[^\\x00]*$"}))
}

fn moment(name: &str, description: &str) -> Value {
    let description = format!("{description}: a date, a time (RFC 3339), or how long ago (30m, 12h, 7d, 2w)");
    let schema = json!({"anyOf": [
        {"type": "string", "format": "date"},
        {"type": "string", "pattern": "^[1-9][0-9]{0,3}[smhdw]$"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "maxLength": 0}, // not given
    ]});
    query(name, &description, &schema)
}

fn limit(otherwise: usize, most: usize) -> Value {
    let schema = json!({"type": "integer", "minimum": 1, "maximum": most, "default": otherwise});
    query("limit", "How many at most", &schema)
}

fn words(all: impl Iterator<Item = &'static str>) -> Value {
    json!({"type": "string", "enum": all.collect::<Vec<_>>()})
}

fn session_id() -> Value {
    json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string", "minLength": 1},
        "description": "A session's id"})
}

pub(super) fn post_events() -> Operation {
    let mut post =
        operation("Take in events, once each; answered after the commit", JSON, reference("Ingested"));
    // Anything in an array is answered one by one, so nothing in it makes the request a bad one.
    let items = json!({"anyOf": [reference("Event"), {}]});
    post.body = Some(json!({
        "required": true,
        "description": format!(
            "Up to {MOST_EVENTS} events, plain or packed as Content-Encoding says (zstd, gzip). Events that are not right are listed in `rejected`."
        ),
        "content": {JSON: {"schema": {"type": "array", "items": items}}},
    }));
    post.refused(400, "the body is no JSON array, or not packed as it says")
        .refused(408, "the body came too slowly")
        .refused(413, "the body, or what it unpacks to, is too large: send fewer events at a time")
        .refused(415, "unknown Content-Encoding: send it plain")
}

pub(super) fn get_sessions() -> Operation {
    operation("Sessions, newest start first", JSON, reference("Sessions")).with(vec![
        text("agent", "Of this agent"),
        text("project", "In this project"),
        text("branch", "On this branch"),
        text("user", "Of this user"),
        text("machine", "On this machine"),
        text("model", "With a call of this model"),
        text("group", "In this group"),
        text("search", "With this in name, project, repository, branch, group, tags, user or ids"),
        query("status", "In this state", &words(Status::ALL.iter().map(|status| status.as_str()))),
        moment("since", "Began at or after"),
        moment("until", "Began before"),
        query("gaps", "Only sessions with a missing seq", &json!({"type": "boolean", "default": false})),
        query(
            "cursor",
            "`next` of the page before",
            &json!({"type": "string", "pattern": "^([0-9]{1,13}\\.[^\\x00]+)?$"}),
        ),
        limit(DEFAULT_SESSIONS, Page::MOST),
    ])
}

pub(super) fn get_session() -> Operation {
    let mut get = operation("One session, as far as its events describe it", JSON, reference("Record"));
    get.parameters.push(session_id());
    get.refused(404, "there is no such session")
}

pub(super) fn get_timeline() -> Operation {
    let after = json!({"type": "string", "pattern": "^([0-9]{1,9}|1000000000)(\\.[0-9a-f]{32})?$"});
    let after = query("after", "`next` of the page before; or beyond this seq", &after);
    let parameters = vec![session_id(), after, limit(DEFAULT_ROWS, MAX_ROWS)];
    operation("A session's events in the order of seq", JSON, reference("Timeline"))
        .with(parameters)
        .refused(404, "there is no such session")
}

pub(super) fn get_usage() -> Operation {
    operation(
        "Tokens and cost: the newest days, or the most expensive of what it is split by",
        JSON,
        reference("Usage"),
    )
    .with(vec![
        query("by", "What to split by", &words(By::ALL.iter().map(|by| by.as_str()))),
        text("agent", "Of this agent"),
        text("model", "Of this model"),
        text("project", "In this project"),
        text("branch", "On this branch"),
        text("user", "Of this user"),
        moment("since", "From this day on"),
        moment("until", "Up to this day"),
        text(
            "timezone",
            "Days are those of this zone, like Europe/Berlin; else those of the server's --timezone",
        ),
        limit(DEFAULT_ROWS, MAX_ROWS),
        query(
            "cursor",
            "`next` of the page before",
            &json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
        ),
    ])
    .refused(404, "there is no such time zone")
}

pub(super) fn get_live() -> Operation {
    let messages =
        json!({"type": "string", "description": "`event: session`, `data: {time, event, session: Record}`"});
    operation("Sessions as they change, as server-sent events", "text/event-stream", messages)
}

pub(super) fn get_metrics() -> Operation {
    operation(
        "Counters of this node for Prometheus, and cost and tokens of all time by agent, model and project",
        "text/plain",
        json!({"type": "string"}),
    )
}

pub(super) fn get_openapi() -> Operation {
    operation("This description", JSON, json!({"type": "object"}))
}

pub(super) fn get_healthz() -> Operation {
    let mut get = operation("Whether this node can take events in", JSON, reference("Status"));
    let meaning = "it cannot: `status` says whether the disk is full, or the database read-only or away";
    get.responses.push((503, meaning, JSON, reference("Status")));
    get
}

pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let described = describe(&(route.operation)(), route.need);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "codemie metrics backend",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": format!(
                "Bodies up to {} MiB, {} MiB unpacked; a token has {} requests per second unless the operator says otherwise.",
                limits::BODY >> 20, limits::UNPACKED >> 20, limits::RATE
            ),
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas::all(),
        },
    })
}

/// The route's own description, and the answers of the guard before it.
fn describe(operation: &Operation, need: Need) -> Value {
    let mut responses = Map::new();
    let mut add = |status: u16, meaning: &str, content: &str, schema: &Value| {
        let answer = json!({"description": meaning, "content": {content: {"schema": schema}}});
        responses.insert(status.to_string(), answer);
    };
    for (status, meaning, content, schema) in &operation.responses {
        add(*status, meaning, content, schema);
    }
    let error = reference("Error");
    let summary = match need {
        Need::Nothing => operation.summary.to_owned(),
        Need::Any => format!("{} (any token)", operation.summary),
        Need::Role(role) => {
            add(403, "the token is for something else", JSON, &error);
            format!("{} (token: {role})", operation.summary)
        }
    };
    if need != Need::Nothing {
        add(401, "no token, or not a good one", JSON, &error);
        add(429, "too many requests with this token; Retry-After says when to come back", JSON, &error);
        add(500, "the server failed; its log says why", JSON, &error);
        add(
            503,
            "too busy, or the database does not answer; Retry-After says when to come back",
            JSON,
            &error,
        );
    }
    let mut described = json!({"summary": summary, "responses": responses});
    described["security"] = if need == Need::Nothing { json!([]) } else { json!([{"token": []}]) };
    if !operation.parameters.is_empty() {
        described["parameters"] = json!(operation.parameters);
    }
    if let Some(body) = &operation.body {
        described["requestBody"] = body.clone();
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_named_exists_and_every_one_that_exists_is_named() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for (at, _) in text.match_indices("#/components/schemas/") {
            let name = text[at + 21..].split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        for name in schemas.keys() {
            assert!(text.contains(&format!("#/components/schemas/{name}\"")), "{name} is never used");
        }
    }

    #[test]
    fn a_route_that_needs_a_token_says_so() {
        for (path, methods) in document()["paths"].as_object().unwrap() {
            for (method, described) in methods.as_object().unwrap() {
                let open = described["security"].as_array().unwrap().is_empty();
                assert_eq!(open, path == "/healthz", "{method} {path}");
                assert_eq!(open, described["responses"]["401"].is_null(), "{method} {path}");
            }
        }
    }
}
