//! Follows a conversation that is a series of rows behind a cursor: a part of a database that holds many conversations.
//!
//! Promises: rows are read in the order of their cursors, each once, in batches of about [`CHUNK`] bytes; a conversation
//! that was replaced by another is read from its first row. Rows that the agent deletes stay counted.
//!
//! What such a conversation is, the agent decides: it names each by a path ([`Rows::open`]), for example the database's
//! path with the conversation's id behind it as if the database were a folder. The path need not exist as a file.

use std::fmt::Debug;
use std::io;
use std::path::Path;

use super::line::Lines;
use super::tail::{Batch, Position, Restart, hash_on, take_line};
use os::file::FileId;

/// What is read, and committed, at once: as much as of a file of lines.
const CHUNK: usize = 256 * 1024;

/// How an agent's rows are opened.
pub trait Rows: Debug + Sync {
    /// Opens the conversation that `path` names, for reading alone. `NotFound` where there is none.
    fn open(&self, path: &Path) -> io::Result<Box<dyn RowSource>>;
}

/// The rows of one conversation.
pub trait RowSource: Debug {
    /// What can be known without reading a row.
    fn status(&self) -> io::Result<RowStatus>;

    /// Hands out the rows behind the cursor `after` in order, each with its own cursor, for as long as `each` is true. Cursors
    /// begin at 1, grow, and are never given again to another row of the conversation.
    fn read(&self, after: u64, each: &mut dyn FnMut(u64, &[u8]) -> bool) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowStatus {
    /// Another one: another conversation ([`part_of`]).
    pub id: FileId,
    /// The cursor of the last row; 0 where there is none.
    pub end: u64,
    /// When the last row was written, in nanoseconds since 1970.
    pub changed: i64,
    /// When the conversation came into being, likewise.
    pub born: i64,
}

/// The identity of a part of a file. Parts are known to everybody else by the same kind of id as files: this one is far
/// from any inode that a file system gives out.
pub fn part_of(file: FileId, part: &[u8]) -> FileId {
    let hash = hash_on(hash_on(0xcbf2_9ce4_8422_2325, &file.inode.to_le_bytes()), part);
    FileId { inode: hash | 1 << 63, ..file }
}

/// One followed series of rows.
#[derive(Debug)]
pub struct RowTail<L> {
    position: Option<Position>,
    lines: L,
}

impl<L: Lines> RowTail<L> {
    /// Goes on at `position`, with `lines` as they were there.
    pub fn new(position: Option<Position>, lines: L) -> Self {
        Self { position, lines }
    }

    pub fn into_lines(self) -> L {
        self.lines
    }

    /// The next rows, about [`CHUNK`] bytes of them; `None` when there is nothing new.
    pub fn next(&mut self, source: &dyn RowSource) -> io::Result<Option<Batch>> {
        let status = source.status()?;
        let from = self.position;
        let mut at = from.unwrap_or(Position::start_of(status.id));
        let restart = (at.file != status.id).then_some(Restart::Replaced);
        if restart.is_some() {
            at = Position::start_of(status.id);
            self.lines.forget();
        }
        let mut batch = Batch::empty(from, at, restart);
        let mut bytes = 0;
        source.read(at.offset, &mut |cursor, row| {
            batch.lines += 1;
            batch.to.offset = cursor;
            take_line(&mut self.lines, row, &mut batch);
            bytes += row.len();
            bytes < CHUNK
        })?;
        if batch.lines == 0 && restart.is_none() {
            return Ok(None);
        }
        batch.state = self.lines.state();
        self.position = Some(batch.to);
        Ok(Some(batch))
    }
}
