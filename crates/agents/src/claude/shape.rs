//! What stands in the lines of a session file, as far as it is read here: messages, their usage and their blocks. Borrowed from
//! the line; unknown fields are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::kit::loose::Loose;
pub(super) use crate::kit::loose::Text;
pub(super) use crate::kit::registry::line::Line;

/// A default without bounds on the type.
fn none<T>() -> Option<T> {
    None
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
