//! All conversations of all agents on this machine, wrapped or not: found, read in parallel, added up, cached.
//!
//! Promises:
//! - The same calls under the same keys as the live meter, because the same code reads the lines
//!   (`ConversationFiles::usage_lines`), prices them (`prices`) and chooses between revisions (`Tokens::supersedes`). A call that a
//!   session of the store owns is not counted here.
//! - Only new content is read. An unchanged tree is answered from roll-ups: one stat per file, no call is read.
//! - Memory does not grow with the number of calls: they are sorted in small runs and merged from the disk.
//! - Calls that were read stay counted after the agent has deleted their file.
//! - The cache is nothing but a cache: a crash, a full disk, damage, two scans at once cost time and never a number. (Calls of
//!   deleted files that no session owned are only in the cache, and are lost when it is damaged.)
//!
//! ```text
//! files ─ Form, Lines ─ calls ─ sorted runs ─────┐
//! calls of earlier scans ────────────────────────┼─ merge: whose is it, which revision ─┬─ calls, sorted by key
//! keys that sessions of the store own ───────────┘                                      └─ sums by conversation, model, day
//! ```
//!
//! `index` and `calls-*` lie in `$CODEMIE_HOME/scan`. The index names its file of calls and is replaced as a whole, last.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

mod bytes;
mod call;
mod days;
mod foreign;
mod hash;
mod index;
mod merge;
mod read;
mod rollup;
mod run;
pub mod search;
mod spill;
mod strings;
mod sums;
mod tree;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pricing::PriceList;
use rustix::fs::{FlockOperation, flock};

use agents::{Agent, SessionFile, Var};
use os::calendar::{LocalClock, PER_DAY};
use os::file::create_private;
use os::file::{open_private, open_regular};
use types::Timestamp;

use agents::meter::tail::Position;
use call::{Call, FileNo, Sighting};
pub use days::Days;
pub use foreign::{ForeignCalls, ForeignSession, ForeignSessions};
use index::{Basis, FileFacts, Index};
use merge::{Group, merge};
use os::project::Project;
pub use read::Progress;
use read::{FileOutcome, Job, ReadFiles};
use rollup::{Rollup, Times};
use run::{Reader, SortedRun, Writer};
use store::{self, View};
use strings::StringId;
use sums::DailySum;
use tree::{ReadPlan, Tree};
use types::Span;
use usage::Spending;

/// More threads would only wait for memory, and each has its buffers.
const THREADS: usize = 4;

/// How long a scan waits for another one. After that it goes on without saving.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
const LOCK_RETRY: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the agents' files could not be scanned: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// What to scan, and with what.
pub struct Scanner<'a> {
    /// The folder of the cache.
    pub folder: PathBuf,
    pub agents: &'a [&'static dyn Agent],
    pub var: Var<'a>,
    pub days: Days,
    /// What calls cost.
    pub prices: &'a PriceList,
    pub watch: Option<&'a dyn Progress>,
}

impl std::fmt::Debug for Scanner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// How a scan treats the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approach {
    /// Reads it, and locks it only if something is new.
    Usual,
    /// Locks it from the beginning, so that no other scan writes.
    Locked,
    /// Locks it and ignores its content.
    Rebuild,
}

/// What a scan found.
#[derive(Debug)]
pub struct Scanned {
    index: Index,
    /// The sums of the index, or of the time asked for.
    daily: Vec<DailySum>,
    /// How many quarters of an hour each of them is about.
    grain: i32,
    listed: Vec<FileNo>,
    /// All calls, sorted.
    calls: Vec<SortedRun>,
    /// Keys that the store owns, where they had to be looked up.
    owned: Option<Vec<SortedRun>>,
    /// Files and folders that could not be read, and why.
    pub refused: Vec<String>,
    /// Why nothing could be saved.
    pub unsaved: Option<String>,
}

impl Scanned {
    /// Calls that no session of the store owns.
    pub fn spending(&self) -> Spending {
        rollup::spending(&self.index, &self.daily, self.grain)
    }

    /// How many session files exist.
    pub fn files(&self) -> usize {
        self.listed.len()
    }

