//! Follows a growing file by its identity and offset.
//!
//! Promises: whole lines only (a torn last line waits for its end), bounded memory whatever the file holds, a file that was
//! truncated or replaced is read again from its start, and one [`Batch`] holds everything a commit needs: the records, the
//! position where reading goes on, and the reader's state there. Reading twice is harmless, because records have keys.
//!
//! The tail holds no file open: the agents open, append and close, move the file, and delete it. The caller opens the file
//! that is at the path now and hands it in.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::line::{Lines, ParsedLines};
use super::record::Record;
pub use os::file::FileId;

/// Bytes read, and committed, at once. Why 256 KiB: some hundred lines, well above the cost of a commit, and little beside a
/// process' memory.
const CHUNK: usize = 256 * 1024;

/// Lines beyond this are passed over and counted as unreadable. Why 16 MiB: an answer is at most some 128,000 tokens, which
/// even escaped stay below 2 MiB, so no usage can be lost; a prompt with three images of the API's largest size fits. The
/// buffer grows only for such a line, and is given back.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// Where reading goes on. Each form uses the fields in its own way; for a file of lines they are:
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub(super) file: FileId,
    /// The first byte not read, the start of a line unless `inside_long_line`.
    pub(super) offset: u64,
    /// A hash of the bytes just before `offset`: a deleted file's inode goes to the next one made, which may be longer.
    pub(super) mark: u64,
    /// A line over the limit is being passed over.
    pub(super) inside_long_line: bool,
}

impl Position {
    pub fn start_of(file: FileId) -> Self {
        Self { file, offset: 0, mark: hash(&[]), inside_long_line: false }
    }

    /// That many bytes before the end of a file of lines, for those who want only the latest. The line that goes on there is
    /// passed over. `None` where the file is not longer: reading begins at its start.
    pub(super) fn near_end(source: &impl Source, bytes: u64) -> io::Result<Option<Self>> {
        let (file, len) = source.identity()?;
        let Some(offset) = len.checked_sub(bytes).filter(|offset| *offset > 0) else { return Ok(None) };
        Ok(Some(Self { file, offset, mark: mark(source, offset)?, inside_long_line: true }))
    }

    /// How much has been read, in the unit in which the form counts.
    pub fn progress(self) -> u64 {
        self.offset
    }

    /// As numbers to keep, without the file's id. [`Self::decode`] reads them.
    pub fn encode(self) -> [u64; 3] {
        [self.offset, self.mark, u64::from(self.inside_long_line)]
    }

    pub fn decode(file: FileId, [offset, mark, inside_long_line]: [u64; 3]) -> Self {
        Self { file, offset, mark, inside_long_line: inside_long_line != 0 }
    }
}

/// The result of one step of reading. Position, state and records belong into one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub parsed: ParsedLines,
    /// Where it began; `None` for the first of a file never read before. Of two readers at once, the one whose `from` is
    /// not the stored position came too late, and may commit all the same.
    pub from: Option<Position>,
    pub to: Position,
    /// The reader's state at `to` ([`Lines::state`]).
    pub state: Option<String>,
    pub lines: u64,
    pub unreadable: u64,
    pub restart: Option<Restart>,
}

impl Batch {
    /// A batch that begins at `to` and has read nothing yet.
    pub(super) fn empty(from: Option<Position>, to: Position, restart: Option<Restart>) -> Self {
        Self { parsed: ParsedLines::default(), from, to, state: None, lines: 0, unreadable: 0, restart }
    }
}

/// Why a file was read from its start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Another file is in its place.
    Replaced,
    /// It is shorter than the part that was read, or that part has changed.
    Truncated,
    /// The agent rewrites it whole: it is the same conversation, read again.
    Rewritten,
}

/// A file as the tail sees it.
pub trait Source {
    fn identity(&self) -> io::Result<(FileId, u64)>;
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// When it was last written to, where that is known.
    fn written_at(&self) -> io::Result<Option<(i64, i64)>> {
        Ok(None)
    }
}

impl Source for File {
    fn identity(&self) -> io::Result<(FileId, u64)> {
        let meta = self.metadata()?;
        Ok((FileId { device: meta.dev(), inode: meta.ino() }, meta.len()))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }

