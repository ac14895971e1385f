//! The values that may stand in an event: each type knows its limits, what its absence means, and how it is described.
//!
//! Limits are checked where an event is received. A sender cuts texts to fit, because a START that is refused for its branch is
//! lost with its session; numbers are sent as they are, so that one beyond any sense is refused and not made plausible.

use std::fmt;
use std::ops::Deref;

use serde::de::{Deserializer, Error as _, IgnoredAny};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::{
    Billing, CallKind, Coverage, EndReason, EvidenceKind, Link, PicoDollars, StartReason, Status, Timestamp,
    ToolKind, Utilization,
};

/// The most tags of a session, and the longest list that is sent.
pub(crate) const LONGEST_LIST: usize = 100;
/// Milliseconds and files: nothing that one event describes comes near.
const MOST: i64 = 1_000_000_000_000;
/// Tokens and lines, which are added up. A call has some million at most, and nine billion such still fit 64 bits.
const MOST_ADDED: i64 = 1_000_000_000;
/// What one call may cost, a thousand dollars; more is a mistake of the sender.
const MOST_COST: PicoDollars = PicoDollars(1000 * 1_000_000_000_000);
/// The highest `seq` there can be. A billion events are no session.
pub const HIGHEST_SEQ: i64 = 1_000_000_000;

/// A value of an attribute.
pub trait Field: Serialize {
    /// Whether an event without it is refused. One that is not required may be null as well.
    const REQUIRED: bool = true;

    /// Whether a receiver keeps nothing of it.
    fn is_absent(&self) -> bool {
        false
    }

    /// Whether a receiver would accept it. A parsed value always is; one that a sender filled in may be out of bounds.
    fn is_acceptable(&self) -> bool {
        true
    }

    /// As a receiver keeps it: without anything that is absent.
    fn keep<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }

    /// As JSON schema, where it is not null.
    fn schema() -> Value;
}

/// A value as a receiver keeps it.
#[derive(Debug)]
pub struct Kept<'a, T>(pub &'a T);

impl<T: Field> Kept<'_, T> {
    pub(super) fn is_absent(&self) -> bool {
        self.0.is_absent()
    }
}

impl<T: Field> Serialize for Kept<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.keep(serializer)
    }
}

/// For `#[serde(serialize_with)]`.
pub fn keep<T: Field, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.keep(serializer)
}

impl<T: Field> Field for Option<T> {
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn is_acceptable(&self) -> bool {
        self.as_ref().is_none_or(Field::is_acceptable)
    }

    fn keep<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(Kept).serialize(serializer)
    }

    fn schema() -> Value {
        T::schema()
    }
}

/// A text of limited length without NUL (which PostgreSQL cannot hold).
macro_rules! limited_text {
    ($(#[$doc:meta])* $name:ident, $most:literal, $error:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub const MOST_BYTES: usize = $most;

            pub fn new(text: String) -> Result<Self, &'static str> {
                if text.len() > Self::MOST_BYTES {
                    Err($error)
                } else if text.contains('\0') {
                    Err("a text contains NUL")
                } else {
                    Ok(Self(text))
                }
            }

            /// The beginning of a text, as long as is accepted; no letter is cut in two.
            pub fn cut(mut text: String) -> Self {
                if text.contains('\0') {
                    text.retain(|letter| letter != '\0');
                }
                text.truncate(text.floor_char_boundary(Self::MOST_BYTES));
                Self(text)
            }

            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }

        impl Field for $name {
            fn schema() -> Value {
                json!({"type": "string", "maxLength": Self::MOST_BYTES})
            }
        }
    };
}
limited_text!(
    /// Any text of an event. Branches and session names are the longest there are, and far shorter.
    Text, 1024, "a text is longer than 1024 bytes"
);
limited_text!(
    /// What sums are split by: agent, user, project and model together are a key of a backend's sums, and PostgreSQL has room
    /// for 2704 bytes in one.
    Dimension, 512, "is longer than 512 bytes"
);