    /// Lines of those files that could not be read.
    pub fn unreadable(&self) -> Vec<(PathBuf, u64)> {
        let listed = self.listed.iter().filter_map(|&number| self.index.file(number));
        listed.filter(|file| file.unreadable > 0).map(|file| (file.path.clone(), file.unreadable)).collect()
    }
}

/// A session file on the disk.
#[derive(Clone, Debug)]
pub struct ListedFile {
    /// Its agent's place in the list of agents.
    pub agent: usize,
    pub file: SessionFile,
    /// Its length; of a conversation in a database the number of its rows.
    pub bytes: u64,
    /// When it was written last.
    pub modified: Timestamp,
}

/// All session files of some agents.
#[derive(Debug, Default)]
pub struct ListedFiles {
    pub files: Vec<ListedFile>,
    /// Folders that could not be listed, and why.
    pub refused: Vec<String>,
}

/// Lists the session files of these agents, each once, on as many threads as a scan has.
pub fn session_files(agents: &[&'static dyn Agent], var: Var<'_>) -> ListedFiles {
    let tree = Tree::look(agents, var, threads());
    let files = tree.found.into_iter().map(|found| ListedFile {
        agent: found.agent,
        bytes: found.stamp.size,
        modified: Timestamp(found.stamp.modified / 1_000_000),
        file: found.file,
    });
    ListedFiles { files: files.collect(), refused: tree.refused }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS)
}

/// Which calls are asked for, and how finely they are added up.
#[derive(Clone, Copy, Debug)]
struct Slice<'a> {
    span: Span,
    /// By quarters of an hour of this clock, instead of the scanner's days.
    clock: Option<&'a LocalClock>,
}

