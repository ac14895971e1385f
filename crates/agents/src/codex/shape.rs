//! The shape of the lines in a rollout, as far as it is read here. Borrowed from the line; unknown fields are
//! ignored.
//!
//! Every line is `{"timestamp":…,"ordinal":…,"type":…,"payload":{…}}`. The first is a `session_meta` with the whole base
//! prompt in it, some 20 kB and more.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::limits;
use crate::kit::loose::Loose;
use crate::meter::quota::QuotaReport;
use types::Timestamp;

/// A text of the line itself, copied only where it holds escapes.
pub(super) type Text<'a> = Loose<Cow<'a, str>>;

/// One line.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow, default)]
    pub(super) timestamp: Text<'a>,
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) payload: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    /// Zero where the line names none: a record must not depend on the lines before it.
    pub(super) fn at(&self) -> Timestamp {
        self.timestamp.0.as_deref().and_then(Timestamp::parse).unwrap_or_default()
    }

    pub(super) fn payload<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.map_or("null", RawValue::get))
    }
}

/// `session_meta`: the thread whose lines follow.
#[derive(Debug, Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    /// The root's id; absent in older versions.
    #[serde(borrow, default)]
    pub(super) session_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) parent_thread_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) forked_from_id: Text<'a>,
    /// `user`, `subagent`, or the value of `exec --thread-source`.
    #[serde(borrow, default)]
    pub(super) thread_source: Text<'a>,
    /// A word (`cli`, `exec`), or an object for a thread that the program itself began: `{"subagent":…}`.
    #[serde(borrow, default)]
    pub(super) source: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) cwd: Text<'a>,
    #[serde(borrow, default)]
    pub(super) originator: Text<'a>,
    #[serde(borrow, default)]
    pub(super) cli_version: Text<'a>,
    #[serde(borrow, default)]
    pub(super) git: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Git<'a> {
    #[serde(borrow, default)]
    pub(super) branch: Text<'a>,
}

impl Meta<'_> {
    /// The conversation that the lines count for.
    pub(super) fn root(&self) -> Option<&str> {
        self.session_id.0.as_deref().or(self.parent_thread_id.0.as_deref()).or(self.id.0.as_deref())
    }

    /// The program began it for a purpose of its own (a sub-agent, a review); the user writes no prompts in it.
    pub(super) fn is_helper(&self) -> bool {
        self.thread_source.0.as_deref() == Some("subagent")
            || self.parent_thread_id.0.is_some()
            || self.source.is_some_and(|source| source.get().starts_with('{'))
    }
}

/// `turn_context`: how the model is asked from here on.
#[derive(Debug, Deserialize)]
pub(super) struct TurnContext<'a> {
    /// Absent in older versions.
    #[serde(borrow, default)]
    pub(super) turn_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) cwd: Text<'a>,
}

/// `token_usage_record`: one answered call.
#[derive(Debug, Deserialize)]
pub(super) struct UsageRecord<'a> {
    #[serde(borrow, default)]
    pub(super) thread_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) session_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) response_id: Text<'a>,
    #[serde(default)]
    pub(super) usage: Option<Counts>,
}

/// Counts are read strictly: one of another type makes the line unreadable, which is reported, instead of a zero, which would not be.
#[expect(clippy::struct_field_names, reason = "the agent's own names")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(super) struct Counts {
    #[serde(default)]
    pub(super) input_tokens: u64,
    #[serde(default)]
    pub(super) cached_input_tokens: u64,
    #[serde(default)]
    pub(super) cache_write_input_tokens: u64,
    #[serde(default)]
    pub(super) output_tokens: u64,
    #[serde(default)]
    pub(super) reasoning_output_tokens: u64,
}

/// `event_msg`, of whatever type.
#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) turn_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) thread_id: Text<'a>,
    /// Only in older versions.
    #[serde(borrow, default)]
    pub(super) message: Text<'a>,
    #[serde(borrow, default)]
    thread_settings: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rate_limits: Option<&'a RawValue>,
}

impl<'a> Event<'a> {
    pub(super) fn settings(&self) -> Option<Settings<'a>> {
        serde_json::from_str(self.thread_settings?.get()).ok()
    }

    /// The limits of a `token_count`, which was written at `at`.
    pub(super) fn limits(&self, at: Timestamp) -> impl Iterator<Item = QuotaReport> + use<> {
        self.rate_limits.map(|raw| limits::read(raw, at)).into_iter().flatten()
    }
}

