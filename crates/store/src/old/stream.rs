//! Reading a file of sessions without holding it: first its outline, then entry by entry.
//!
//! A repository may bring such a file along, so memory does not grow with it: of each entry only the named fields are kept, and
//! only if they are plain values.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::marker::PhantomData;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

use super::EXPORT;

/// The top level of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) is_export: bool,
    pub(super) is_ours: bool,
    pub(super) version: Option<u64>,
    /// `agents` and `sessions` are objects of entries.
    pub(super) has_agents: bool,
    pub(super) has_sessions: bool,
    /// Its fields that a file of one session has.
    pub(super) of_one_session: Map<String, Value>,
}

/// The fields that an entry, or a file of one session, is asked for. Others are read past.
const WANTED: [&str; 25] = [
    "agent",
    "agentName",
    "agentSessionFile",
    "agentSessionId",
    "branch",
    "correlation",
    "created",
    "endTime",
    "executor",
    "executorVariant",
    "exitCode",
    "gitBranch",
    "lastUsed",
    "mode",
    "model",
    "name",
    "preset",
    "project",
    "provider",
    "repository",
    "sessionId",
    "signal",
    "startTime",
    "status",
    "workingDirectory",
];

/// Reads a whole file for its outline. An error if it is not one JSON object to its end.
pub(super) fn outline(reader: impl Read) -> serde_json::Result<Outline> {
    let mut input = serde_json::Deserializer::from_reader(reader);
    let outline = input.deserialize_map(OutlineVisitor)?;
    input.end()?;
    Ok(outline)
}

/// Hands out the entries of the objects `agents` and `sessions` in the order of the file: which object, which key, its fields.
/// `None`: the entry is no object. An error of `each` ends the reading.
pub(super) fn each_entry(
    reader: impl Read,
    each: impl FnMut(&str, &str, Option<Map<String, Value>>) -> serde_json::Result<()>,
) -> serde_json::Result<()> {
    serde_json::Deserializer::from_reader(reader).deserialize_map(EntriesVisitor(each))
}

/// Hands out the elements of the array `sessions`. An error if there is none.
pub(super) fn each_session<T: DeserializeOwned>(
    reader: impl Read,
    each: impl FnMut(T) -> serde_json::Result<()>,
) -> serde_json::Result<()> {
    serde_json::Deserializer::from_reader(reader).deserialize_map(SessionsVisitor(each, PhantomData))
}

struct OutlineVisitor;

impl<'de> Visitor<'de> for OutlineVisitor {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let mut outline = Outline::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format" => outline.is_export = map.next_value_seed(Plain(0))? == EXPORT,
                "wrapperVersion" => {
                    outline.is_ours = true;
                    map.next_value::<IgnoredAny>()?;
                }
                "version" => outline.version = map.next_value_seed(Plain(0))?.as_u64(),
                "agents" => outline.has_agents = map.next_value_seed(Plain(0))?.is_object(),
                "sessions" => outline.has_sessions = map.next_value_seed(Plain(0))?.is_object(),
                wanted if WANTED.contains(&wanted) => {
                    let value = map.next_value_seed(Plain(1))?;
                    outline.of_one_session.insert(key, value);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(outline)
    }
}

/// A plain value as it is. Of an object the wanted fields, so many levels deep; below that, and of an array, nothing.
struct Plain(u8);

impl<'de> DeserializeSeed<'de> for Plain {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Plain {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.0 > 0 && WANTED.contains(&key.as_str()) {
                let value = map.next_value_seed(Plain(self.0 - 1))?;
                fields.insert(key, value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(fields))
    }
}

struct EntriesVisitor<F>(F);

impl<'de, F: FnMut(&str, &str, Option<Map<String, Value>>) -> serde_json::Result<()>> Visitor<'de>
    for EntriesVisitor<F>
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "agents" || key == "sessions" {
                map.next_value_seed(EntriesOf(&key, &mut self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct EntriesOf<'a, F>(&'a str, &'a mut F);

impl<'de, F: FnMut(&str, &str, Option<Map<String, Value>>) -> serde_json::Result<()>> DeserializeSeed<'de>
    for EntriesOf<'_, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de, F: FnMut(&str, &str, Option<Map<String, Value>>) -> serde_json::Result<()>> Visitor<'de>
    for EntriesOf<'_, F>
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let fields = match map.next_value_seed(Plain(1))? {
                Value::Object(fields) => Some(fields),
                _ => None,
            };
            (self.1)(self.0, &key, fields).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

struct SessionsVisitor<F, T>(F, PhantomData<T>);

impl<'de, T: DeserializeOwned, F: FnMut(T) -> serde_json::Result<()>> Visitor<'de> for SessionsVisitor<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an export")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "sessions" {
                found = true;
                map.next_value_seed(Elements(&mut self.0, PhantomData))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::missing_field("sessions")) }
    }
}

