//! Reading recordings in every way a file can be read: whole, in random pieces, twice, by two readers, with a restart
//! between any two batches. Used by the tests of every agent's lines.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;

use crate::meter::line::Lines;
use crate::meter::record::{Fact, Record};
use crate::meter::tail::{FileId, Position, Source, Tail};
use types::Tokens;

/// Records as a correct store keeps them: one per kind and key, the better revision of a call.
pub(super) type Counted = BTreeMap<(u8, String), Record>;

/// Makes a reader of an agent's lines from an earlier one's state.
pub(super) type Reader<'a> = &'a dyn Fn(Option<&str>) -> Box<dyn Lines + Send>;

fn count(into: &mut Counted, record: Record) {
    let kind = match record.fact {
        Fact::Usage(_) => 0,
        Fact::Tool(_) => 1,
        Fact::Prompt => 2,
        Fact::Error(_) => 3,
    };
    let key = (kind, record.key.clone());
    let better = match (into.get(&key).map(|known| &known.fact), &record.fact) {
        (None, _) => true,
        (Some(Fact::Usage(known)), Fact::Usage(new)) => new.tokens.supersedes(&known.tokens),
        _ => false,
    };
    if better {
        into.insert(key, record);
    }
}

pub(super) fn count_all(into: &mut Counted, records: impl IntoIterator<Item = Record>) {
    for record in records {
        count(into, record);
    }
}

/// Calls and their tokens.
pub(super) fn usage(counted: &Counted) -> (u64, Tokens) {
    let mut sum = (0, Tokens::default());
    for record in counted.values() {
        if let Fact::Usage(usage) = &record.fact {
            sum.0 += 1;
            sum.1.input += usage.tokens.input;
            sum.1.output += usage.tokens.output;
            sum.1.cache_read += usage.tokens.cache_read;
            sum.1.cache_write_5m += usage.tokens.cache_write_5m;
            sum.1.cache_write_1h += usage.tokens.cache_write_1h;
            sum.1.reasoning += usage.tokens.reasoning;
        }
    }
    sum
}

/// A file that shows itself up to `visible`, in reads of random length.
struct Growing<'a> {
    data: &'a [u8],
    visible: Cell<usize>,
    random: Cell<u64>,
    id: u64,
}

impl Growing<'_> {
    /// xorshift64: a seed names a whole run.
    fn random(&self, below: usize) -> usize {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        usize::try_from(x % below as u64).unwrap()
    }
}

impl Source for Growing<'_> {
    fn identity(&self) -> io::Result<(FileId, u64)> {
        Ok((FileId { device: 1, inode: self.id }, self.visible.get() as u64))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let shown = &self.data[..self.visible.get()];
        let rest = shown.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let most = rest.len().min(into.len());
        let got = if most == 0 { 0 } else { 1 + self.random(most) };
        into[..got].copy_from_slice(&rest[..got]);
        Ok(got)
    }
}

/// Reads all of a file and returns how many lines were unreadable.
pub(super) fn read_whole(data: &[u8], lines: Box<dyn Lines + Send>, into: &mut Counted) -> u64 {
    let file = Growing { data, visible: Cell::new(data.len()), random: Cell::new(9), id: 1 };
    let mut tail = Tail::new(None, lines);
    let mut unreadable = 0;
    while let Some(batch) = tail.next(&file).unwrap() {
        unreadable += batch.unreadable;
        count_all(into, batch.parsed.records);
    }
    unreadable
}

/// Files that grow in random pieces, read by two readers that crash between batches, come to the same as read whole.
pub(super) fn pieces_readers_and_restarts_change_nothing(
    name: &str,
    files: &[(String, Vec<u8>)],
    reader: Reader<'_>,
) {
    let mut whole = Counted::new();
    for (_, data) in files {
        read_whole(data, reader(None), &mut whole);
    }
    for seed in 1..=8_u64 {
        let mut pieces = Counted::new();
        for (file, (path, data)) in files.iter().enumerate() {
            let random = Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let source = Growing { data, visible: Cell::new(0), random, id: file as u64 };
            let mut readers = [None, None];
            while source.visible.get() < data.len() {
                let step = 1 + source.random(5000);
                source.visible.set((source.visible.get() + step).min(data.len()));
                let committed = &mut readers[source.random(2)];
                read_some_batches(&source, reader, committed, &mut pieces);
            }
            for committed in &mut readers {
                while read_some_batches(&source, reader, committed, &mut pieces) {}
                assert_eq!(committed.as_ref().unwrap().0.progress(), data.len() as u64, "{path} seed {seed}");
            }
        }
        assert_eq!(pieces, whole, "{name} seed {seed}");
    }
}

/// Reads one to three batches with a reader made from the last commit, and drops it, as a crash would.
fn read_some_batches(
    source: &Growing,
    reader: Reader<'_>,
    committed: &mut Option<(Position, Option<String>)>,
    counted: &mut Counted,
) -> bool {
    let state = committed.as_ref().and_then(|(_, state)| state.as_deref());
    let mut tail = Tail::new(committed.as_ref().map(|(position, _)| *position), reader(state));
    let mut progress = false;
    for _ in 0..=source.random(3) {
        let Some(batch) = tail.next(source).unwrap() else { break };
        progress = true;
        if source.random(4) == 0 {
            break; // read, not committed
        }
        assert_eq!((batch.unreadable, batch.restart), (0, None));
        count_all(counted, batch.parsed.records);
        *committed = Some((batch.to, batch.state));
    }
    progress
}

/// Prompts, tool calls, tool errors, lines added, lines removed, API errors.
pub(super) fn besides_usage(counted: &Counted) -> [u64; 6] {
    let mut seen = [0; 6];
    for record in counted.values() {
        match &record.fact {
            Fact::Usage(_) => {}
            Fact::Prompt => seen[0] += 1,
            Fact::Tool(tool) => {
                seen[1] += 1;
                seen[2] += u64::from(!tool.ok);
                seen[3] += tool.lines_added;
                seen[4] += tool.lines_removed;
            }
            Fact::Error(_) => seen[5] += 1,
        }
    }
    seen
}
