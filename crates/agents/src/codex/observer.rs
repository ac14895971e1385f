//! Following one run of Codex by the files its process keeps open: the locks and rollouts of its threads.
//!
//! The program is a small launcher around a native process; the first of that family that holds a lock is the agent for
//! good: an agent started inside holds locks of its own. All threads of a run stay held until it ends, so the one taken
//! last counts. `exec` gives its lock up with the last answer, seconds before it exits: so the folders are
//! watched, and looked at from time to time until the first lock has been seen.
//!
//! A lock taken again is a new file under the old name. Versions without locks are known by the rollouts they may write to.
//!
//! Before it takes its own, the agent opens every lock there is to see whether it is held, and removes those that are
//! not; meanwhile it has `.coordination.lock` open. So not every lock that it has open is its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Codex;
use super::catalog::{Catalog, Folders};
use super::files::{self, CodexFiles};
use super::head::Head;
use super::lines::CodexLines;
use super::turns::Turn;
use crate::Live;
use crate::correlate::{Method, Signal, Thread};
use crate::meter::line::Lines;
use crate::meter::title::Title;
use crate::observe::{Observation, Observer};
use os::clock::{Clock, SystemClock};
use os::file::{Stamp, TICK};
use pty::process::{OpenFile, Processes};
use types::AgentSessionId;
use types::Pid;
use types::ProcessId;
use types::Timestamp;

/// How often, and for how long after the start, the first lock is looked for. `exec` answered at once holds it for 60 ms.
const EARLY: Duration = Duration::from_millis(20);
const EARLY_FOR: Duration = Duration::from_secs(10);

/// A lock file, distinguished from an earlier one of its name: the file system gives an inode to the next file at once. By its
/// birth and not by its last change, since being removed is a change, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LockId {
    born: SystemTime,
    inode: u64,
}

/// A thread that a process has the lock or the rollout of open.
#[derive(Debug)]
struct OpenThread {
    thread: AgentSessionId,
    lock: Option<LockId>,
    rollout: Option<PathBuf>,
}

/// A thread that the agent's process holds.
#[derive(Debug)]
struct HeldThread {
    lock: Option<LockId>,
    rollout: Option<PathBuf>,
    /// Its rollout was there when it was taken.
    existed: bool,
    /// The state that was reported last.
    reported: Option<Thread>,
    turn: Turn,
}

#[derive(Debug)]
pub struct CodexObserver {
    files: CodexFiles,
    catalog: Catalog,
    folders: Folders,
    /// The originator of this run's threads, if the user asked for one.
    mark: Option<String>,
    /// Before the agent was started.
    prepared: Timestamp,
    since: Option<Instant>,
    agent: Option<ProcessId>,
    held: BTreeMap<AgentSessionId, HeldThread>,
    /// Locks that were open at the last look while the agent examined all of them.
    suspected: BTreeSet<LockId>,
    turns: BTreeSet<AgentSessionId>,
    /// Rollouts that were searched for our mark.
    examined: BTreeSet<PathBuf>,
    /// The state of the list of names in which a thread's was looked up last.
    named: BTreeMap<AgentSessionId, Stamp>,
}

impl CodexObserver {
    pub fn new(files: CodexFiles, mark: Option<String>) -> Self {
        Self {
            catalog: Catalog::new(files.clone()),
            files,
            folders: Folders::default(),
            mark,
            prepared: SystemClock.now(),
            since: None,
            agent: None,
            held: BTreeMap::new(),
            suspected: BTreeSet::new(),
            turns: BTreeSet::new(),
            examined: BTreeSet::new(),
            named: BTreeMap::new(),
        }
    }

