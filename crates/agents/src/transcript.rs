//! A conversation to read, by pages.
//!
//! Promises: memory is bounded whatever the conversation holds; only whole lines are read, a torn last one comes with a
//! later page; a cursor stays valid as long as the conversation only grows, and is opaque to everybody else.

mod document;
mod journal;
mod threads;

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::str::FromStr;

use crate::meter::form::{Form, Opened};
use crate::meter::rows::RowSource;
use types::Timestamp;
// Longer lines are skipped, as by the meter: no message is that long.
use crate::meter::tail::MAX_LINE;
use journal::JournalItems;
pub use journal::{Entry, JournalReader, Message};
use threads::Groups;
pub use threads::{ThreadReader, Threaded};

/// Bytes read at once, and the least by which a look backwards is widened.
const CHUNK: usize = 64 * 1024;

/// Longest one-liner of a tool call, in characters.
const MAX_SUMMARY: usize = 120;

/// One thing in a conversation. Texts are as the agent stored them: control characters must be removed before
/// they are shown on a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub at: Option<Timestamp>,
    pub kind: ItemKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    User(String),
    Assistant(String),
    /// A text that the agent itself put where there is no answer.
    Filler(String),
    /// A tool was called: its name and its most telling argument, on one line.
    Tool {
        name: String,
        about: String,
    },
    ToolFailed(String),
    /// Something that happened to the conversation itself.
    Note(&'static str),
}

/// How to read a session file.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// Every line adds its own items, and none is ever taken back.
    Lines(LineReader),
    /// The same, but a line may come before the one it follows.
    Threads(ThreadReader),
    Journal(JournalReader),
    /// One document that is rewritten whole; this list holds its messages, as the lines of a journal do.
    Document(&'static str, JournalReader),
}

impl Reader {
    /// The reader of a file that is written in this form.
    #[must_use]
    pub fn of_form(self, form: Form) -> Self {
        match (self, form) {
            (Self::Journal(read), Form::Document { list }) => Self::Document(list, read),
            (reader, _) => reader,
        }
    }

    /// The items that a line adds by itself. Nothing where other lines decide about it: such a conversation is read by [`each`].
    pub fn line(self, line: &[u8]) -> Vec<Item> {
        match self {
            Self::Lines(read) => read(line),
            Self::Threads(read) => read(line).items,
            Self::Journal(_) | Self::Document(..) => Vec::new(),
        }
    }
}

/// The items that one line adds to the conversation. Broken and irrelevant lines add none.
pub type LineReader = fn(&[u8]) -> Vec<Item>;

/// A place in a conversation: everything before it has been given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    inode: u64,
    offset: u64,
    /// How many items of the group at `offset` have been given.
    items: usize,
    /// How many lines that group had; 0 where none of its items has been given.
    lines: usize,
}

impl Cursor {
    fn at(inode: u64, offset: u64) -> Self {
        Self { inode, offset, items: 0, lines: 0 }
    }

    /// Where the line at an offset of the same file begins.
    #[must_use]
    pub fn at_line(self, offset: u64) -> Self {
        Self::at(self.inode, offset)
    }

    /// How far into the conversation it is; only two places of one conversation can be compared.
    pub fn position(self) -> (u64, usize) {
        (self.offset, self.items)
    }
}

/// The beginning of a conversation.
pub fn start(content: &Opened) -> io::Result<Cursor> {
    extent(content).map(|(inode, _)| Cursor::at(inode, 0))
}