/// The agent's own id of a call, a tool call or a prompt. It is sent for other receivers; our backend identifies an event by the
/// event's id, and does not read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Key(pub Option<String>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(None))
    }
}

impl Field for Key {
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        true
    }

    fn schema() -> Value {
        Text::schema()
    }
}

/// A whole number within limits; null, where nobody knows it, counts as 0.
macro_rules! limited_number {
    ($(#[$doc:meta])* $name:ident, $most:expr, $error:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[serde(transparent)]
        pub struct $name(Option<i64>);

        impl $name {
            pub const MOST: i64 = $most;

            pub fn get(self) -> i64 {
                self.0.unwrap_or(0)
            }
        }

        impl From<i64> for $name {
            fn from(number: i64) -> Self {
                Self(Some(number))
            }
        }

        impl From<Option<i64>> for $name {
            fn from(number: Option<i64>) -> Self {
                Self(number)
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                i64::try_from(number).unwrap_or(i64::MAX).into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.get().fmt(f)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = Self(Option::deserialize(deserializer)?);
                if number.is_acceptable() { Ok(number) } else { Err(D::Error::custom($error)) }
            }
        }

        impl Field for $name {
            const REQUIRED: bool = false;

            fn is_absent(&self) -> bool {
                self.get() == 0
            }

            fn is_acceptable(&self) -> bool {
                (0..=Self::MOST).contains(&self.get())
            }

            fn schema() -> Value {
                json!({"type": "integer", "minimum": 0, "maximum": Self::MOST})
            }
        }
    };
}
limited_number!(
    /// Milliseconds, files, a status.
    Count, MOST, "a number is not between 0 and 1000000000000"
);
limited_number!(
    /// A number that sums are made of: tokens, lines.
    Addend, MOST_ADDED, "a number is not between 0 and 1000000000"
);

/// A time that only the proxy can measure, because it sees the call on its way. Not sent where no proxy measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Timing(Option<Count>);

impl Timing {
    pub const NONE: Self = Self(None);

    pub fn get(self) -> Option<i64> {
        self.0.and_then(|count| count.0)
    }

    pub(super) fn is_unmeasured(&self) -> bool {
        self.0.is_none()
    }
}

impl From<i64> for Timing {
    fn from(milliseconds: i64) -> Self {
        Self(Some(milliseconds.into()))
    }
}

impl<'de> Deserialize<'de> for Timing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Count::deserialize(deserializer).map(|count| Self(Some(count)))
    }
}

impl Field for Timing {
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        self.0.is_none_or(|count| count.0.is_none())
    }

    fn is_acceptable(&self) -> bool {
        self.0.is_acceptable()
    }

    fn schema() -> Value {
        Count::schema()
    }
}

/// A time as events spell it, RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let time = Timestamp::parse(&text).filter(|time| time.is_a_date());
        time.map(Self).ok_or_else(|| D::Error::custom("is no RFC 3339 time between 1970 and 2199"))
    }
}

impl Field for Time {
    fn is_acceptable(&self) -> bool {
        self.0.is_a_date()
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "date-time"})
    }
}

impl Field for Utilization {
    fn schema() -> Value {
        json!({"type": "number", "minimum": 0, "maximum": 1})
    }
}

/// The place of an event in its session, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Seq(pub i64);

impl<'de> Deserialize<'de> for Seq {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seq = Self(i64::deserialize(deserializer)?);
        let wrong = || D::Error::custom("seq and lastSeq are between 1 and 1000000000");
        if seq.is_acceptable() { Ok(seq) } else { Err(wrong()) }
    }
}

impl Field for Seq {
    fn is_acceptable(&self) -> bool {
        (1..=HIGHEST_SEQ).contains(&self.0)
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 1, "maximum": HIGHEST_SEQ})
    }
}

/// What one call cost, spelled in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost(pub PicoDollars);

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.dollars().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        if (0.0..=MOST_COST.dollars()).contains(&dollars) {
            Ok(Self(PicoDollars::from_dollars(dollars)))
        } else {
            Err(D::Error::custom("costUsd of one call is not between 0 and 1000"))
        }
    }
}

