//! A run over a store that refuses, and over files that grow late. The agent is this very process; what it would show is told.

use std::fs;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use super::*;
use crate::agent::{Seen, Trail};
use crate::home::Home;
use crate::meter::line::{Harvest, Lines, Unreadable};
use crate::meter::record::{Fact, Record, Tokens, Usage};
use crate::meter::tier::Tier;
use crate::process::Processes;
use crate::session::correlate::{Beginning, RegistryEntry};
use crate::session::id::RunId;
use crate::session::id::{Ids, RandomIds};
use crate::session::lifecycle::Conversation;
use crate::session::state::{EndReason, Phase};
use crate::store::{Evidence, Filter, SessionRow, Surroundings, Verdict};

/// Shows what a test tells it to. The files of a conversation are those whose names begin with its id.
struct Told {
    folder: PathBuf,
    signals: Arc<Mutex<Vec<Signal>>>,
}

impl Trail for Told {
    fn watched(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn look(&mut self, _: ProcessId, _: &dyn Processes) -> Seen {
        let signals = std::mem::take(&mut *self.signals.lock().unwrap());
        Seen { signals, ..Default::default() }
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        let mut files = crate::file::entries(&self.folder).unwrap();
        files.retain(|file| file.file_name().unwrap().to_str().unwrap().starts_with(&id.0));
        files.sort();
        files
    }

    fn lines(&self, _: Option<&str>) -> Box<dyn Lines + Send> {
        Box::new(Calls)
    }
}

/// Each line is the key of a call.
struct Calls;

impl Lines for Calls {
    fn read(&mut self, line: &[u8], into: &mut Harvest) -> Result<(), Unreadable> {
        let usage = Usage {
            model: "claude-opus-4-8".into(),
            tokens: Tokens { output: 1, ..Tokens::default() },
            tier: Tier::Standard,
            request_id: None,
        };
        into.records.push(Record {
            key: String::from_utf8(line.to_vec()).unwrap(),
            at: SystemClock.now(),
            copied: false,
            subagent: None,
            fact: Fact::Usage(usage),
        });
        Ok(())
    }

    fn state(&self) -> Option<String> {
        None
    }

    fn forget(&mut self) {}
}

struct Scene {
    folder: PathBuf,
    signals: Arc<Mutex<Vec<Signal>>>,
    home: Home,
    _temporary: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("talks");
        fs::create_dir(&folder).unwrap();
        let home = Home::at(temporary.path().join("home"));
        Self { folder, signals: Arc::default(), home, _temporary: temporary }
    }

    fn plan(&self) -> Plan {
        let trail = Told { folder: self.folder.clone(), signals: Arc::clone(&self.signals) };
        Plan {
            home: self.home.clone(),
            begun_at: SystemClock.now(),
            run: RandomIds.run(),
            session: RandomIds.session(),
            agent: "claude".into(),
            trail: Some(Box::new(trail)),
            version: None,
            binary: None,
            conversation: Conversation::Fresh,
            assigned: None,
            folder: self.folder.clone(),
            surroundings: Surroundings::default(),
            name: Some("fix".into()),
            tags: Vec::new(),
            group: None,
            parent: None,
            notes: Vec::new(),
            summary: true,
            log_level: None,
            sinks: None,
            sinks_now: |_| None,
        }
    }

    fn start(&self, plan: Plan) -> Run {
        let mut run = Run::new(plan, us());
        run.begin(Store::open(&self.home, SystemClock.now()));
        run
    }

    /// The agent's registry names another conversation, and the run looks.
    fn be_in(&self, run: &mut Run, id: &str) {
        self.say(id);
        run.look();
    }

    fn say(&self, id: &str) {
        let entry = RegistryEntry {
            pid: us(),
            start: SystemProcesses.identify(us()).map(|process| process.start),
            started_at: None,
            session: AgentSessionId(id.into()),
            cwd: None,
            version: None,
            background: false,
        };
        self.signals.lock().unwrap().push(Signal::Registry { entry, file: Beginning::Absent });
    }

