//! An event as it crosses the wire: one form for sender and receiver.
//!
//! ```text
//! event.sent(machine, user)     the JSON to send: every field, null where nothing is known
//! Event::parse(json)            a received event, checked; a refusal names the field and repeats no value
//! attributes.to_kept_json()     the JSON that a receiver stores: without anything absent
//! ```
//!
//! A field of an attribute is added in one place, its struct in `attributes`; `plain` decides what of it may leave the machine.

mod attributes;
mod field;
mod id;
mod refusal;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) use attributes::fit;
pub use attributes::{
    ApiError, Attributes, Bound, End, Other, Prompt, Quota, Source, Start, Tool, Totals, Usage,
};
pub(crate) use field::LONGEST_LIST;
pub use field::{
    Addend, Cost, Count, Dimension, Field, Flag, HIGHEST_SEQ, Kept, Key, SenderSum, Seq, Tags, Text, Time,
    Timing, keep, or_null,
};
pub use id::{NAMESPACE, keyed_id, opening_id};

use crate::{EventKind, EventType, Timestamp};

/// An event. Of one that has not been sent yet, machine and user are unknown: the sender names them.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub id: Uuid,
    pub rev: i64,
    /// Opaque: usually a UUID, but sessions of old stores have ids of their own.
    pub session: Text,
    pub seq: i64,
    pub time: Timestamp,
    pub agent: Dimension,
    pub machine: Option<Text>,
    pub user: Option<Dimension>,
    pub attributes: Attributes,
}

/// The fields around the attributes, with texts and attributes as they are at hand: borrowed on the way out, checked on the
/// way in.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "an event", rename_all = "camelCase")]
struct Envelope<T, D, A> {
    id: Uuid,
    rev: Revision,
    r#type: T,
    session_id: T,
    seq: Seq,
    time: Time,
    agent: D,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<D>,
    attributes: A,
}

impl Event {
    /// As it is sent.
    pub fn sent<'a>(&'a self, machine: &'a str, user: Option<&'a str>) -> impl Serialize + 'a {
        Envelope {
            id: self.id,
            rev: Revision(self.rev),
            r#type: self.attributes.type_name(),
            session_id: &*self.session,
            seq: Seq(self.seq),
            time: Time(self.time),
            agent: &*self.agent,
            machine: Some(machine),
            user,
            attributes: &self.attributes,
        }
    }

    /// Parses a received event. The error names what is wrong and repeats no value.
    pub fn parse(json: &str) -> Result<Self, String> {
        let event: Envelope<Text, Dimension, &RawValue> =
            serde_json::from_str(json).map_err(|error| refusal::reason("", json, &error))?;
        if event.session_id.is_empty() || event.agent.is_empty() || event.r#type.is_empty() {
            return Err("sessionId, agent and type must not be empty".to_owned());
        }
        let attributes = event.attributes.get();
        // An array would do for serde in place of an object.
        if !attributes.starts_with('{') {
            return Err("attributes: expected an object".to_owned());
        }
        let attributes = match EventType::parse(&event.r#type) {
            Some(kind) => Attributes::parse(kind, attributes)
                .map_err(|error| refusal::reason("attributes: ", attributes, &error))?,
            // Of a newer client: it counts as received, so that its session can be complete here.
            None => Attributes::Other(Other { kind: event.r#type, fields: Value::Null }),
        };
        Ok(Self {
            id: event.id,
            rev: event.rev.0,
            session: event.session_id,
            seq: event.seq.0,
            time: event.time.0,
            agent: event.agent,
            machine: event.machine,
            user: event.user,
            attributes,
        })
    }

    pub fn kind(&self) -> EventKind {
        self.attributes.kind()
    }

    /// `None` for a type that this version does not know.
    pub fn event_type(&self) -> Option<EventType> {
        self.attributes.event_type()
    }

    /// As JSON schema: one of the types, each with its attributes.
    pub fn schema() -> Value {
        let not_empty = |mut schema: Value| {
            schema["minLength"] = json!(1);
            schema
        };
        let one = |(kind, attributes): (EventType, Value)| {
            // In the order of the envelope.
            let fields = [
                (true, json!({"type": "string", "format": "uuid"})),
                (true, json!({"type": "integer", "minimum": 0, "maximum": Revision::MOST})),
                (true, json!({"const": kind})),
                (true, not_empty(Text::schema())),
                (true, Seq::schema()),
                (true, Time::schema()),
                (true, not_empty(Dimension::schema())),
                (false, Text::schema()),
                (false, Dimension::schema()),
                (true, attributes),
            ];
            let named = envelope_names().iter().zip(fields);
            field::object(named.map(|(name, (needed, schema))| (*name, needed, schema)))
        };
        let mut types = Attributes::schemas().map(one);
        if let Some(totals) = types.last_mut().and_then(|end| end.pointer_mut(TOTALS)) {
            totals["description"] = json!(
                "the record's usage; the backend adds up events and takes filesChanged and coverage from here"
            );
        }
        json!({"oneOf": types})
    }
}

/// The path of the totals in the schema of an END.
const TOTALS: &str = "/properties/attributes/properties/totals";

fn envelope_names() -> &'static [&'static str] {
    field::names_of::<Envelope<Text, Dimension, &RawValue>>()
}

#[derive(Serialize)]
#[serde(transparent)]
struct Revision(i64);

impl Revision {
    const MOST: i64 = i32::MAX as i64;
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rev = i64::deserialize(deserializer)?;
        if (0..=Self::MOST).contains(&rev) {
            Ok(Self(rev))
        } else {
            Err(serde::de::Error::custom("rev is between 0 and 2147483647"))
        }
    }
}

#[cfg(test)]
mod tests;