impl Field for Cost {
    fn is_acceptable(&self) -> bool {
        (0..=MOST_COST.0).contains(&self.0.0)
    }

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0, "maximum": MOST_COST.0 / 1_000_000_000_000})
    }
}

impl Field for bool {
    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

impl Field for i32 {
    fn schema() -> Value {
        json!({"type": "integer", "minimum": Self::MIN, "maximum": Self::MAX})
    }
}

/// A fact that is false where nobody states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flag(Option<bool>);

impl Flag {
    pub fn is_set(self) -> bool {
        self.0.unwrap_or(false)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(super) fn is_unset(&self) -> bool {
        !self.is_set()
    }
}

impl From<bool> for Flag {
    fn from(set: bool) -> Self {
        Self(Some(set))
    }
}

impl Field for Flag {
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        !self.is_set()
    }

    fn schema() -> Value {
        bool::schema()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Tags(Vec<Text>);

impl Tags {
    /// As many as are accepted, each as long as is accepted.
    pub fn cut(tags: impl IntoIterator<Item = String>) -> Self {
        Self(tags.into_iter().take(LONGEST_LIST).map(Text::cut).collect())
    }
}

impl Deref for Tags {
    type Target = [Text];
    fn deref(&self) -> &[Text] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tags = Option::<Vec<Text>>::deserialize(deserializer)?.unwrap_or_default();
        if tags.len() > LONGEST_LIST { Err(D::Error::custom("more than 100 tags")) } else { Ok(Self(tags)) }
    }
}

impl Field for Tags {
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        self.0.is_empty()
    }

    fn schema() -> Value {
        json!({"type": "array", "items": Text::schema(), "maxItems": LONGEST_LIST})
    }
}

/// A sum that the sender made. Our backend adds up events itself: it refuses no event because of such a sum, and keeps none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SenderSum<T>(pub T);

impl<'de, T: serde::de::DeserializeOwned + Default> Deserialize<'de> for SenderSum<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(value).unwrap_or_default()))
    }
}

impl<T: Serialize> Field for SenderSum<T> {
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        true
    }

    /// Any value.
    fn schema() -> Value {
        Value::Null
    }
}

macro_rules! words {
    ($($name:ty),+) => {$(
        impl Field for $name {
            fn schema() -> Value {
                let words: Vec<&str> = Self::ALL.iter().map(|word| word.as_str()).collect();
                json!({"type": "string", "enum": words})
            }
        }
    )+};
}
words!(
    Billing,
    CallKind,
    Coverage,
    EndReason,
    EvidenceKind,
    Link,
    StartReason,
    Status,
    ToolKind,
    super::Source
);

/// An object of these fields: name, whether it is required, schema; nothing is stated of one without a schema.
pub(super) fn object(fields: impl IntoIterator<Item = (&'static str, bool, Value)>) -> Value {
    let (mut required, mut properties) = (Vec::new(), Map::new());
    for (name, needed, schema) in fields.into_iter().filter(|(_, _, schema)| !schema.is_null()) {
        if needed {
            required.push(name);
        }
        properties.insert(name.to_owned(), if needed { schema } else { or_null(schema) });
    }
    json!({"type": "object", "required": required, "properties": properties})
}

/// The same schema, or null.
pub fn or_null(mut schema: Value) -> Value {
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        values.push(Value::Null);
    }
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// The names of a struct's fields, as serde spells them: taken from its `Deserialize`, so that no list has to repeat them.
pub(super) fn names_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    struct NameCollector<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for NameCollector<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Self::Error::custom("no struct"))
        }

        fn deserialize_struct<V: serde::de::Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            Err(Self::Error::custom("only its names were asked for"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut names: &'static [&'static str] = &[];
    // It never succeeds: nothing is read.
    let _ = T::deserialize(NameCollector(&mut names));
    names
}