impl Scanner<'_> {
    /// Scans. `store` is one consistent view of the sessions, in which the caller also adds up their calls: those are left out
    /// here.
    pub fn scan(&self, store: Option<&View<'_>>, span: Span) -> Result<Scanned, Error> {
        self.slice(store, Slice { span, clock: None })
    }

    /// The same by the days of a clock, or its hours. Days of the scanner's own zone are in the roll-ups; for all others every
    /// call is looked at.
    pub fn scan_by(
        &self,
        store: Option<&View<'_>>,
        span: Span,
        clock: &LocalClock,
        hours: bool,
    ) -> Result<Scanned, Error> {
        let clock = Some(clock).filter(|clock| hours || !self.days.are_of(clock));
        self.slice(store, Slice { span, clock })
    }

    /// How many session files there are, without reading any.
    pub fn count_files(&self) -> usize {
        Tree::look(self.agents, self.var, 1).found.len()
    }

    fn slice(&self, store: Option<&View<'_>>, slice: Slice<'_>) -> Result<Scanned, Error> {
        let mut outcome = self.attempt(store, slice, Approach::Usual);
        for how in [Approach::Locked, Approach::Rebuild] {
            match outcome {
                // Another scan may have replaced the calls since the index was read, but not while the cache is locked. If it
                // fails again then, they are damaged, which shows only when they are read.
                Err(Error::Io(error)) if is_damage(&error) => {
                    tracing::warn!(?how, "the scan begins again: {error}");
                    outcome = self.attempt(store, slice, how);
                }
                other => return other,
            }
        }
        outcome
    }

    fn attempt(
        &self,
        store: Option<&View<'_>>,
        Slice { span, clock }: Slice<'_>,
        how: Approach,
    ) -> Result<Scanned, Error> {
        let early = (how != Approach::Usual).then(|| self.lock());
        let rebuild = how == Approach::Rebuild;
        let threads = threads();
        let seen = identity(&self.index_path());
        // The index is loaded while the files are listed.
        let (tree, known) = std::thread::scope(|scope| {
            let path = self.index_path();
            let load = scope.spawn(move || if rebuild { None } else { Index::load(&path) });
            let tree = Tree::look(self.agents, self.var, threads);
            (tree, load.join().ok().flatten())
        });
        tree::first_refusal(&tree)?;
        let basis = Basis {
            store: store.map(View::owned_calls_mark).transpose()?.unwrap_or_default(),
            prices: self.prices.fingerprint(),
            days: self.days.fingerprint(),
        };
        let mut index = known.unwrap_or_default();
        let mut plan = self.plan(&mut index, &tree);
        let mut scanned =
            if plan.to_read.is_empty() && !plan.changed && index.basis == basis && index.calls.is_some() {
                self.cached_answer(index, plan, &tree)?
            } else {
                let (lock, unsaved) = early.unwrap_or_else(|| self.lock());
                if lock.is_some() && !rebuild && identity(&self.index_path()) != seen {
                    index = Index::load(&self.index_path()).unwrap_or_default();
                    plan = self.plan(&mut index, &tree);
                }
                index.basis = basis;
                self.read_and_add_up(index, &plan, tree, store, threads, lock.is_some(), unsaved)?
            };
        if clock.is_none() && rollup::suffice(&scanned.daily, span) {
            scanned.daily.retain(|entry| span.holds(entry.sums.first));
        } else {
            let owned = scanned.owned(&self.folder, store)?;
            let times = clock.map_or(Times::Days(&self.days), Times::Quarters);
            let mut rollup =
                Rollup::new(&scanned.index.files, &scanned.index.strings, times, self.prices, span);
            merge(readers(&scanned.calls, &owned), |group| {
                rollup.add(group);
                Ok(())
            })?;
            scanned.daily = rollup.daily();
            scanned.grain = if clock.is_some() { 1 } else { PER_DAY };
        }
        Ok(scanned)
    }

    fn plan(&self, index: &mut Index, tree: &Tree) -> ReadPlan {
        let agents: Vec<StringId> =
            self.agents.iter().map(|agent| index.strings.number(agent.name())).collect();
        tree::plan(index, tree, &agents)
    }

    fn index_path(&self) -> PathBuf {
        self.folder.join("index")
    }

    /// The answer of the cache, because nothing has changed.
    fn cached_answer(&self, mut index: Index, plan: ReadPlan, tree: &Tree) -> io::Result<Scanned> {
        let calls = vec![self.calls_run(&index)?].into_iter().flatten().collect();
        let daily = std::mem::take(&mut index.daily);
        let refused = tree.refused.clone();
        let listed = plan.listed;
        Ok(Scanned { index, daily, grain: PER_DAY, listed, calls, owned: None, refused, unsaved: None })
    }

    fn calls_run(&self, index: &Index) -> io::Result<Option<SortedRun>> {
        let Some((name, length, _)) = &index.calls else { return Ok(None) };
        let file = Arc::new(open_regular(&self.folder.join(name))?);
        Ok(Some(SortedRun::File { file, start: 0, end: *length }))
    }

    /// Reads new content and adds everything up again.
    #[expect(clippy::too_many_arguments, reason = "one step of a sequence, not an interface")]
    fn read_and_add_up(
        &self,
        mut index: Index,
        plan: &ReadPlan,
        tree: Tree,
        store: Option<&View<'_>>,
        threads: usize,
        locked: bool,
        mut unsaved: Option<String>,
    ) -> Result<Scanned, Error> {
        let reading = self.read(&mut index, plan, &tree, threads)?;
        let news = !reading.runs.is_empty();
        let mut refused = tree.refused;
        refused.extend(reading.refused);
        let owned = owned_runs(&self.folder, store)?;
        let mut sources: Vec<SortedRun> = reading.runs;
        let mut base = None;
        if let Some((name, length, sum)) = &index.calls {
            base = Some(Reader::checked(open_regular(&self.folder.join(name))?, *length, *sum));
            sources.extend(self.calls_run(&index)?);
        }
        let mut rollup =
            Rollup::new(&index.files, &index.strings, Times::Days(&self.days), self.prices, Span::default());
        let mut used = vec![false; index.files.len()];
        let mut draft = if locked && (news || index.calls.is_none()) {
            self.draft().map_err(|error| unsaved = Some(error.to_string())).ok()
        } else {
            None
        };
        let reread = index.reread();
        let is_void = |group: &Group<'_>, number: FileNo| {
            reread.contains(&number) || is_replaced(group, number, &index.files)
        };
        let from_disk = sources.len() - usize::from(base.is_some());
        let mut runs = readers(&sources[..from_disk], &owned);
        runs.extend(base);
        merge(runs, |group| {
            let kept: Vec<Sighting>;
            let group = if group.sightings.iter().any(|sighting| is_void(group, sighting.file)) {
                let left = group.sightings.iter().filter(|sighting| !is_void(group, sighting.file));
                kept = left.copied().collect();
                &Group { sightings: &kept, ..*group }
            } else {
                group
            };
            rollup.add(group);
            for sighting in group.sightings {
                if let Some(used) = used.get_mut(sighting.file as usize) {
                    *used = true;
                    if let Some((_, out)) = &mut draft
                        && let Err(error) =
                            out.put(&Call { hash: group.hash, key: group.key, sighting: *sighting })
                    {
                        unsaved = Some(error.to_string());
                        draft = None;
                    }
                }
            }
            Ok(())
        })?;
        let daily = rollup.daily();
        for (file, used) in index.files.iter_mut().zip(used) {
            if !used && file.as_ref().is_some_and(|file| file.closed) {
                *file = None;
            }
        }
        index.daily.clone_from(&daily);
        let saved = match draft {
            Some(draft) => self.keep(&mut index, draft).map(Some),
            None if locked && !news && index.calls.is_some() => index.save(&self.index_path()).map(|()| None),
            None => Ok(None),
        };
        match saved {
            Ok(Some(calls)) => sources = vec![calls],
            Ok(None) => {}
            Err(error) => unsaved = Some(error.to_string()),
        }
        let listed = plan.listed.clone();
        let owned = Some(owned);
        Ok(Scanned { index, daily, grain: PER_DAY, listed, calls: sources, owned, refused, unsaved })
    }

    /// Reads, and notes the new positions in the index.
    fn read(&self, index: &mut Index, plan: &ReadPlan, tree: &Tree, threads: usize) -> io::Result<ReadFiles> {
        let strings = Mutex::new(std::mem::take(&mut index.strings));
        let fresh = FileNo::try_from(index.files.len()).unwrap_or(FileNo::MAX);
        let jobs: Vec<Job<'_>> = plan
            .to_read
            .iter()
            .filter_map(|&(place, number)| {
                let (found, known) = (&tree.found[place], index.files[number as usize].as_ref()?);
                let read = known.position.map_or(0, Position::progress);
                Some(Job {
                    number,
                    agent: found.agent,
                    path: &found.file.path,
                    position: known.position,
                    state: known.state.as_deref(),
                    bytes: found.stamp.size.saturating_sub(read),
                })
            })
            .collect();
        let reading = read::read(self.agents, &jobs, fresh, &strings, &self.folder, threads, self.watch);
        drop(jobs);
        index.strings = read::unlocked(strings);
        let reading = reading?;
        let mut projects = Projects::default();
        for outcome in &reading.outcomes {
            let (place, number) = plan.to_read[outcome.job];
            note_outcome(index, number, &tree.found[place], outcome, &mut projects);
        }
        // Deleted before it could be opened.
        for &(place, number) in &plan.to_read {
            let file = &mut index.files[number as usize];
            let form = |path: &Path| self.agents[tree.found[place].agent].form(path);
            if file
                .as_ref()
                .is_some_and(|file| file.position.is_none() && !form(&file.path).exists(&file.path))
            {
                *file = None;
            }
        }
        Ok(reading)
    }

    /// No other scan writes while the file lives; `None`, and why, where it cannot be locked.
    fn lock(&self) -> (Option<File>, Option<String>) {
        let taken = create_private(&self.folder).and_then(|()| {
            let path = self.folder.join("lock");
            let file = open_private(&path)?;
            let until = Instant::now() + LOCK_TIMEOUT;
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(file),
                    Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                        std::thread::sleep(LOCK_RETRY);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        });
        match taken {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        }
    }

    fn draft(&self) -> io::Result<Draft> {
        let file = tempfile::Builder::new().prefix("calls-").tempfile_in(&self.folder)?;
        let out = Writer::new(file.reopen()?);
        Ok((file, out))
    }

    /// Names the file of calls, then saves the index that names it, then removes files that are not named any more.
    fn keep(&self, index: &mut Index, (file, out): Draft) -> io::Result<SortedRun> {
        let (length, sum) = out.finish()?;
        let (file, path) = file.keep()?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        index.calls = Some((name.clone(), length, sum));
        index.save(&self.index_path())?;
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let other = entry.file_name();
            let ours =
                other.to_str().is_some_and(|other| other.starts_with("calls-") || other.starts_with(".tmp"));
            if ours && other.to_str() != Some(&name) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(SortedRun::File { file: Arc::new(file), start: 0, end: length })
    }
}

