//! Follows a file that its agent rewrites whole: one JSON document whose records are in a list.
//!
//! Promises: a document is read whole or not at all (one that is being written waits), memory is bounded by the longest
//! element of the list and by [`MAX_DOCUMENT`], and a document that did not change is not read again. A document that changed
//! is read from its start. That is harmless, because records have keys: known records stay, new ones are added, and of two
//! revisions the better one wins. A record that the agent removed from its document stays counted.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, de};
use serde_json::value::RawValue;

use super::line::{Lines, ParsedLines};
use super::tail::{Batch, LongLineTurn, Position, Restart, Source, hash_on, take_line};
use os::clock::{Clock, SystemClock};
use os::file::is_settled;
use types::Timestamp;

/// A longer document is counted as unreadable. Why 64 MiB: the agents that write such files parse and rewrite all of it with
/// every message, and are slow long before. It also bounds the number of small records.
pub const MAX_DOCUMENT: u64 = 64 * 1024 * 1024;

/// Only one of several readers at once holds a document longer than this.
const LONG: u64 = 1024 * 1024;

/// The fields before the list are given as one element; longer ones are left out.
const MAX_FIELD: usize = 64 * 1024;

const AT_ONCE: usize = 64 * 1024;

/// Why a document could not be read.
#[derive(Debug)]
pub enum Unread {
    /// It ends too early: it is being written.
    Torn,
    /// It is not a document of this kind.
    Broken,
    Io(io::Error),
}

/// One followed document.
#[derive(Debug)]
pub struct Document<L> {
    /// The field that holds the list.
    list: &'static str,
    position: Option<Position>,
    /// When it was last written, at the time it was read.
    checked: Option<(i64, i64)>,
    lines: L,
    turn: Option<Arc<LongLineTurn>>,
}

impl<L: Lines> Document<L> {
    /// `position`: where the last reading ended. `turn`: shared by readers that read at the same time.
    pub fn new(
        list: &'static str,
        position: Option<Position>,
        lines: L,
        turn: Option<Arc<LongLineTurn>>,
    ) -> Self {
        Self { list, position, checked: None, lines, turn }
    }

    pub fn into_lines(self) -> L {
        self.lines
    }

    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// All of it, if it changed since it was last read; `None`: it did not, or is being written.
    pub fn next(&mut self, source: &impl Source) -> io::Result<Option<Batch>> {
        let (file, length) = source.identity()?;
        let written = source.written_at()?;
        let known = self.position.is_some_and(|at| at.file == file && at.offset == length);
        if known && written.is_some() && written == self.checked {
            return Ok(None);
        }
        let turn = self.turn.clone().filter(|_| length > LONG);
        let _held = turn.as_ref().map(|turn| turn.hold());
        let from = self.position;
        let restart = from.map(|_| Restart::Rewritten);
        let mut batch = Batch::empty(from, Position::start_of(file), restart);
        self.lines.forget();
        match self.read(source, length, &mut batch) {
            Ok(()) => {}
            Err(Unread::Torn) => return Ok(None),
            Err(Unread::Broken) => {
                (batch.parsed, batch.lines, batch.unreadable) = (ParsedLines::default(), 0, 1);
            }
            Err(Unread::Io(error)) => return Err(error),
        }
        if source.identity()? != (file, length) || source.written_at()? != written {
            return Ok(None); // rewritten while it was read, which is a reason to look again
        }
        // A second change within the same tick would not show.
        self.checked = written.filter(|(seconds, nanos)| {
            let at = Timestamp(seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000));
            is_settled(at, SystemClock.now())
        });
        if from == Some(batch.to) {
            return Ok(None);
        }
        self.position = Some(batch.to);
        batch.state = self.lines.state();
        Ok(Some(batch))
    }

    fn read(&mut self, source: &impl Source, length: u64, batch: &mut Batch) -> Result<(), Unread> {
        if length > MAX_DOCUMENT {
            (batch.to.offset, batch.to.mark) = (length, 0);
            return Err(Unread::Broken);
        }
        let mut bytes = Bytes { source, offset: 0, end: length, mark: batch.to.mark };
        let lines = &mut self.lines;
        let mut elements = 0;
        let read = each_element(&mut bytes, self.list, &mut |element| {
            elements += 1;
            take_line(lines, element, batch);
        });
        batch.lines = elements;
        if !matches!(read, Err(Unread::Torn | Unread::Io(_))) {
            // The bytes after the document count as read.
            io::copy(&mut bytes, &mut io::sink()).map_err(Unread::Io)?;
        }
        (batch.to.offset, batch.to.mark) = (bytes.offset, bytes.mark);
        read
    }
}

/// The bytes of a source in order, with a hash over all of them.
struct Bytes<'s, S> {
    source: &'s S,
    offset: u64,
    end: u64,
    mark: u64,
}

impl<S: Source> Read for Bytes<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX).min(into.len());
        let got = self.source.read_at(&mut into[..room], self.offset)?;
        self.offset += got as u64;
        self.mark = hash_on(self.mark, &into[..got]);
        Ok(got)
    }
}

/// Calls `each` with an object of the fields before the list, then with each element of the list, in order.
pub fn each_element(
    reader: impl Read,
    list: &'static str,
    each: &mut dyn FnMut(&[u8]),
) -> Result<(), Unread> {
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(AT_ONCE, reader));
    let read = json.deserialize_map(Outline { list, each }).and_then(|()| json.end());
    read.map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => Unread::Torn,
        serde_json::error::Category::Io => Unread::Io(error.into()),
        _ => Unread::Broken,
    })
}

struct Outline<'e> {
    list: &'static str,
    each: &'e mut dyn FnMut(&[u8]),
}

impl<'de> Visitor<'de> for Outline<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an object with a list {:?}", self.list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut head = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == self.list {
                (self.each)(&object(&head));
                map.next_value_seed(Elements(self.each))?;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(());
            }
            let value: Box<RawValue> = map.next_value()?;
            if name.len() + value.get().len() <= MAX_FIELD {
                let name = serde_json::to_string(&name).map_err(A::Error::custom)?;
                head.push(format!("{name}:{}", value.get()));
            }
        }
        (self.each)(&object(&head));
        Ok(())
    }
}

fn object(fields: &[String]) -> Vec<u8> {
    format!("{{{}}}", fields.join(",")).into_bytes()
}

struct Elements<'e>(&'e mut dyn FnMut(&[u8]));

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, list: D) -> Result<(), D::Error> {
        list.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<Box<RawValue>>()? {
            (self.0)(element.get().as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
