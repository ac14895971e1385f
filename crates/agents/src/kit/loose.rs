//! A scalar that may have another type in another version of the agent: then it counts as absent, and the rest of the line
//! is still read. Token counts are not read this way: a wrong one must be noticed.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A text of the line itself, copied only where it holds escapes.
pub(crate) type Text<'a> = Loose<Cow<'a, str>>;

#[derive(Clone, Debug)]
pub(crate) struct Loose<T>(pub(crate) Option<T>);

impl<T> Default for Loose<T> {
    fn default() -> Self {
        Self(None)
    }
}

pub(crate) trait Scalar<'de>: Sized {
    fn borrowed(_: &'de str) -> Option<Self> {
        None
    }
    fn text(_: &str) -> Option<Self> {
        None
    }
    fn boolean(_: bool) -> Option<Self> {
        None
    }
    fn number(_: u64) -> Option<Self> {
        None
    }
}

impl<'de: 'a, 'a> Scalar<'de> for Cow<'a, str> {
    fn borrowed(text: &'de str) -> Option<Self> {
        Some(Cow::Borrowed(text))
    }
    fn text(text: &str) -> Option<Self> {
        Some(Cow::Owned(text.to_owned()))
    }
}

impl Scalar<'_> for bool {
    fn boolean(value: bool) -> Option<Self> {
        Some(value)
    }
}

impl Scalar<'_> for u64 {
    fn number(value: u64) -> Option<Self> {
        Some(value)
    }
}

impl<'de, T: Scalar<'de>> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any(PhantomData))
    }
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Scalar<'de>> Visitor<'de> for Any<T> {
    type Value = Loose<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Loose(T::borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Loose(T::text(text)))
    }
    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Loose(T::boolean(value)))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Loose(T::number(value)))
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Loose(None))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Loose(None))
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Loose(None))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Loose(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Loose(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow, default)]
        text: Loose<Cow<'a, str>>,
        #[serde(default)]
        flag: Loose<bool>,
        #[serde(default)]
        number: Loose<u64>,
    }

    #[test]
    fn another_type_is_an_absent_value_and_never_an_error() {
        for value in ["null", "true", "7", "-7", "1.5", "\"x\\n\"", "[1,[2]]", r#"{"a":{"b":1}}"#] {
            let json = format!(r#"{{"text":{value},"flag":{value},"number":{value}}}"#);
            let line: Line = serde_json::from_str(&json).unwrap();
            assert_eq!(line.text.0.as_deref(), (value == "\"x\\n\"").then_some("x\n"), "{value}");
            assert_eq!(line.flag.0, (value == "true").then_some(true), "{value}");
            assert_eq!(line.number.0, (value == "7").then_some(7), "{value}");
        }
        let empty: Line = serde_json::from_str("{}").unwrap();
        assert!(empty.text.0.is_none() && empty.flag.0.is_none() && empty.number.0.is_none());
    }
}