    fn written_at(&self) -> io::Result<Option<(i64, i64)>> {
        let meta = self.metadata()?;
        Ok(Some((meta.mtime(), meta.mtime_nsec())))
    }
}

/// One followed file.
#[derive(Debug)]
pub struct Tail<L> {
    position: Option<Position>,
    /// When it was last written to, at the last check that the part that was read is unchanged.
    checked: Option<(i64, i64)>,
    lines: L,
    buffer: Vec<u8>,
    /// The size that the buffer shrinks to when nothing is left to read: zero, unless a buffer was handed in.
    least_length: usize,
    /// Where several read at once: whose turn it is to hold a long line, and whether it is ours.
    turn: Option<(Arc<LongLineTurn>, bool)>,
}

/// Lets one reader at a time hold a long line, so that memory stays bounded however many read at once.
#[derive(Debug, Default)]
pub struct LongLineTurn {
    held: Mutex<bool>,
    free: Condvar,
}

impl LongLineTurn {
    fn take(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.free.wait_while(held, |held| *held);
        *held.unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Waits for the turn, and has it until the guard is dropped.
    pub(super) fn hold(&self) -> impl Drop + '_ {
        struct Held<'a>(&'a LongLineTurn);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.give();
            }
        }
        self.take();
        Held(self)
    }

    fn give(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.free.notify_one();
    }
}

impl<L: Lines> Tail<L> {
    /// Goes on at `position`, with `lines` as they were there.
    pub fn new(position: Option<Position>, lines: L) -> Self {
        Self { position, checked: None, lines, buffer: Vec::new(), least_length: 0, turn: None }
    }

    /// As [`Tail::new`], with a buffer whose length is read at once, for reading many files one after another and
    /// beside others that do.
    pub fn with_buffer(
        position: Option<Position>,
        lines: L,
        buffer: Vec<u8>,
        turn: Arc<LongLineTurn>,
    ) -> Self {
        Self { least_length: buffer.len(), buffer, turn: Some((turn, false)), ..Self::new(position, lines) }
    }

    /// Reader and buffer, for the next file.
    pub fn into_parts(mut self) -> (L, Vec<u8>) {
        self.shrink(self.least_length);
        (self.lines, self.buffer)
    }

    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The next whole lines, at most about [`CHUNK`] bytes of them; `None` when there is nothing new.
    pub fn next(&mut self, source: &impl Source) -> io::Result<Option<Batch>> {
        let (file, len) = source.identity()?;
        let from = self.position;
        let mut at = from.unwrap_or(Position::start_of(file));
        if at.file == file && at.offset == len && self.is_all_read(&at, source)? {
            self.shrink(self.least_length);
            return Ok(None);
        }
        let restart = restart_reason(&at, file, len, source)?;
        if restart.is_some() {
            at = Position::start_of(file);
            self.lines.forget();
        }
        let mut batch = Batch::empty(from, at, restart);
        self.fill(source, &mut batch)?;
        if batch.to.offset == at.offset && restart.is_none() {
            return Ok(None);
        }
        batch.to.mark = mark(source, batch.to.offset)?;
        batch.state = self.lines.state();
        self.position = Some(batch.to);
        Ok(Some(batch))
    }

    /// Whether the end is the one that was read: a file may be rewritten to the same length.
    fn is_all_read(&mut self, at: &Position, source: &impl Source) -> io::Result<bool> {
        let written = source.written_at()?;
        let same = written == self.checked || mark(source, at.offset)? == at.mark;
        if same {
            self.checked = written;
        }
        Ok(same)
    }