    /// The threads that the agent's process may write to, each with its lock and its rollout as far as they are open; those
    /// taken first come first.
    fn open_threads(
        &mut self,
        started: ProcessId,
        processes: &dyn Processes,
        seen: &mut Observation,
    ) -> Vec<OpenThread> {
        let before = std::mem::take(&mut self.suspected);
        if let Some(agent) = self.agent.filter(|agent| processes.alive(*agent)) {
            return self.threads_of(agent, processes, &before, seen);
        }
        for pid in own_family(started.pid, processes) {
            let Some(process) = processes.identify(pid) else { continue };
            let threads = self.threads_of(process, processes, &before, seen);
            if !threads.is_empty() {
                self.agent = Some(process);
                seen.adopted = self.agent.filter(|agent| *agent != started);
                return threads;
            }
        }
        Vec::new()
    }

    /// The threads a process holds, without locks that it may only be examining. It examines each for some microseconds, so
    /// a lock that was open at the previous look as well is held.
    fn threads_of(
        &mut self,
        process: ProcessId,
        processes: &dyn Processes,
        before: &BTreeSet<LockId>,
        seen: &mut Observation,
    ) -> Vec<OpenThread> {
        let files = processes.open_files(process.pid);
        let mut open = threads_among(&files);
        open.retain(|open| self.held.contains_key(&open.thread) || self.may_be_its_own(open));
        if !files.iter().any(|file| files::is_coordination(&file.path)) {
            return open;
        }
        let (ours, looked_at): (Vec<OpenThread>, Vec<OpenThread>) = open.into_iter().partition(|open| {
            let known = self.held.get(&open.thread).is_some_and(|held| is_same(held.lock, open.lock));
            known || open.lock.is_none_or(|lock| before.contains(&lock))
        });
        seen.torn |= !looked_at.is_empty();
        self.suspected.extend(looked_at.iter().filter_map(|open| open.lock));
        ours
    }

    /// A lock that was there before this run belongs to another process, or to none any more, unless its thread is written to.
    fn may_be_its_own(&self, open: &OpenThread) -> bool {
        let prepared = UNIX_EPOCH + self.prepared.since(Timestamp(0));
        open.rollout.is_some()
            || files::begun(&open.thread).is_some_and(|begun| begun >= self.prepared)
            || open.lock.is_some_and(|lock| lock.born + TICK >= prepared)
    }

    fn look_at_threads(&mut self, started: ProcessId, processes: &dyn Processes, seen: &mut Observation) {
        let open = self.open_threads(started, processes, seen);
        self.report_released(&open, seen);
        // A thread given up and taken again is news. `exec` gives up a thread we still want to read, so it is remembered.
        let mut order = Vec::new();
        for OpenThread { thread, lock, rollout } in open {
            let same = |held: &&mut HeldThread| is_same(held.lock, lock);
            if let Some(held) = self.held.get_mut(&thread).filter(same) {
                held.lock = lock.or(held.lock);
                held.rollout = rollout.or(held.rollout.take());
            } else {
                let rollout = rollout.or_else(|| self.catalog.rollout(&thread));
                let retaken = self.held.contains_key(&thread);
                let existed = retaken || rollout.as_deref().is_some_and(|path| !self.is_new(&thread, path));
                let turn = match &rollout {
                    Some(path) if existed => Turn::from_here_on(path),
                    _ => Turn::default(),
                };
                self.held.insert(thread.clone(), HeldThread { lock, rollout, existed, reported: None, turn });
            }
            order.push(thread);
        }
        for thread in order {
            self.report(&thread, seen);
        }
    }

    /// Reports the threads that are no longer held and were not known to have a file. Those without one are reported first:
    /// time decides between those that are held.
    fn report_released(&mut self, open: &[OpenThread], seen: &mut Observation) {
        let given_up = |(thread, held): &(&AgentSessionId, &HeldThread)| {
            held.reported == Some(Thread::Unwritten) && !open.iter().any(|open| open.thread == **thread)
        };
        let given_up: Vec<AgentSessionId> =
            self.held.iter().filter(given_up).map(|(thread, _)| thread.clone()).collect();
        let (written, unwritten): (Vec<_>, Vec<_>) = given_up.into_iter().partition(|thread| {
            self.catalog.rollout(thread).is_some_and(|rollout| self.catalog.head(&rollout).is_some())
        });
        for thread in unwritten {
            if let Some(held) = self.held.get_mut(&thread) {
                held.reported = None;
            }
            seen.signals.push(Signal::Released(thread));
        }
        for thread in written {
            self.report(&thread, seen);
        }
    }

