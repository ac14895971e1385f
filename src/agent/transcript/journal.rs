//! Conversations whose files take things back: a line may write a message again, replace all of them, or rewind to an
//! earlier one. What is shown is what stands at the end of the file, each message where it was first written.

use std::collections::{HashMap, HashSet};
use std::io;

use super::{Forwards, Item};
use crate::meter::form::Opened;

/// What one line does to the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A message, new or written again. One that is written again may have more items than before, never others.
    Message(Message),
    /// These are all there is from here on.
    Replace(Vec<Message>),
    /// This message and all after it are taken back; one that is unknown takes everything back.
    Rewind(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub items: Vec<Item>,
}

/// What one line does. Broken lines and lines of no interest do nothing.
pub type JournalReader = fn(&[u8]) -> Option<Entry>;

/// Gives each item of what stands once.
pub(super) struct Giving {
    read: JournalReader,
    standing: HashSet<String>,
    given: HashMap<String, usize>,
}

impl Giving {
    /// As if all before `offset` had been given.
    pub(super) fn from(content: &Opened, offset: u64, read: JournalReader) -> io::Result<Self> {
        let mut giving = Self { read, standing: standing(content, read)?, given: HashMap::new() };
        let mut lines = Forwards::new(content, 0)?;
        while lines.offset < offset
            && let Some(line) = lines.next()?
        {
            giving.items(&line);
        }
        Ok(giving)
    }

    pub(super) fn items(&mut self, line: &[u8]) -> Vec<Item> {
        let messages = match (self.read)(line) {
            Some(Entry::Message(message)) => vec![message],
            Some(Entry::Replace(messages)) => messages,
            Some(Entry::Rewind(_)) | None => Vec::new(),
        };
        let mut new = Vec::new();
        for Message { id, items } in
            messages.into_iter().filter(|message| self.standing.contains(&message.id))
        {
            let given = self.given.entry(id).or_default();
            let count = items.len().max(*given);
            new.extend(items.into_iter().skip(*given));
            *given = count;
        }
        new
    }
}

/// The messages that are left at the end of the file.
fn standing(content: &Opened, read: JournalReader) -> io::Result<HashSet<String>> {
    let mut order: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    let mut lines = Forwards::new(content, 0)?;
    while let Some(line) = lines.next()? {
        let added = match read(&line) {
            None => continue,
            Some(Entry::Message(message)) => vec![message],
            Some(Entry::Replace(messages)) => {
                order.clear();
                known.clear();
                messages
            }
            Some(Entry::Rewind(id)) => {
                let to = order.iter().position(|known| *known == id).unwrap_or(0);
                for gone in order.drain(to..) {
                    known.remove(&gone);
                }
                Vec::new()
            }
        };
        for Message { id, .. } in added {
            if known.insert(id.clone()) {
                order.push(id);
            }
        }
    }
    Ok(known)
}
