//! A run of Codex as its files and its process show it, step by step.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use types::{Pid, StartTime};

const LAUNCHER: ProcessId = ProcessId { pid: Pid(10), start: StartTime(1) };
const NATIVE: ProcessId = ProcessId { pid: Pid(11), start: StartTime(1) };
const INSIDE: Pid = Pid(12);
const OF_SERVER: Pid = Pid(13);

/// A launcher, the program it started, and an agent that the model started in turn; whether they are all dead; and whether the
/// last is the shared server instead, which has started something itself.
struct Family(std::sync::Mutex<BTreeMap<Pid, Vec<OpenFile>>>, AtomicBool, AtomicBool);

impl Processes for Family {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        let alive = !self.1.load(Ordering::Relaxed) && (LAUNCHER.pid.0..=OF_SERVER.0).contains(&pid.0);
        alive.then_some(StartTime(1))
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        (pid.0 > 10).then_some(Pid(pid.0 - 1))
    }

    fn children(&self, pid: Pid) -> Vec<Pid> {
        let last = if self.2.load(Ordering::Relaxed) { OF_SERVER } else { INSIDE };
        if pid.0 < last.0 { vec![Pid(pid.0 + 1)] } else { Vec::new() }
    }

    fn command(&self, pid: Pid) -> Vec<std::ffi::OsString> {
        let server = pid == INSIDE && self.2.load(Ordering::Relaxed);
        let line = if server { "codex app-server --listen unix:// --managed-daemon" } else { "codex" };
        line.split(' ').map(Into::into).collect()
    }

    fn open_files(&self, pid: Pid) -> Vec<OpenFile> {
        self.0.lock().unwrap().get(&pid).cloned().unwrap_or_default()
    }
}

struct Stage {
    _folder: tempfile::TempDir,
    files: CodexFiles,
    family: Family,
    observer: Rc<RefCell<CodexObserver>>,
    /// When it was set: a day may end before the test does.
    now: Timestamp,
}

/// Ids with the time of this test, like those of threads begun in it.
fn id(n: u8) -> AgentSessionId {
    static BEGUN: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    let begun = BEGUN.get_or_init(|| SystemClock.now().0 + 60_000);
    let time = format!("{begun:012x}");
    AgentSessionId(format!("{}-{}-7352-92dc-1e28b60230{n:02x}", &time[..8], &time[8..]))
}

impl Stage {
    fn set(mark: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = CodexFiles::at(folder.path());
        fs::create_dir_all(files.locks()).unwrap();
        let observer = CodexObserver::new(files.clone(), mark.map(str::to_owned));
        let family = Family(std::sync::Mutex::default(), AtomicBool::default(), AtomicBool::default());
        let (observer, now) = (Rc::new(RefCell::new(observer)), SystemClock.now());
        let stage = Self { _folder: folder, files, family, observer, now };
        fs::create_dir_all(stage.today()).unwrap();
        stage
    }

    fn open(&self, pid: Pid, path: &Path, writes: bool) {
        let open = OpenFile { path: path.to_owned(), writes, handle: path.to_owned() };
        self.family.0.lock().unwrap().entry(pid).or_default().push(open);
    }

    fn lock(&self, pid: Pid, thread: u8) {
        let path = self.files.lock(&id(thread));
        fs::write(&path, "").unwrap();
        self.open(pid, &path, true);
    }

    /// Closes and removes a lock, as a run that gives its thread up does.
    fn unlock(&self, pid: Pid, thread: u8) {
        let path = self.files.lock(&id(thread));
        fs::remove_file(&path).unwrap();
        self.close(pid, &path);
    }

    fn close(&self, pid: Pid, path: &Path) {
        self.family.0.lock().unwrap().get_mut(&pid).unwrap().retain(|open| open.path != path);
    }

    /// Nothing has changed for a while.
    fn let_time_pass(&self) {
        let long_ago = SystemTime::UNIX_EPOCH;
        for folder in self.files.newest_days().into_iter().chain([self.files.locks()]) {
            fs::File::open(folder).unwrap().set_modified(long_ago).unwrap();
        }
    }