    /// Whether a thread was begun in this run, or by another process since. Ids hold their time; where they do not, the file does.
    fn is_new(&self, thread: &AgentSessionId, rollout: &Path) -> bool {
        let by_file = || {
            let meta = fs::metadata(rollout).ok()?;
            meta.created().or_else(|_| meta.modified()).ok().map(Timestamp::from)
        };
        files::begun(thread).or_else(by_file).is_some_and(|begun| begun >= self.prepared)
    }

    /// Reports what a held thread is, as soon as it is known and whenever that changes.
    fn report(&mut self, thread: &AgentSessionId, seen: &mut Observation) {
        let Some(held) = self.held.get_mut(thread) else { return };
        if held.rollout.is_none() {
            held.rollout = self.catalog.rollout(thread);
        }
        let head = held.rollout.as_deref().and_then(|rollout| self.catalog.head(rollout));
        let now = match head {
            None if held.rollout.is_some() && held.existed => Thread::Continued { forked: false },
            None => Thread::Unwritten,
            Some(head) if head.helper => Thread::Helper,
            Some(_) if held.existed => Thread::Continued { forked: false },
            Some(Head { forked_from: Some(_), .. }) => Thread::Continued { forked: true },
            Some(_) => Thread::Fresh,
        };
        if held.reported.as_ref() == Some(&now) {
            return;
        }
        if let Some(head) = head.filter(|head| !head.helper && !held.existed) {
            seen.version = head.version.clone().or(seen.version.take());
            seen.folder = head.cwd.clone().or(seen.folder.take());
        }
        held.reported = Some(now);
        seen.signals.push(Signal::Held { id: thread.clone(), thread: now });
    }

    fn look_at_turns(&mut self, seen: &mut Observation) {
        let open = self.held.iter_mut().filter_map(|(thread, held)| {
            let rollout = held.rollout.as_deref()?;
            held.turn.follow(rollout).then(|| thread.clone())
        });
        let open: BTreeSet<AgentSessionId> = open.collect();
        if open != self.turns {
            self.turns.clone_from(&open);
            seen.signals.push(Signal::Turns(open));
        }
    }

    /// Rollouts with our own originator, for a process that cannot be inspected or was too fast. Open files are better
    /// evidence: agents started inside inherit the mark.
    fn look_for_mark(&mut self, days: &[PathBuf], seen: &mut Observation) {
        let Some(mark) = self.mark.clone().filter(|_| self.agent.is_none()) else { return };
        let Some(day) = days.last() else { return };
        for path in files::rollouts_in(day).unwrap_or_default() {
            let begun = files::thread_of(&path).filter(|thread| self.is_new(thread, &path));
            if self.examined.contains(&path) || begun.is_none() {
                continue;
            }
            let Some(head) = self.catalog.head(&path) else { continue };
            if head.originator.as_ref() == Some(&mark) {
                let thread = match head {
                    Head { helper: true, .. } => Thread::Helper,
                    Head { forked_from: Some(_), .. } => Thread::Continued { forked: true },
                    _ => Thread::Fresh,
                };
                let id = head.thread.clone();
                seen.signals.push(Signal::Marked { id: id.clone(), thread });
                let turn = Turn::default();
                let rollout = Some(path.clone());
                self.held.insert(
                    id,
                    HeldThread { lock: None, rollout, existed: false, reported: Some(thread), turn },
                );
            }
            self.examined.insert(path);
        }
    }
}

