//! Calls are gathered in a small buffer and written out as a sorted run when it is full, so that memory stays the same
//! however many calls there are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::call::{Call, LONGEST, Sighting};
use super::merge::merge;
use super::run::{Reader, SortedRun, WRITE};

/// Calls in a buffer. Why 8192: with their keys little over a megabyte, and a gigabyte of sessions makes some ten to forty
/// runs, which are merged at once.
const CALLS: usize = 8 * 1024;

/// Bytes of keys in a buffer: the usual key has under 32.
const KEYS: usize = 32 * CALLS;

/// Lines of one call follow each other closely: this many calls are searched for another line.
const RECENT: usize = 1024;

/// More runs of one thread are merged: each that is read takes some memory.
const RUNS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    key: (u32, u32),
    sighting: Sighting,
}

/// Calls as they come; lines of one call in one file are combined.
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
            && known.sighting.file == call.sighting.file
            && &self.keys[known.key.0 as usize..known.key.1 as usize] == call.key
        {
            known.sighting.revise(&call.sighting);
            return;
        }
        // Both are bounded by the constants above.
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let start = number(self.keys.len());
        self.keys.extend_from_slice(call.key);
        self.recent[place] = number(self.slots.len());
        self.slots.push(Slot {
            hash: call.hash,
            key: (start, number(self.keys.len())),
            sighting: call.sighting,
        });
    }

    fn key(&self, slot: &Slot) -> &[u8] {
        &self.keys[slot.key.0 as usize..slot.key.1 as usize]
    }

    /// Hands out everything in order and empties the buffer.
    fn drain(&mut self, mut each: impl FnMut(&Call<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut order: Vec<(u64, u32)> = self.slots.iter().map(|slot| slot.hash).zip(0..).collect();
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| {
                let (a, b) = (&self.slots[a.1 as usize], &self.slots[b.1 as usize]);
                self.key(a).cmp(self.key(b)).then(a.sighting.file.cmp(&b.sighting.file))
            })
        });
        for (_, slot) in order {
            let slot = &self.slots[slot as usize];
            each(&Call { hash: slot.hash, key: self.key(slot), sighting: slot.sighting })?;
        }
        self.slots.clear();
        self.keys.clear();
        self.recent.fill(u32::MAX);
        Ok(())
    }
}

/// Where runs go: a file without a name, gone with the process. Where it cannot be made or written, memory, which is better
/// than no answer.
#[derive(Debug)]
pub(super) struct Spill {
    file: Option<Arc<File>>,
    end: u64,
    pub(super) runs: Vec<SortedRun>,
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
                group
                    .sightings
                    .iter()
                    .try_for_each(|&sighting| put(&Call { hash: group.hash, key: group.key, sighting }))
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
            Some(file) => SortedRun::File { file: Arc::clone(file), start, end },
            None => SortedRun::Memory(memory.into()),
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
            // The disk is full. The bytes that this run has written come back into memory.
            let written = usize::try_from(*end - start).unwrap_or(0);
            memory.resize(written, 0);
            file.read_exact_at(memory, start)?;
            self.file = None;
        }
        memory.append(bytes);
        Ok(())
    }
}
