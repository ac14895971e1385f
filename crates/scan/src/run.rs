//! A sorted run of calls: written once, read in order, its sum checked.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::call::{Call, LONGEST};
use super::hash::hash;

/// Bytes read of a run at once; runs are read in order.
const READ: usize = 16 * 1024;

/// Bytes written at once.
pub(super) const WRITE: usize = 64 * 1024;

/// One sorted run.
#[derive(Clone, Debug)]
pub(super) enum SortedRun {
    File { file: Arc<File>, start: u64, end: u64 },
    Memory(Arc<[u8]>),
}

/// Reads a run from its beginning.
#[derive(Debug)]
pub(super) struct Reader {
    run: SortedRun,
    next: u64,
    buffer: Vec<u8>,
    at: usize,
    /// The sum so far, and the expected one.
    sum: Option<(u64, u64)>,
}

impl Reader {
    pub(super) fn new(run: SortedRun) -> Self {
        let next = if let SortedRun::File { start, .. } = &run { *start } else { 0 };
        Self { run, next, buffer: Vec::new(), at: 0, sum: None }
    }

    /// A file that a [`Writer`] wrote: damage in it is an error, at the latest at its end.
    pub(super) fn checked(file: File, length: u64, sum: u64) -> Self {
        let run = SortedRun::File { file: Arc::new(file), start: 0, end: length };
        Self { sum: Some((0, sum)), ..Self::new(run) }
    }

    /// The next call; `None` at the end.
    pub(super) fn peek(&mut self) -> io::Result<Option<(Call<'_>, usize)>> {
        if self.buffer.len() - self.at < LONGEST {
            self.fill()?;
        }
        let rest = &self.buffer[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        Call::read(rest).map(Some).ok_or_else(|| damaged("a call in the cache cannot be read"))
    }

    /// Passes over the call that [`Reader::peek`] gave.
    pub(super) fn pass(&mut self, length: usize) {
        self.at += length;
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let kept = self.buffer.len();
        match &self.run {
            SortedRun::File { file, end, .. } => {
                let wanted = usize::try_from(*end - self.next).unwrap_or(usize::MAX).min(READ);
                self.buffer.resize(kept + wanted, 0);
                file.read_exact_at(&mut self.buffer[kept..], self.next)?;
                self.next += wanted as u64;
                if let Some((sum, expected)) = &mut self.sum {
                    *sum = if wanted == 0 { *sum } else { hash(*sum, &self.buffer[kept..]) };
                    if self.next == *end && sum != expected {
                        return Err(damaged("the sum of the cache is wrong"));
                    }
                }
            }
            SortedRun::Memory(bytes) => {
                let rest = &bytes[usize::try_from(self.next).unwrap_or(bytes.len())..];
                let wanted = &rest[..rest.len().min(READ)];
                self.buffer.extend_from_slice(wanted);
                self.next += wanted.len() as u64;
            }
        }
        Ok(())
    }
}

/// Writes calls in order, and keeps a sum over the bytes, block by block as a [`Reader`] reads them.
#[derive(Debug)]
pub(super) struct Writer<W> {
    out: W,
    bytes: Vec<u8>,
    length: u64,
    sum: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, bytes: Vec::with_capacity(WRITE + LONGEST), length: 0, sum: 0 }
    }

    pub(super) fn put(&mut self, call: &Call<'_>) -> io::Result<()> {
        call.write(&mut self.bytes);
        if self.bytes.len() >= WRITE {
            self.flush(WRITE)?;
        }
        Ok(())
    }

    fn flush(&mut self, count: usize) -> io::Result<()> {
        self.out.write_all(&self.bytes[..count])?;
        self.length += count as u64;
        self.sum = self.bytes[..count].chunks(READ).fold(self.sum, hash);
        self.bytes.drain(..count);
        Ok(())
    }

    /// Everything is written: how long it is, and its sum.
    pub(super) fn finish(mut self) -> io::Result<(u64, u64)> {
        self.flush(self.bytes.len())?;
        self.out.flush()?;
        Ok((self.length, self.sum))
    }
}

/// The error for a cache that is damaged.
pub(super) fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
