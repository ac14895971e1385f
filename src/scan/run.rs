//! Sorted runs of calls: gathered in a small buffer, written out when it is full, read again side by side. So memory stays
//! the same however many calls there are.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::call::{Call, LONGEST, Told};
use super::hash::hash;
use super::merge::merge;

/// Calls in a buffer. Why 8192: with their keys little over a megabyte, and a gigabyte of sessions makes some ten to forty
/// runs, which are merged at once.
const CALLS: usize = 8 * 1024;

/// Bytes of keys in a buffer: the usual key has under 32.
const KEYS: usize = 32 * CALLS;

/// Lines of one call follow each other closely: this many calls are looked through for one more.
const RECENT: usize = 1024;

/// More runs of one thread are made one: each that is read takes some memory.
const RUNS: usize = 64;

/// What is read of a run at once; runs are read in order.
const READ: usize = 16 * 1024;

/// What is written at once.
const WRITE: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    key: (u32, u32),
    told: Told,
}

/// Calls as they come, the lines of one call in one file already made one.
#[derive(Debug)]
pub(super) struct Buffer {
    slots: Vec<Slot>,
    keys: Vec<u8>,
    recent: Vec<u32>,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), keys: Vec::new(), recent: vec![u32::MAX; RECENT] }
    }

    pub(super) fn is_full(&self) -> bool {
        self.slots.len() >= CALLS || self.keys.len() >= KEYS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn add(&mut self, call: &Call<'_>) {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits choose the place")]
        let place = call.hash as usize % RECENT;
        if let Some(known) = self.slots.get_mut(self.recent[place] as usize)
            && known.hash == call.hash
            && known.told.file == call.told.file
            && &self.keys[known.key.0 as usize..known.key.1 as usize] == call.key
        {
            known.told.revise(&call.told);
            return;
        }
        // Both are bounded by the constants above.
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let start = number(self.keys.len());
        self.keys.extend_from_slice(call.key);
        self.recent[place] = number(self.slots.len());
        self.slots.push(Slot { hash: call.hash, key: (start, number(self.keys.len())), told: call.told });
    }

    fn key(&self, slot: &Slot) -> &[u8] {
        &self.keys[slot.key.0 as usize..slot.key.1 as usize]
    }

    /// Hands out everything in order, and is empty then.
    fn drain(&mut self, mut each: impl FnMut(&Call<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut order: Vec<(u64, u32)> = self.slots.iter().map(|slot| slot.hash).zip(0..).collect();
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| {
                let (a, b) = (&self.slots[a.1 as usize], &self.slots[b.1 as usize]);
                self.key(a).cmp(self.key(b)).then(a.told.file.cmp(&b.told.file))
            })
        });
        for (_, slot) in order {
            let slot = &self.slots[slot as usize];
            each(&Call { hash: slot.hash, key: self.key(slot), told: slot.told })?;
        }
        self.slots.clear();
        self.keys.clear();
        self.recent.fill(u32::MAX);
        Ok(())
    }
}

/// Where runs go: a file without a name, gone with the process. Where none can be had or written, memory, which is better
/// than no answer.
#[derive(Debug)]
pub(super) struct Spill {
    file: Option<Arc<File>>,
    end: u64,
    pub(super) runs: Vec<Run>,
}

/// One sorted run.
#[derive(Clone, Debug)]
pub(super) enum Run {
    File { file: Arc<File>, start: u64, end: u64 },
    Memory(Arc<[u8]>),
}

impl Spill {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { file: tempfile::tempfile_in(folder).ok().map(Arc::new), end: 0, runs: Vec::new() }
    }

    /// Empties the buffer into a run.
    pub(super) fn take(&mut self, buffer: &mut Buffer) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.add_run(|put| buffer.drain(put))?;
        if self.runs.len() > RUNS { self.unite() } else { Ok(()) }
    }

    fn unite(&mut self) -> io::Result<()> {
        let runs = std::mem::take(&mut self.runs);
        self.add_run(|put| {
            merge(runs.into_iter().map(Reader::new).collect(), |group| {
                group.told.iter().try_for_each(|&told| put(&Call { hash: group.hash, key: group.key, told }))
            })
        })
    }

    /// Writes the calls that `each` hands out, in order, as one run.
    fn add_run(
        &mut self,
        each: impl FnOnce(&mut dyn FnMut(&Call<'_>) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (start, mut end) = (self.end, self.end);
        let (mut bytes, mut memory) = (Vec::with_capacity(WRITE + LONGEST), Vec::new());
        each(&mut |call| {
            call.write(&mut bytes);
            if bytes.len() >= WRITE {
                self.put(&mut bytes, &mut end, start, &mut memory)?;
            }
            Ok(())
        })?;
        self.put(&mut bytes, &mut end, start, &mut memory)?;
        self.runs.push(match &self.file {
            Some(file) => Run::File { file: Arc::clone(file), start, end },
            None => Run::Memory(memory.into()),
        });
        self.end = end;
        Ok(())
    }

    fn put(
        &mut self,
        bytes: &mut Vec<u8>,
        end: &mut u64,
        start: u64,
        memory: &mut Vec<u8>,
    ) -> io::Result<()> {
        if let Some(file) = &self.file {
            if file.write_all_at(bytes, *end).is_ok() {
                *end += bytes.len() as u64;
                bytes.clear();
                return Ok(());
            }
            // The disk is full. What this run has written already comes back into memory.
            let written = usize::try_from(*end - start).unwrap_or(0);
            memory.resize(written, 0);
            file.read_exact_at(memory, start)?;
            self.file = None;
        }
        memory.append(bytes);
        Ok(())
    }
}

/// Reads a run from its beginning.
#[derive(Debug)]
pub(super) struct Reader {
    run: Run,
    next: u64,
    buffer: Vec<u8>,
    at: usize,
    /// Of what was read, and what it must be in the end.
    sum: Option<(u64, u64)>,
}

impl Reader {
    pub(super) fn new(run: Run) -> Self {
        let next = if let Run::File { start, .. } = &run { *start } else { 0 };
        Self { run, next, buffer: Vec::new(), at: 0, sum: None }
    }

    /// A file that a [`Writer`] wrote: damage in it is an error, at the latest at its end.
    pub(super) fn checked(file: File, length: u64, sum: u64) -> Self {
        let run = Run::File { file: Arc::new(file), start: 0, end: length };
        Self { sum: Some((0, sum)), ..Self::new(run) }
    }

    /// The call to come; `None` at the end.
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
            Run::File { file, end, .. } => {
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
            Run::Memory(bytes) => {
                let rest = &bytes[usize::try_from(self.next).unwrap_or(bytes.len())..];
                let wanted = &rest[..rest.len().min(READ)];
                self.buffer.extend_from_slice(wanted);
                self.next += wanted.len() as u64;
            }
        }
        Ok(())
    }
}

/// Writes calls in order, and sums up what it wrote, block by block as a [`Reader`] reads it.
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

/// What is written in the cache is not what was written there.
pub(super) fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
