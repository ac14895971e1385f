//! A run over a store that refuses, and over files that grow late. The agent is this very process; its signals are scripted.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::super::timers::testing::ManualClock;
use super::super::write_queue::RETRY;
use super::*;
use agents::correlate::{Beginning, Maker, Method, NewSessionFile, RegistryEntry};
use agents::meter::line::{Lines, ParsedLines, Unreadable};
use agents::meter::record::{Fact, Record, Tool, Usage};
use agents::{Observation, Observer};
use os::home::Home;
use pricing::tier::Tier;
use pty::process::Processes;
use store::session;
use store::session::lifecycle::ConversationStart;
use store::session::lineage::Lineage;
use store::session::state::Phase;
use store::{EnvSnapshot, SessionQuery, SessionRow};
use types::EndReason;
use types::RunId;
use types::{AgentSessionId, Ids, ProcessId, RandomIds};
use types::{Evidence, EvidenceVerdict};
use types::{Tokens, ToolKind};

/// Shows the signals of a test. The files of a conversation are those whose names begin with its id.
struct Scripted {
    folder: PathBuf,
    signals: Arc<Mutex<Vec<Signal>>>,
    /// The conversations whose files were asked for.
    asked: Arc<Mutex<Vec<AgentSessionId>>>,
}

impl Observer for Scripted {
    fn method(&self) -> Method {
        Method::Registry
    }

    fn watched(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn look(&mut self, _: ProcessId, _: &dyn Processes) -> Observation {
        let signals = std::mem::take(&mut *self.signals.lock().unwrap());
        Observation { signals, ..Default::default() }
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        self.asked.lock().unwrap().push(id.clone());
        let mut files = os::file::entries(&self.folder).unwrap();
        files.retain(|file| file.file_name().unwrap().to_str().unwrap().starts_with(&id.0));
        files.sort();
        files
    }

    fn lines(&self, _: Option<&str>) -> Box<dyn Lines + Send> {
        Box::new(Calls)
    }
}

/// Each line is the key of a call, or of a tool that fails.
struct Calls;

impl Lines for Calls {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        let usage = Usage {
            model: "claude-opus-4-8".into(),
            tokens: Tokens { output: 1, ..Tokens::default() },
            tier: Tier::Standard,
            request_id: None,
        };
        let failed = || Tool {
            name: "Bash".into(),
            ok: false,
            kind: ToolKind::Other,
            file: None,
            further: Vec::new(),
            lines_added: 0,
            lines_removed: 0,
        };
        let fact = if line.starts_with(b"fails") { Fact::Tool(failed()) } else { Fact::Usage(usage) };
        into.records.push(Record {
            key: String::from_utf8(line.to_vec()).unwrap(),
            at: SystemClocks.now().wall,
            copied: false,
            subagent: None,
            fact,
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
    asked: Arc<Mutex<Vec<AgentSessionId>>>,
    clock: ManualClock,
    home: Home,
    _temporary: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("talks");
        fs::create_dir(&folder).unwrap();
        let home = Home::at(temporary.path().join("home"));
        let (signals, asked, clock) = (Arc::default(), Arc::default(), ManualClock::new());
        Self { folder, signals, asked, clock, home, _temporary: temporary }
    }

    fn plan(&self) -> Plan {
        let observer = Scripted {
            folder: self.folder.clone(),
            signals: Arc::clone(&self.signals),
            asked: Arc::clone(&self.asked),
        };
        Plan {
            home: self.home.clone(),
            begun_at: self.clock.now().wall,
            run: RandomIds.run(),
            session: RandomIds.session(),
            local_only: false,
            proxied: false,
            agent: "claude".into(),
            observer: Some(Box::new(observer)),
            version: None,
            binary: None,
            conversation: ConversationStart::Fresh,
            prompted: false,
            assigned: None,
            folder: self.folder.clone(),
            surroundings: EnvSnapshot::default(),
            name: Some("fix".into()),
            tags: Vec::new(),
            group: None,
            lineage: Lineage::default(),
            notes: Vec::new(),
            summary: true,
            log_level: None,
            sinks: None,
            sinks_now: |_| None,
            on_news: None,
            notifier: super::super::notify::Notifier::default(),
        }
    }

    fn start(&self, plan: Plan) -> Run {
        self.start_as(us(), plan)
    }

    fn start_as(&self, agent: Pid, plan: Plan) -> Run {
        let mut run = Run::new(plan, agent, Box::new(self.clock.clone()));
        run.state.begin(Store::open(&self.home, self.clock.now().wall));
        run
    }

    /// The departed session has been quiet for two seconds.
    fn fall_silent(&self, run: &mut Run) {
        self.clock.advance(Duration::from_secs(2));
        run.look();
        assert_eq!(run.state.sessions.departed()[0].quiet_at(), None);
    }

    /// The conversations whose files were asked for since the last call.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().drain(..).map(|id| id.0).collect()
    }

