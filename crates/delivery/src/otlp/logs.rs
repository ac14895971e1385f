//! One log record per event, its attributes as the event has them.

use serde_json::Value;

use super::message::{
    Any, AnyValue, ArrayValue, ExportLogs, INFO, KeyValue, LogRecord, Resource, ResourceLogs, ScopeLogs,
    pair, text,
};
use super::{nanos, scope};
use store::Outgoing;

pub(super) fn of(events: &[Outgoing], resource: Resource) -> ExportLogs {
    let log_records = events.iter().map(record).collect();
    let scope_logs = vec![ScopeLogs { scope: Some(scope()), log_records }];
    ExportLogs { resource_logs: vec![ResourceLogs { resource: Some(resource), scope_logs }] }
}

fn record(event: &Outgoing) -> LogRecord {
    let kind = event.attributes.type_name();
    let mut attributes = vec![
        text("codemie.event.id", event.id.to_string()),
        pair("codemie.event.rev", Any::Int(event.rev)),
        pair("codemie.event.seq", Any::Int(event.seq)),
        text("session.id", &*event.session),
        text("gen_ai.agent.name", &*event.agent),
    ];
    // Texts and numbers always have a JSON form.
    let described = serde_json::to_value(&event.attributes).unwrap_or_default();
    flatten("codemie", &described, &mut attributes);
    LogRecord {
        time_unix_nano: nanos(event.time),
        observed_time_unix_nano: nanos(event.time),
        severity_number: INFO,
        body: Some(AnyValue { value: Some(Any::String(kind.to_owned())) }),
        attributes,
        event_name: format!("codemie.{kind}"),
    }
}

/// `totals.inputTokens` becomes `codemie.totals.inputTokens`. What is null is left out.
fn flatten(prefix: &str, value: &Value, into: &mut Vec<KeyValue>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                flatten(&format!("{prefix}.{key}"), value, into);
            }
        }
        _ => into.extend(any(value).map(|value| pair(prefix, value))),
    }
}

fn any(value: &Value) -> Option<Any> {
    Some(match value {
        Value::Null | Value::Object(_) => return None,
        Value::Bool(flag) => Any::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Any::Int(whole),
            None => Any::Double(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Any::String(text.clone()),
        Value::Array(values) => {
            let values = values.iter().map(|value| AnyValue { value: any(value) }).collect();
            Any::Array(ArrayValue { values })
        }
    })
}
