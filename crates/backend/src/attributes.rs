//! What an event says, by its type. Only what is named here is kept: a word that a newer client adds is not stored.
//!
//! Strict about what a value may be, lenient about its absence: a field that is missing or null is unknown or zero, one of
//! the wrong type or beyond any sense makes the event be rejected.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use wire::Coverage;
use wire::PicoDollars;
use wire::ToolKind;
use wire::{EndReason, EventKind, EventType, EvidenceKind, StartReason, Status, spelled};

/// The longest text in an event. Branches and session names are the longest there are, and far shorter.
const MOST_BYTES: usize = 1024;
const MOST_TAGS: usize = 100;
/// Milliseconds and files: nothing one event tells comes near.
const MOST: i64 = 1_000_000_000_000;
/// Tokens and lines, which are added up. A call has some million at most, and nine billion such still fit 64 bits.
pub const MOST_ADDED: i64 = 1_000_000_000;
/// What one call may cost, in dollars; more is a mistake of the sender.
const MOST_DOLLARS: f64 = 1000.0;

/// A short text without NUL (which PostgreSQL cannot hold).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    pub fn new(text: String) -> Result<Self, &'static str> {
        if text.len() > MOST_BYTES {
            Err("a text is longer than 1024 bytes")
        } else if text.contains('\0') {
            Err("a text contains NUL")
        } else {
            Ok(Self(text))
        }
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl std::ops::Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

spelled!(
    /// Who saw a call.
    Source { Transcript = "transcript", Proxy = "proxy" }
);

/// The attributes of one event.
#[derive(Clone, Debug, PartialEq)]
pub enum Attributes {
    Start(Start),
    Bound(Bound),
    Usage(Usage),
    Tool(Tool),
    Prompt,
    Error(ApiError),
    End(Box<End>),
    /// Of a type that this version does not know, by its name. Nothing else of it is kept.
    Other(Text),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Start {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<StartReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrapper_version: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transitioned_from: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<Text>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "tags")]
    pub tags: Vec<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    pub agent_session_id: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<EvidenceKind>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub model: Text,
    #[serde(default, deserialize_with = "added", skip_serializing_if = "is_zero")]
    pub input_tokens: i64,
    #[serde(default, deserialize_with = "added", skip_serializing_if = "is_zero")]
    pub output_tokens: i64,
    #[serde(default, deserialize_with = "added", skip_serializing_if = "is_zero")]
    pub cache_read_tokens: i64,
    #[serde(default, deserialize_with = "added", skip_serializing_if = "is_zero")]
    pub cache_write_tokens: i64,
    #[serde(default, deserialize_with = "added", skip_serializing_if = "is_zero")]
    pub reasoning_tokens: i64,
    /// `None`: no price is known for the model.
    #[serde(
        rename = "costUsd",
        default,
        serialize_with = "write_dollars",
        deserialize_with = "dollars",
        skip_serializing_if = "Option::is_none"
    )]
    pub cost: Option<PicoDollars>,
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    pub subagent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    #[serde(default, deserialize_with = "maybe_count", skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<i64>,
    #[serde(default, deserialize_with = "maybe_count", skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    pub name: Text,
    /// `None` where the agent does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_extension: Option<Text>,
    #[serde(default, deserialize_with = "added", skip_serializing_if = "is_zero")]
    pub lines_added: i64,
    #[serde(default, deserialize_with = "added", skip_serializing_if = "is_zero")]
    pub lines_removed: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiError {
    #[serde(deserialize_with = "maybe_count", skip_serializing_if = "Option::is_none")]
    pub status: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub duration_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transitioned_to: Option<Text>,
    /// The sender's own sums. The backend adds up events; it takes from here what events do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    #[serde(deserialize_with = "sequence")]
    pub last_seq: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    #[serde(deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub files_changed: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
}

impl Attributes {
    /// What a database holds of an event. One that was stored before its type was known has no attributes.
    pub fn stored(kind: &str, json: &str) -> Result<Self, serde_json::Error> {
        match EventType::parse(kind) {
            Some(known) => Self::parse(known, json)
                .or_else(|error| if json == "{}" { Self::other(kind) } else { Err(error) }),
            None => Self::other(kind),
        }
    }

