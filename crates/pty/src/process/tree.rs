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
use types::{Pid, ProcessId};

/// How often a tree that is to end is looked at. A look at a handful of processes takes well below a millisecond.
const POLL: Duration = Duration::from_millis(10);

/// How long KILL may take: it works at once but for a process in the middle of a system call that cannot be interrupted.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// How many looks in a row must find nothing alive and nothing new. Two, because a process that forks and ends between the listing of
/// its parent's children and that of its own hides its child from one look.
const QUIET_LOOKS: usize = 2;

/// The same where processes were seen that had ended before they could be identified. A list of children that shrinks while it is
/// read can pass over one of them, and a chain of such processes may do that to several looks in a row.
const QUIET_LOOKS_FLEETING: usize = 12;

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

/// What was to end and did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survivor {
    /// With its command line, as far as it can be seen.
    Process { process: ProcessId, command: Vec<OsString> },
    /// Processes that start successors and end before anything can be done about them.
    Successors,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Process { process, command } = self else {
            return write!(f, "processes that start others and end faster than they can be stopped");
        };
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        if words.is_empty() {
            return write!(f, "pid {}", process.pid);
        }
        write!(f, "{} (pid {})", words.join(" "), process.pid)
    }
}

/// What a look has found that was not known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct News {
    /// A process, alive or not.
    any: bool,
    /// One that had ended before it could be identified.
    fleeting: bool,
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
    /// Children that the last look found ended.
    ended: HashSet<Pid>,
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
            ended: HashSet::new(),
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

    /// Adds what has been started since, and forgets members that have ended: nothing below their pids is taken for their own.
    /// From the root down, so that what is below an excluded process is known to be excluded before it is looked at.
    pub fn look(&mut self, processes: &dyn Processes, excluded: Excluded<'_>) {
        self.look_for_news(processes, excluded);
    }

    fn look_for_news(&mut self, processes: &dyn Processes, excluded: Excluded<'_>) -> News {
        let mut news = News::default();
        // Those that have ended are not asked for children: a chain of forks leaves thousands.
        let ended_before = std::mem::take(&mut self.ended);
        let (living, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.members).into_iter().partition(|(_, member)| processes.alive(*member));
        self.members = living;
        let mut visited = HashSet::new();
        let mut waiting = VecDeque::from([self.root]);
        while let Some(parent) = waiting.pop_front() {
            if visited.insert(parent) && visited.len() < MOST {
                let children = children_of(parent, processes);
                for child in children.identified {
                    news.any |= self.add(child, parent, processes, excluded);
                    waiting.push_back(child);
                }
                // What an excluded process starts is no business of ours.
                if !self.excluded.contains(&parent) {
                    self.ended.extend(children.ended);
                }
            }
            if waiting.is_empty() {
                // Those whose parents have ended.
                waiting.extend(self.members.values().filter(|member| !visited.contains(*member)));
            }
        }
        // A member was identified while it lived, before this look or in it.
        let is_known = |pid: &Pid| {
            ended_before.contains(pid) || gone.contains_key(pid) || self.members.contains_key(pid)
        };
        news.fleeting = !self.ended.iter().all(is_known);
        news.any |= news.fleeting;
        news
    }

    /// Says whether it is a member that was not known.
    fn add(
        &mut self,
        child: ProcessId,
        parent: ProcessId,
        processes: &dyn Processes,
        excluded: Excluded<'_>,
    ) -> bool {
        if self.excluded.contains(&parent) || self.is_excluded(child, processes, excluded) {
            self.excluded.insert(child);
            self.members.retain(|_, member| *member != child);
            false
        } else {
            self.members.insert(child.pid, child) != Some(child)
        }
    }

    /// The command line is read again at every look: a process is called otherwise once it has become the daemon.
    fn is_excluded(&self, child: ProcessId, processes: &dyn Processes, excluded: Excluded<'_>) -> bool {
        self.excluded.contains(&child) || excluded(&processes.command(child.pid))
    }
}

