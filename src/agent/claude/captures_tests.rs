//! Every recording against the truth of the API that answered: read whole, in random pieces, twice, by two readers, with a
//! restart between any two batches.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::lines::ClaudeLines;
use crate::meter::record::{Fact, Record, Tokens};
use crate::meter::tail::{FileId, Position, Source, Tail};

/// What a correct store makes of records: one per kind and key, the better revision of a call.
type Counted = BTreeMap<(u8, String), Record>;

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

fn count_all(into: &mut Counted, records: impl IntoIterator<Item = Record>) {
    for record in records {
        count(into, record);
    }
}

fn usage(counted: &Counted) -> (u64, Tokens) {
    let mut sum = (0, Tokens::default());
    for record in counted.values() {
        if let Fact::Usage(usage) = &record.fact {
            sum.0 += 1;
            sum.1.input += usage.tokens.input;
            sum.1.output += usage.tokens.output;
            sum.1.cache_read += usage.tokens.cache_read;
            sum.1.cache_write_5m += usage.tokens.cache_write_5m;
            sum.1.cache_write_1h += usage.tokens.cache_write_1h;
        }
    }
    sum
}

fn truth(value: &Value) -> (u64, Tokens) {
    let field = |name: &str| value[name].as_u64().unwrap();
    let tokens = Tokens {
        input: field("input_tokens"),
        output: field("output_tokens"),
        cache_read: field("cache_read_input_tokens"),
        cache_write_5m: field("cache_creation_input_tokens"),
        ..Tokens::default()
    };
    (field("calls"), tokens)
}

struct Case {
    name: String,
    truth: Value,
    /// Path under `projects/`, and content.
    files: Vec<(String, Vec<u8>)>,
}

fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/claude");
    let truth: Value = serde_json::from_slice(&std::fs::read(root.join("truth.json")).unwrap()).unwrap();
    let cases: Vec<Case> = truth
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, truth)| {
            let projects = root.join(name).join("projects");
            let files = truth["files"].as_object().unwrap().keys();
            let files =
                files.map(|file| (file.clone(), std::fs::read(projects.join(PathBuf::from(file))).unwrap()));
            Case { name: name.clone(), truth: truth.clone(), files: files.collect() }
        })
        .collect();
    assert_eq!(cases.len(), 8);
    cases
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

fn read_whole(data: &[u8], mut tail: Tail<ClaudeLines>, into: &mut Counted) -> u64 {
    let file = Growing { data, visible: Cell::new(data.len()), random: Cell::new(9), id: 1 };
    let mut unreadable = 0;
    while let Some(batch) = tail.next(&file).unwrap() {
        unreadable += batch.unreadable;
        count_all(into, batch.harvest.records);
    }
    unreadable
}

#[test]
fn totals_equal_the_truth_per_file_and_per_case() {
    for case in cases() {
        for usage_only in [false, true] {
            let mut all = Counted::new();
            for (path, data) in &case.files {
                let lines = if usage_only { ClaudeLines::usage_only() } else { ClaudeLines::new(None) };
                let mut one = Counted::new();
                assert_eq!(read_whole(data, Tail::new(None, lines), &mut one), 0, "{path}");
                let expected = truth(&case.truth["files"][path]["distinct_messages"]);
                assert_eq!(usage(&one), expected, "{} {path}", case.name);
                count_all(&mut all, one.into_values());
            }
            let expected = truth(&case.truth["transcripts_deduped_by_message_id"]);
            assert_eq!(usage(&all), expected, "{}", case.name);
        }
    }
}

#[test]
fn random_pieces_two_readers_and_restarts_change_nothing() {
    for case in cases() {
        let mut whole = Counted::new();
        for (_, data) in &case.files {
            read_whole(data, Tail::new(None, ClaudeLines::new(None)), &mut whole);
        }
        for seed in 1..=8_u64 {
            let mut pieces = Counted::new();
            for (file, (path, data)) in case.files.iter().enumerate() {
                let random = Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let source = Growing { data, visible: Cell::new(0), random, id: file as u64 };
                let mut readers = [None, None];
                while source.visible.get() < data.len() {
                    let step = 1 + source.random(5000);
                    source.visible.set((source.visible.get() + step).min(data.len()));
                    let reader = &mut readers[source.random(2)];
                    read_some_batches(&source, reader, &mut pieces);
                }
                for reader in &mut readers {
                    while read_some_batches(&source, reader, &mut pieces) {}
                    assert_eq!(reader.as_ref().unwrap().0.offset, data.len() as u64, "{path} seed {seed}");
                }
            }
            assert_eq!(pieces, whole, "{} seed {seed}", case.name);
        }
    }
}

/// Reads one to three batches with a reader made anew from what was committed last, and forgets it, as a crash would.
fn read_some_batches(
    source: &Growing,
    committed: &mut Option<(Position, Option<String>)>,
    counted: &mut Counted,
) -> bool {
    let state = committed.as_ref().and_then(|(_, state)| state.as_deref());
    let mut tail = Tail::new(committed.as_ref().map(|(position, _)| *position), ClaudeLines::new(state));
    let mut progress = false;
    for _ in 0..=source.random(3) {
        let Some(batch) = tail.next(source).unwrap() else { break };
        progress = true;
        if source.random(4) == 0 {
            break; // read, not committed
        }
        assert_eq!((batch.unreadable, batch.anew), (0, None));
        count_all(counted, batch.harvest.records);
        *committed = Some((batch.to, batch.state));
    }
    progress
}

#[test]
fn prompts_tools_and_errors_of_the_recordings() {
    // prompts, tool calls, tool errors, lines added, lines removed, API errors: read off the recordings by hand.
    let expected: BTreeMap<&str, [u64; 6]> = BTreeMap::from([
        ("01-plain", [3, 0, 0, 0, 0, 0]),
        ("02-tools", [5, 12, 2, 6, 3, 0]),
        ("03-clear", [4, 2, 0, 0, 0, 0]),
        ("05-resume-fork-branch-rewind", [6, 1, 0, 0, 0, 0]),
        ("06-compact", [3, 0, 0, 0, 0, 0]),
        ("07-subagent", [2, 4, 0, 1, 0, 0]),
        ("08-api-error", [7, 0, 0, 0, 0, 2]),
        ("09-print", [2, 1, 0, 0, 0, 0]),
    ]);
    for case in cases() {
        let mut counted = Counted::new();
        for (_, data) in &case.files {
            read_whole(data, Tail::new(None, ClaudeLines::new(None)), &mut counted);
        }
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
        assert_eq!(seen, expected[case.name.as_str()], "{}", case.name);
    }
}

#[test]
fn copies_are_marked_where_the_agent_marks_them_and_subagents_are_named() {
    for case in cases() {
        for (path, data) in &case.files {
            let mut counted = Counted::new();
            read_whole(data, Tail::new(None, ClaudeLines::new(None)), &mut counted);
            let copied = counted.values().filter(|record| record.copied).count();
            let branch = path.contains("30374d2a");
            assert_eq!(
                copied,
                if branch { 5 + 4 + 1 } else { 0 },
                "{path}: calls, prompts and a tool before the branch"
            );
            let subagent =
                path.split("/subagents/agent-").nth(1).and_then(|name| name.strip_suffix(".jsonl"));
            assert!(counted.values().all(|record| record.subagent.as_deref() == subagent), "{path}");
        }
    }
}
