//! What an event describes, by its type. A field is declared here, once: senders fill these structs, receivers parse them, and the
//! API's description, the list of names in refusals and what may leave the machine follow from them.
//!
//! Fields stand in the order of the alphabet, which is the order in which they are sent.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::field::{
    Addend, Cost, Count, Dimension, Field, Flag, Kept, Key, LONGEST_LIST, SenderSum, Seq, Tags, Text, Time,
    Timing, names_of, object,
};
use crate::{
    Billing, CallKind, CallSums, Coverage, EndReason, EventKind, EventType, EvidenceKind, PicoDollars,
    StartReason, Status, Tokens, ToolKind, UsageSummary, Utilization, spelled,
};

spelled!(
    /// Whose numbers they are: those of the agent's own file, or those that the proxy read in the answer.
    Source { Transcript = "transcript", Proxy = "proxy" }
);

/// A struct of fields. As it is serialised it is sent: whole, with nulls. [`Field::keep`] leaves out everything absent.
macro_rules! attributes {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name { $($(#[$attribute])* pub $field: $type,)+ }

        impl Field for $name {
            fn is_acceptable(&self) -> bool {
                $(self.$field.is_acceptable())&&+
            }

            fn keep<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[derive(Serialize)]
                #[serde(rename_all = "camelCase")]
                struct Present<'a> {
                    $(#[serde(skip_serializing_if = "Kept::is_absent")] $field: Kept<'a, $type>,)+
                }
                Present { $($field: Kept(&self.$field),)+ }.serialize(serializer)
            }

            fn schema() -> Value {
                let fields = [$((<$type as Field>::REQUIRED, <$type as Field>::schema()),)+];
                object(names_of::<Self>().iter().zip(fields).map(|(name, (needed, schema))| (*name, needed, schema)))
            }
        }

        impl Declared for $name {
            fn fields() -> Vec<(&'static str, bool)> {
                let required = [$(<$type as Field>::REQUIRED,)+];
                names_of::<Self>().iter().copied().zip(required).collect()
            }
        }
    };
}

/// A struct whose fields are known by name.
trait Declared: DeserializeOwned {
    /// The name of each field, and whether it is required.
    fn fields() -> Vec<(&'static str, bool)>;
}

attributes!(
    /// START: a session was opened.
    Start {
        #[serde(default)]
        agent_version: Option<Text>,
        #[serde(default)]
        branch: Option<Text>,
        #[serde(default)]
        group: Option<Text>,
        #[serde(default)]
        name: Option<Text>,
        #[serde(default)]
        parent_session_id: Option<Text>,
        #[serde(default)]
        project: Option<Dimension>,
        #[serde(default)]
        reason: Option<StartReason>,
        #[serde(default)]
        repository: Option<Text>,
        #[serde(default)]
        tags: Tags,
        #[serde(default)]
        transitioned_from: Option<Text>,
        #[serde(default)]
        wrapper_version: Option<Text>,
    }
);

attributes!(
    /// The agent's own session is known.
    Bound {
        agent_session_id: Text,
        #[serde(default)]
        evidence: Option<EvidenceKind>,
    }
);

attributes!(
    /// One call of the model's API. What only the proxy sees is not sent where no proxy saw the call.
    Usage {
        /// Broken off before the answer's end: the numbers are the last known.
        #[serde(default, skip_serializing_if = "Flag::is_unset")]
        aborted: Flag,
        /// Counts from 1, by the agent's own account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<Count>,
        /// Only where the proxy saw what kind of credential the call had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        billing: Option<Billing>,
        /// The branch that was checked out when the call was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<Text>,
        #[serde(default)]
        cache_read_tokens: Addend,
        #[serde(default)]
        cache_write_tokens: Addend,
        /// `None`: no price is known for the model.
        #[serde(default)]
        cost_usd: Option<Cost>,
        /// The first 12 digits of HEAD's commit when the call was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<Text>,
        #[serde(default)]
        input_tokens: Addend,
        #[serde(default)]
        key: Key,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<CallKind>,
        #[serde(default, skip_serializing_if = "Timing::is_unmeasured")]
        latency_ms: Timing,
        model: Dimension,
        #[serde(default)]
        output_tokens: Addend,
        #[serde(default)]
        reasoning_tokens: Addend,
        #[serde(default)]
        source: Option<Source>,
        #[serde(default)]
        subagent: Flag,
        /// Time to the first token.
        #[serde(default, skip_serializing_if = "Timing::is_unmeasured")]
        ttft_ms: Timing,
    }
);

impl Usage {
    pub fn cost(&self) -> Option<PicoDollars> {
        self.cost_usd.map(|cost| cost.0)
    }

    /// What the call adds to sums.
    pub fn sums(&self) -> CallSums {
        let count = |tokens: Addend| tokens.get().max(0).cast_unsigned();
        let tokens = Tokens {
            input: count(self.input_tokens),
            output: count(self.output_tokens),
            cache_read: count(self.cache_read_tokens),
            cache_write_5m: count(self.cache_write_tokens),
            cache_write_1h: 0,
            reasoning: count(self.reasoning_tokens),
        };
        CallSums::of(&tokens, self.cost())
    }
}

attributes!(
    /// One call of a tool.
    Tool {
        #[serde(default)]
        file_extension: Option<Text>,
        #[serde(default)]
        key: Key,
        #[serde(default)]
        kind: Option<ToolKind>,
        #[serde(default)]
        lines_added: Addend,
        #[serde(default)]
        lines_removed: Addend,
        name: Text,
        /// `None` where the agent does not say.
        #[serde(default)]
        ok: Option<bool>,
    }
);

attributes!(
    /// Somebody asked something; not a word of it.
    Prompt {
        #[serde(default)]
        key: Key,
    }
);

attributes!(
    /// A call that failed.
    ApiError {
        #[serde(default)]
        key: Key,
        #[serde(default)]
        kind: Option<Text>,
        #[serde(default)]
        status: Option<Count>,
    }
);

attributes!(
    /// How much of a limit is used, as the API reported it.
    Quota {
        /// Whose limit.
        provider: Text,
        /// When the window begins anew.
        #[serde(default)]
        resets_at: Option<Time>,
        #[serde(default)]
        source: Option<Source>,
        utilization: Utilization,
        /// The API's own name of the window.
        window: Text,
    }
);

attributes!(
    /// END: the session's opening is over.
    End {
        #[serde(default)]
        duration_ms: Count,
        #[serde(default)]
        end_reason: Option<EndReason>,
        #[serde(default)]
        exit_code: Option<i32>,
        last_seq: Seq,
        status: Status,
        #[serde(default)]
        totals: Option<Totals>,
        #[serde(default)]
        transitioned_to: Option<Text>,
    }
);

attributes!(
    /// The sums of a session's record. A receiver adds up events; it takes from here what events do not describe.
    Totals {
        #[serde(default)]
        api_calls: SenderSum<i64>,
        #[serde(default)]
        api_errors: SenderSum<i64>,
        #[serde(default)]
        cache_read_tokens: SenderSum<i64>,
        #[serde(default)]
        cache_write_tokens: SenderSum<i64>,
        #[serde(default)]
        cost_usd: SenderSum<f64>,
        #[serde(default)]
        coverage: Option<Coverage>,
        #[serde(default)]
        files_changed: Count,
        #[serde(default)]
        input_tokens: SenderSum<i64>,
        #[serde(default)]
        lines_added: SenderSum<i64>,
        #[serde(default)]
        lines_removed: SenderSum<i64>,
        #[serde(default)]
        output_tokens: SenderSum<i64>,
        #[serde(default)]
        prompts: SenderSum<i64>,
        #[serde(default)]
        reasoning_tokens: SenderSum<i64>,
        #[serde(default)]
        tool_calls: SenderSum<i64>,
        #[serde(default)]
        tool_errors: SenderSum<i64>,
        #[serde(default, skip_serializing_if = "no_calls")]
        unpriced_calls: SenderSum<BTreeMap<String, i64>>,
        #[serde(default)]
        unpriced_models: SenderSum<Vec<String>>,
    }
);

fn no_calls(calls: &SenderSum<BTreeMap<String, i64>>) -> bool {
    calls.0.is_empty()
}

impl From<UsageSummary> for Totals {
    fn from(usage: UsageSummary) -> Self {
        Self {
            api_calls: SenderSum(usage.api_calls),
            api_errors: SenderSum(usage.api_errors),
            cache_read_tokens: SenderSum(usage.cache_read_tokens),
            cache_write_tokens: SenderSum(usage.cache_write_tokens),
            cost_usd: SenderSum(usage.cost_usd),
            coverage: Some(usage.coverage),
            files_changed: usage.files_changed.into(),
            input_tokens: SenderSum(usage.input_tokens),
            lines_added: SenderSum(usage.lines_added),
            lines_removed: SenderSum(usage.lines_removed),
            output_tokens: SenderSum(usage.output_tokens),
            prompts: SenderSum(usage.prompts),
            reasoning_tokens: SenderSum(usage.reasoning_tokens),
            tool_calls: SenderSum(usage.tool_calls),
            tool_errors: SenderSum(usage.tool_errors),
            unpriced_calls: SenderSum(usage.unpriced_calls),
            unpriced_models: SenderSum(usage.unpriced_models),
        }
    }
}

/// An event of a type that this version does not know, or whose attributes it cannot read.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    pub kind: Text,
    /// Null for a received event: nothing of it is read.
    pub fields: Value,
}

/// The attributes of one event.
#[derive(Clone, Debug, PartialEq)]
pub enum Attributes {
    Start(Start),
    Bound(Bound),
    Usage(Usage),
    Tool(Tool),
    Prompt(Prompt),
    Error(ApiError),
    Quota(Quota),
    End(Box<End>),
    Other(Other),
}

/// One expression for the attributes of every known type, and one for [`Other`].
macro_rules! each {
    ($attributes:expr, $one:ident => $known:expr, $other:ident => $unknown:expr) => {
        match $attributes {
            Attributes::Start($one) => $known,
            Attributes::Bound($one) => $known,
            Attributes::Usage($one) => $known,
            Attributes::Tool($one) => $known,
            Attributes::Prompt($one) => $known,
            Attributes::Error($one) => $known,
            Attributes::Quota($one) => $known,
            Attributes::End($one) => $known,
            Attributes::Other($other) => $unknown,
        }
    };
}

impl Attributes {
    /// Attributes that were received. Strict about what a value may be, lenient about its absence: a field that is missing or
    /// null is unknown or zero, one of the wrong type or beyond any sense is an error.
    pub fn parse(kind: EventType, json: &str) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            EventType::Start => Self::Start(serde_json::from_str(json)?),
            EventType::Bound => Self::Bound(serde_json::from_str(json)?),
            EventType::Usage => Self::Usage(serde_json::from_str(json)?),
            EventType::Tool => Self::Tool(serde_json::from_str(json)?),
            EventType::Prompt => Self::Prompt(serde_json::from_str(json)?),
            EventType::Error => Self::Error(serde_json::from_str(json)?),
            EventType::Quota => Self::Quota(serde_json::from_str(json)?),
            EventType::End => Self::End(serde_json::from_str(json)?),
        })
    }

    /// Attributes that a receiver has kept. Of an event that was kept before its type was known there are none.
    pub fn kept(kind: &str, json: &str) -> Result<Self, serde_json::Error> {
        match EventType::parse(kind) {
            Some(known) => Self::parse(known, json)
                .or_else(|error| if json == "{}" { Self::other(kind) } else { Err(error) }),
            None => Self::other(kind),
        }
    }

    /// The type alone, without attributes.
    pub fn other(kind: &str) -> Result<Self, serde_json::Error> {
        let kind = Text::new(kind.to_owned()).map_err(serde_json::Error::custom)?;
        Ok(Self::Other(Other { kind, fields: Value::Null }))
    }

    /// Attributes that the sender's own store holds as text. They may have come with an imported file: what is too long is cut,
    /// fields that cannot be read fall away, and so do those that are not declared.
    pub fn written(kind: EventKind, json: &str) -> Self {
        let kind = match kind {
            EventKind::Known(kind) => kind,
            EventKind::Other(name) => {
                let fields = serde_json::from_str(json).unwrap_or(Value::Null);
                return Self::Other(Other { kind: Text::cut(name), fields });
            }
        };
        let read = if json.starts_with('{') { Self::parse(kind, json).ok() } else { None };
        let mut attributes = read.unwrap_or_else(|| Self::mended(kind, json));
        if let Some(key) = attributes.key_mut() {
            #[derive(Deserialize)]
            struct Keyed {
                key: Option<String>,
            }
            key.0 = serde_json::from_str(json).ok().and_then(|Keyed { key }| key);
        }
        attributes
    }

    fn mended(kind: EventType, json: &str) -> Self {
        fn mend<T: Declared>(written: &mut Map<String, Value>) -> Option<T> {
            let (mut readable, mut optional) = (Map::new(), Vec::new());
            for (name, required) in T::fields() {
                let field = written.remove_entry(name);
                if required {
                    readable.extend(field);
                } else {
                    optional.extend(field);
                }
            }
            let mut mended = serde_json::from_value(Value::Object(readable.clone())).ok()?;
            for (name, value) in optional {
                readable.insert(name.clone(), value);
                match serde_json::from_value(Value::Object(readable.clone())) {
                    Ok(more) => mended = more,
                    Err(_) => drop(readable.remove(&name)),
                }
            }
            Some(mended)
        }
        let mut written: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
        written.values_mut().for_each(fit);
        let written = &mut written;
        let mended = match kind {
            EventType::Start => mend(written).map(Self::Start),
            EventType::Bound => mend(written).map(Self::Bound),
            EventType::Usage => mend(written).map(Self::Usage),
            EventType::Tool => mend(written).map(Self::Tool),
            EventType::Prompt => mend(written).map(Self::Prompt),
            EventType::Error => mend(written).map(Self::Error),
            EventType::Quota => mend(written).map(Self::Quota),
            EventType::End => mend(written).map(|end| Self::End(Box::new(end))),
        };
        // Nothing of it may leave; the receiver refuses it.
        mended.unwrap_or_else(|| Self::unreadable(kind))
    }

    /// An event of a known type without the fields it must have.
    pub fn unreadable(kind: EventType) -> Self {
        let fields = Value::Object(Map::new());
        Self::Other(Other { kind: Text::cut(kind.as_str().to_owned()), fields })
    }

    fn key_mut(&mut self) -> Option<&mut Key> {
        match self {
            Self::Usage(usage) => Some(&mut usage.key),
            Self::Tool(tool) => Some(&mut tool.key),
            Self::Prompt(prompt) => Some(&mut prompt.key),
            Self::Error(error) => Some(&mut error.key),
            Self::Start(_) | Self::Bound(_) | Self::Quota(_) | Self::End(_) | Self::Other(_) => None,
        }
    }

    /// The agent's id of what the event describes.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Usage(usage) => usage.key.0.as_deref(),
            Self::Tool(tool) => tool.key.0.as_deref(),
            Self::Prompt(prompt) => prompt.key.0.as_deref(),
            Self::Error(error) => error.key.0.as_deref(),
            Self::Start(_) | Self::Bound(_) | Self::Quota(_) | Self::End(_) | Self::Other(_) => None,
        }
    }

    /// `None` for a type that this version does not know.
    pub fn event_type(&self) -> Option<EventType> {
        Some(match self {
            Self::Start(_) => EventType::Start,
            Self::Bound(_) => EventType::Bound,
            Self::Usage(_) => EventType::Usage,
            Self::Tool(_) => EventType::Tool,
            Self::Prompt(_) => EventType::Prompt,
            Self::Error(_) => EventType::Error,
            Self::Quota(_) => EventType::Quota,
            Self::End(_) => EventType::End,
            Self::Other(other) => return EventType::parse(&other.kind),
        })
    }

    /// The type as it is spelled.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Other(other) => &other.kind,
            known => known.event_type().map_or("", EventType::as_str),
        }
    }

    pub fn kind(&self) -> EventKind {
        self.event_type().map_or_else(|| EventKind::Other(self.type_name().to_owned()), EventKind::Known)
    }

    /// As the sender's store holds them, for [`Attributes::written`].
    pub fn to_json(&self) -> String {
        // Structs of texts and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As a receiver stores them, for [`Attributes::kept`].
    pub fn to_kept_json(&self) -> String {
        serde_json::to_string(&Kept(self)).unwrap_or_default()
    }

    /// The attributes of each type as JSON schema.
    pub(super) fn schemas() -> [(EventType, Value); 8] {
        [
            (EventType::Start, Start::schema()),
            (EventType::Bound, Bound::schema()),
            (EventType::Usage, Usage::schema()),
            (EventType::Tool, Tool::schema()),
            (EventType::Prompt, Prompt::schema()),
            (EventType::Error, ApiError::schema()),
            (EventType::Quota, Quota::schema()),
            (EventType::End, End::schema()),
        ]
    }

    /// The names of the fields of each type.
    pub(super) fn names_by_type() -> [(EventType, &'static [&'static str]); 8] {
        [
            (EventType::Start, names_of::<Start>()),
            (EventType::Bound, names_of::<Bound>()),
            (EventType::Usage, names_of::<Usage>()),
            (EventType::Tool, names_of::<Tool>()),
            (EventType::Prompt, names_of::<Prompt>()),
            (EventType::Error, names_of::<ApiError>()),
            (EventType::Quota, names_of::<Quota>()),
            (EventType::End, names_of::<End>()),
        ]
    }

    /// The names of the fields of an END's totals.
    pub(super) fn names_of_totals() -> &'static [&'static str] {
        names_of::<Totals>()
    }

    /// Every name of a field there is.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        let of_types = Self::names_by_type().into_iter().flat_map(|(_, names)| names);
        of_types.chain(Self::names_of_totals()).copied()
    }
}

/// As they are sent.
impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        each!(self, one => one.serialize(serializer), other => other.fields.serialize(serializer))
    }
}

impl Field for Attributes {
    fn is_acceptable(&self) -> bool {
        each!(self, one => one.is_acceptable(), other => EventType::parse(&other.kind).is_none())
    }

    fn keep<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        each!(self, one => one.keep(serializer), _other => Map::new().serialize(serializer))
    }

    fn schema() -> Value {
        serde_json::json!({"oneOf": Self::schemas().map(|(_, schema)| schema)})
    }
}

/// Cuts texts and lists to the length that receivers accept.
pub(crate) fn fit(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > Text::MOST_BYTES || text.contains('\0') => {
            *text = Text::cut(std::mem::take(text)).into_string();
        }
        Value::Array(list) => {
            list.truncate(LONGEST_LIST);
            list.iter_mut().for_each(fit);
        }
        Value::Object(fields) => fields.values_mut().for_each(fit),
        _ => {}
    }
}