    /// Of an event of this type, nothing but the type.
    pub fn other(kind: &str) -> Result<Self, serde_json::Error> {
        Text::new(kind.to_owned()).map(Self::Other).map_err(serde_json::Error::custom)
    }

    pub fn parse(kind: EventType, json: &str) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            EventType::Start => Self::Start(serde_json::from_str(json)?),
            EventType::Bound => Self::Bound(serde_json::from_str(json)?),
            EventType::Usage => Self::Usage(serde_json::from_str(json)?),
            EventType::Tool => Self::Tool(serde_json::from_str(json)?),
            EventType::Error => Self::Error(serde_json::from_str(json)?),
            EventType::End => Self::End(serde_json::from_str(json)?),
            EventType::Prompt => {
                serde_json::from_str::<Nothing>(json)?;
                Self::Prompt
            }
        })
    }

    pub fn kind(&self) -> EventKind {
        EventKind::Known(match self {
            Self::Start(_) => EventType::Start,
            Self::Bound(_) => EventType::Bound,
            Self::Usage(_) => EventType::Usage,
            Self::Tool(_) => EventType::Tool,
            Self::Prompt => EventType::Prompt,
            Self::Error(_) => EventType::Error,
            Self::End(_) => EventType::End,
            Self::Other(name) => return EventKind::Other(name.to_string()),
        })
    }

    /// What is stored, and read back by [`Attributes::parse`].
    pub fn to_json(&self) -> String {
        // Structs of texts and numbers always have a JSON form.
        match self {
            Self::Start(start) => serde_json::to_string(start),
            Self::Bound(bound) => serde_json::to_string(bound),
            Self::Usage(usage) => serde_json::to_string(usage),
            Self::Tool(tool) => serde_json::to_string(tool),
            Self::Error(error) => serde_json::to_string(error),
            Self::End(end) => serde_json::to_string(end),
            Self::Prompt | Self::Other(_) => Ok("{}".to_owned()),
        }
        .unwrap_or_default()
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Start(start) => start.serialize(serializer),
            Self::Bound(bound) => bound.serialize(serializer),
            Self::Usage(usage) => usage.serialize(serializer),
            Self::Tool(tool) => tool.serialize(serializer),
            Self::Error(error) => error.serialize(serializer),
            Self::End(end) => end.serialize(serializer),
            Self::Prompt | Self::Other(_) => Nothing {}.serialize(serializer),
        }
    }
}

/// An object of which nothing is kept.
#[derive(Serialize, Deserialize)]
struct Nothing {}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(false))
}

/// A count that sums are made of.
fn added<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    match Option::<i64>::deserialize(deserializer)? {
        Some(number) if !(0..=MOST_ADDED).contains(&number) => {
            Err(D::Error::custom("a number is not between 0 and 1000000000"))
        }
        number => Ok(number.unwrap_or(0)),
    }
}

fn maybe_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match Option::<i64>::deserialize(deserializer)? {
        Some(number) if !(0..=MOST).contains(&number) => {
            Err(D::Error::custom("a number is not between 0 and 1000000000000"))
        }
        number => Ok(number),
    }
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(maybe_count(deserializer)?.unwrap_or(0))
}

pub(super) fn sequence<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let seq = i64::deserialize(deserializer)?;
    if (1..=super::seqs::HIGHEST).contains(&seq) {
        Ok(seq)
    } else {
        Err(D::Error::custom("seq and lastSeq are between 1 and 1000000000"))
    }
}

fn tags<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Text>, D::Error> {
    let tags = Option::<Vec<Text>>::deserialize(deserializer)?.unwrap_or_default();
    if tags.len() > MOST_TAGS { Err(D::Error::custom("more than 100 tags")) } else { Ok(tags) }
}

fn dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PicoDollars>, D::Error> {
    match Option::<f64>::deserialize(deserializer)? {
        Some(dollars) if !(0.0..=MOST_DOLLARS).contains(&dollars) => {
            Err(D::Error::custom("costUsd of one call is not between 0 and 1000"))
        }
        dollars => Ok(dollars.map(PicoDollars::from_dollars)),
    }
}

#[expect(clippy::ref_option, reason = "the signature serde asks for")]
fn write_dollars<S: Serializer>(cost: &Option<PicoDollars>, serializer: S) -> Result<S::Ok, S::Error> {
    cost.map(PicoDollars::dollars).serialize(serializer)
}