    /// The agent's registry names another conversation, and the run looks.
    fn be_in(&self, run: &mut Run, id: &str) {
        self.register(id);
        run.look();
    }

    fn register(&self, id: &str) {
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

    /// A file begins, and no other process of the agent is recognised.
    fn file_of_ours(&self, id: &str) {
        let file = NewSessionFile {
            id: AgentSessionId(id.into()),
            cwd: None,
            beginning: Beginning::Spoken { copied: false },
            maker: Some(Maker::Ours),
            follows: None,
        };
        self.signals.lock().unwrap().push(Signal::NewFile(file));
    }

    fn write(&self, file: &str, line: &str) {
        let mut file = fs::File::options().create(true).append(true).open(self.folder.join(file)).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn sessions(&self) -> Vec<SessionRow> {
        let mut store = Store::open(&self.home, self.clock.now().wall).unwrap();
        let mut rows = store.read(|view| view.list(&SessionQuery::default())).unwrap();
        rows.sort_by_key(|row| row.n);
        rows
    }

    /// Names, conversations and number of calls, oldest first.
    fn recorded(&self) -> Vec<(String, Option<String>, i64)> {
        let mut store = Store::open(&self.home, self.clock.now().wall).unwrap();
        let calls = |row: SessionRow| {
            let totals = store.read(|view| view.totals(row.n)).unwrap();
            (row.name, row.agent_session.map(|id| id.0), totals.calls.api_calls)
        };
        self.sessions().into_iter().map(calls).collect()
    }

    fn check(&self) {
        let store = Store::open(&self.home, self.clock.now().wall).unwrap();
        store::session::testing::check(store.sql());
    }
}

fn us() -> Pid {
    Pid(i32::try_from(std::process::id()).unwrap())
}

fn end(run: Run) -> Summary {
    let ended =
        pty::ProgramEnd { exit: pty::ProgramExit::Exited(0), asked: false, stopped: false, pid: Some(us()) };
    let at = run.state.now().wall;
    run.finish(ended, at)
}

#[test]
fn who_asked_a_program_to_end_decides_the_reason() {
    use pty::ProgramExit::{Exited, Killed};
    use types::EndReason;
    for (exit, asked, stopped, reason) in [
        (Exited(0), false, false, EndReason::Exit),
        (Killed(9), false, false, EndReason::Signal),
        (Exited(143), true, false, EndReason::Signal),
        (Exited(143), true, true, EndReason::Stopped),
        (Killed(9), false, true, EndReason::Stopped),
    ] {
        let ended = pty::ProgramEnd { exit, asked, stopped, pid: Some(us()) };
        assert_eq!(ending(ended).reason, reason, "{ended:?}");
    }
}

fn store(run: &mut Run) -> &mut Store {
    run.state.queue.store().unwrap()
}

fn refuse(run: &mut Run) {
    store(run).faults.after(0);
}

fn allow(run: &mut Run) {
    store(run).faults.none();
}

fn conversation(run: &mut Run) -> Option<&str> {
    run.state.sessions.conversation().map(|id| id.0.as_str())
}

fn session(name: &str, conversation: &str, calls: i64) -> (String, Option<String>, i64) {
    (name.into(), Some(conversation.into()), calls)
}

#[test]
fn refused_writes_are_made_later_and_in_order() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    refuse(&mut run);
    scene.be_in(&mut run, "one");
    assert_eq!(conversation(&mut run), None, "not bound before it is committed");
    assert!(run.sleep() <= RETRY);
    allow(&mut run);
    run.look();
    scene.write("one", "call-1");
    run.look();
    scene.write("one", "call-2");
    refuse(&mut run);
    scene.be_in(&mut run, "two");
    let cleared = scene.clock.now().wall;
    scene.clock.advance(Duration::from_millis(5));
    scene.write("two", "call-3");
    scene.be_in(&mut run, "three");
    scene.write("three", "call-4");
    assert_eq!(conversation(&mut run), Some("one"));
    assert_eq!(scene.recorded(), [session("fix", "one", 1)]);
    allow(&mut run);
    run.look();
    run.look();
    assert_eq!(
        scene.recorded(),
        [session("fix", "one", 2), session("fix.2", "two", 1), session("fix.3", "three", 1)]
    );
    let rows = scene.sessions();
    assert_eq!(rows[0].end_reason, Some(EndReason::Clear));
    assert!(rows[0].ended_at.unwrap() <= cleared, "as of when it was decided");
    let mut store = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    let seen = store.read(|view| view.evidence(rows[0].n)).unwrap();
    assert_eq!(seen.iter().filter(|seen| seen.verdict == EvidenceVerdict::Accepted).count(), 2, "{seen:?}");
    let summary = end(run);
    assert_eq!(summary.problem, None, "all is stored in the end");
    assert_eq!(summary.run_total.map(|all| all.sessions), Some(3));
    scene.check();
}

#[test]
fn other_runs_of_the_agent_in_the_folder_are_neighbours_though_no_process_of_theirs_is_recognised() {
    for (what, agent, folder, expected) in [
        ("the same agent and folder", "claude", ".", None),
        ("another agent", "codex", ".", Some("n")),
        ("another folder", "claude", "..", Some("n")),
    ] {
        let scene = Scene::new();
        let folder = scene.folder.join(folder);
        let mut other = Plan { agent: agent.into(), folder, name: None, ..scene.plan() };
        other.observer = None;
        let other = scene.start(other);
        let mut run = scene.start(scene.plan());
        scene.file_of_ours("n");
        run.look();
        assert_eq!(conversation(&mut run), expected, "{what}");
        end(other);
        scene.file_of_ours("later");
        run.look();
        assert_eq!(conversation(&mut run), expected.or(Some("later")), "{what}: the other has ended");
    }
}

#[test]
fn refused_writes_are_tried_once_more_at_the_end_of_the_run() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    refuse(&mut run);
    scene.be_in(&mut run, "two");
    scene.write("two", "call-1");
    allow(&mut run);
    assert_eq!(end(run).problem, None);
    assert_eq!(scene.recorded(), [session("fix", "one", 0), session("fix.2", "two", 1)]);
    scene.check();
}

#[test]
fn nothing_is_read_while_a_write_waits() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    refuse(&mut run);
    scene.be_in(&mut run, "two");
    scene.write("one", "call-1");
    scene.asked();
    run.look();
    assert!(run.state.queue.is_waiting());
    assert_eq!(scene.asked(), [""; 0], "no file of any conversation");
    assert_eq!(conversation(&mut run), Some("one"));
    assert_eq!(scene.recorded(), [session("fix", "one", 0)]);
    allow(&mut run);
    run.look();
    assert_eq!(scene.recorded(), [session("fix", "one", 1), session("fix.2", "two", 0)]);
    end(run);
    scene.check();
}

