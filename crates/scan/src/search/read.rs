//! Files are searched by several threads at once, each with a buffer of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::lines::{Pass, Rest};
use super::sieve::Sieve;
use super::{Accept, Hit, Hits, Query};
use crate::{ListedFile, Progress};
use agents::Agent;
use agents::meter::form::Opened;
use agents::transcript::{self, Cursor, Item, Reader};
use types::Timestamp;

/// As many as a scan has, for the same reason.
const THREADS: usize = 4;

/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// A thread sorts its hits out when it has so many more than are asked for.
const SURPLUS: usize = 4096;

/// How far the time of a file may lie behind what is written in it: machines that share a folder, clocks that are set.
const LAG_MS: i64 = 60_000;

/// Files of this size are read first, the longest of them before the others: a thread that began with one at the end would let the
/// others wait. A tenth of a second of reading, at most.
const LONG: u64 = 16 << 20;

/// How many further messages are counted at most. A word can be in a fifth of all messages; parsing each of 200,000 only to count it
/// took three times as long as the search itself.
const COUNTED: usize = 1000;

/// What all threads share.
struct Work<'a> {
    query: &'a Query,
    sieves: &'a [Sieve],
    agents: &'a [&'static dyn Agent],
    files: &'a [ListedFile],
    order: Vec<usize>,
    next: AtomicUsize,
    done: AtomicU64,
    accept: Accept<'a>,
    enough: Enough,
}

/// Decides which files need not be read: once the messages asked for and [`COUNTED`] others were found, a file last written before the
/// oldest of the messages asked for holds no newer one.
struct Enough {
    most: usize,
    /// The times of the newest messages, as many as are asked for.
    newest: Mutex<BinaryHeap<Reverse<Timestamp>>>,
    /// The oldest of them, once there are so many.
    floor: AtomicI64,
    found: AtomicUsize,
    left_out: AtomicBool,
}

impl Enough {
    fn new(most: usize) -> Self {
        let floor = AtomicI64::new(if most == 0 { i64::MAX } else { i64::MIN });
        let (found, left_out) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { most, newest: Mutex::default(), floor, found, left_out }
    }

    fn add(&self, hits: &[Hit]) {
        self.found.fetch_add(hits.len(), Ordering::Relaxed);
        let Ok(mut newest) = self.newest.lock() else { return };
        for at in hits.iter().filter_map(|hit| hit.at) {
            newest.push(Reverse(at));
            if newest.len() > self.most {
                newest.pop();
            }
        }
        if let Some(Reverse(oldest)) = newest.peek().filter(|_| newest.len() == self.most) {
            self.floor.store(oldest.0, Ordering::Relaxed);
        }
    }

    fn leaves_out(&self, file: &ListedFile) -> bool {
        let leaves_out = self.found.load(Ordering::Relaxed) >= self.most.saturating_add(COUNTED)
            && last_words(file) < self.floor.load(Ordering::Relaxed);
        if leaves_out {
            self.left_out.store(true, Ordering::Relaxed);
        }
        leaves_out
    }
}

/// When something was last said in it, at the latest: the times of files lag by a tick.
fn last_words(file: &ListedFile) -> i64 {
    file.modified.0.saturating_add(LAG_MS)
}

