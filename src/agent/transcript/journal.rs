//! Conversations whose files take things back: a line may write a message again, replace all of them, or rewind to an
//! earlier one. What is shown is what stands at the end of the file, each message where it was first written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::{Cursor, Forwards, Item, Page, Side};

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
    pub(super) fn from(file: &File, offset: u64, read: JournalReader) -> io::Result<Self> {
        let mut giving = Self { read, standing: standing(file, read)?, given: HashMap::new() };
        let mut lines = Forwards::new(file, 0)?;
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
fn standing(file: &File, read: JournalReader) -> io::Result<HashSet<String>> {
    let mut order: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    let mut lines = Forwards::new(file, 0)?;
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

/// The end of the conversation: as many whole items as have at most `bytes` of text. One that is longer by itself is cut.
pub(super) fn last(file: &File, bytes: usize, read: JournalReader) -> io::Result<Page> {
    let inode = file.metadata()?.ino();
    let mut giving = Giving::from(file, 0, read)?;
    let mut lines = Forwards::new(file, 0)?;
    let (mut items, mut held, mut truncated) = (VecDeque::new(), 0, false);
    while let Some(line) = lines.next()? {
        for item in giving.items(&line) {
            held += item.len();
            items.push_back(item);
            while held > bytes
                && items.len() > 1
                && let Some(first) = items.pop_front()
            {
                held -= first.len();
                truncated = true;
            }
        }
    }
    if held > bytes {
        let only = items.pop_front().filter(|_| bytes > 0);
        items.extend(only.map(|item| item.cut(bytes, Side::End)));
        truncated = true;
    }
    let cursor = Cursor::at(inode, lines.offset);
    Ok(Page { items: items.into(), cursor, truncated: truncated || lines.passed_over })
}
