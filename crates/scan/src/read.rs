//! Reading: conversations become calls, by several threads at once, each with a buffer of its own. The agent knows the
//! meaning of a line (`Lines`), and the meter how to follow it (`FormReader`): the same code follows a running session.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::call::{Call, FileNo, Sighting, key_hash};
use super::hash::hash;
use super::run::SortedRun;
use super::spill::{Buffer, Spill};
use super::strings::{LocalStrings, StringId, StringTable};
use agents::Agent;
use agents::meter::form::FormReader;
use agents::meter::line::{LineFacts, Lines};
use agents::meter::record::{Fact, Record};
use agents::meter::tail::{LongLineTurn, Position, Restart};
use pricing::tier::Tier;
use types::Timestamp;

/// Bytes read at once. Why 512 KiB: long enough that a line cut at its end and read again costs little, short enough to
/// stay in the processor's cache between the searches for a newline and for a word.
const AT_ONCE: usize = 512 * 1024;

/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Receives the progress of a scan.
pub trait Progress {
    /// Bytes read, of how many.
    fn progress(&self, done: u64, of: u64);
}

/// One file to be read.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) number: FileNo,
    pub(super) agent: usize,
    pub(super) path: &'a Path,
    pub(super) position: Option<Position>,
    pub(super) state: Option<&'a str>,
    /// About how much there is to read.
    pub(super) bytes: u64,
}

/// The result of reading one file.
#[derive(Debug)]
pub(super) struct FileOutcome {
    pub(super) job: usize,
    /// Another number than the job's if another file was found in its place: the known one is closed.
    pub(super) number: FileNo,
    pub(super) position: Option<Position>,
    pub(super) state: Option<String>,
    pub(super) unreadable: u64,
    /// It was read from its start again, and is the same file.
    pub(super) rewritten: bool,
    pub(super) facts: LineFacts,
    /// Time of the last call, in milliseconds.
    pub(super) last: Option<i64>,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct ReadFiles {
    pub(super) outcomes: Vec<FileOutcome>,
    /// Files that could not be read, and why.
    pub(super) refused: Vec<String>,
    pub(super) runs: Vec<SortedRun>,
}

/// The jobs, shared by all threads, and how far they are.
struct ReadQueue<'a> {
    agents: &'a [&'static dyn Agent],
    jobs: &'a [Job<'a>],
    order: Vec<usize>,
    next: AtomicUsize,
    done: AtomicU64,
    /// The next number for a file that was found in the place of another.
    fresh: AtomicU32,
    strings: &'a Mutex<StringTable>,
    folder: &'a Path,
    turn: Arc<LongLineTurn>,
}

/// Reads all jobs. `fresh` is the first number that no file has.
pub(super) fn read(
    agents: &[&'static dyn Agent],
    jobs: &[Job<'_>],
    fresh: FileNo,
    strings: &Mutex<StringTable>,
    folder: &Path,
    threads: usize,
    watch: Option<&dyn Progress>,
) -> io::Result<ReadFiles> {
    let total: u64 = jobs.iter().map(|job| job.bytes).sum();
    // The longest first, so that none is left when the others are done.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&job| std::cmp::Reverse(jobs[job].bytes));
    let queue = ReadQueue {
        agents,
        jobs,
        order,
        next: AtomicUsize::new(0),
        done: AtomicU64::new(0),
        fresh: AtomicU32::new(fresh),
        strings,
        folder,
        turn: Arc::default(),
    };
    // A thread for every megabyte, as far as there are any.
    let threads = threads.min(usize::try_from(total >> 20).unwrap_or(usize::MAX).saturating_add(1));
    let others = if watch.is_some() { threads } else { threads - 1 };
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..others).map(|_| scope.spawn(|| work(&queue))).collect();
        let mut reading = match watch {
            None => work(&queue)?,
            Some(watch) => {
                while others.iter().any(|other| !other.is_finished()) {
                    std::thread::park_timeout(REPORT_EVERY);
                    watch.progress(queue.done.load(Ordering::Relaxed), total);
                }
                ReadFiles::default()
            }
        };
        for other in others {
            let more = other.join().map_err(|_| io::Error::other("a reader panicked"))??;
            reading.outcomes.extend(more.outcomes);
            reading.refused.extend(more.refused);
            reading.runs.extend(more.runs);
        }
        Ok(reading)
    })
}

fn work(queue: &ReadQueue<'_>) -> io::Result<ReadFiles> {
    let mut worker = Worker {
        strings: LocalStrings::new(queue.strings),
        buffer: Buffer::new(),
        spill: Spill::in_folder(queue.folder),
        readers: HashMap::new(),
        room: vec![0; AT_ONCE],
    };
    let mut reading = ReadFiles::default();
    while let Some(&job) = queue.order.get(queue.next.fetch_add(1, Ordering::Relaxed)) {
        match worker.read(queue, job) {
            Ok(outcome) => reading.outcomes.push(outcome),
            // Deleted since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => reading.refused.push(format!("{}: {error}", queue.jobs[job].path.display())),
        }
    }
    worker.spill.take(&mut worker.buffer)?;
    reading.runs = worker.spill.runs;
    Ok(reading)
}