#[test]
fn a_store_that_could_not_be_opened_is_tried_again_after_two_seconds() {
    let scene = Scene::new();
    let mut run = Run::new(scene.plan(), us(), Box::new(scene.clock.clone()));
    let busy = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    busy.sql().busy_timeout(Duration::ZERO).unwrap();
    let holder = hold(&scene);
    run.state.begin(Ok(busy));
    drop(holder);
    scene.clock.advance(RETRY / 2);
    run.look();
    assert!(!run.state.queue.is_open(), "not yet");
    scene.clock.advance(RETRY / 2);
    scene.be_in(&mut run, "one");
    assert_eq!(scene.recorded(), [session("fix", "one", 0)]);
    assert_eq!(end(run).problem, None);
    scene.check();
}

#[test]
fn the_next_look_is_due_when_a_departed_session_may_be_quiet() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    scene.be_in(&mut run, "two");
    scene.clock.advance(Duration::from_millis(1800));
    assert_eq!(run.sleep(), Duration::from_millis(200));
    scene.clock.advance(Duration::from_millis(200));
    run.look();
    assert_eq!(run.sleep(), Duration::from_millis(500), "no watch, so the files are polled");
    scene.write("one", "call-2");
    run.look();
    assert_eq!(run.state.sessions.quiet_at().count(), 1, "it has grown and is read with every look again");
    end(run);
}

/// Keeps the store locked for everybody else, as another process would.
fn hold(scene: &Scene) -> Store {
    let holder = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    holder.sql().execute_batch("BEGIN IMMEDIATE").unwrap();
    holder
}

/// The run gives up on a locked store at once.
fn be_impatient(run: &mut Run) {
    store(run).sql().busy_timeout(Duration::ZERO).unwrap();
}