type Draft = (tempfile::NamedTempFile, Writer<File>);

impl Scanned {
    /// The keys that the store owns.
    fn owned(&mut self, folder: &Path, store: Option<&View<'_>>) -> Result<Vec<SortedRun>, Error> {
        if self.owned.is_none() {
            self.owned = Some(owned_runs(folder, store)?);
        }
        Ok(self.owned.clone().unwrap_or_default())
    }
}

fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound
    )
}

fn owned_runs(folder: &Path, store: Option<&View<'_>>) -> Result<Vec<SortedRun>, Error> {
    let Some(view) = store else { return Ok(Vec::new()) };
    let mut failed = None;
    let runs = read::collect(folder, |each| {
        failed = view.each_owned_call(each).err();
        Ok(())
    })?;
    failed.map_or(Ok(runs), |error| Err(error.into()))
}

fn readers(calls: &[SortedRun], owned: &[SortedRun]) -> Vec<Reader> {
    calls.iter().chain(owned).cloned().map(Reader::new).collect()
}

/// Whether another file is in the place of this one and holds the same call.
fn is_replaced(group: &Group<'_>, number: FileNo, files: &[Option<FileFacts>]) -> bool {
    let of = |number: FileNo| files.get(number as usize).and_then(Option::as_ref);
    let Some(file) = of(number).filter(|file| file.closed) else { return false };
    group
        .sightings
        .iter()
        .filter_map(|sighting| of(sighting.file))
        .any(|other| !other.closed && other.path.as_os_str() == file.path.as_os_str())
}