/// Hands out all items of a conversation in order, each with the cursor that it comes right after.
pub fn each(content: &Opened, reader: Reader, each: &mut dyn FnMut(Cursor, Item)) -> io::Result<()> {
    if let (Opened::File(file), Reader::Document(list, read)) = (content, reader) {
        return document::each(file, list, read, each);
    }
    let mut at = start(content)?;
    let mut groups = Groups::new(Forwards::new(content, 0)?, Reading::from(content, 0, reader)?);
    while let Some(group) = groups.next(None)? {
        for placed in placed(at, group.lines, group.items) {
            each(placed.at, placed.item);
        }
        at = at.at_line(group.end);
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<Item>,
    /// Where the page itself begins: the page before it ends there.
    pub start: Cursor,
    /// Where the next page begins.
    pub cursor: Cursor,
    /// Something did not fit: before the items of [`last`] and [`before`], after those of [`after`], or a part of one.
    pub truncated: bool,
}

impl Page {
    /// Adds an item, if there is room for it; `left` is the room in bytes. One that fits no page is given in part, so
    /// that the next page gets past it.
    fn push_if_fits(&mut self, item: Item, left: &mut usize) -> bool {
        if let Some(less) = left.checked_sub(item.len()) {
            *left = less;
            self.items.push(item);
            return true;
        }
        self.truncated = true;
        let whole_page = self.items.is_empty() && *left > 0;
        if whole_page {
            self.items.push(item.cut(*left, Side::Beginning));
            *left = 0;
        }
        whole_page
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the cursor is not of this conversation's file, which may have been replaced; leave --since out")]
    Stale,
}

/// The end of the conversation: as many whole items as have at most `bytes` of text. One that is longer by itself is cut.
pub fn last(content: &Opened, bytes: usize, reader: Reader) -> io::Result<Page> {
    backwards(content, None, bytes, reader)
}

/// The items before a cursor, as many of the latest as fit: [`Page::start`] leads on, page by page, to the beginning.
pub fn before(content: &Opened, cursor: Cursor, bytes: usize, reader: Reader) -> Result<Page, Error> {
    let (inode, end) = extent(content)?;
    if cursor.inode != inode || cursor.offset > end {
        return Err(Error::Stale);
    }
    Ok(backwards(content, Some(cursor), bytes, reader)?)
}

/// The items before `until`; `None`: before the end.
fn backwards(content: &Opened, until: Option<Cursor>, bytes: usize, reader: Reader) -> io::Result<Page> {
    match (content, reader) {
        (Opened::File(file), Reader::Document(list, read)) => {
            document::backwards(file, until, bytes, list, read)
        }
        (Opened::File(file), Reader::Lines(read)) => {
            let begun = begun_group(content, until, reader)?;
            backwards_by_line(Backwards::until(file, until)?, begun, bytes, read)
        }
        (Opened::File(file), Reader::Threads(read)) => {
            let begun = begun_group(content, until, reader)?;
            threads::backwards(Backwards::until(file, until)?, begun, bytes, read)
        }
        (content, reader) => {
            backwards_by_whole_pass(content, until, bytes, Reading::from(content, 0, reader)?)
        }
    }
}

/// The items of the group that a cursor is in the middle of, up to the cursor.
fn begun_group(content: &Opened, until: Option<Cursor>, reader: Reader) -> io::Result<Vec<PlacedItem>> {
    let Some(until) = until.filter(|until| until.items > 0) else { return Ok(Vec::new()) };
    let reading = Reading::from(content, until.offset, reader)?;
    let group = Groups::new(Forwards::new(content, until.offset)?, reading).next(Some(until.lines))?;
    let items = group.map_or_else(Vec::new, |group| group.items);
    Ok(placed(until, until.lines, items).take(until.items).collect())
}

fn backwards_by_line(
    (mut lines, end): (Backwards<'_>, Cursor),
    begun: Vec<PlacedItem>,
    bytes: usize,
    read: LineReader,
) -> io::Result<Page> {
    let mut failed = None;
    let earlier = std::iter::from_fn(|| {
        let line = lines.previous().unwrap_or_else(|error| {
            failed = Some(error);
            None
        })?;
        Some(placed(Cursor { offset: lines.end(), ..end }, 1, read(&line)).rev())
    });
    let mut page = fitting(begun.into_iter().rev().chain(earlier.flatten()), end, bytes);
    page.truncated |= lines.passed_over;
    failed.map_or(Ok(page), Err)
}

/// The same by a pass over the whole conversation, where it cannot be read backwards.
fn backwards_by_whole_pass(
    content: &Opened,
    until: Option<Cursor>,
    bytes: usize,
    reading: Reading,
) -> io::Result<Page> {
    let (inode, _) = extent(content)?;
    let mut groups = Groups::new(Forwards::new(content, 0)?, reading);
    let (mut items, mut held, mut truncated) = (VecDeque::<PlacedItem>::new(), 0, false);
    let mut at = Cursor::at(inode, 0);
    loop {
        let reached = until.filter(|until| at.offset >= until.offset);
        if reached.is_some_and(|until| until.items == 0) {
            break;
        }
        let Some(group) = groups.next(reached.map(|until| until.lines))? else { break };
        truncated |= group.passed_over;
        let wanted = reached.map_or(usize::MAX, |until| until.items);
        for placed in placed(at, group.lines, group.items).take(wanted) {
            held += placed.item.len();
            items.push_back(placed);
            while held > bytes
                && items.len() > 1
                && let Some(first) = items.pop_front()
            {
                held -= first.item.len();
                truncated = true;
            }
        }
        at = Cursor::at(inode, group.end);
        if reached.is_some() {
            break;
        }
    }
    let mut page = fitting(items.into_iter().rev(), until.unwrap_or(at), bytes);
    page.truncated |= truncated;
    Ok(page)
}

/// The number that identifies a conversation, and where it ends at present.
fn extent(content: &Opened) -> io::Result<(u64, u64)> {
    match content {
        Opened::File(file) => file.metadata().map(|meta| (meta.ino(), meta.len())),
        Opened::Rows(rows) => rows.status().map(|status| (status.id.inode, status.end)),
    }
}

/// An item, and the cursor that it comes right after.
struct PlacedItem {
    at: Cursor,
    item: Item,
}

/// The items of the group of `lines` lines that begins at `group`.
fn placed(
    group: Cursor,
    lines: usize,
    items: Vec<Item>,
) -> impl DoubleEndedIterator<Item = PlacedItem> + ExactSizeIterator {
    items.into_iter().enumerate().map(move |(items, item)| {
        let at = Cursor { items, lines: if items > 0 { lines } else { 0 }, ..group };
        PlacedItem { at, item }
    })
}

/// A page of as many of the last items before `end` as fit.
fn fitting(backwards: impl Iterator<Item = PlacedItem>, end: Cursor, bytes: usize) -> Page {
    let mut page = Page { items: Vec::new(), start: end, cursor: end, truncated: false };
    let mut left = bytes;
    for PlacedItem { at, item } in backwards {
        if let Some(less) = left.checked_sub(item.len()) {
            left = less;
            page.items.push(item);
            page.start = at;
            continue;
        }
        if page.items.is_empty() && bytes > 0 {
            page.items.push(item.cut(bytes, Side::End));
            page.start = at;
        }
        page.truncated = true;
        break;
    }
    page.items.reverse();
    page
}

/// The next items from a cursor on (`None`: from the beginning), whole as long as they have at most `bytes` of text.
pub fn after(content: &Opened, cursor: Option<Cursor>, bytes: usize, reader: Reader) -> Result<Page, Error> {
    let (inode, end) = extent(content)?;
    let cursor = cursor.unwrap_or(Cursor::at(inode, 0));
    if cursor.inode != inode || cursor.offset > end {
        return Err(Error::Stale);
    }
    if let (Opened::File(file), Reader::Document(list, read)) = (content, reader) {
        return Ok(document::after(file, cursor, bytes, list, read)?);
    }
    let reading = Reading::from(content, cursor.offset, reader)?;
    let mut page = Page { items: Vec::new(), start: cursor, cursor, truncated: false };
    let mut left = bytes;
    let mut groups = Groups::new(Forwards::new(content, cursor.offset)?, reading);
    let mut begun = (cursor.items > 0).then_some(cursor.lines);
    while let Some(group) = groups.next(begun.take())? {
        for item in group.items.into_iter().skip(page.cursor.items) {
            if !page.push_if_fits(item, &mut left) {
                return Ok(page);
            }
            page.cursor = Cursor { items: page.cursor.items + 1, lines: group.lines, ..page.cursor };
        }
        page.cursor = Cursor::at(inode, group.end);
        page.truncated |= group.passed_over;
    }
    Ok(page)
}

/// A reader with its knowledge of the lines before.
enum Reading {
    Lines(LineReader),
    Threads(ThreadReader),
    Journal(JournalItems),
}

impl Reading {
    /// For lines from `offset` on.
    fn from(content: &Opened, offset: u64, reader: Reader) -> io::Result<Self> {
        Ok(match reader {
            Reader::Lines(read) => Self::Lines(read),
            Reader::Threads(read) => Self::Threads(read),
            // Only a document has a list.
            Reader::Journal(read) | Reader::Document(_, read) => {
                Self::Journal(JournalItems::from(content, offset, read)?)
            }
        })
    }

    fn is_threaded(&self) -> bool {
        matches!(self, Self::Threads(_))
    }

    fn line(&mut self, line: &[u8]) -> Threaded {
        let items = match self {
            Self::Threads(read) => return read(line),
            Self::Lines(read) => read(line),
            Self::Journal(journal) => journal.items(line),
        };
        Threaded { items, ..Threaded::default() }
    }
}

/// Which part of a text is kept.
#[derive(Clone, Copy)]
enum Side {
    Beginning,
    End,
}

impl Item {
    /// Bytes of text.
    fn len(&self) -> usize {
        match &self.kind {
            ItemKind::User(text)
            | ItemKind::Assistant(text)
            | ItemKind::Filler(text)
            | ItemKind::ToolFailed(text) => text.len(),
            ItemKind::Tool { name, about } => name.len() + about.len(),
            ItemKind::Note(text) => text.len(),
        }
    }

    fn cut(mut self, bytes: usize, side: Side) -> Self {
        match &mut self.kind {
            ItemKind::User(text)
            | ItemKind::Assistant(text)
            | ItemKind::Filler(text)
            | ItemKind::ToolFailed(text)
            | ItemKind::Tool { about: text, .. } => *text = cut(text, bytes, side),
            ItemKind::Note(_) => {}
        }
        self
    }
}

fn cut(text: &str, bytes: usize, side: Side) -> String {
    match side {
        Side::Beginning => format!("{}…", &text[..text.floor_char_boundary(bytes)]),
        Side::End => format!("…{}", &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]),
    }
}

/// The beginning of a text, on one line.
pub(super) fn one_line(text: &str) -> String {
    let mut rest = text.trim().chars().map(|char| if char.is_control() { ' ' } else { char });
    let line: String = rest.by_ref().take(MAX_SUMMARY).collect();
    if rest.next().is_some() { line + "…" } else { line }
}

/// Opaque to everyone else.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}.{:x}", self.inode, self.offset, self.items)?;
        if self.lines > 1 { write!(f, ".{:x}", self.lines) } else { Ok(()) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no cursor: take it from an earlier page")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let numbers: Result<Vec<u64>, _> =
            text.split('.').map(|part| u64::from_str_radix(part, 16)).collect();
        let (inode, offset, items, lines) = match numbers.as_deref() {
            Ok(&[inode, offset, items]) => (inode, offset, items, u64::from(items > 0)),
            Ok(&[inode, offset, items, lines]) if items > 0 => (inode, offset, items, lines),
            _ => return Err(NoCursor),
        };
        let items = usize::try_from(items).map_err(|_| NoCursor)?;
        let lines = usize::try_from(lines).ok().filter(|lines| *lines <= threads::LINES).ok_or(NoCursor)?;
        Ok(Self { inode, offset, items, lines })
    }
}

/// The whole lines of a file, last first.
struct Backwards<'a> {
    file: &'a File,
    /// Where the buffer begins in the file.
    at: u64,
    /// Ends with the newline of the line that comes next.
    buffer: Vec<u8>,
    passed_over: bool,
}

