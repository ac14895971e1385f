//! The processes below one process, and how they are ended.
//!
//! A process belongs to a tree if it was seen below the tree's root, or below another member. Each is known by pid and start
//! time, so a process that got a member's pid later is never signalled: the signal goes through a descriptor of the process
//! (Linux), and the start time is compared after that was opened. A member stays one when its parent ends, and a root that has
//! called [`adopt_orphans`] becomes the parent of daemons below it, so nothing escapes by forking twice.
//!
//! Control groups are not consulted. A process that was started from a shell shares its group with everything else in that
//! terminal or login, and only a manager such as systemd could give it one of its own, so membership would prove nothing.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::{Pid as RustixPid, Signal, WaitOptions, waitpid};

use super::Processes;
use wire::{Pid, ProcessId};

/// How often a tree that is to end is looked at. A look at a handful of processes takes well below a millisecond.
const POLL: Duration = Duration::from_millis(10);

/// How long KILL may take: it works at once but for a process in the middle of a system call that cannot be interrupted.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// No agent has more processes than this; a fork bomb is not followed without end.
const MOST: usize = 16 * 1024;

/// Which command lines belong to something that must not be ended, with everything below it.
pub type Excluded<'a> = &'a dyn Fn(&[OsString]) -> bool;

/// Makes this process the parent of every process below it whose own parent ends. False where the system has no such thing.
pub fn adopt_orphans() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok();
    #[cfg(not(target_os = "linux"))]
    false
}

/// Collects the exit status of adopted processes that have ended. `keep` are children that somebody else waits for.
pub fn reap_adopted(processes: &dyn Processes, keep: &[Pid]) {
    let children = processes.children(own_pid());
    for child in children.into_iter().filter(|child| !keep.contains(child)) {
        reap(child);
    }
}

/// A process that was to end and did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    pub process: ProcessId,
    /// Its command line, as far as it can be seen.
    pub command: Vec<OsString>,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        if words.is_empty() {
            return write!(f, "pid {}", self.process.pid);
        }
        write!(f, "{} (pid {})", words.join(" "), self.process.pid)
    }
}

/// The processes that one process started, directly or through others.
#[derive(Clone, Debug)]
pub struct Tree {
    root: ProcessId,
    /// The root is to end, too.
    ends_root: bool,
    members: BTreeMap<Pid, ProcessId>,
    /// Processes that are not to end: excluded ones, and those below them.
    excluded: HashSet<ProcessId>,
    /// Processes that are not to end, though those below them are.
    spared: Vec<Pid>,
}

impl Tree {
    /// Everything below `root`, as it is now.
    pub fn of(root: ProcessId, processes: &dyn Processes) -> Self {
        Self::without(root, processes, &|_| false)
    }

    /// Everything below `root` but for excluded processes and those below them.
    pub fn without(root: ProcessId, processes: &dyn Processes, excluded: Excluded<'_>) -> Self {
        let mut tree = Self::rooted(root);
        tree.look(processes, excluded);
        tree
    }

    /// Nothing yet: [`Tree::look`] fills it.
    pub fn rooted(root: ProcessId) -> Self {
        Self {
            root,
            ends_root: false,
            members: BTreeMap::new(),
            excluded: HashSet::new(),
            spared: Vec::new(),
        }
    }

    /// The root is ended as well: for a host that does not answer.
    #[must_use]
    pub fn with_root(mut self) -> Self {
        self.ends_root = true;
        self
    }

    /// This process is left alone, though what is below it is ended: for the process between a wrapper and its program, which
    /// reports the program's end and then goes by itself.
    #[must_use]
    pub fn sparing(mut self, pid: Pid) -> Self {
        self.spared.push(pid);
        self
    }

    /// These processes are left alone with everything below them: for hosts of other sessions, which an adopting root finds among
    /// its children.
    #[must_use]
    pub fn leaving(mut self, others: impl IntoIterator<Item = ProcessId>) -> Self {
        self.excluded.extend(others);
        self
    }

    /// The members that run now, as of the last look.
    pub fn living(&self, processes: &dyn Processes) -> Vec<ProcessId> {
        let root = self.ends_root.then_some(self.root);
        let members = self.members.values().copied().filter(|member| !self.spared.contains(&member.pid));
        members.chain(root).filter(|process| processes.alive(*process)).collect()
    }

    /// Adds what has been started since. A member that has ended stays known, but nothing below its pid is taken for its own.
    /// From the root down, so that what is below an excluded process is known to be excluded before it is looked at.
    pub fn look(&mut self, processes: &dyn Processes, excluded: Excluded<'_>) {
        let mut visited = HashSet::new();
        let mut waiting = VecDeque::from([self.root]);
        while let Some(parent) = waiting.pop_front() {
            if visited.insert(parent) && visited.len() < MOST {
                for child in children_of(parent, processes) {
                    self.add(child, parent, processes, excluded);
                    waiting.push_back(child);
                }
            }
            if waiting.is_empty() {
                // Those whose parents have ended.
                waiting.extend(self.members.values().filter(|member| !visited.contains(*member)));
            }
        }
    }