/// Notes the result of reading a file in the index.
fn note_outcome(
    index: &mut Index,
    number: FileNo,
    found: &tree::FoundFile,
    outcome: &FileOutcome,
    projects: &mut Projects,
) {
    let Some(known) = &mut index.files[number as usize] else { return };
    let mut facts = known.clone();
    let another = outcome.number != number;
    if another {
        known.closed = true;
        (facts.born, facts.last, facts.unreadable) = (found.born(), None, 0);
        if found.file.conversation.is_none() {
            facts.conversation = StringId::NONE;
        }
    }
    facts.stamp = found.stamp;
    facts.position = outcome.position;
    facts.state.clone_from(&outcome.state);
    let before = if outcome.rewritten { 0 } else { facts.unreadable };
    facts.unreadable = before + outcome.unreadable;
    if let Some(last) = outcome.last.filter(|&last| last > 0) {
        facts.last = Some(facts.last.map_or(last, |known| known.max(last)));
    }
    let reported = &outcome.facts;
    if let (None, Some(session)) = (&found.file.conversation, &reported.session) {
        facts.conversation = index.strings.number(&session.0);
    }
    if facts.conversation == StringId::NONE {
        // No conversation is named: the file is its own.
        let name = found.file.path.file_stem().unwrap_or_default().to_string_lossy();
        facts.conversation = index.strings.number(&name);
    }
    if let Some(cwd) = &reported.cwd {
        let project = projects.of(cwd);
        facts.project = index.strings.number(project.name.as_deref().unwrap_or_default());
        facts.repository = index.strings.number(project.repository.as_deref().unwrap_or_default());
    }
    if let Some(branch) = &reported.branch {
        facts.branch = index.strings.number(branch);
    }
    if let Some(version) = &reported.version {
        facts.version = index.strings.number(version);
    }
    let place = outcome.number as usize;
    if place >= index.files.len() {
        index.files.resize(place + 1, None);
    }
    index.files[place] = Some(facts);
}

/// The projects of folders, cached: few folders hold many conversations.
#[derive(Debug, Default)]
struct Projects(std::collections::HashMap<String, Project>);

impl Projects {
    fn of(&mut self, folder: &str) -> &Project {
        self.0.entry(folder.to_owned()).or_insert_with(|| Project::of(Path::new(folder)))
    }
}

fn identity(path: &Path) -> Option<(u64, u64, i64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino(), meta.mtime_nsec()))
}