/// The children of a process at one moment.
#[derive(Debug, Default)]
struct Children {
    identified: Vec<ProcessId>,
    /// Listed, and ended since or before.
    ended: Vec<Pid>,
}

/// The children of a process. None if the process itself is no longer the one that was meant.
fn children_of(parent: ProcessId, processes: &dyn Processes) -> Children {
    let mut children = Children::default();
    let listed = processes.children(parent.pid);
    if listed.is_empty() || !processes.alive(parent) {
        return children;
    }
    for pid in listed {
        match processes.identify(pid) {
            // A pid that was listed may belong to a stranger by now; that one has another parent.
            Some(child) if processes.parent(pid) == Some(parent.pid) => children.identified.push(child),
            _ => children.ended.push(pid),
        }
    }
    children
}

/// Ends a tree: TERM (and CONT, since a stopped process acts on nothing else) to every member, also to those that appear
/// meanwhile; KILL to what is there after `grace`. Waits until all are gone, and returns what is not, or what cannot be proved to
/// be: a tree in which new processes keep appearing has not ended, even if none is alive when it is looked at. Zombies are gone; our
/// own children among them are reaped.
pub fn end(
    tree: &mut Tree,
    processes: &dyn Processes,
    excluded: Excluded<'_>,
    grace: Duration,
) -> Vec<Survivor> {
    let asked = Instant::now();
    let mut signalled = HashSet::new();
    let mut settling = EndWatch::default();
    if settling.settle(tree, processes, excluded, (asked + grace, POLL), |process| {
        if signalled.insert(process) {
            signal(process, processes, Signal::TERM);
            signal(process, processes, Signal::CONT);
        }
    }) {
        return Vec::new();
    }
    // Stopped first and killed at the next look: what it forked before it stopped is still below it then. Without a pause between
    // looks that find something new: a link of a chain of forks must be stopped before it has forked.
    let mut stopped = HashSet::new();
    let until = Instant::now() + KILL_TIMEOUT;
    if settling.settle(tree, processes, excluded, (until, Duration::ZERO), |process| {
        let sends = if stopped.insert(process) { Signal::STOP } else { Signal::KILL };
        signal(process, processes, sends);
    }) {
        return Vec::new();
    }
    let living = tree.living(processes).into_iter();
    let survivors: Vec<Survivor> = living
        .map(|process| Survivor::Process { process, command: processes.command(process.pid) })
        .collect();
    if survivors.is_empty() { vec![Survivor::Successors] } else { survivors }
}

/// The looks at a tree that is to end.
#[derive(Debug, Default)]
struct EndWatch {
    looks: usize,
    /// Processes were seen that had ended before they could be identified. Those of the first look are older than the stop.
    fleeting: bool,
}

impl EndWatch {
    /// Does something about each living member, again and again, until enough looks in a row have found nothing alive and nothing
    /// new, or the time is up. The pause is that between looks of which the last has found something new.
    fn settle(
        &mut self,
        tree: &mut Tree,
        processes: &dyn Processes,
        excluded: Excluded<'_>,
        (until, pause): (Instant, Duration),
        mut act: impl FnMut(ProcessId),
    ) -> bool {
        let mut quiet = 0;
        loop {
            let news = tree.look_for_news(processes, excluded);
            self.fleeting |= news.fleeting && self.looks > 0;
            self.looks += 1;
            let living = tree.living(processes);
            quiet = if living.is_empty() && !news.any { quiet + 1 } else { 0 };
            living.into_iter().for_each(&mut act);
            let ended = tree.members.values().filter(|member| !processes.alive(**member));
            let adopted = tree.ended.iter().filter(|_| tree.root.pid == own_pid());
            let ended = ended.map(|member| &member.pid).chain(adopted);
            ended.filter(|pid| !tree.spared.contains(pid)).copied().for_each(reap);
            if quiet >= if self.fleeting { QUIET_LOOKS_FLEETING } else { QUIET_LOOKS } {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(if news.any { pause } else { POLL });
        }
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
