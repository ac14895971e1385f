//! One event as it comes over the wire, checked. What is not right is refused with a reason that repeats none of it.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::attributes::{Attributes, Text, sequence};
use wire::Timestamp;
use wire::{EventKind, EventType};

/// 1970 to 2199: a clock may be wrong, but a chart over ten thousand years is none.
const TIMES: std::ops::Range<i64> = 0..7_258_118_400_000;

/// What sums are split by: agent, user, project and model together are a key of `daily`, and PostgreSQL has room for 2704
/// bytes in one.
pub const MOST_KEY_BYTES: usize = 512;

/// An event that was accepted in form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub id: Uuid,
    pub rev: i64,
    /// Opaque: usually a UUID, but sessions of old stores have ids of their own.
    #[serde(rename = "sessionId")]
    pub session: Text,
    pub seq: i64,
    pub time: Timestamp,
    pub agent: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Text>,
    pub attributes: Attributes,
}

/// An event that was not, in the words of the answer. `id` is what the sender called it, if that could be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rejected {
    pub id: Option<String>,
    pub error: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    id: Uuid,
    #[serde(deserialize_with = "revision")]
    rev: i64,
    #[serde(rename = "type")]
    kind: Text,
    session_id: Text,
    #[serde(deserialize_with = "sequence")]
    seq: i64,
    #[serde(deserialize_with = "time")]
    time: Timestamp,
    agent: Text,
    #[serde(default)]
    machine: Option<Text>,
    #[serde(default)]
    user: Option<Text>,
    #[serde(borrow)]
    attributes: &'a RawValue,
}

/// A batch: what a body of `POST /v1/events` holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub events: Vec<Event>,
    pub rejected: Vec<Rejected>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBatch {
    #[error("the body is no JSON array of events")]
    NoArray,
    #[error("a batch holds at most {0} events")]
    TooMany(usize),
}

/// More than any client sends at once. Each costs memory until the batch is committed.
pub const MOST_EVENTS: usize = 10_000;

impl Batch {
    /// One event after the other, and none beyond the limit: what follows it is not even looked at.
    pub fn parse(body: &[u8]) -> Result<Self, BadBatch> {
        let mut batch = Self::default();
        let mut json = serde_json::Deserializer::from_slice(body);
        let read = json.deserialize_seq(Items(&mut batch)).and_then(|()| json.end());
        match read {
            _ if batch.events.len() + batch.rejected.len() > MOST_EVENTS => {
                Err(BadBatch::TooMany(MOST_EVENTS))
            }
            Ok(()) => Ok(batch),
            Err(_) => Err(BadBatch::NoArray),
        }
    }

    fn add(&mut self, json: &str) {
        match Event::parse(json) {
            Ok(event) => self.events.push(event),
            Err(error) => self.rejected.push(Rejected { id: claimed_id(json), error }),
        }
    }
}

/// The items of a batch, each checked as it is met.
struct Items<'a>(&'a mut Batch);

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.0.add(item.get());
            count += 1;
            if count > MOST_EVENTS {
                return Err(serde::de::Error::custom("too many"));
            }
        }
        Ok(())
    }
}

impl Event {
    pub fn parse(json: &str) -> Result<Self, String> {
        let wire: Wire<'_> = serde_json::from_str(json).map_err(|error| reason("", json, &error))?;
        if wire.session_id.is_empty() || wire.agent.is_empty() || wire.kind.is_empty() {
            return Err("sessionId, agent and type must not be empty".to_owned());
        }
        // An array would do for serde in place of an object.
        if !wire.attributes.get().starts_with('{') {
            return Err("attributes: expected an object".to_owned());
        }
        let attributes = match EventType::parse(&wire.kind) {
            Some(kind) => Attributes::parse(kind, wire.attributes.get())
                .map_err(|error| reason("attributes: ", wire.attributes.get(), &error))?,
            // Of a newer client: it counts as received, so that its session can be complete here.
            None => Attributes::Other(wire.kind),
        };
        let told = match &attributes {
            Attributes::Start(start) => ("project", start.project.as_ref()),
            Attributes::Usage(usage) => ("model", Some(&usage.model)),
            _ => ("", None),
        };
        for (name, text) in [("agent", Some(&wire.agent)), ("user", wire.user.as_ref()), told] {
            if text.is_some_and(|text| text.len() > MOST_KEY_BYTES) {
                return Err(format!("{name} is longer than {MOST_KEY_BYTES} bytes"));
            }
        }
        Ok(Self {
            id: wire.id,
            rev: wire.rev,
            session: wire.session_id,
            seq: wire.seq,
            time: wire.time,
            agent: wire.agent,
            machine: wire.machine,
            user: wire.user,
            attributes,
        })
    }