pub(super) fn search(
    query: &Query,
    agents: &[&'static dyn Agent],
    files: &[ListedFile],
    accept: Accept<'_>,
    watch: Option<&dyn Progress>,
) -> Hits {
    let mut sieves: Vec<Sieve> = query.words.iter().filter_map(Sieve::new).collect();
    if sieves.is_empty() {
        return Hits::default();
    }
    // The rarest word first: most lines are searched for that one alone.
    sieves.sort_by_key(|sieve| std::cmp::Reverse(sieve.rarity()));
    // A file that was not written since then says nothing since then.
    let written_since = |file: &ListedFile| query.since.is_none_or(|since| last_words(file) >= since.0);
    let mut order: Vec<usize> = (0..files.len()).filter(|&file| written_since(&files[file])).collect();
    order.sort_by_key(|&file| {
        let ListedFile { bytes, modified, .. } = files[file];
        (Reverse(if bytes > LONG { bytes } else { 0 }), Reverse(modified))
    });
    let total: u64 = order.iter().map(|&file| files[file].bytes).sum();
    let work = Work {
        query,
        sieves: &sieves,
        agents,
        files,
        order,
        next: AtomicUsize::new(0),
        done: AtomicU64::new(0),
        accept,
        enough: Enough::new(query.most),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let threads = threads.min(usize::try_from(total >> 20).unwrap_or(usize::MAX).saturating_add(1));
    let others = if watch.is_some() { threads } else { threads - 1 };
    let found = std::thread::scope(|scope| {
        let others: Vec<_> = (0..others).map(|_| scope.spawn(|| work.search())).collect();
        let mut found = match watch {
            None => work.search(),
            Some(watch) => {
                while others.iter().any(|other| !other.is_finished()) {
                    std::thread::park_timeout(REPORT_EVERY);
                    watch.progress(work.done.load(Ordering::Relaxed), total);
                }
                Hits::default()
            }
        };
        for other in others {
            match other.join() {
                Ok(more) => found.add(more),
                Err(_) => found.refused.push("a reader panicked".to_owned()),
            }
        }
        found
    });
    Hits { more_unread: work.enough.left_out.into_inner(), ..found }
}

impl Work<'_> {
    fn search(&self) -> Hits {
        let (mut pass, mut found) = (Pass::new(), Hits::default());
        while let Some(&file) = self.order.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let listed = &self.files[file];
            if self.enough.leaves_out(listed) {
                self.done.fetch_add(listed.bytes, Ordering::Relaxed);
                continue;
            }
            let before = found.hits.len();
            match self.search_file(listed, &mut pass, &mut found) {
                Ok(()) => {}
                // Deleted since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    found.refused.push(format!("{}: {error}", listed.file.path.display()));
                }
            }
            self.enough.add(&found.hits[before..]);
            if found.hits.len() > self.query.most.saturating_add(SURPLUS) {
                found.keep(self.query.most);
            }
        }
        found
    }

    fn search_file(&self, listed: &ListedFile, pass: &mut Pass, found: &mut Hits) -> io::Result<()> {
        let agent = self.agents[listed.agent];
        let path = &listed.file.path;
        let form = agent.form(path);
        let Some(reader) = agent.transcript().map(|reader| reader.of_form(form)) else { return Ok(()) };
        let content = form.open(path)?;
        let read = |bytes: usize| {
            self.done.fetch_add(bytes as u64, Ordering::Relaxed);
        };
        let mut accepted = None;
        let mut take = |cursor: Cursor, Item { at, kind }: Item| {
            let Some((role, text)) = self.query.matches(at, kind) else { return };
            if *accepted.get_or_insert_with(|| (self.accept)(listed.agent, &listed.file)) {
                let (agent, file) = (listed.agent, listed.file.clone());
                found.hits.push(Hit { agent, file, cursor, role, at, text });
            }
        };
        match (&content, reader) {
            (Opened::File(file), Reader::Lines(_) | Reader::Threads(_)) => {
                let start = transcript::start(&content)?;
                pass.lines(file, self.sieves, Rest::Torn, &read, &mut |offset, line| {
                    for item in reader.line(line) {
                        take(start.at_line(offset), item);
                    }
                    true
                })
            }
            // A later line may take an earlier one back, or one line hold all messages: such a conversation is read as a whole.
            (content, reader) => {
                let mut may_contain = false;
                let first = &self.sieves[..1];
                match content {
                    Opened::File(file) => pass.lines(file, first, Rest::Line, &read, &mut |_, _| {
                        may_contain = true;
                        false
                    })?,
                    Opened::Rows(rows) => rows.read(0, &mut |_, row| {
                        may_contain |= first.iter().all(|sieve| sieve.passes(row));
                        !may_contain
                    })?,
                }
                if may_contain {
                    transcript::each(content, reader, &mut take)?;
                }
                Ok(())
            }
        }
    }
}