    /// Reads until at least one line is whole, or the file ends.
    fn fill(&mut self, source: &impl Source, batch: &mut Batch) -> io::Result<()> {
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                if filled == MAX_LINE {
                    batch.to.offset += filled as u64;
                    batch.to.inside_long_line = true;
                    batch.unreadable += 1;
                    filled = 0;
                } else {
                    self.grow();
                }
            }
            let got = read_some(source, &mut self.buffer[filled..], batch.to.offset + filled as u64)?;
            if got == 0 {
                self.give_back();
                return Ok(());
            }
            filled += got;
            if batch.to.inside_long_line {
                filled = self.leave_long_line(filled, batch);
            }
            // Only the new bytes can hold the newline that was missing.
            let searched = filled.saturating_sub(got);
            if let Some(last) = memchr::memrchr(b'\n', &self.buffer[searched..filled]) {
                self.read_lines(searched + last + 1, batch);
                return Ok(());
            }
        }
    }

    fn grow(&mut self) {
        // Every reader may hold twice the usual size.
        if self.buffer.len() >= 2 * CHUNK.max(self.least_length)
            && let Some((turn, ours @ false)) = &mut self.turn
        {
            turn.take();
            *ours = true;
        }
        let size = (self.buffer.len() * 2).clamp(CHUNK, MAX_LINE);
        self.buffer.reserve_exact(size - self.buffer.len());
        self.buffer.resize(size, 0);
    }

    /// Drops the rest of the long line; returns how many bytes stay in the buffer.
    fn leave_long_line(&mut self, filled: usize, batch: &mut Batch) -> usize {
        let end = memchr::memchr(b'\n', &self.buffer[..filled]);
        let dropped = end.map_or(filled, |end| end + 1);
        batch.to.offset += dropped as u64;
        batch.to.inside_long_line = end.is_none();
        self.buffer.copy_within(dropped..filled, 0);
        self.shrink(CHUNK.max(self.least_length).max(filled - dropped));
        filled - dropped
    }

    fn read_lines(&mut self, whole: usize, batch: &mut Batch) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &self.buffer[..whole]) {
            batch.lines += 1;
            take_line(&mut self.lines, &self.buffer[start..end], batch);
            start = end + 1;
        }
        batch.to.offset += whole as u64;
        self.give_back();
    }

    fn give_back(&mut self) {
        self.shrink(CHUNK.max(self.least_length));
    }

    fn shrink(&mut self, to: usize) {
        if self.buffer.len() > to {
            self.buffer.truncate(to);
            self.buffer.shrink_to_fit();
        }
        if self.buffer.len() <= 2 * CHUNK.max(self.least_length)
            && let Some((turn, ours @ true)) = &mut self.turn
        {
            turn.give();
            *ours = false;
        }
    }
}

/// Adds the records of a line to the batch, if they are plausible.
pub(super) fn take_line(lines: &mut impl Lines, line: &[u8], batch: &mut Batch) {
    let before = batch.parsed.records.len();
    let read = lines.read(line, &mut batch.parsed);
    let new = &mut batch.parsed.records[before..];
    let plausible = new.iter().all(Record::is_plausible);
    new.iter_mut().for_each(Record::strip_paths);
    if !plausible {
        batch.parsed.records.truncate(before);
    }
    if read.is_err() || !plausible {
        batch.unreadable += 1;
    }
}

/// Why the file must be read from its start again: the part up to `at` is not the one that was read.
fn restart_reason(
    at: &Position,
    file: FileId,
    len: u64,
    source: &impl Source,
) -> io::Result<Option<Restart>> {
    Ok(if at.file != file {
        Some(Restart::Replaced)
    } else if len < at.offset || mark(source, at.offset)? != at.mark {
        Some(Restart::Truncated)
    } else {
        None
    })
}

/// Why 64 bytes: the end of a line holds a time or an id that no other file has at the same place.
fn mark(source: &impl Source, offset: u64) -> io::Result<u64> {
    let mut bytes = [0; 64];
    let start = offset.saturating_sub(bytes.len() as u64);
    let wanted = usize::try_from(offset - start).unwrap_or(bytes.len());
    let mut filled = 0;
    while filled < wanted {
        match read_some(source, &mut bytes[filled..wanted], start + filled as u64)? {
            0 => break,
            got => filled += got,
        }
    }
    Ok(hash(&bytes[..filled]))
}

fn read_some(source: &impl Source, into: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match source.read_at(into, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// FNV-1a: stable over versions of this program, unlike the standard library's hashers.
fn hash(bytes: &[u8]) -> u64 {
    hash_on(0xcbf2_9ce4_8422_2325, bytes)
}

/// Continues the hash `before` with these bytes.
pub(super) fn hash_on(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;