    fn write(&self, file: &str, line: &str) {
        let mut file = fs::File::options().create(true).append(true).open(self.folder.join(file)).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn sessions(&self) -> Vec<SessionRow> {
        let mut store = Store::open(&self.home, SystemClock.now()).unwrap();
        let mut rows = store.read(|view| view.list(&Filter::default())).unwrap();
        rows.sort_by_key(|row| row.n);
        rows
    }

    /// Names, conversations and number of calls, oldest first.
    fn told(&self) -> Vec<(String, Option<String>, i64)> {
        let mut store = Store::open(&self.home, SystemClock.now()).unwrap();
        let calls = |row: SessionRow| {
            let totals = store.read(|view| view.totals(row.n)).unwrap();
            (row.name, row.agent_session.map(|id| id.0), totals.api_calls)
        };
        self.sessions().into_iter().map(calls).collect()
    }

    fn check(&self) {
        let store = Store::open(&self.home, SystemClock.now()).unwrap();
        crate::session::tests::check(store.sql());
    }
}

fn us() -> Pid {
    Pid(i32::try_from(std::process::id()).unwrap())
}

fn end(run: Run) -> Summary {
    let ended = terminal::Ended { ending: terminal::Ending::Exited(0), asked: false, agent: Some(us()) };
    run.finish(ended, SystemClock.now())
}

fn refuse(run: &Run) {
    run.store.as_ref().unwrap().faults.after(0);
}

fn allow(run: &Run) {
    run.store.as_ref().unwrap().faults.none();
}

fn session(name: &str, conversation: &str, calls: i64) -> (String, Option<String>, i64) {
    (name.into(), Some(conversation.into()), calls)
}

#[test]
fn what_the_store_refuses_is_told_later_and_in_order() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    refuse(&run);
    scene.be_in(&mut run, "one");
    assert_eq!(run.conversation, None, "not bound before it is committed");
    assert!(run.patience() <= RETRY);
    allow(&run);
    run.look();
    scene.write("one", "call-1");
    run.look();
    scene.write("one", "call-2");
    refuse(&run);
    scene.be_in(&mut run, "two");
    let cleared = SystemClock.now();
    scene.write("two", "call-3");
    scene.be_in(&mut run, "three");
    scene.write("three", "call-4");
    assert_eq!(run.conversation, Some(AgentSessionId("one".into())));
    assert_eq!(scene.told(), [session("fix", "one", 1)]);
    allow(&run);
    run.look();
    run.look();
    assert_eq!(
        scene.told(),
        [session("fix", "one", 2), session("fix.2", "two", 1), session("fix.3", "three", 1)]
    );
    let rows = scene.sessions();
    assert_eq!(rows[0].end_reason, Some(EndReason::Clear));
    assert!(rows[0].ended_at.unwrap() <= cleared, "as of when it was decided");
    let mut store = Store::open(&scene.home, SystemClock.now()).unwrap();
    let seen = store.read(|view| view.evidence(rows[0].n)).unwrap();
    assert_eq!(seen.iter().filter(|seen| seen.verdict == Verdict::Accepted).count(), 2, "{seen:?}");
    let summary = end(run);
    assert_eq!(summary.problem, None, "all is stored in the end");
    assert_eq!(summary.together.map(|all| all.sessions), Some(3));
    scene.check();
}

#[test]
fn the_end_of_the_run_is_the_last_try() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    refuse(&run);
    scene.be_in(&mut run, "two");
    scene.write("two", "call-1");
    allow(&run);
    assert_eq!(end(run).problem, None);
    assert_eq!(scene.told(), [session("fix", "one", 0), session("fix.2", "two", 1)]);
    scene.check();
}

/// Keeps the store locked for everybody else, as another process would.
fn hold(scene: &Scene) -> Store {
    let holder = Store::open(&scene.home, SystemClock.now()).unwrap();
    holder.sql().execute_batch("BEGIN IMMEDIATE").unwrap();
    holder
}

/// The run gives up on a locked store at once.
fn be_impatient(run: &Run) {
    run.store.as_ref().unwrap().sql().busy_timeout(Duration::ZERO).unwrap();
}

#[test]
fn what_was_read_while_the_store_was_locked_is_read_again() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    be_impatient(&run);
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    run.look();
    let holder = hold(&scene);
    scene.write("one", "call-2");
    run.look();
    assert!(run.trouble.is_some() && run.retry_at.is_some(), "it was refused");
    drop(holder);
    run.look(); // the file has not grown since
    assert_eq!(scene.told(), [session("fix", "one", 2)]);
    assert_eq!(end(run).problem, None);
    scene.check();
}

#[test]
fn what_was_left_while_the_store_was_locked_is_read_again() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    be_impatient(&run);
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    scene.be_in(&mut run, "two");
    run.left[0].until = Some(Instant::now());
    run.look();
    assert_eq!(run.left[0].until, None);
    scene.write("one", "call-2");
    let holder = hold(&scene);
    run.look();
    drop(holder);
    run.look();
    assert_eq!(scene.told()[0], session("fix", "one", 2));
}

#[test]
fn what_cannot_be_read_in_the_end_is_left_to_the_recovery() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    let calls: Vec<_> = (0..1000).map(|n| format!("call-{n}")).collect();
    scene.write("one", &calls.join("\n"));
    // An END has room, all these calls have not.
    run.store.as_ref().unwrap().sql().execute_batch("PRAGMA max_page_count = 1").unwrap();
    assert!(end(run).problem.unwrap().contains("the disk is full"));
    let row = &scene.sessions()[0];
    assert_eq!((row.phase, row.ended_at), (Phase::Open, None), "nobody reads the files of what has ended");
    scene.check();
}

#[test]
fn what_is_never_stored_is_said() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    refuse(&run);
    scene.be_in(&mut run, "two");
    assert!(end(run).problem.unwrap().contains("the disk is full"));
}