/// What a `thread_settings_applied` chooses: how the model is asked outside of a turn, as in a compaction.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Settings<'a> {
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) service_tier: Text<'a>,
}

/// The error of a turn that failed.
#[derive(Debug, Deserialize)]
pub(super) struct Failure<'a> {
    #[serde(borrow, default)]
    pub(super) codex_error_info: Option<&'a RawValue>,
}

/// The sums in `token_count` events.
#[derive(Debug, Deserialize)]
pub(super) struct TokenInfo {
    pub(super) total_token_usage: Counts,
    #[serde(default)]
    pub(super) last_token_usage: Counts,
}

/// The item of an `item_completed` event.
#[derive(Debug, Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) status: Text<'a>,
    #[serde(borrow, default)]
    pub(super) parsed_cmd: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) changes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) aggregated_output: Text<'a>,
    #[serde(borrow, default)]
    pub(super) stderr: Text<'a>,
}

/// `response_item`: a message to the model or from it.
#[derive(Debug, Deserialize)]
pub(super) struct ResponseItem<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) role: Text<'a>,
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) call_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    /// JSON inside a text, but for a tool search, where it is an object.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: Text<'a>,
    #[serde(borrow, default)]
    pub(super) output: Option<&'a RawValue>,
}

/// The parts of a message or of a tool's output, where it is no plain text.
#[derive(Debug, Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
}

/// A text, whole or in parts.
pub(super) fn text(raw: Option<&RawValue>) -> Option<String> {
    let raw = raw?.get();
    if let Ok(text) = serde_json::from_str::<Cow<str>>(raw) {
        return Some(text.into_owned());
    }
    let parts: Vec<Part> = serde_json::from_str(raw).ok()?;
    Some(parts.into_iter().filter_map(|part| part.text.0).collect::<Vec<_>>().join("\n"))
}

/// How far into a line its type is searched: it comes after a timestamp and a number.
const HEAD: usize = 160;

/// The type of a line without reading it whole; `None` where it does not come early.
pub(super) fn peek(line: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"\"type\":";
    let head = &line[..line.len().min(HEAD)];
    // The payload has a type of its own.
    let end = memchr::memmem::find(head, b"\"payload\"").unwrap_or(head.len());
    let at = memchr::memmem::find(&head[..end], NAME)? + NAME.len();
    let rest = head[at..].trim_ascii_start().strip_prefix(b"\"")?;
    Some(&rest[..memchr::memchr(b'"', rest)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_seen_without_reading_the_line() {
        for (line, expected) in [
            (
                r#"{"timestamp":"T","ordinal":7,"type":"turn_context","payload":{"type":"x"}}"#,
                Some("turn_context"),
            ),
            (r#"{"timestamp": "T", "type": "event_msg", "payload": {}}"#, Some("event_msg")),
            (r#"{"payload":{"type":"x"},"type":"event_msg"}"#, None),
            (r#"{"timestamp":"T","type":7}"#, None),
            (r#"{"type":"eve"#, None),
            ("", None),
        ] {
            assert_eq!(peek(line.as_bytes()), expected.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn threads_that_the_program_began_are_known() {
        for (meta, helper, root) in [
            (r#"{"id":"a","session_id":"a","source":"cli","thread_source":"user"}"#, false, "a"),
            (r#"{"id":"a","session_id":"a","source":"exec","thread_source":"nightly"}"#, false, "a"),
            (
                r#"{"id":"a","session_id":"a","source":"cli","thread_source":"user","forked_from_id":"b"}"#,
                false,
                "a",
            ),
            (
                r#"{"id":"b","session_id":"a","source":{"subagent":"review"},"thread_source":"subagent"}"#,
                true,
                "a",
            ),
            (r#"{"id":"b","parent_thread_id":"a","source":{"subagent":{"thread_spawn":{}}}}"#, true, "a"),
            (r#"{"id":"a","source":"cli"}"#, false, "a"),
        ] {
            let meta: Meta = serde_json::from_str(meta).unwrap();
            assert_eq!((meta.is_helper(), meta.root()), (helper, Some(root)));
        }
    }
}