impl Observer for CodexObserver {
    fn method(&self) -> Method {
        Method::Held
    }

    fn watched(&self) -> Vec<PathBuf> {
        let mut watched = self.files.newest_days();
        watched.push(self.files.locks());
        // A resumed conversation lies in the folder of the day it began.
        let rollouts = self.held.values().filter_map(|held| held.rollout.as_deref());
        watched.extend(rollouts.filter_map(Path::parent).map(Path::to_owned));
        watched
    }

    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Observation {
        let mut seen = Observation::default();
        let since = *self.since.get_or_insert_with(Instant::now);
        let days = self.files.newest_days();
        let mut changed = self.folders.changed(&self.files.locks());
        for day in &days {
            changed |= self.folders.changed(day);
        }
        // A killed agent leaves its locks behind.
        let running = self.agent.is_some_and(|agent| processes.alive(agent));
        if changed || !running {
            self.look_at_threads(agent, processes, &mut seen);
            self.look_for_mark(&days, &mut seen);
        }
        self.look_at_turns(&mut seen);
        if self.agent.is_none() && since.elapsed() < EARLY_FOR {
            seen.again = Some(EARLY);
        }
        seen
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        let Some(rollout) = self.catalog.rollout(id) else { return Vec::new() };
        let helpers = self.catalog.helpers(id, &rollout);
        std::iter::once(rollout).chain(helpers).collect()
    }

    fn title(&mut self, id: &AgentSessionId) -> Option<Title> {
        let stamp = Stamp::of(&self.files.names())?;
        let known = self.named.insert(id.clone(), stamp);
        if known.as_ref() == Some(&stamp) && stamp.is_settled(SystemClock.now()) {
            return None;
        }
        self.files.name_of(id)
    }

    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send> {
        Box::new(CodexLines::new(state))
    }
}

/// The processes of a run without the shared server. The client that starts it stays its parent, but the server holds the threads
/// of every terminal, and what it has started works for any of them.
fn own_family(head: Pid, processes: &dyn Processes) -> Vec<Pid> {
    let mut family = processes.family(head);
    let is_server = |pid: &Pid| Codex.is_shared_daemon(&processes.command(*pid));
    let servers: Vec<Pid> = family.iter().copied().filter(is_server).collect();
    family.retain(|pid| !servers.iter().any(|server| pid == server || processes.descends(*pid, *server)));
    family
}

fn threads_among(files: &[OpenFile]) -> Vec<OpenThread> {
    let mut threads: BTreeMap<AgentSessionId, (Option<LockId>, Option<PathBuf>)> = BTreeMap::new();
    for open in files {
        if let Some(thread) = files::locked_thread(&open.path) {
            if let Some(lock) = lock_id(open) {
                threads.entry(thread).or_default().0 = Some(lock);
            }
        } else if open.writes
            && let Some(thread) = files::thread_of(&open.path)
        {
            threads.entry(thread).or_default().1 = Some(open.path.clone());
        }
    }
    let mut threads: Vec<OpenThread> =
        threads.into_iter().map(|(thread, (lock, rollout))| OpenThread { thread, lock, rollout }).collect();
    threads.sort_by_key(|open| open.lock);
    threads
}

/// The file that is open, if it is still the one under its name: one that is being removed is no lock, and a descriptor may
/// have been given to another file since it was listed.
fn lock_id(open: &OpenFile) -> Option<LockId> {
    let (held, named) = (fs::metadata(&open.handle).ok()?, fs::metadata(&open.path).ok()?);
    if (held.dev(), held.ino()) != (named.dev(), named.ino()) {
        return None;
    }
    let born = held.created().or_else(|_| held.modified()).ok()?;
    Some(LockId { born, inode: held.ino() })
}

/// A lock that cannot be seen because it is being removed is not taken again.
fn is_same(one: Option<LockId>, other: Option<LockId>) -> bool {
    one.is_none() || other.is_none() || one == other
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
