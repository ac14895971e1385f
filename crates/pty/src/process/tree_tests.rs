use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use super::super::{OpenFile, Running, SystemProcesses};
use super::*;
use types::StartTime;

const NOBODY: Excluded<'static> = &|_| false;
const SECOND: Duration = Duration::from_secs(1);

/// A shell script that has printed a line once it has started everything.
struct Script(Child);

impl Script {
    fn start(script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn process(&self) -> ProcessId {
        SystemProcesses.identify(Pid(i32::try_from(self.0.id()).unwrap())).unwrap()
    }

    fn tree(&self) -> Tree {
        Tree::of(self.process(), &SystemProcesses).with_root()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes below it once there are that many.
fn until(script: &Script, count: usize) -> Tree {
    let deadline = Instant::now() + 10 * SECOND;
    loop {
        let tree = script.tree();
        if tree.living(&SystemProcesses).len() == count {
            return tree;
        }
        assert!(Instant::now() < deadline, "{:?}", tree.living(&SystemProcesses));
        std::thread::sleep(POLL);
    }
}

fn gone(tree: &Tree) -> bool {
    tree.living(&SystemProcesses).is_empty()
}

#[test]
fn children_in_sessions_of_their_own_end_with_the_tree() {
    let script = Script::start("setsid sleep 600 & setsid sh -c 'sleep 601; :' & echo ready; sleep 602; :");
    let mut tree = script.tree();
    let before = tree.living(&SystemProcesses).len();
    assert!(before >= 3, "the shell, and at least its own two children: {tree:?}");
    assert_eq!(end(&mut tree, &SystemProcesses, NOBODY, 5 * SECOND), []);
    assert!(gone(&tree));
}

#[test]
fn what_ignores_term_is_killed_after_the_grace_and_a_stopped_process_ends_at_once() {
    let stubborn =
        Script::start("trap '' TERM HUP; (sleep 600; :) & echo ready; while :; do sleep 600; done");
    let mut tree = stubborn.tree();
    let begun = Instant::now();
    assert_eq!(end(&mut tree, &SystemProcesses, NOBODY, Duration::from_millis(200)), []);
    assert!(begun.elapsed() >= Duration::from_millis(200) && gone(&tree));

    let stopped = Script::start("echo ready; kill -STOP $$; sleep 600");
    let mut tree = stopped.tree();
    let begun = Instant::now();
    assert_eq!(end(&mut tree, &SystemProcesses, NOBODY, 10 * SECOND), []);
    assert!(begun.elapsed() < 5 * SECOND && gone(&tree));
}

#[test]
fn fifty_processes_forked_at_a_time_and_their_successors_end() {
    let script = Script::start(
        "trap '' TERM; for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4 5; do \
         (trap 'sleep 600 & wait' TERM; sleep 600 & wait) & done; done; echo ready; wait; wait; wait",
    );
    let mut tree = until(&script, 101);
    assert_eq!(end(&mut tree, &SystemProcesses, NOBODY, SECOND), []);
    assert!(gone(&tree));
}

#[test]
fn an_excluded_process_lives_on_with_everything_below_it() {
    let script = Script::start(
        "sh -c ': shared-daemon; sleep 600 & sleep 601; :' & sh -c 'sleep 602; :' & echo ready; sleep 603; :",
    );
    until(&script, 7);
    let excluded: Excluded<'_> = &|command| {
        command.iter().any(|word| word.to_string_lossy().contains("shared-daemon"))
            && command.get(2).is_some_and(|script| script.to_string_lossy().starts_with(':'))
    };
    let mut tree = Tree::without(script.process(), &SystemProcesses, excluded).with_root();
    assert_eq!(tree.living(&SystemProcesses).len(), 4, "{tree:?}");
    let all = script.tree();
    assert_eq!(end(&mut tree, &SystemProcesses, excluded, 5 * SECOND), []);
    assert!(gone(&tree));
    let daemon = all.living(&SystemProcesses);
    assert_eq!(daemon.len(), 3, "{daemon:?}");
    for process in daemon {
        assert!(signal(process, &SystemProcesses, Signal::KILL));
    }
}

#[test]
fn a_spared_process_is_passed_over_and_those_below_it_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("written");
    let script = format!("sh -c 'sleep 600; echo done >{}' & echo ready; wait; :", written.display());
    let script = Script::start(&script);
    until(&script, 3);
    let between = SystemProcesses.children(script.process().pid)[0];
    let mut tree = Tree::of(script.process(), &SystemProcesses).sparing(between);
    assert_eq!(end(&mut tree, &SystemProcesses, NOBODY, 5 * SECOND), []);
    let deadline = Instant::now() + 5 * SECOND;
    while !written.exists() {
        assert!(Instant::now() < deadline, "the one between goes on when its child has ended");
        std::thread::sleep(POLL);
    }
}

/// The processes of this machine, with other start times for one of them: that of the first looks, then its real one.
struct Reused {
    pid: Pid,
    before: StartTime,
    looks: Mutex<usize>,
}

impl Processes for Reused {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        let real = SystemProcesses.start_time(pid)?;
        let mut looks = self.looks.lock().unwrap();
        if pid != self.pid || *looks == 0 {
            return Some(real);
        }
        *looks -= 1;
        Some(self.before)
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        SystemProcesses.parent(pid)
    }

    fn children(&self, pid: Pid) -> Vec<Pid> {
        SystemProcesses.children(pid)
    }

