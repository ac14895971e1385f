//! A batch of events as it comes over the wire, each checked. What is not right is refused with a reason that repeats none of
//! it ([`types::event`] says which).

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use types::Event;

/// An event that was refused, in the words of the answer. `id` is what the sender called it, if that could be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rejected {
    pub id: Option<String>,
    pub error: String,
}

/// A batch: what a body of `POST /v1/events` holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub events: Vec<Event>,
    pub rejected: Vec<Rejected>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBatch {
    #[error("the body is no JSON array of events")]
    NoArray,
    #[error("a batch holds at most {0} events")]
    TooMany(usize),
}

/// More than any client sends at once. Each costs memory until the batch is committed.
pub const MOST_EVENTS: usize = 10_000;

impl Batch {
    /// One event after the other, and none beyond the limit: what follows it is not even looked at.
    pub fn parse(body: &[u8]) -> Result<Self, BadBatch> {
        let mut batch = Self::default();
        let mut json = serde_json::Deserializer::from_slice(body);
        let read = json.deserialize_seq(Items(&mut batch)).and_then(|()| json.end());
        match read {
            _ if batch.events.len() + batch.rejected.len() > MOST_EVENTS => {
                Err(BadBatch::TooMany(MOST_EVENTS))
            }
            Ok(()) => Ok(batch),
            Err(_) => Err(BadBatch::NoArray),
        }
    }

    fn add(&mut self, json: &str) {
        match Event::parse(json) {
            Ok(event) => self.events.push(event),
            Err(error) => self.rejected.push(Rejected { id: claimed_id(json), error }),
        }
    }
}

/// The items of a batch, each checked as it is met.
struct Items<'a>(&'a mut Batch);

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.0.add(item.get());
            count += 1;
            if count > MOST_EVENTS {
                return Err(serde::de::Error::custom("too many"));
            }
        }
        Ok(())
    }
}

/// What the sender called an event that could not be read otherwise. Only something that could be an id is given back.
fn claimed_id(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claim {
        id: String,
    }
    let Claim { id } = serde_json::from_str(json).ok()?;
    (id.len() <= 64).then_some(id)
}

#[cfg(test)]
mod tests;