    fn add(
        &mut self,
        child: ProcessId,
        parent: ProcessId,
        processes: &dyn Processes,
        excluded: Excluded<'_>,
    ) {
        if self.excluded.contains(&parent) || self.is_excluded(child, processes, excluded) {
            self.excluded.insert(child);
            self.members.retain(|_, member| *member != child);
        } else {
            self.members.insert(child.pid, child);
        }
    }

    /// The command line is read again at every look: a process is called otherwise once it has become the daemon.
    fn is_excluded(&self, child: ProcessId, processes: &dyn Processes, excluded: Excluded<'_>) -> bool {
        self.excluded.contains(&child) || excluded(&processes.command(child.pid))
    }
}

/// The children of a process, each identified. None if the process itself is no longer the one that was meant.
fn children_of(parent: ProcessId, processes: &dyn Processes) -> Vec<ProcessId> {
    let children = processes.children(parent.pid);
    if children.is_empty() || !processes.alive(parent) {
        return Vec::new();
    }
    // A pid that was listed may belong to a stranger by now; that one has another parent.
    let identified = children.into_iter().filter_map(|child| processes.identify(child));
    identified.filter(|child| processes.parent(child.pid) == Some(parent.pid)).collect()
}

/// Ends a tree: TERM (and CONT, since a stopped process acts on nothing else) to every member, also to those that appear
/// meanwhile; KILL to what is there after `grace`. Waits until all are gone, and returns those that are not. Zombies are gone;
/// our own children among them are reaped.
pub fn end(
    tree: &mut Tree,
    processes: &dyn Processes,
    excluded: Excluded<'_>,
    grace: Duration,
) -> Vec<Survivor> {
    let asked = Instant::now();
    let mut signalled = HashSet::new();
    if settle(tree, processes, excluded, asked + grace, |process| {
        if signalled.insert(process) {
            signal(process, processes, Signal::TERM);
            signal(process, processes, Signal::CONT);
        }
    }) {
        return Vec::new();
    }
    // Stopped first and killed at the next look: what it forked before it stopped is still below it then.
    let mut stopped = HashSet::new();
    settle(tree, processes, excluded, Instant::now() + KILL_TIMEOUT, |process| {
        let sends = if stopped.insert(process) { Signal::STOP } else { Signal::KILL };
        signal(process, processes, sends);
    });
    let survivors = tree.living(processes).into_iter();
    survivors.map(|process| Survivor { process, command: processes.command(process.pid) }).collect()
}

/// Does something about each living member, again and again, until two looks have found none or the time is up. Two, because a
/// process that forks and ends between the listing of its parent's children and that of its own hides its child from one look.
fn settle(
    tree: &mut Tree,
    processes: &dyn Processes,
    excluded: Excluded<'_>,
    until: Instant,
    mut act: impl FnMut(ProcessId),
) -> bool {
    let mut quiet = 0;
    loop {
        tree.look(processes, excluded);
        let living = tree.living(processes);
        quiet = if living.is_empty() { quiet + 1 } else { 0 };
        living.into_iter().for_each(&mut act);
        let ended = tree.members.values().filter(|member| !processes.alive(**member));
        ended.map(|member| member.pid).filter(|pid| !tree.spared.contains(pid)).for_each(reap);
        if quiet >= 2 {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

/// Ask a process to end, and let a stopped one go on.
pub const TERMINATE: Signal = Signal::TERM;
pub const CONTINUE: Signal = Signal::CONT;

/// Sends a signal to exactly this process. Nothing is sent if it has ended, even if its pid is another's now.
pub fn signal(process: ProcessId, processes: &dyn Processes, signal: Signal) -> bool {
    let Some(pid) = RustixPid::from_raw(process.pid.0).filter(|_| process.pid.0 > 1) else { return false };
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => {
                return processes.alive(process) && pidfd_send_signal(&descriptor, signal).is_ok();
            }
            Err(rustix::io::Errno::SRCH) => return false,
            Err(_) => {} // before Linux 5.3, or forbidden
        }
    }
    processes.alive(process) && rustix::process::kill_process(pid, signal).is_ok()
}

/// Collects the exit status of a child that has ended; anybody else's child is no business of ours.
fn reap(pid: Pid) {
    if let Some(pid) = RustixPid::from_raw(pid.0) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

fn own_pid() -> Pid {
    Pid(rustix::process::getpid().as_raw_nonzero().get())
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
