//! The shape of the lines in a session file, as far as it is read here. Borrowed from the line; unknown fields are
//! ignored.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::loose::Loose;

/// A text of the line itself, copied only where it holds escapes.
pub(super) type Text<'a> = Loose<Cow<'a, str>>;

/// One line. `M` is its message: raw, where it is parsed only once the line's kind is known.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "M: Deserialize<'de>"))]
pub(super) struct Line<'a, M = &'a RawValue> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) subtype: Text<'a>,
    #[serde(borrow, default)]
    pub(super) uuid: Text<'a>,
    #[serde(borrow, default)]
    pub(super) timestamp: Text<'a>,
    #[serde(borrow, default)]
    pub(super) session_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) cwd: Text<'a>,
    #[serde(borrow, default)]
    pub(super) relocated_cwd: Text<'a>,
    #[serde(borrow, default)]
    pub(super) version: Text<'a>,
    #[serde(borrow, default)]
    pub(super) git_branch: Text<'a>,
    #[serde(borrow, default)]
    pub(super) agent_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) request_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) prompt_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) prompt_source: Text<'a>,
    #[serde(borrow, default)]
    pub(super) ai_title: Text<'a>,
    #[serde(borrow, default)]
    pub(super) custom_title: Text<'a>,
    #[serde(borrow, default)]
    pub(super) error: Text<'a>,
    #[serde(default)]
    pub(super) api_error_status: Loose<u64>,
    #[serde(default)]
    pub(super) is_api_error_message: Loose<bool>,
    #[serde(default)]
    pub(super) is_sidechain: Loose<bool>,
    #[serde(default)]
    pub(super) is_meta: Loose<bool>,
    #[serde(default)]
    pub(super) is_compact_summary: Loose<bool>,
    #[serde(default)]
    pub(super) interrupted_message_id: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) forked_from: Option<IgnoredAny>,
    #[serde(borrow, default)]
    pub(super) origin: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tool_use_result: Option<&'a RawValue>,
    #[serde(default = "none")]
    pub(super) message: Option<M>,
}

/// A default without bounds on the type.
fn none<T>() -> Option<T> {
    None
}

impl<M> Line<'_, M> {
    pub(super) fn is_copied(&self) -> bool {
        self.forked_from.is_some()
    }

    /// Versions that kept sub-agents in the main file marked them without naming them.
    pub(super) fn subagent(&self) -> Option<String> {
        match &self.agent_id.0 {
            Some(id) => Some(id.to_string()),
            None if self.is_sidechain.0 == Some(true) => Some("sidechain".to_owned()),
            None => None,
        }
    }
}

/// Who or what put a `user` line there.
#[derive(Debug, Deserialize)]
pub(super) struct Origin<'a> {
    #[serde(borrow, default)]
    pub(super) kind: Text<'a>,
}

/// The API's message, as the line holds it. `C` is its content: raw, or ignored.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "C: Deserialize<'de>"))]
pub(super) struct Message<'a, C = &'a RawValue> {
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Option<Usage<'a>>,
    #[serde(default = "none")]
    pub(super) content: Option<C>,
}

/// Counts are read strictly: one of another type makes the line unreadable, which is reported, instead of a zero, which would not be.
#[derive(Debug, Deserialize)]
pub(super) struct Usage<'a> {
    #[serde(default)]
    pub(super) input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) output_tokens: Option<u64>,
    #[serde(default)]
    pub(super) cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) cache_creation: Option<CacheCreation>,
    #[serde(default)]
    pub(super) output_tokens_details: Option<OutputDetails>,
    #[serde(borrow, default)]
    pub(super) speed: Text<'a>,
}

/// Parts of the output, which includes them.
#[derive(Debug, Deserialize)]
pub(super) struct OutputDetails {
    #[serde(default)]
    pub(super) thinking_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CacheCreation {
    #[serde(default)]
    pub(super) ephemeral_5m_input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) ephemeral_1h_input_tokens: Option<u64>,
}

/// One block of a message's content.
#[derive(Debug, Deserialize)]
pub(super) struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) text: Option<&'a RawValue>,
    // tool_use
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    // tool_result
    #[serde(borrow, default)]
    pub(super) tool_use_id: Text<'a>,
    #[serde(default)]
    pub(super) is_error: Loose<bool>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
}

/// A message's content: plain text or blocks.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Text(&'a RawValue),
    Blocks(Vec<Block<'a>>),
}

impl<'a> Content<'a> {
    /// `None`: another shape, perhaps of a later version.
    pub(super) fn of(raw: Option<&'a RawValue>) -> Option<Self> {
        let raw = raw?;
        match raw.get().as_bytes().first()? {
            b'"' => Some(Self::Text(raw)),
            b'[' => serde_json::from_str(raw.get()).ok().map(Self::Blocks),
            _ => None,
        }
    }
}

/// Whether a JSON string begins with `prefix`, which must need no escapes.
pub(super) fn begins(raw: &RawValue, prefix: &str) -> bool {
    raw.get().strip_prefix('"').is_some_and(|text| text.starts_with(prefix))
}