    pub fn kind(&self) -> EventKind {
        self.attributes.kind()
    }
}

fn revision<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let rev = i64::deserialize(deserializer)?;
    if (0..=i64::from(i32::MAX)).contains(&rev) {
        Ok(rev)
    } else {
        Err(serde::de::Error::custom("rev is between 0 and 2147483647"))
    }
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = Text::deserialize(deserializer)?;
    let time = Timestamp::parse(&text).filter(|time| TIMES.contains(&time.0));
    time.ok_or_else(|| serde::de::Error::custom("time is no RFC 3339 time between 1970 and 2199"))
}

/// What the sender called an event that could not be read otherwise. Only something that could be an id is given back.
fn claimed_id(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claim {
        id: String,
    }
    let Claim { id } = serde_json::from_str(json).ok()?;
    (id.len() <= 64).then_some(id)
}

/// Says what is wrong without the value that is: it may be anything, and this goes into logs and lists at the sender's.
fn reason(place: &str, json: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let told =
        if let Some(rest) = text.strip_prefix("invalid type: ").or(text.strip_prefix("invalid value: ")) {
            let found = rest.split([' ', ',']).next().unwrap_or_default();
            let expected = rest.rsplit(", expected ").next().unwrap_or_default();
            format!("expected {expected}, found {found}")
        } else if text.starts_with("unknown variant") {
            let expected = text.rsplit(", expected ").next().unwrap_or_default();
            format!("unknown word, expected {expected}")
        } else if text.starts_with("UUID parsing failed") {
            "id is no UUID".to_owned()
        } else {
            text.to_owned()
        };
    match field_before(json, error) {
        Some(field) if !told.contains(field) => format!("{place}{field}: {told}"),
        _ => format!("{place}{told}"),
    }
}

/// The fields there are, outside and in the attributes: only these names are given back.
const FIELDS: [&str; 49] = [
    "id",
    "rev",
    "type",
    "sessionId",
    "seq",
    "time",
    "agent",
    "machine",
    "user",
    "attributes",
    "name",
    "reason",
    "agentVersion",
    "wrapperVersion",
    "project",
    "repository",
    "branch",
    "transitionedFrom",
    "parentSessionId",
    "tags",
    "group",
    "agentSessionId",
    "evidence",
    "model",
    "inputTokens",
    "outputTokens",
    "cacheReadTokens",
    "cacheWriteTokens",
    "reasoningTokens",
    "costUsd",
    "subagent",
    "source",
    "latencyMs",
    "ttftMs",
    "ok",
    "kind",
    "fileExtension",
    "linesAdded",
    "linesRemoved",
    "status",
    "lastSeq",
    "key",
    "endReason",
    "exitCode",
    "durationMs",
    "transitionedTo",
    "totals",
    "filesChanged",
    "coverage",
];

/// The name before the place where reading failed.
fn field_before(json: &str, error: &serde_json::Error) -> Option<&'static str> {
    let line_start =
        json.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let before = json.get(..(line_start + error.column()).min(json.len()))?;
    let (head, _) = before.rsplit_once("\":")?;
    let name = head.rsplit('"').next()?;
    FIELDS.into_iter().find(|field| *field == name)
}

#[cfg(test)]
mod tests;