impl<'a> Backwards<'a> {
    /// The lines before a cursor (`None`: before the end), and that cursor or the end's.
    fn until(file: &'a File, cursor: Option<Cursor>) -> io::Result<(Self, Cursor)> {
        let meta = file.metadata()?;
        let lines = Self::new(file, cursor.map_or(meta.len(), |cursor| cursor.offset))?;
        let end = cursor.unwrap_or(Cursor::at(meta.ino(), lines.end()));
        Ok((lines, end))
    }

    fn new(file: &'a File, len: u64) -> io::Result<Self> {
        let mut lines = Self { file, at: len, buffer: Vec::new(), passed_over: false };
        // The bytes after the last newline are a torn line.
        while lines.at > 0 {
            lines.widen()?;
            if let Some(newline) = memchr::memrchr(b'\n', &lines.buffer) {
                lines.buffer.truncate(newline + 1);
                break;
            }
            lines.buffer.clear();
        }
        Ok(lines)
    }

    /// Where the line that comes next ends.
    fn end(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    fn previous(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let mut long = false;
        let mut searched = 0;
        loop {
            // The last byte is the line's own newline.
            let unsearched = self.buffer.len().saturating_sub(searched + 1);
            let start = memchr::memrchr(b'\n', &self.buffer[..unsearched]).map(|newline| newline + 1);
            if let Some(start) = start.or((self.at == 0).then_some(0)) {
                let line = self.buffer.split_off(start);
                long |= line.len() > MAX_LINE;
                self.passed_over |= long;
                return Ok(Some(if long { Vec::new() } else { line }));
            }
            if self.buffer.len() > MAX_LINE {
                long = true;
                self.buffer = vec![b'\n'];
            }
            searched = self.buffer.len().saturating_sub(1);
            self.widen()?;
        }
    }

    /// Twice as much as before, so that a long line is not copied over and over.
    fn widen(&mut self) -> io::Result<()> {
        let more = usize::try_from(self.at).unwrap_or(usize::MAX).min(self.buffer.len().max(CHUNK));
        let mut wider = vec![0; more];
        self.at -= more as u64;
        self.file.read_exact_at(&mut wider, self.at)?;
        wider.append(&mut self.buffer);
        self.buffer = wider;
        Ok(())
    }
}

/// The whole lines of a file, or the rows of a database, from an offset on.
pub(super) struct Forwards<'a> {
    lines: Input<'a>,
    /// The end of the last line given, the cursor of the last row.
    offset: u64,
    passed_over: bool,
}

