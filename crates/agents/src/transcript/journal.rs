//! Conversations whose lines revise earlier ones: a line may write a message again, replace all of them, or rewind to an
//! earlier one. Shown are the messages that are valid at the end, each where it was first written.

use std::collections::{HashMap, HashSet};
use std::io;

use super::{Forwards, Item};
use crate::meter::form::Opened;

/// How one line changes the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A message, new or written again. One that is written again may have further items, never other ones.
    Message(Message),
    /// These are all messages from here on.
    Replace(Vec<Message>),
    /// This message and all after it are removed; an unknown one removes everything.
    Rewind(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub items: Vec<Item>,
}

/// How one line changes the conversation. Broken and irrelevant lines do not.
pub type JournalReader = fn(&[u8]) -> Option<Entry>;

/// Gives each item of the valid messages once.
pub(super) struct JournalItems {
    read: JournalReader,
    /// Messages that are valid at the end.
    valid: HashSet<String>,
    given: HashMap<String, usize>,
}

impl JournalItems {
    /// As if all before `offset` had been given.
    pub(super) fn from(content: &Opened, offset: u64, read: JournalReader) -> io::Result<Self> {
        let mut journal = Self { read, valid: valid_messages(content, read)?, given: HashMap::new() };
        let mut lines = Forwards::new(content, 0)?;
        while lines.offset < offset
            && let Some(line) = lines.next()?
        {
            journal.items(&line);
        }
        Ok(journal)
    }

    pub(super) fn items(&mut self, line: &[u8]) -> Vec<Item> {
        let messages = match (self.read)(line) {
            Some(Entry::Message(message)) => vec![message],
            Some(Entry::Replace(messages)) => messages,
            Some(Entry::Rewind(_)) | None => Vec::new(),
        };
        let mut new = Vec::new();
        for Message { id, items } in messages.into_iter().filter(|message| self.valid.contains(&message.id)) {
            let given = self.given.entry(id).or_default();
            let count = items.len().max(*given);
            new.extend(items.into_iter().skip(*given));
            *given = count;
        }
        new
    }
}

/// The ids of the messages that are valid at the end.
fn valid_messages(content: &Opened, read: JournalReader) -> io::Result<HashSet<String>> {
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