#[test]
fn lines_read_while_the_store_was_locked_are_read_again() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    be_impatient(&mut run);
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    run.look();
    let holder = hold(&scene);
    scene.write("one", "call-2");
    run.look();
    assert!(run.state.queue.refusal().is_some(), "it was refused");
    assert!(run.state.queue.retry_at().is_some());
    drop(holder);
    run.look(); // the file has not grown since
    assert_eq!(scene.recorded(), [session("fix", "one", 2)]);
    assert_eq!(end(run).problem, None);
    scene.check();
}

#[test]
fn a_departed_session_read_while_the_store_was_locked_is_read_again() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    be_impatient(&mut run);
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    scene.be_in(&mut run, "two");
    scene.fall_silent(&mut run);
    scene.write("one", "call-2");
    let holder = hold(&scene);
    run.look();
    drop(holder);
    run.look();
    assert_eq!(scene.recorded()[0], session("fix", "one", 2));
}

#[test]
fn a_session_that_cannot_be_read_to_its_end_is_left_to_the_recovery() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    let calls: Vec<_> = (0..1000).map(|n| format!("call-{n}")).collect();
    scene.write("one", &calls.join("\n"));
    // An END has room, all these calls have not.
    store(&mut run).sql().execute_batch("PRAGMA max_page_count = 1").unwrap();
    assert!(end(run).problem.unwrap().contains("the disk is full"));
    let row = &scene.sessions()[0];
    assert_eq!((row.phase, row.ended_at), (Phase::Open, None), "nobody reads the files of what has ended");
    scene.check();
}

#[test]
fn a_write_that_is_never_made_is_reported() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    refuse(&mut run);
    scene.be_in(&mut run, "two");
    assert!(end(run).problem.unwrap().contains("the disk is full"));
}

#[test]
fn a_departed_session_is_read_however_late_it_grows() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    run.look();
    scene.be_in(&mut run, "two");
    scene.fall_silent(&mut run);
    scene.write("one", "call-2");
    run.look();
    assert_eq!(scene.recorded(), [session("fix", "one", 2), session("fix.2", "two", 0)]);
    scene.fall_silent(&mut run);
    // A sub-agent's file of which nothing is known before the last look.
    run.state.sessions.departed()[0].forget_stamps();
    scene.write("one.helper", "call-3");
    run.look();
    assert_eq!(scene.recorded()[0], session("fix", "one", 2));
    end(run);
    assert_eq!(scene.recorded(), [session("fix", "one", 3), session("fix.2", "two", 0)]);
    scene.check();
}

#[test]
fn a_departed_session_that_was_pruned_is_no_problem() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    scene.be_in(&mut run, "two");
    let mut store = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    let gone = session::prune::prune(&mut store, &scene.home, Timestamp(i64::MAX), None, false).unwrap();
    assert_eq!(gone.len(), 1);
    scene.write("one", "call-1");
    scene.write("two", "call-2");
    run.look();
    assert!(run.state.sessions.departed().is_empty());
    assert_eq!(end(run).problem, None);
    assert_eq!(scene.recorded(), [session("fix.2", "two", 1)]);
    scene.check();
}

#[test]
fn a_session_the_run_comes_back_to_is_counted_once() {
    let scene = Scene::new();
    let mut run = scene.start(scene.plan());
    scene.be_in(&mut run, "one");
    scene.be_in(&mut run, "two");
    scene.be_in(&mut run, "one");
    scene.write("one", "call-1");
    run.look();
    assert_eq!(run.state.sessions.departed().len(), 1);
    let summary = end(run);
    assert_eq!(summary.run_total.map(|all| all.sessions), Some(2));
    assert_eq!(scene.recorded(), [session("fix", "one", 1), session("fix.2", "two", 0)]);
    scene.check();
}

