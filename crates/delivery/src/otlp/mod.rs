//! OpenTelemetry over HTTP, in protobuf: for each batch the sums of the sessions that its events belong to, then one
//! log record per event.
//!
//! The sums are cumulative since the session's start, as they are when the request is made, and dated by the last record that
//! changed them. So a batch sent twice has the same sums twice, and a collector that missed one catches up with the next.
//! Log records have no such key: a receiver that wants each once goes by `codemie.event.id` and `codemie.event.rev`.

use prost::Message;
use reqwest::Url;
use serde_json::Value;

use self::message::{
    Any, AnyValue, ArrayValue, ExportAnswer, ExportLogs, ExportMetrics, INFO, KeyValue, LogRecord, Resource,
    ResourceLogs, Scope, ScopeLogs, pair, text,
};
use super::answer;
use super::answer::{Answer, Verdict};
use super::http::{Encoding, Request, join};
use super::identity::Identity;
use super::sink::Sink;
use config::delivery::Secret;
use store::{Error, Outgoing, View};
use types::Timestamp;

mod message;
mod metrics;

/// A collector's name as a sink.
pub const OTLP: &str = "otlp";

const PROTOBUF: &str = "application/x-protobuf";

#[derive(Debug)]
pub struct Otlp {
    endpoint: Url,
    headers: Vec<(String, Secret)>,
    identity: Identity,
}

impl Otlp {
    pub fn new(settings: &config::delivery::Otlp, identity: Identity) -> Self {
        Self { endpoint: settings.endpoint.clone(), headers: settings.headers.clone(), identity }
    }

    fn resource(&self) -> Resource {
        let mut attributes = vec![
            text("service.name", "codemie"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("host.id", &self.identity.machine),
        ];
        attributes.extend(self.identity.user.as_ref().map(|user| text("user.name", user)));
        Resource { attributes }
    }

    fn request(&self, path: &str, message: &impl Message) -> Request {
        Request {
            url: join(&self.endpoint, path),
            credentials: self.headers.clone(),
            headers: Vec::new(),
            content_type: PROTOBUF,
            body: message.encode_to_vec(),
            // Every collector must support gzip.
            encoding: Some(Encoding::Gzip),
        }
    }
}

fn scope() -> Scope {
    Scope { name: "codemie".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}

impl Sink for Otlp {
    fn name(&self) -> &'static str {
        OTLP
    }

    fn url(&self) -> &Url {
        &self.endpoint
    }

    fn requests(&self, view: &View<'_>, events: &[Outgoing]) -> Result<Vec<Request>, Error> {
        let metrics = metrics::of(view, events, self.resource())?;
        let logs = of(events, self.resource());
        Ok(vec![self.request("/v1/metrics", &metrics), self.request("/v1/logs", &logs)])
    }

    fn question(&self) -> Option<Request> {
        Some(self.request("/v1/logs", &ExportLogs::default()))
    }

    fn judge(&self, _: &[Outgoing], request: &Request, answer: &Answer) -> Verdict {
        // Some collectors queue a batch and answer 202.
        match answer::by_status(answer) {
            // A collector may have no pipeline for metrics, or none for logs.
            Some(Verdict::AllRefused(why)) if matches!(answer.status, 404 | 405) => Verdict::NotServed(why),
            Some(verdict) if !(200..300).contains(&answer.status) => verdict,
            _ => receipt(request, answer),
        }
    }

    fn readable(&self, request: &Request) -> String {
        if request.url.path().ends_with("/v1/metrics") {
            ExportMetrics::decode(request.body.as_slice())
                .map_or_else(|e| e.to_string(), |m| format!("{m:#?}"))
        } else {
            ExportLogs::decode(request.body.as_slice()).map_or_else(|e| e.to_string(), |m| format!("{m:#?}"))
        }
    }
}

/// What a collector accepted. It cannot name the parts it refused, and by the protocol they are not to be sent again.
fn receipt(request: &Request, answer: &Answer) -> Verdict {
    if answer.truncated || answer.content_type.starts_with("text/html") {
        return answer::unusable("a page for people");
    }
    let Ok(receipt) = ExportAnswer::decode(answer.body.as_slice()) else {
        // Some collectors answer in JSON whatever the request was.
        return match serde_json::from_slice::<serde_json::Value>(&answer.body) {
            Ok(serde_json::Value::Object(receipt)) if receipt.keys().all(|key| key == "partialSuccess") => {
                let mut fields = receipt.values().filter_map(serde_json::Value::as_object).flatten();
                // Protobuf's JSON writes 64-bit numbers as strings.
                if fields.any(|(key, value)| key.starts_with("rejected") && value != 0 && value != "0") {
                    let body = answer::in_one_line(&String::from_utf8_lossy(&answer.body));
                    return Verdict::PartlyAccepted(format!("refused a part: {body}"));
                }
                Verdict::Accepted { rejected: Vec::new() }
            }
            _ => answer::unusable("something that is no receipt"),
        };
    };
    match receipt.partial_success.filter(|partial| partial.rejected > 0) {
        Some(partial) => {
            let (path, why) = (request.url.path(), answer::in_one_line(&partial.error_message));
            Verdict::PartlyAccepted(format!("refused {} of what {path} got: {why}", partial.rejected))
        }
        None => Verdict::Accepted { rejected: Vec::new() },
    }
}

#[cfg(test)]
mod tests;

// One log record per event, its attributes as the event has them.

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