#[test]
fn a_session_that_was_left_is_read_however_late_it_grows() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    run.look();
    scene.be_in(&mut run, "two");
    run.left[0].until = Some(Instant::now()); // two seconds of silence
    run.look();
    assert_eq!(run.left[0].until, None);
    scene.write("one", "call-2");
    run.look();
    assert_eq!(scene.told(), [session("fix", "one", 2), session("fix.2", "two", 0)]);
    run.left[0].until = None;
    // A sub-agent's file of which nothing is known before the last look.
    run.left[0].forget_what_was_seen();
    scene.write("one.helper", "call-3");
    run.look();
    assert_eq!(scene.told()[0], session("fix", "one", 2));
    end(run);
    assert_eq!(scene.told(), [session("fix", "one", 3), session("fix.2", "two", 0)]);
    scene.check();
}

#[test]
fn a_session_that_was_left_and_pruned_is_no_trouble() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    scene.be_in(&mut run, "two");
    let mut store = Store::open(&scene.home, SystemClock.now()).unwrap();
    let gone = session::prune::prune(&mut store, &scene.home, Timestamp(i64::MAX), None, false).unwrap();
    assert_eq!(gone.len(), 1);
    scene.write("one", "call-1");
    scene.write("two", "call-2");
    run.look();
    assert!(run.left.is_empty());
    assert_eq!(end(run).problem, None);
    assert_eq!(scene.told(), [session("fix.2", "two", 1)]);
    scene.check();
}

#[test]
fn who_comes_back_to_a_session_has_not_left_it() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    scene.be_in(&mut run, "two");
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    run.look();
    assert_eq!(run.left.len(), 1);
    let summary = end(run);
    assert_eq!(summary.together.map(|all| all.sessions), Some(2));
    assert_eq!(scene.told(), [session("fix", "one", 1), session("fix.2", "two", 0)]);
    scene.check();
}

#[test]
fn a_label_that_cannot_be_does_not_cost_the_session() {
    let scene = Scene::new();
    let plan = Plan {
        name: Some("a/b".into()),
        tags: vec![String::new(), "good".into()],
        group: Some("g/h".into()),
        ..scene.plan()
    };
    let run = scene.start(plan);
    let problem = end(run).problem.unwrap();
    assert!(problem.contains("the name \"a/b\""), "{problem}");
    let rows = scene.sessions();
    assert!(rows[0].name.starts_with("claude-"), "{}", rows[0].name);
    assert_eq!(rows[0].group, None);
}

#[test]
fn what_ended_before_it_was_looked_at_had_a_pid() {
    let scene = Scene::new();
    let mut run = Run::new(scene.plan(), Pid(i32::MAX));
    run.begin(Store::open(&scene.home, SystemClock.now()));
    let id: RunId = run.plan.run;
    end(run);
    let mut store = Store::open(&scene.home, SystemClock.now()).unwrap();
    assert_eq!(store.read(|view| view.run(id)).unwrap().unwrap().agent, Some(Pid(i32::MAX)));
}

/// Notes of a run are its own.
#[test]
fn evidence_knows_its_run() {
    let scene = Scene::new();
    let note = Evidence {
        at: SystemClock.now(),
        source: "arguments".into(),
        verdict: Verdict::Noted,
        agent_session_id: None,
        detail: "added: x".into(),
    };
    let mut run = scene.start(Plan { notes: vec![note], ..scene.plan() });
    scene.be_in(&mut run, "one");
    let id: RunId = run.plan.run;
    end(run);
    let store = Store::open(&scene.home, SystemClock.now()).unwrap();
    let query = "SELECT count(*) FROM evidence e JOIN run r ON r.n = e.run WHERE r.id = ?1";
    let noted: i64 = store.sql().query_row(query, [id], |row| row.get(0)).unwrap();
    assert_eq!(noted, 2);
}

#[test]
fn changes_of_others_ask_for_a_look_at_everything_and_own_ones_do_not() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    run.look();
    assert!(run.is_due_for_all(), "nobody reports changes");
    run.watch = Some(Watch::new(|_| {}));
    if !run.watch.as_ref().unwrap().works() {
        return; // no inotify instance left on this machine
    }
    run.look();
    assert!(!run.is_due_for_all());
    run.heeds(&Wake::Look);
    run.heeds(&Wake::Enter);
    assert!(!run.is_due_for_all());
    assert!(!run.heeds(&Wake::Others), "it can wait");
    assert!(!run.is_due_for_all() && run.patience() <= OF_OTHERS);
    run.others_due_at = Some(Instant::now());
    assert!(run.is_due_for_all());
    run.look();
    assert!(!run.is_due_for_all(), "one look is enough for all of them");
    run.looked_at_all = run.looked_at_all.and_then(|at| at.checked_sub(SLOW));
    assert!(run.is_due_for_all(), "whatever is reported");
}