#[test]
fn a_label_that_is_not_allowed_does_not_cost_the_session() {
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
fn an_agent_that_ended_before_it_was_looked_at_had_a_pid() {
    let scene = Scene::new();
    let run = scene.start_as(Pid(i32::MAX), scene.plan());
    let id: RunId = run.state.plan.run;
    end(run);
    let mut store = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    assert_eq!(store.read(|view| view.run(id)).unwrap().unwrap().agent, Some(Pid(i32::MAX)));
}

/// Notes of a run are its own.
#[test]
fn evidence_is_stored_with_its_run() {
    let scene = Scene::new();
    let note = Evidence {
        at: scene.clock.now().wall,
        source: "arguments".into(),
        verdict: EvidenceVerdict::Noted,
        agent_session_id: None,
        detail: "added: x".into(),
    };
    let mut run = scene.start(Plan { notes: vec![note], ..scene.plan() });
    scene.be_in(&mut run, "one");
    let id: RunId = run.state.plan.run;
    end(run);
    let store = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    let query = "SELECT count(*) FROM evidence e JOIN run r ON r.n = e.run WHERE r.id = ?1";
    let noted: i64 = store.sql().query_row(query, [id], |row| row.get(0)).unwrap();
    assert_eq!(noted, 2);
}

#[test]
fn a_sign_is_notified_of_once_however_many_runs_see_it() {
    let scene = Scene::new();
    let [file, script] = ["notices", "notify.sh"].map(|name| scene.home.path().join(name));
    fs::create_dir_all(scene.home.path()).unwrap();
    fs::write(&script, "echo $CODEMIE_NOTIFY_EVENT $CODEMIE_NOTIFY_NAME $CODEMIE_NOTIFY_WHY >> $1\n")
        .unwrap();
    let command = format!("[notify]\ncommand = ['sh', '{}', '{}']\n", script.display(), file.display());
    fs::write(scene.home.config_file(), command + "[runaway]\nenabled = true\n").unwrap();
    let mut run = scene.start(scene.plan());
    scene.write("a.jsonl", "one");
    scene.be_in(&mut run, "a");
    for time in 1..=7 {
        scene.write("a.jsonl", &format!("fails {time}"));
        scene.clock.advance(Duration::from_secs(5));
        run.look();
    }
    end(run);
    let again = Plan { conversation: ConversationStart::Named(AgentSessionId("a".into())), ..scene.plan() };
    let mut run = scene.start(again);
    scene.be_in(&mut run, "a");
    scene.write("a.jsonl", "fails once more");
    scene.clock.advance(Duration::from_secs(5));
    run.look();
    end(run);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !file.exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "runaway fix Bash failed 5 times in a row\n");
    let store = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    let notices: i64 =
        store.sql().query_row("SELECT count(*) FROM budget_notice", [], |row| row.get(0)).unwrap();
    assert_eq!(notices, 1);
}

#[test]
fn a_budget_that_is_nearly_spent_is_notified_of_once_and_is_in_the_summary() {
    let scene = Scene::new();
    let file = scene.folder.join("../notices");
    fs::create_dir_all(scene.home.path()).unwrap();
    // One call of these tests costs 25 millionths of a dollar.
    let script = scene.folder.join("../notify.sh");
    fs::write(&script, "echo $CODEMIE_NOTIFY_EVENT $CODEMIE_NOTIFY_NAME $CODEMIE_NOTIFY_WHY >> $1\n")
        .unwrap();
    let config = format!(
        "[notify]\ncommand = ['sh', '{}', '{}']\n[[budget]]\nper = 'session'\nusd = 0.0001\n",
        script.display(),
        file.display()
    );
    fs::write(scene.home.config_file(), config).unwrap();
    let mut run = scene.start(scene.plan());
    scene.write("a.jsonl", "one");
    scene.be_in(&mut run, "a");
    for (call, percent) in [("two", 50), ("three", 75), ("four", 100)] {
        scene.write("a.jsonl", call);
        scene.clock.advance(Duration::from_secs(5));
        run.look();
        let session = run.state.sessions.current();
        let now = run.state.now();
        let used = run.state.commit(|store| run.budgets.used(store, session, now)).unwrap();
        assert_eq!(used.first().map(|used| used.percent()), (percent >= 80).then_some(percent));
    }
    scene.write("a.jsonl", "five");
    let summary = end(run);
    assert_eq!(summary.budgets.iter().map(|used| used.percent()).collect::<Vec<_>>(), [125]);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !file.exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text, "budget fix session fix: $0.0001 of $0.0001 (100 %)\n");
}

#[test]
fn an_own_price_is_used_for_calls_from_then_on() {
    let scene = Scene::new();
    fs::create_dir_all(scene.home.path()).unwrap();
    let mut run = scene.start(scene.plan());
    scene.write("a.jsonl", "one");
    scene.be_in(&mut run, "a");
    end(run);
    fs::write(scene.home.config_file(), "[prices.claude-opus-4-8]\ninput = 1\noutput = 7\n").unwrap();
    let mut run = scene.start(scene.plan());
    scene.write("b.jsonl", "two");
    scene.be_in(&mut run, "b");
    end(run);
    let store = Store::open(&scene.home, scene.clock.now().wall).unwrap();
    let mut priced = store.sql().prepare("SELECT cost, substr(prices, 1, 4) FROM record ORDER BY n").unwrap();
    let priced: Vec<(i64, String)> = priced
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(priced, [(25_000_000, pricing::TABLE_VERSION.to_string()), (7_000_000, "own-".into())]);
}