enum Input<'a> {
    File(BufReader<&'a File>),
    /// With rows that were read but not given yet.
    Rows(&'a dyn RowSource, VecDeque<(u64, Vec<u8>)>),
}

impl<'a> Forwards<'a> {
    pub(super) fn new(content: &'a Opened, offset: u64) -> io::Result<Self> {
        let lines = match content {
            Opened::File(file) => {
                let mut file = BufReader::with_capacity(CHUNK, file);
                file.seek(SeekFrom::Start(offset))?;
                Input::File(file)
            }
            Opened::Rows(rows) => Input::Rows(&**rows, VecDeque::new()),
        };
        Ok(Self { lines, offset, passed_over: false })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let file = match &mut self.lines {
            Input::File(file) => file,
            Input::Rows(source, ahead) => {
                if ahead.is_empty() {
                    let mut bytes = 0;
                    source.read(self.offset, &mut |cursor, row| {
                        bytes += row.len();
                        ahead.push_back((cursor, row.to_vec()));
                        bytes < CHUNK
                    })?;
                }
                let Some((cursor, row)) = ahead.pop_front() else { return Ok(None) };
                self.offset = cursor;
                return Ok(Some(row));
            }
        };
        let mut line = Vec::new();
        let mut len = file.take(MAX_LINE as u64).read_until(b'\n', &mut line)? as u64;
        let long = line.len() == MAX_LINE && !line.ends_with(b"\n");
        if long {
            line = Vec::new();
            len += rest_of_line(file, &mut line)?;
        }
        if !line.ends_with(b"\n") {
            return Ok(None);
        }
        self.passed_over |= long;
        self.offset += len;
        Ok(Some(line))
    }
}

/// Skips to the end of a long line; only its newline, if it is there, is kept.
fn rest_of_line(file: &mut impl BufRead, newline: &mut Vec<u8>) -> io::Result<u64> {
    let mut len = 0;
    loop {
        let chunk = file.fill_buf()?;
        let end = memchr::memchr(b'\n', chunk);
        let used = end.map_or(chunk.len(), |end| end + 1);
        file.consume(used);
        len += used as u64;
        if end.is_some() {
            newline.push(b'\n');
        }
        if end.is_some() || used == 0 {
            return Ok(len);
        }
    }
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