struct Elements<'a, F, T>(&'a mut F, PhantomData<T>);

impl<'de, T: DeserializeOwned, F: FnMut(T) -> serde_json::Result<()>> DeserializeSeed<'de>
    for Elements<'_, F, T>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> serde_json::Result<()>> Visitor<'de> for Elements<'_, F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of sessions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element()? {
            (self.0)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Text whose broken characters are replaced, as it is read.
pub(super) struct Lossy<R> {
    inner: R,
    chunk: u64,
    /// The beginning of a character whose rest is still to come.
    torn: Vec<u8>,
    ready: Vec<u8>,
    given: usize,
}

impl<R: Read> Lossy<R> {
    /// Buffered, because JSON is read byte by byte.
    pub(super) fn buffered(inner: R) -> BufReader<Self> {
        BufReader::with_capacity(64 * 1024, Self::by(inner, 64 * 1024))
    }

    fn by(inner: R, chunk: u64) -> Self {
        Self { inner, chunk, torn: Vec::new(), ready: Vec::new(), given: 0 }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut raw = std::mem::take(&mut self.torn);
        let end = self.inner.by_ref().take(self.chunk).read_to_end(&mut raw)? == 0;
        (self.ready, self.given) = (Vec::with_capacity(raw.len()), 0);
        let mut rest = &raw[..];
        while !rest.is_empty() {
            let (valid, broken) = match std::str::from_utf8(rest) {
                Ok(_) => (rest.len(), 0),
                Err(error) if error.error_len().is_none() && !end => {
                    self.torn = rest[error.valid_up_to()..].to_vec();
                    self.ready.extend_from_slice(&rest[..error.valid_up_to()]);
                    break;
                }
                Err(error) => {
                    let left = rest.len() - error.valid_up_to();
                    (error.valid_up_to(), error.error_len().unwrap_or(left))
                }
            };
            self.ready.extend_from_slice(&rest[..valid]);
            if broken > 0 {
                self.ready.extend_from_slice("\u{fffd}".as_bytes());
            }
            rest = &rest[valid + broken..];
        }
        Ok(())
    }
}

impl<R: Read> Read for Lossy<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() {
            let torn = self.torn.len();
            self.fill()?;
            if self.ready.is_empty() && self.torn.len() == torn {
                return Ok(0);
            }
        }
        let count = into.len().min(self.ready.len() - self.given);
        into[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_characters_are_replaced_wherever_a_read_ends() {
        let cases: [&[u8]; 6] = [
            b"",
            b"plain",
            "gr\u{fc}n \u{1f600}!".as_bytes(),
            b"a\xffb\xf0\x9f\x98",
            b"\xe2\x82",
            b"\x80\x80",
        ];
        for text in cases {
            for step in [1, 2, 3, 64] {
                let mut read = String::new();
                Lossy::by(text, step).read_to_string(&mut read).unwrap();
                assert_eq!(read, String::from_utf8_lossy(text), "{text:?} by {step}");
            }
        }
    }

    #[test]
    fn an_outline_holds_no_more_than_the_wanted_fields() {
        let text = r#"{"version":3,"sessions":{"a":{"x":[1,{"y":2}]}},"agents":[],"name":{"name":["n"],"junk":1},"junk":[[]]}"#;
        let found = outline(text.as_bytes()).unwrap();
        assert_eq!((found.version, found.has_sessions, found.has_agents), (Some(3), true, false));
        assert_eq!(Value::Object(found.of_one_session), serde_json::json!({"name": {"name": null}}));
        for broken in ["", "[]", "{", r#"{"a":1} x"#, r#"{"a":1}{"#] {
            assert!(outline(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
