//! A further agent, from its files to the reports.

use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use agents::meter::form::{Checkpoint, FormReader};
use agents::meter::tail::Restart;
use agents::registry::by_name;
use agents::scribe::{Scribe, TalkLines, database, write_rows};
use agents::transcript::ItemKind;
use agents::transcript::{self, Page};
use agents::*;
use os::clock::{Clock, SystemClock};
use os::file::FileId;
use os::home::Home;
use pty::process::{Processes, SystemProcesses};
use pty::{ProgramEnd, ProgramExit};
use runtime::track::{Plan, Tracker, recover, version};
use scan::{Days, Scanner};
use store::session::lifecycle;
use store::session::record::record;
use store::{SessionQuery, Store};
use types::Pid;
use types::SessionRecord;
use types::Span;
use types::{AgentSessionId, ProcessId, StartTime};
use types::{EndReason, Status};
use types::{Ids, RandomIds};
use usage::{By, UsageQuery, UsageRow, tally};

/// A run of the scribe: a process that does nothing, and the files it would have written.
struct Stage {
    home: Home,
    folder: PathBuf,
    process: Child,
    changes: Receiver<()>,
    _watch: os::watch::Watch,
    _temporary: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("project");
        fs::create_dir_all(folder.join(".scribe")).unwrap();
        let home = Home::at(temporary.path().join("home"));
        os::file::create_private(&home.published_sessions()).unwrap();
        let (changed, changes) = channel();
        let mut watch = os::watch::Watch::new(move |_| {
            let _ = changed.send(());
        });
        watch.set([home.published_sessions()], None);
        let process = Command::new("sleep").arg("1000").spawn().unwrap();
        Self { home, folder, process, changes, _watch: watch, _temporary: temporary }
    }

    fn pid(&self) -> Pid {
        Pid(i32::try_from(self.process.id()).unwrap())
    }

    fn start(&self) -> Tracker {
        let var = |_: &str| None;
        let plan = Plan {
            home: self.home.clone(),
            begun_at: SystemClock.now(),
            run: RandomIds.run(),
            session: RandomIds.session(),
            local_only: false,
            proxied: false,
            agent: "scribe".into(),
            observer: Scribe.observer(&var, &self.folder),
            version: None,
            binary: None::<version::BinaryIdentity>,
            conversation: lifecycle::ConversationStart::Fresh,
            prompted: false,
            assigned: None,
            folder: self.folder.clone(),
            surroundings: store::EnvSnapshot::default(),
            name: Some("letter".into()),
            tags: Vec::new(),
            group: None,
            lineage: store::session::lineage::Lineage::default(),
            notes: Vec::new(),
            summary: true,
            sinks: None,
            sinks_now: |_| None,
            on_news: None,
            notifier: runtime::track::notify::Notifier::default(),
            log_level: None,
        };
        let tracker = Tracker::prepare(plan);
        tracker.begin(self.pid());
        tracker
    }

    /// The agent notes which conversation it is in.
    fn be_in(&self, id: &str) {
        let start = SystemProcesses.identify(self.pid()).unwrap().start.0;
        fs::write(self.folder.join(format!(".scribe/at-{}", self.pid())), format!("{start} {id}\n")).unwrap();
    }

    /// The agent adds rows to a conversation.
    fn write(&self, id: &str, rows: &[String]) {
        write_rows(&self.folder, id, rows);
    }

    fn scan(&self) -> Vec<UsageRow> {
        let folder = self.folder.clone();
        let var = move |name: &str| (name == "SCRIBE_HOME").then(|| folder.clone().into_os_string());
        let scanner = Scanner {
            folder: self.home.path().join("scan"),
            agents: &[&Scribe],
            var: &var,
            days: Days::of(jiff::tz::TimeZone::UTC),
            prices: &pricing::PriceList::default(),
            watch: None,
        };
        let scanned = scanner.scan(None, Span::default()).unwrap();
        assert_eq!((scanned.refused.len(), scanned.unsaved.as_ref()), (0, None));
        tally(&[scanned.spending()], &UsageQuery::by(By::Session)).rows
    }

    fn records(&self) -> Vec<SessionRecord> {
        let mut store = Store::open(&self.home, SystemClock.now()).unwrap();
        let read = |view: &store::View<'_>| -> Result<Vec<SessionRecord>, store::Error> {
            let rows = view.list(&SessionQuery::default())?;
            rows.iter().rev().map(|row| record(view, row, SystemClock.now())).collect()
        };
        store.read(read).unwrap()
    }

    fn wait(&self, what: &str, is: impl Fn(&[SessionRecord]) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is(&self.records()) {
            assert!(Instant::now() < deadline, "waited in vain for {what}: {:#?}", self.records());
            // A session's numbers change without its file being published again.
            let _ = self.changes.recv_timeout(Duration::from_millis(200));
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The conversation, as any command opens and reads it.
fn view(session: &SessionRecord) -> Vec<ItemKind> {
    let path = PathBuf::from(session.correlation.agent_session_file.as_ref().unwrap());
    let agent = by_name(&session.agent).unwrap();
    let content = agent.form(&path).open(&path).unwrap();
    let page = transcript::last(&content, 1000, agent.transcript().unwrap()).unwrap();
    page.items.into_iter().map(|item| item.kind).collect()
}

fn now() -> i64 {
    SystemClock.now().0
}

#[test]
fn a_further_agent_is_one_file_and_one_line() {
    let stage = Stage::new();
    let tracker = stage.start();
    stage.wait("the session", |records| records.len() == 1);
    stage.be_in("one");
    stage.wait("the binding", |records| records[0].correlation.agent_session_id.is_some());
    stage.write("one", &[format!("u p1 {} Dear Ada", now()), format!("a m1 {} 10 20 I remain", now())]);
    stage.wait("the numbers", |records| records[0].usage.api_calls == 1);
    stage.be_in("two");
    stage.wait("the next session", |records| records.len() == 2);
    stage.write("two", &[format!("u p2 {} Dear Bob", now())]);
    stage.write("two", &[format!("a m2 {} 1 2 Yours", now()), "nonsense".into()]);
    stage.wait("its numbers", |records| records[1].usage.api_calls == 1);
    let ended =
        ProgramEnd { exit: ProgramExit::Exited(3), asked: false, stopped: false, pid: Some(stage.pid()) };
    let summary = tracker.finish(ended, SystemClock.now(), Duration::from_mins(1));
    assert_eq!(summary.problem, None);

    let [one, two] = <[SessionRecord; 2]>::try_from(stage.records()).unwrap();
    assert_eq!(
        (one.name.as_str(), one.agent.as_str(), one.agent_version.as_deref()),
        ("letter", "scribe", Some("7.0"))
    );
    assert_eq!((one.status, one.end_reason), (Status::Completed, Some(EndReason::Clear)));
    assert_eq!((one.usage.prompts, one.usage.input_tokens, one.usage.output_tokens), (1, 10, 20));
    assert!(one.usage.cost_usd > 0.0);
    assert_eq!(
        (one.transitioned_to.as_ref(), two.transitioned_from.as_ref()),
        (Some(&two.session_id), Some(&one.session_id))
    );
    assert_eq!((two.status, two.exit_code), (Status::Failed, Some(3)));
    assert_eq!((two.usage.api_calls, two.usage.input_tokens), (1, 1));
    assert_eq!(view(&one), [ItemKind::User("Dear Ada".into()), ItemKind::Assistant("I remain".into())]);
}

#[test]
fn a_run_that_vanished_is_recovered() {
    let stage = Stage::new();
    // A run whose wrapper is gone: it noted its conversation, and no END.
    let mut store = Store::open(&stage.home, SystemClock.now()).unwrap();
    let dead = ProcessId { pid: Pid(i32::MAX), start: StartTime(1) };
    let begin = lifecycle::RunStart {
        run: store::NewRun {
            id: RandomIds.run(),
            realm: store::BootAndPidNs::here(),
            wrapper: dead,
            proxied: false,
        },
        agent: "scribe".into(),
        local_only: false,
        agent_version: None,
        workspace: store::Workspace {
            cwd: stage.folder.clone(),
            project: None,
            repository: None,
            branch: None,
        },
        conversation: lifecycle::ConversationStart::Fresh,
        name: None,
        tags: Vec::new(),
        group: None,
        parent: None,
    };
    let binding = lifecycle::Binding {
        agent_session: AgentSessionId("one".into()),
        file: None,
        evidence: types::EvidenceKind::Registry,
    };
    let start = |tx: &store::Tx<'_>| {
        let started = lifecycle::start(tx, SystemClock.now(), &RandomIds, &begin)?;
        lifecycle::bind(tx, SystemClock.now(), &RandomIds, started.session, &binding).map(drop)
    };
    store.write(start).unwrap();
    stage.write("one", &[format!("a m1 {} 10 20 I remain", now())]);
    recover(&mut store, &stage.home).unwrap();
    let records = stage.records();
    assert_eq!((records[0].status, records[0].end_reason), (Status::Interrupted, Some(EndReason::Crash)));
    assert_eq!(records[0].usage.output_tokens, 20);
}

fn rows(rows: &[&str]) -> Vec<String> {
    rows.iter().map(|&row| row.to_owned()).collect()
}

#[test]
fn conversations_in_a_database_are_scanned_and_outlive_their_rows() {
    let stage = Stage::new();
    let sums = || -> Vec<(String, i64, i64)> {
        let rows = stage.scan().into_iter();
        rows.map(|row| (row.key.unwrap(), row.sums.api_calls, row.sums.output)).collect()
    };
    assert_eq!(sums(), []);
    stage.write("one", &rows(&["u p1 1 Dear", "a m1 2 10 20 I remain"]));
    stage.write("two", &rows(&["a m2 3 1 2 Yours"]));
    let before = [("one".to_owned(), 1, 20), ("two".to_owned(), 1, 2)];
    assert_eq!(sums(), before);
    assert_eq!(sums(), before, "nothing is new");
    stage.write("one", &rows(&["a m3 4 10 5 Ever yours"]));
    let grown = [("one".to_owned(), 2, 25), ("two".to_owned(), 1, 2)];
    assert_eq!(sums(), grown);
    let database = Connection::open(database(&stage.folder)).unwrap();
    database.execute("DELETE FROM talk WHERE conversation = 'one'", []).unwrap();
    assert_eq!(sums(), grown, "history outlives the agent's rows");
}

#[test]
fn a_conversation_in_a_database_is_read_by_pages() {
    let stage = Stage::new();
    stage.write("one", &rows(&["u p1 1 Dear Ada", "a m1 2 10 20 I remain"]));
    stage.write("two", &rows(&["u p2 3 Dear Bob"]));
    let [one, two] = ["one", "two"].map(|id| {
        let path = database(&stage.folder).join(id);
        Scribe.form(&path).open(&path).unwrap()
    });
    let reader = Scribe.transcript().unwrap();
    let texts = |page: &Page| -> Vec<ItemKind> { page.items.iter().map(|item| item.kind.clone()).collect() };
    let (ada, remain) = (ItemKind::User("Dear Ada".into()), ItemKind::Assistant("I remain".into()));
    let first = transcript::after(&one, None, 10, reader).unwrap();
    assert_eq!((texts(&first), first.truncated), (vec![ada], true));
    let cursor = first.cursor.to_string().parse().unwrap();
    let second = transcript::after(&one, Some(cursor), 10, reader).unwrap();
    assert_eq!((texts(&second), second.truncated), (vec![remain.clone()], false));
    let end = transcript::last(&one, 10, reader).unwrap();
    assert_eq!((texts(&end), end.truncated, end.cursor), (vec![remain], true, second.cursor));
    stage.write("one", &rows(&["u p3 4 More"]));
    let more = transcript::after(&one, Some(end.cursor), 10, reader).unwrap();
    assert_eq!(texts(&more), [ItemKind::User("More".into())]);
    let stale = transcript::after(&two, Some(end.cursor), 10, reader);
    assert!(matches!(stale, Err(transcript::Error::Stale)), "a cursor of another conversation");
}

#[test]
fn rows_are_followed_from_a_checkpoint_on() {
    let stage = Stage::new();
    stage.write("one", &rows(&["u p1 1 Dear Ada", "nonsense"]));
    let path = database(&stage.folder).join("one");
    let form = Scribe.form(&path);
    let content = form.open(&path).unwrap();
    let id = content.id().unwrap();
    let mut followed = FormReader::new(form, None, TalkLines);
    let first = followed.next(&content).unwrap().unwrap();
    assert_eq!((first.parsed.records.len(), first.unreadable, first.restart), (1, 1, None));
    assert!(followed.next(&content).unwrap().is_none());
    stage.write("one", &rows(&["u p2 2 Dear Bob"]));
    let Checkpoint { progress, state } = first.checkpoint();
    let mut resumed = FormReader::resume(form, id, Some((progress, &state)), |_| TalkLines);
    let second = resumed.next(&content).unwrap().unwrap();
    assert_eq!((second.began_at(), second.parsed.records.len()), (progress, 1));
    assert_eq!(second.parsed.records[0].key, "p2");
    // Another database is in its place.
    let mut of_another =
        FormReader::resume(form, FileId { inode: 1, ..id }, Some((9, &state)), |_| TalkLines);
    let again = of_another.next(&content).unwrap().unwrap();
    assert_eq!((again.restart, again.parsed.records.len()), (Some(Restart::Replaced), 2));
}
