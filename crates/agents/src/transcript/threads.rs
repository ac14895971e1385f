//! Conversations whose lines name the line they follow, and sometimes come before it: an answer that was written before its
//! prompt is shown after it.
//!
//! Lines that belong together form a group: from the first that waits to the last that is waited for, within bounds. A
//! cursor inside a group holds the number of its lines, since more may have come by the next page.

use std::collections::VecDeque;
use std::io;

use super::{Backwards, Cursor, Forwards, Item, Page, PlacedItem, Reading, fitting, placed};

/// How far ahead the line that another follows is searched: in recordings it is two lines away. Both bound memory.
pub(super) const LINES: usize = 16;
const BYTES: usize = 256 * 1024;

/// The items that one line adds to the conversation, and where they belong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threaded {
    pub id: Option<String>,
    /// The line it must not come before.
    pub follows: Option<String>,
    pub items: Vec<Item>,
}

/// Reads one line. Broken and irrelevant lines add nothing.
pub type ThreadReader = fn(&[u8]) -> Threaded;

/// Lines that belong together.
pub(super) struct Group {
    pub(super) items: Vec<Item>,
    pub(super) lines: usize,
    /// Where they end.
    pub(super) end: u64,
    pub(super) passed_over: bool,
}

struct Read {
    line: Threaded,
    bytes: usize,
    /// Where it ends.
    end: u64,
}

/// The groups of a file, from an offset on.
pub(super) struct Groups<'a> {
    lines: Forwards<'a>,
    reading: Reading,
    ahead: VecDeque<(Read, bool)>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(lines: Forwards<'a>, reading: Reading) -> Self {
        Self { lines, reading, ahead: VecDeque::new() }
    }

    /// The next group; of `count` lines where an earlier page has begun it.
    pub(super) fn next(&mut self, count: Option<usize>) -> io::Result<Option<Group>> {
        let window = count.unwrap_or(if self.reading.is_threaded() { LINES } else { 1 });
        let mut ahead: usize = self.ahead.iter().map(|(read, _)| read.bytes).sum();
        while self.ahead.len() < window && (ahead < BYTES || count.is_some()) {
            let before = self.lines.offset;
            let passed_over = std::mem::take(&mut self.lines.passed_over);
            let Some(line) = self.lines.next()? else { break };
            let long = std::mem::replace(&mut self.lines.passed_over, passed_over);
            let end = self.lines.offset;
            let bytes = usize::try_from(end - before).unwrap_or(usize::MAX).max(line.len());
            ahead = ahead.saturating_add(bytes);
            self.ahead.push_back((Read { line: self.reading.line(&line), bytes, end }, long));
        }
        if self.ahead.is_empty() {
            return Ok(None);
        }
        let lines = count.unwrap_or_else(|| extent(self.ahead.iter().map(|(read, _)| read)));
        let group: Vec<(Read, bool)> = self.ahead.drain(..lines.min(self.ahead.len())).collect();
        Ok(Some(Group {
            lines: group.len(),
            end: group.last().map_or(0, |(read, _)| read.end),
            passed_over: group.iter().any(|(_, long)| *long),
            items: ordered(group.into_iter().map(|(read, _)| read.line).collect()),
        }))
    }
}

/// As many of the last whole items of `lines` and `begun`, the group behind them, as have at most `bytes` of text.
pub(super) fn backwards(
    (mut lines, end): (Backwards<'_>, Cursor),
    begun: Vec<PlacedItem>,
    bytes: usize,
    read: ThreadReader,
) -> io::Result<Page> {
    let mut held = begun.iter().fold(0_usize, |held, begun| held.saturating_add(begun.item.len()));
    let (mut found, mut beyond) = (Vec::new(), 0);
    // A line that does not fit may be one that others follow.
    while beyond < LINES
        && held <= bytes.saturating_add(BYTES)
        && let Some(line) = lines.previous()?
    {
        beyond += usize::from(held > bytes);
        let (line, bytes) = (read(&line), line.len());
        held = line.items.iter().fold(held, |held, item| held.saturating_add(item.len()));
        found.push((lines.end(), Read { line, bytes, end: 0 }));
    }
    let passed_over = lines.passed_over;
    found.reverse();
    let mut items = Vec::new();
    let mut left: VecDeque<(u64, Read)> = found.into();
    while let Some((offset, _)) = left.front() {
        let group = Cursor { offset: *offset, ..end };
        let count = extent(left.iter().map(|(_, read)| read));
        let lines: Vec<Threaded> = left.drain(..count).map(|(_, read)| read.line).collect();
        items.extend(placed(group, lines.len(), ordered(lines)));
    }
    items.extend(begun);
    let mut page = fitting(items.into_iter().rev(), end, bytes);
    page.truncated |= passed_over;
    Ok(page)
}

/// How many lines from the first on belong together.
fn extent<'r>(ahead: impl Iterator<Item = &'r Read>) -> usize {
    let mut bytes = 0_usize;
    let near = |read: &&Read| {
        let within = bytes < BYTES;
        bytes = bytes.saturating_add(read.bytes);
        within
    };
    let lines: Vec<&Threaded> = ahead.take(LINES).take_while(near).map(|read| &read.line).collect();
    let (mut at, mut end) = (0, 1);
    while at < end.min(lines.len()) {
        let follows = lines[at].follows.as_ref();
        let found =
            follows.and_then(|id| (at + 1..lines.len()).find(|later| lines[*later].id.as_ref() == Some(id)));
        end = end.max(found.map_or(0, |found| found + 1));
        at += 1;
    }
    end
}

/// The items of a group's lines, none before the line it follows.
fn ordered(lines: Vec<Threaded>) -> Vec<Item> {
    let links: Vec<_> = lines.iter().map(|line| (line.id.clone(), line.follows.clone())).collect();
    let mut lines: Vec<Option<Vec<Item>>> = lines.into_iter().map(|line| Some(line.items)).collect();
    let mut items = Vec::new();
    while lines.iter().any(Option::is_some) {
        let waits = |at: usize| {
            let follows = &links[at].1;
            follows.is_some()
                && (0..links.len()).any(|one| one != at && lines[one].is_some() && links[one].0 == *follows)
        };
        // Among lines that wait for each other any may be first.
        let left = || (0..lines.len()).filter(|at| lines[*at].is_some());
        let next = left().find(|at| !waits(*at)).or_else(|| left().next());
        items.extend(next.and_then(|at| lines[at].take()).unwrap_or_default());
    }
    items
}
