//! Conversations that are one document, rewritten whole. A cursor counts messages, not bytes, because the last message may
//! still grow. Memory is bounded by the longest document that is read at all.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::{Cursor, Entry, Item, JournalReader, Page, fitting, placed};
use crate::meter::document::{MAX_DOCUMENT, Unread, each_element};

/// How often, and after which pause, a document is read again that is just being written. The agents write one within
/// milliseconds; one that stays torn was abandoned.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// The items before `until` (`None`: before the end), as many of the last whole ones as have at most `bytes` of text. One that
/// is longer by itself is cut.
pub(super) fn backwards(
    file: &File,
    until: Option<Cursor>,
    bytes: usize,
    list: &'static str,
    read: JournalReader,
) -> io::Result<Page> {
    let messages = messages(file, list, read)?;
    let first = Cursor::at(file.metadata()?.ino(), 0);
    let end = until.unwrap_or_else(|| behind(first, &messages));
    let items = messages.into_iter().enumerate().flat_map(|(place, items)| {
        let group = at(first, place, 0);
        placed(group, 1, items)
            .filter(move |one| (one.at.offset, one.at.items) < (end.offset, end.items))
            .collect::<Vec<_>>()
    });
    Ok(fitting(items.rev(), end, bytes))
}

/// The next items from a cursor on, whole as long as they have at most `bytes` of text.
pub(super) fn after(
    file: &File,
    cursor: Cursor,
    bytes: usize,
    list: &'static str,
    read: JournalReader,
) -> io::Result<Page> {
    let mut page = Page { items: Vec::new(), start: cursor, cursor, truncated: false };
    let mut left = bytes;
    let begin = usize::try_from(cursor.offset).unwrap_or(usize::MAX);
    for (place, items) in messages(file, list, read)?.into_iter().enumerate().skip(begin) {
        let given = if place == begin { cursor.items } else { 0 };
        page.cursor = at(cursor, place, given);
        for (number, item) in items.into_iter().enumerate().skip(given) {
            if !page.push_if_fits(item, &mut left) {
                return Ok(page);
            }
            page.cursor = at(cursor, place, number + 1);
        }
    }
    Ok(page)
}

/// Hands out all items, each with the cursor that it comes right after.
pub(super) fn each(
    file: &File,
    list: &'static str,
    read: JournalReader,
    each: &mut dyn FnMut(Cursor, Item),
) -> io::Result<()> {
    let first = Cursor::at(file.metadata()?.ino(), 0);
    for (place, items) in messages(file, list, read)?.into_iter().enumerate() {
        for placed in placed(at(first, place, 0), 1, items) {
            each(placed.at, placed.item);
        }
    }
    Ok(())
}

fn at(cursor: Cursor, place: usize, items: usize) -> Cursor {
    Cursor { offset: place as u64, items, lines: usize::from(items > 0), ..cursor }
}

/// All items of the last message have been given; it may get more.
fn behind(cursor: Cursor, messages: &[Vec<Item>]) -> Cursor {
    let last = messages.len().saturating_sub(1);
    at(cursor, last, messages.last().map_or(0, Vec::len))
}

/// The items of each message. A document that stays torn is read as far as it goes.
fn messages(mut file: &File, list: &'static str, read: JournalReader) -> io::Result<Vec<Vec<Item>>> {
    let mut messages = Vec::new();
    for attempt in 1..=TRIES {
        messages.clear();
        if file.metadata()?.len() > MAX_DOCUMENT {
            return Err(io::Error::other("the conversation is too long to be read"));
        }
        file.seek(SeekFrom::Start(0))?;
        let whole = each_element(file, list, &mut |element| {
            if let Some(Entry::Message(message)) = read(element) {
                messages.push(message.items);
            }
        });
        match whole {
            Err(Unread::Torn) if attempt < TRIES => std::thread::sleep(PAUSE),
            Err(Unread::Io(error)) => return Err(error),
            _ => break,
        }
    }
    Ok(messages)
}