    fn open_files(&self, pid: Pid) -> Vec<OpenFile> {
        SystemProcesses.open_files(pid)
    }

    fn running(&self, wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
        SystemProcesses.running(wanted)
    }
}

#[test]
fn a_process_that_got_a_members_pid_is_never_signalled() {
    let stranger = Script::start("echo ready; exec sleep 600");
    let real = stranger.process();
    let before = StartTime(real.start.0 - 1);
    // It has ended before the first look, or after the look that found it alive and before the signal.
    for looks in [0, 1] {
        let processes = Reused { pid: real.pid, before, looks: Mutex::new(looks) };
        let mut tree = Tree::rooted(ProcessId { pid: real.pid, start: before }).with_root();
        assert_eq!(end(&mut tree, &processes, NOBODY, Duration::ZERO), []);
        assert!(SystemProcesses.alive(real), "after {looks} looks");
        assert_eq!(*processes.looks.lock().unwrap(), 0);
    }
    assert!(signal(real, &SystemProcesses, Signal::TERM));
}

/// A table of processes: parent, start.
struct Table(HashMap<i32, (i32, u64)>);

impl Processes for Table {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        self.0.get(&pid.0).map(|(_, start)| StartTime(*start))
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        self.0.get(&pid.0).map(|(parent, _)| Pid(*parent))
    }

    fn children(&self, pid: Pid) -> Vec<Pid> {
        let mut children: Vec<Pid> =
            self.0.iter().filter(|(_, (parent, _))| *parent == pid.0).map(|(child, _)| Pid(*child)).collect();
        children.sort();
        children
    }
}

#[test]
fn members_stay_known_when_their_parent_ends_and_strangers_with_a_members_pid_do_not_join() {
    let id = |pid, start| ProcessId { pid: Pid(pid), start: StartTime(start) };
    let mut table = Table(HashMap::from([(10, (1, 1)), (11, (10, 2)), (12, (11, 3))]));
    let mut tree = Tree::of(id(10, 1), &table);
    assert_eq!(tree.living(&table), [id(11, 2), id(12, 3)]);
    // 11 has ended, 12 was adopted by init and has a child; a stranger has the pid 11 by now, with a child of its own.
    table.0.insert(12, (1, 3));
    table.0.insert(13, (12, 4));
    table.0.insert(11, (1, 5));
    table.0.insert(14, (11, 6));
    tree.look(&table, NOBODY);
    assert_eq!(tree.living(&table), [id(12, 3), id(13, 4)]);
    // The root's pid is another's: nothing below it is ours.
    table.0.insert(10, (1, 7));
    table.0.insert(15, (10, 8));
    tree.look(&table, NOBODY);
    assert_eq!(tree.living(&table), [id(12, 3), id(13, 4)]);
}

#[test]
fn what_is_left_alone_is_so_with_everything_below_it_also_when_it_is_adopted() {
    let id = |pid, start| ProcessId { pid: Pid(pid), start: StartTime(start) };
    let mut table = Table(HashMap::from([(10, (1, 1)), (11, (10, 2)), (12, (11, 3)), (13, (12, 4))]));
    let mut tree = Tree::rooted(id(10, 1)).leaving([id(12, 3)]);
    tree.look(&table, NOBODY);
    assert_eq!(tree.living(&table), [id(11, 2)]);
    // The one between has ended: the root has adopted it.
    table.0.insert(12, (10, 3));
    table.0.remove(&11);
    tree.look(&table, NOBODY);
    assert_eq!(tree.living(&table), []);
    // Its child outlives it.
    table.0.insert(13, (10, 4));
    table.0.remove(&12);
    tree.look(&table, NOBODY);
    assert_eq!(tree.living(&table), []);
}

#[test]
fn a_survivor_is_named_by_its_command() {
    let process = ProcessId { pid: Pid(7), start: StartTime(1) };
    let named = Survivor::Process { process, command: vec!["sleep".into(), "600".into()] };
    assert_eq!(named.to_string(), "sleep 600 (pid 7)");
    assert_eq!(Survivor::Process { process, command: Vec::new() }.to_string(), "pid 7");
}

/// A root below which a new process has ended at each of so many looks.
struct Fleeting(Mutex<i32>);

impl Processes for Fleeting {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        (pid == Pid(10)).then_some(StartTime(1))
    }

    fn parent(&self, _: Pid) -> Option<Pid> {
        None
    }

    fn children(&self, pid: Pid) -> Vec<Pid> {
        let mut left = self.0.lock().unwrap();
        if pid != Pid(10) || *left == 0 {
            return Vec::new();
        }
        *left -= 1;
        vec![Pid(i32::MAX - *left)]
    }
}

#[test]
fn a_tree_in_which_new_processes_keep_appearing_has_not_ended_though_none_is_alive() {
    for (looks, expected) in [(0, vec![]), (1, vec![]), (30, vec![]), (i32::MAX, vec![Survivor::Successors])]
    {
        let processes = Fleeting(Mutex::new(looks));
        let mut tree = Tree::rooted(ProcessId { pid: Pid(10), start: StartTime(1) });
        assert_eq!(end(&mut tree, &processes, NOBODY, Duration::ZERO), expected, "{looks}");
        let left = *processes.0.lock().unwrap();
        assert!(left == 0 || looks == i32::MAX, "{left} of {looks} were never seen");
    }
}