    fn today(&self) -> PathBuf {
        let now = jiff::Timestamp::from_millisecond(self.now.0).unwrap();
        self.files.sessions().join(now.strftime("%Y/%m/%d").to_string())
    }

    fn rollout(&self, thread: u8) -> PathBuf {
        self.today().join(format!("rollout-2026-11-15T23-31-34-{}.jsonl", id(thread)))
    }

    fn write(&self, thread: u8, extra: &str) -> PathBuf {
        let (path, own) = (self.rollout(thread), id(thread));
        let meta = format!(
            r#"{{"type":"session_meta","payload":{{"id":"{own}","session_id":"{own}","source":"cli","cwd":"/p","cli_version":"0.166.0"{extra}}}}}"#
        );
        fs::write(&path, meta + "\n").unwrap();
        path
    }

    fn look(&self) -> Observation {
        self.observer.borrow_mut().look(LAUNCHER, &self.family)
    }

    fn signals(&self) -> Vec<Signal> {
        self.look().signals
    }
}

fn held(n: u8, thread: Thread) -> Signal {
    Signal::Held { id: id(n), thread }
}

fn turns(ns: &[u8]) -> Signal {
    Signal::Turns(ns.iter().map(|n| id(*n)).collect())
}

#[test]
fn a_run_is_followed_from_its_first_lock_on() {
    let stage = Stage::set(None);
    let seen = stage.look();
    assert_eq!((seen.signals.len(), seen.again), (0, Some(EARLY)), "it is looked for until it is there");

    stage.lock(NATIVE.pid, 1);
    let seen = stage.look();
    assert_eq!(seen.signals, [held(1, Thread::Unwritten)]);
    assert_eq!((seen.adopted, seen.again), (Some(NATIVE), None));
    assert_eq!(stage.signals(), [], "no news");

    let rollout = stage.write(1, "");
    stage.open(NATIVE.pid, &rollout, true);
    let seen = stage.look();
    assert_eq!(seen.signals, [held(1, Thread::Fresh)]);
    assert_eq!((seen.version.as_deref(), seen.folder.as_deref()), (Some("0.166.0"), Some(Path::new("/p"))));

    // An agent that the model starts holds its own.
    stage.lock(INSIDE, 9);
    assert_eq!(stage.signals(), []);

    stage.lock(NATIVE.pid, 2);
    assert_eq!(stage.signals(), [held(2, Thread::Unwritten)]);
    let sub = stage.write(3, r#","thread_source":"subagent""#);
    stage.lock(NATIVE.pid, 3);
    stage.open(NATIVE.pid, &sub, true);
    assert_eq!(stage.signals(), [held(3, Thread::Helper)]);
    stage.write(4, r#","forked_from_id":"x""#);
    stage.lock(NATIVE.pid, 4);
    assert_eq!(stage.signals(), [held(4, Thread::Continued { forked: true })]);

    // A lock that is being removed is no evidence, whatever of its thread is still open.
    fs::remove_file(stage.files.lock(&id(2))).unwrap();
    stage.open(NATIVE.pid, &stage.write(2, ""), true);
    assert_eq!(stage.signals(), [held(2, Thread::Fresh)]);

    // Back to the first: given up and taken again.
    stage.unlock(NATIVE.pid, 1);
    stage.lock(NATIVE.pid, 1);
    assert_eq!(stage.signals(), [held(1, Thread::Continued { forked: false })]);
    assert!(stage.observer.borrow().watched().contains(&rollout.parent().unwrap().to_owned()));
}

/// It is a child of the client that started it, and holds the threads of all.
#[test]
fn threads_of_the_shared_server_are_not_taken_for_those_of_the_client_that_started_it() {
    let stage = Stage::set(None);
    stage.family.2.store(true, Ordering::Relaxed);
    stage.look();
    stage.lock(INSIDE, 1);
    stage.lock(OF_SERVER, 2);
    let seen = stage.look();
    assert_eq!((seen.signals, seen.adopted), (vec![], None));
    stage.lock(NATIVE.pid, 3);
    assert_eq!(stage.signals(), [held(3, Thread::Unwritten)]);
}

#[test]
fn a_thread_that_was_there_before_is_continued() {
    let stage = Stage::set(None);
    let rollout = stage.write(1, "");
    let open = r#"{"type":"event_msg","payload":{"type":"task_started"}}"#.to_owned() + "\n";
    fs::write(&rollout, fs::read_to_string(&rollout).unwrap() + &open).unwrap();
    // Ids of this test are of a minute from now; this run begins later.
    stage.observer.borrow_mut().prepared = Timestamp(SystemClock.now().0 + 120_000);
    stage.look();
    stage.lock(NATIVE.pid, 1);
    stage.open(NATIVE.pid, &rollout, true);
    let seen = stage.look();
    assert_eq!(seen.signals, [held(1, Thread::Continued { forked: false })], "and no turn is open in it");
    assert_eq!((seen.version, seen.folder), (None, None), "those of the process that began it");
    fs::write(&rollout, fs::read_to_string(&rollout).unwrap() + &open).unwrap();
    assert_eq!(stage.signals(), [turns(&[1])]);
    let done = r#"{"type":"event_msg","payload":{"type":"task_complete"}}"#.to_owned() + "\n";
    fs::write(&rollout, fs::read_to_string(&rollout).unwrap() + &done).unwrap();
    assert_eq!(stage.signals(), [turns(&[])]);
}

#[test]
fn a_version_without_locks_is_known_by_the_rollouts_it_writes() {
    let stage = Stage::set(None);
    stage.look();
    let (own, read) = (stage.write(1, ""), stage.write(2, ""));
    stage.open(NATIVE.pid, &own, true);
    stage.open(NATIVE.pid, &read, false);
    assert_eq!(stage.signals(), [held(1, Thread::Fresh)], "a fork reads its parent's");
}

#[test]
fn a_thread_given_up_before_its_file_was_seen_is_still_reported() {
    let stage = Stage::set(None);
    stage.look();
    stage.lock(NATIVE.pid, 1);
    assert_eq!(stage.signals(), [held(1, Thread::Unwritten)]);
    stage.unlock(NATIVE.pid, 1);
    stage.write(1, "");
    let observer = &stage.observer;
    assert_eq!(stage.signals(), [held(1, Thread::Fresh)]);
    assert_eq!(stage.signals(), []);
    assert_eq!(observer.borrow_mut().files(&id(1)), [stage.rollout(1)]);
}

#[test]
fn a_lock_that_is_being_removed_is_not_taken_again() {
    let stage = Stage::set(None);
    stage.look();
    let bound = stage.write(1, "");
    stage.lock(NATIVE.pid, 1);
    stage.open(NATIVE.pid, &bound, true);
    stage.lock(NATIVE.pid, 2);
    assert_eq!(stage.signals(), [held(1, Thread::Fresh), held(2, Thread::Unwritten)]);
    // Unlinking changes the inode first; then the name is gone.
    let lock = stage.files.lock(&id(1));
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(stage.signals(), []);
    fs::remove_file(&lock).unwrap();
    assert_eq!(stage.signals(), []);
    // A descriptor that has become another file's.
    let mut family = stage.family.0.lock().unwrap();
    let open = family.get_mut(&NATIVE.pid).unwrap().iter_mut().find(|open| open.path == lock).unwrap();
    open.handle.clone_from(&bound);
    fs::write(&lock, "").unwrap();
    drop(family);
    assert_eq!(stage.signals(), []);
}

#[test]
fn threads_that_are_no_longer_held_are_withdrawn() {
    let stage = Stage::set(None);
    stage.look();
    stage.lock(NATIVE.pid, 1);
    stage.lock(NATIVE.pid, 2);
    // In the order of their descriptors, which other tests take and give back.
    let both = stage.signals();
    let expected = [held(1, Thread::Unwritten), held(2, Thread::Unwritten)];
    assert!(both.len() == 2 && expected.iter().all(|one| both.contains(one)), "{both:?}");
    stage.unlock(NATIVE.pid, 2);
    assert_eq!(stage.signals(), [Signal::Released(id(2))]);
    assert_eq!(stage.signals(), []);
    stage.lock(NATIVE.pid, 2);
    assert_eq!(stage.signals(), [held(2, Thread::Unwritten)]);
    // Killed, it leaves the locks in their folder, which nothing changes.
    stage.let_time_pass();
    assert_eq!(stage.signals(), []);
    stage.family.1.store(true, Ordering::Relaxed);
    assert_eq!(stage.signals(), [Signal::Released(id(1)), Signal::Released(id(2))]);
}

#[test]
fn locks_that_the_agent_only_examines_are_not_its_own() {
    let stage = Stage::set(None);
    stage.look();
    let coordination = stage.files.locks().join(".coordination.lock");
    stage.open(NATIVE.pid, &coordination, true);
    // Of another run that began with ours.
    stage.lock(NATIVE.pid, 8);
    let seen = stage.look();
    assert_eq!((seen.signals, seen.torn), (vec![], true), "the next look decides");
    stage.close(NATIVE.pid, &stage.files.lock(&id(8)));
    stage.lock(NATIVE.pid, 1);
    assert_eq!(stage.signals(), []);
    let seen = stage.look();
    assert_eq!((seen.signals, seen.torn), (vec![held(1, Thread::Unwritten)], false), "it stays open");
    stage.close(NATIVE.pid, &coordination);
    assert_eq!(stage.signals(), []);

    // Left behind by a run that was killed before this one began; its id is as old.
    let stage = Stage::set(None);
    stage.observer.borrow_mut().prepared = Timestamp(SystemClock.now().0 + 120_000);
    stage.lock(NATIVE.pid, 9);
    let seen = stage.look();
    assert_eq!((seen.signals, seen.adopted), (vec![], None));
    let rollout = stage.write(9, "");
    stage.open(NATIVE.pid, &rollout, true);
    assert_eq!(stage.signals(), [held(9, Thread::Continued { forked: false })], "it is written to");
}

#[test]
fn a_mark_is_evidence_where_the_process_cannot_be_inspected() {
    let stage = Stage::set(Some("codemie-x"));
    stage.look();
    stage.write(1, r#","originator":"codex-tui""#);
    stage.write(2, r#","originator":"codemie-x""#);
    stage.write(3, r#","originator":"codemie-x","thread_source":"subagent""#);
    let marked = |n, thread| Signal::Marked { id: id(n), thread };
    assert_eq!(stage.signals(), [marked(2, Thread::Fresh), marked(3, Thread::Helper)]);
    assert_eq!(stage.signals(), []);
    stage.lock(NATIVE.pid, 2);
    assert_eq!(stage.look().adopted, Some(NATIVE), "the process itself is better");
    stage.write(4, r#","originator":"codemie-x""#);
    assert_eq!(stage.signals(), [], "and from then on the mark is not used");
}

#[test]
fn a_conversations_files_are_its_own_and_its_sub_agents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/codex/subagent");
    let mut observer = CodexObserver::new(CodexFiles::at(root), None);
    let id = |id: &str| AgentSessionId(id.to_owned());
    let files = observer.files(&id("01a1e192-0e13-7430-b5f7-b22ee1e9c164"));
    let threads: Vec<_> = files.iter().filter_map(|file| files::thread_of(file)).collect();
    let sub = id("01a1e192-16db-7803-8175-097b8643701d");
    assert_eq!(threads, [id("01a1e192-0e13-7430-b5f7-b22ee1e9c164"), sub]);
    assert!(observer.files(&id("01a1e192-0000-7000-8000-000000000000")).is_empty());
}
