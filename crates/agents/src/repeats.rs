//! How often an agent has sent the same request.
//!
//! No agent says so itself: Claude Code, Codex and Gemini CLI were measured to repeat a failed request without a sign of it
//! (Claude's `x-stainless-retry-count` stays 0). What they repeat is the same to the byte, and a conversation that goes on is
//! never: so equal bodies are attempts at one answer.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde_json::value::RawValue;
use types::Timestamp;

use super::CallIdentity;

/// Between two attempts agents wait a minute at most, and an attempt may take ten.
const LATEST: Duration = Duration::from_mins(15);
/// Requests that are remembered: more than agents of one run have under way.
const MOST: usize = 256;
/// In Codex's messages on a WebSocket: it holds the time of the attempt.
const CHANGES: &str = "client_metadata";

/// Remembers the last requests of one proxy.
#[derive(Debug, Default)]
pub struct Repeats(VecDeque<Sent>);

#[derive(Debug)]
struct Sent {
    hash: u64,
    last: Timestamp,
    count: u32,
}

impl Repeats {
    /// Counts from 1. A request whose body is not known is a first one.
    pub fn attempt(&mut self, identity: &CallIdentity, request: &relay::Request) -> u32 {
        let Some(hash) = hash(identity, request) else { return identity.attempt };
        self.0.retain(|sent| request.at.since(sent.last) < LATEST);
        let known = self.0.iter().position(|sent| sent.hash == hash).and_then(|at| self.0.remove(at));
        let count = known.map_or(1, |sent| sent.count.saturating_add(1));
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(Sent { hash, last: request.at, count });
        count.max(identity.attempt)
    }
}

/// Two sub-agents may begin with the same words: so the identity counts.
fn hash(identity: &CallIdentity, request: &relay::Request) -> Option<u64> {
    let body = request.body.as_deref()?;
    let mut hasher = DefaultHasher::new();
    (&request.route, &request.path).hash(&mut hasher);
    (identity.conversation.as_ref().map(|id| &id.0), &identity.subagent).hash(&mut hasher);
    match fields(body) {
        Some(fields) => {
            fields.iter().filter(|(name, _)| name != CHANGES).for_each(|(name, value)| {
                (name, value.get()).hash(&mut hasher);
            });
        }
        None => body.hash(&mut hasher),
    }
    Some(hasher.finish())
}

type Field<'a> = (String, &'a RawValue);

/// The fields of an object, in their order.
fn fields(body: &[u8]) -> Option<Vec<Field<'_>>> {
    struct Fields;
    impl<'de> serde::de::Visitor<'de> for Fields {
        type Value = Vec<Field<'de>>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(fields)
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    serde::Deserializer::deserialize_map(&mut reader, Fields).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxied::tests::request;
    use types::AgentSessionId;

    fn by(conversation: &str, subagent: Option<&str>) -> CallIdentity {
        CallIdentity {
            conversation: Some(AgentSessionId(conversation.to_owned())),
            subagent: subagent.map(str::to_owned),
            ..CallIdentity::default()
        }
    }

    fn at(minutes: i64, body: &'static str) -> relay::Request {
        relay::Request { at: Timestamp(minutes * 60_000), ..request(&[], Some(body)) }
    }

    #[test]
    fn equal_bodies_of_one_speaker_are_attempts() {
        let mut repeats = Repeats::default();
        let body = r#"{"messages":["a"],"client_metadata":{"start":"1"}}"#;
        let again = r#"{"messages":["a"],"client_metadata":{"start":"2"}}"#;
        let other = r#"{"messages":["a","b"],"client_metadata":{"start":"1"}}"#;
        for (identity, request, expected) in [
            (by("c", None), at(0, body), 1),
            (by("c", None), at(1, again), 2),
            (by("c", Some("s")), at(1, body), 1),
            (by("d", None), at(1, body), 1),
            (by("c", None), at(2, other), 1),
            (by("c", None), at(10, body), 3),
            (by("c", None), at(11, other), 2),
            (by("c", None), at(30, body), 1),
            (by("c", None), at(30, "no document"), 1),
            (by("c", None), at(30, "no document"), 2),
            (CallIdentity { attempt: 4, ..by("c", None) }, at(30, "counted by itself"), 4),
        ] {
            let body = request.body.clone();
            assert_eq!(repeats.attempt(&identity, &request), expected, "{identity:?} {body:?}");
        }
        let unknown = relay::Request { at: Timestamp(0), ..request(&[], None) };
        assert_eq!(
            (repeats.attempt(&by("c", None), &unknown), repeats.attempt(&by("c", None), &unknown)),
            (1, 1)
        );
    }

    #[test]
    fn only_so_many_requests_are_remembered() {
        let mut repeats = Repeats::default();
        for number in 0..1000 {
            let request = relay::Request { body: Some(format!("{number}").into()), ..at(0, "") };
            assert_eq!(repeats.attempt(&by("c", None), &request), 1);
        }
        assert_eq!(repeats.0.len(), MOST);
    }
}