struct Worker<'a> {
    strings: LocalStrings<'a>,
    buffer: Buffer,
    spill: Spill,
    /// One reader per agent, for files that are read from their beginning.
    readers: HashMap<usize, Box<dyn Lines + Send>>,
    room: Vec<u8>,
}

impl Worker<'_> {
    fn read(&mut self, queue: &ReadQueue<'_>, number: usize) -> io::Result<FileOutcome> {
        let job = &queue.jobs[number];
        let agent = queue.agents[job.agent];
        let form = agent.form(job.path);
        let content = form.open(job.path)?;
        let mut lines = match (job.state, self.readers.remove(&job.agent)) {
            (None, Some(mut lines)) => {
                lines.forget();
                lines
            }
            (state, _) => agent
                .usage_lines(state)
                .ok_or_else(|| io::Error::other("codemie cannot read this agent's files"))?,
        };
        let mut outcome = FileOutcome {
            job: number,
            number: job.number,
            position: job.position,
            state: job.state.map(str::to_owned),
            unreadable: 0,
            rewritten: false,
            facts: LineFacts::default(),
            last: None,
        };
        let seed = agent_seed(agent.name());
        let turn = Arc::clone(&queue.turn);
        let mut followed = FormReader::with_buffer(form, job.position, lines, &mut self.room, turn);
        let read = loop {
            let batch = match followed.next(&content) {
                Ok(Some(batch)) => batch,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if batch.restart == Some(Restart::Rewritten) {
                (outcome.rewritten, outcome.unreadable) = (true, 0);
            } else if batch.restart.is_some() {
                outcome.number = queue.fresh.fetch_add(1, Ordering::Relaxed);
                (outcome.unreadable, outcome.facts, outcome.last) = (0, LineFacts::default(), None);
            }
            outcome.unreadable += batch.unreadable;
            for record in &batch.parsed.records {
                if let Some(sighting) = self.sighting(record, outcome.number) {
                    outcome.last = outcome.last.max(Some(sighting.at.0));
                    let key = record.key.as_bytes();
                    self.buffer.add(&Call { hash: key_hash(seed, key), key, sighting });
                    if self.buffer.is_full() {
                        self.spill.take(&mut self.buffer)?;
                    }
                }
            }
            let read = batch.to.progress().saturating_sub(batch.from.map_or(0, Position::progress));
            queue.done.fetch_add(read, Ordering::Relaxed);
            outcome.facts.merge(batch.parsed.facts);
            (outcome.position, outcome.state) = (Some(batch.to), batch.state);
        };
        let room;
        (lines, room) = followed.into_parts();
        self.room = room.unwrap_or_else(|| std::mem::take(&mut self.room));
        self.readers.insert(job.agent, lines);
        read.map(|()| outcome)
    }

    fn sighting(&mut self, record: &Record, file: FileNo) -> Option<Sighting> {
        let Fact::Usage(usage) = &record.fact else { return None };
        Some(Sighting {
            file,
            at: record.at,
            copied: record.copied,
            tier: usage.tier,
            model: self.strings.number(&usage.model),
            subagent: record.subagent.as_deref().map_or(StringId::NONE, |id| self.strings.number(id)),
            tokens: usage.tokens,
        })
    }
}

/// The store's keys, in runs like those of files.
pub(super) fn collect(
    folder: &Path,
    each: impl FnOnce(&mut dyn FnMut(&str, &str)) -> io::Result<()>,
) -> io::Result<Vec<SortedRun>> {
    let mut buffer = Buffer::new();
    let mut spill = Spill::in_folder(folder);
    let mut failed = Ok(());
    let nothing = Sighting {
        file: super::call::STORE,
        at: Timestamp(0),
        copied: false,
        tier: Tier::Standard,
        model: StringId::NONE,
        subagent: StringId::NONE,
        tokens: types::Tokens::default(),
    };
    each(&mut |agent, key| {
        let key = key.as_bytes();
        buffer.add(&Call { hash: key_hash(agent_seed(agent), key), key, sighting: nothing });
        if buffer.is_full() && failed.is_ok() {
            failed = spill.take(&mut buffer);
        }
    })?;
    failed?;
    spill.take(&mut buffer)?;
    Ok(spill.runs)
}

pub(super) fn agent_seed(name: &str) -> u64 {
    hash(0, name.as_bytes())
}

pub(super) fn unlocked<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
