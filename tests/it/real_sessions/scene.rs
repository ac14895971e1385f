//! Where a scenario plays: a home, an API, one of the agents through codemie, and codemie's records to look at.

use std::fmt::Write;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use os::clock::{Clock, SystemClock};
use os::file::create_private;
use os::home::Home;
use store::session;
use store::session::record::record;
use store::{SessionQuery, Sort, Store};
use types::{Evidence, Filter, SessionRecord, Status};

use super::attribute;
use super::story::{Recorded, spent, story};
use crate::support::agents::Agent;
use crate::support::fake_api::{Call, CallLog};
use crate::support::run::AgentRun;
use crate::support::stage::{Form, Stage, TIMEOUT};

pub(super) struct Scene {
    pub(super) stage: Stage,
    agent: Agent,
}

impl Scene {
    /// `None` where real agents cannot run; the reason has been printed.
    pub(super) fn set(agent: Agent) -> Option<Self> {
        Some(Self::on(Stage::set()?, agent))
    }

    /// The same with the agent in another version than the usual one.
    pub(super) fn set_version(agent: Agent, version: &str) -> Option<Self> {
        Some(Self::on(Stage::set_version(agent, version)?, agent))
    }

    fn on(stage: Stage, agent: Agent) -> Self {
        let scene = Self { stage, agent };
        // So that it can be watched from the beginning.
        create_private(&scene.home().published_sessions()).unwrap();
        scene
    }

    pub(super) fn version(&self) -> (u64, u64, u64) {
        self.stage.home.version(self.agent)
    }

    fn home(&self) -> Home {
        Home::at(self.stage.home.codemie_home())
    }

    pub(super) fn published_sessions(&self) -> PathBuf {
        self.home().published_sessions()
    }

    pub(super) fn configure(&self, config: &str) {
        fs::write(self.home().config_file(), config).unwrap();
    }

    /// Starts the agent and waits for its prompt.
    pub(super) fn start(&self, arguments: &[&str]) -> Played<'_> {
        Played { run: AgentRun::start(&self.stage, self.agent, arguments), scene: self }
    }

    /// The same without waiting.
    pub(super) fn launch(&self, arguments: &[&str]) -> Played<'_> {
        Played { run: AgentRun::launch(&self.stage, self.agent, arguments), scene: self }
    }

    /// Runs the agent to its end in pipes.
    pub(super) fn print(&self, arguments: &[&str], input: &str) -> Output {
        self.stage.pipe(self.agent, Form::Wrapped, arguments, input)
    }

    /// The API's log, each call with the conversation it was made in.
    pub(super) fn log(&self) -> CallLog {
        let mut log = self.stage.api.log();
        if self.agent == Agent::Claude {
            attribute::warm_ups(&mut log, &self.stage.home.path().join(".claude/projects"));
        }
        if self.agent == Agent::Gemini {
            attribute::by_files(&mut log, &self.stage.home.path().join(".gemini/tmp"));
        }
        if self.agent == Agent::Qwen {
            attribute::by_answer_ids(&mut log, &self.stage.home.path().join(".qwen/projects"));
        }
        log
    }

    /// Runs one of codemie's own commands.
    pub(super) fn codemie(&self, arguments: &[&str]) -> Output {
        self.codemie_in(&self.stage.home.project(), arguments)
    }

    pub(super) fn codemie_in(&self, folder: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_codemie"));
        command.args(arguments).current_dir(folder);
        command.env_clear().envs(self.stage.home.environment(&self.stage.api)).output().unwrap()
    }

    fn read<T>(&self, work: impl FnOnce(&store::View<'_>) -> Result<T, session::Error>) -> T {
        let mut store = Store::open(&self.home(), SystemClock.now()).unwrap();
        store.read(work).unwrap()
    }

    /// Below which folder the agent writes a call's answer down, and what names the answer there.
    fn written_to(&self, call: &Call) -> (PathBuf, String) {
        let home = self.stage.home.path();
        match self.agent {
            Agent::Claude => (home.join(".claude/projects"), call.id.clone()),
            Agent::Codex => (home.join(".codex/sessions"), call.id.clone()),
            Agent::Qwen => (home.join(".qwen/projects"), call.id.clone()),
            // Gemini writes no id of the answer down; its text goes on with a quotation mark there.
            Agent::Gemini => (home.join(".gemini/tmp"), format!("{}\"", call.text.as_ref().unwrap())),
        }
    }

    pub(super) fn is_written(&self, call: &Call) -> bool {
        let (folder, mark) = self.written_to(call);
        holds(&folder, mark.as_bytes())
    }

    /// The sessions of the agent in the store, in the order in which they began.
    pub(super) fn recorded(&self) -> Vec<Recorded> {
        self.read(|view| {
            let agent = Some(self.agent.name().to_owned());
            let filter = SessionQuery {
                sort: Sort::Started,
                ..SessionQuery::of(Filter { agent, ..Filter::default() })
            };
            let rows = view.list(&filter)?;
            let recorded = rows.iter().rev().map(|row| {
                let openings = view.openings(row.n)?.iter().map(|opening| opening.reason).collect();
                Ok(Recorded { record: record(view, row, SystemClock.now())?, openings })
            });
            recorded.collect()
        })
    }

    /// What `explain` would tell of a session.
    pub(super) fn evidence(&self, session: &SessionRecord) -> Vec<Evidence> {
        self.read(|view| {
            let rows = view.list(&SessionQuery::default())?;
            let row = rows.iter().find(|row| row.shown_id() == session.session_id).unwrap();
            Ok(view.evidence(row.n)?)
        })
    }

    /// The published records of the agent, in no order.
    pub(super) fn published(&self) -> Vec<SessionRecord> {
        let files = fs::read_dir(self.published_sessions()).unwrap().map(|entry| entry.unwrap().path());
        // One may be taken back while we look.
        let texts = files.filter(|file| file.extension().is_some_and(|end| end == "json")).map(fs::read);
        let records = texts.filter_map(Result::ok).map(|text| serde_json::from_slice(&text).unwrap());
        records.filter(|record: &SessionRecord| record.agent == self.agent.name()).collect()
    }

    /// Waits until the published records show it.
    pub(super) fn wait<T>(&self, what: &str, mut find: impl FnMut(&[SessionRecord]) -> Option<T>) -> T {
        let found = await_change(&self.published_sessions(), || find(&self.published()));
        found.unwrap_or_else(|| panic!("waited in vain for {what}\n{}", self.picture()))
    }

    /// Everything a failure needs.
    pub(super) fn picture(&self) -> String {
        let (recorded, log) = (self.recorded(), self.log());
        let own_log = fs::read_to_string(self.home().logs().join("codemie.log")).unwrap_or_default();
        let mut text = format!("recorded:\n  {}\nAPI:\n{log}", story(&recorded, &log).join("\n  "));
        for session in &recorded {
            write!(text, "\n{} {}", session.record.session_id, session.record.name).unwrap();
            for evidence in self.evidence(&session.record) {
                write!(text, "\n  {:?} {} {}", evidence.verdict, evidence.source, evidence.detail).unwrap();
            }
        }
        format!("{text}\nlog:\n{own_log}")
    }

    /// Compares all that was recorded with the story ([`super::story`]) and its tokens with the API's log.
    pub(super) fn expect(&self, expected: &[&str]) {
        let (recorded, log) = (self.recorded(), self.log());
        assert_eq!(story(&recorded, &log), expected, "{}", self.picture());
        self.expect_tokens(&recorded, &log);
    }

    /// The same for a story that does not name the evidence: for scenarios of all agents.
    pub(super) fn expect_shape(&self, expected: &[&str]) {
        let (recorded, log) = (self.recorded(), self.log());
        let lines: Vec<String> = story(&recorded, &log)
            .iter()
            .map(|line| match (line.find(" by "), line.find(" [")) {
                (Some(from), Some(to)) if from < to => format!("{}{}", &line[..from], &line[to..]),
                _ => line.clone(),
            })
            .collect();
        assert_eq!(lines, expected, "{}", self.picture());
        self.expect_tokens(&recorded, &log);
    }

    fn expect_tokens(&self, recorded: &[Recorded], log: &CallLog) {
        // What an agent writes nowhere has a kind of its own; everything else must stand in some conversation's file.
        let unwritten = log.calls.iter().find(|call| call.recorded() && call.session.is_none());
        assert!(unwritten.is_none(), "in no file: {unwritten:?}: {}", self.picture());
        let records: Vec<&SessionRecord> = recorded.iter().map(|session| &session.record).collect();
        let mut conversations: Vec<&str> = records
            .iter()
            .filter_map(|record| record.correlation.agent_session_id.as_ref())
            .map(|id| id.0.as_str())
            .collect();
        for spoken in log.sessions() {
            assert!(conversations.contains(&spoken.as_str()), "nobody has {spoken}: {}", self.picture());
        }
        conversations.sort_unstable();
        conversations.dedup();
        assert_eq!(conversations.len(), records.len(), "one session, one conversation: {}", self.picture());
        for record in &records {
            let conversation = &record.correlation.agent_session_id.as_ref().unwrap().0;
            let what = format!("{} in {conversation}", record.session_id);
            assert_eq!(spent(record), log.recorded(conversation), "{what}: {}", self.picture());
            assert_eq!(record.usage.coverage.as_str(), "transcript", "{what}");
        }
        assert_eq!(log.strangers, [""; 0]);
        self.compare_published(&records);
    }

    /// The published files say the same as the store.
    fn compare_published(&self, records: &[&SessionRecord]) {
        let mut published = self.published();
        assert_eq!(published.len(), records.len(), "published and recorded");
        for record in records {
            let at = published.iter().position(|other| other.session_id == record.session_id);
            let mut published = published.swap_remove(at.expect("every session is published"));
            if record.status == Status::Active {
                // Both speak of an open session at different times.
                published.duration_ms = record.duration_ms;
                published.usage = record.usage.clone();
                published.sync = record.sync;
            }
            assert_eq!(&published, *record);
        }
    }
}

/// A folder that appears is watched a moment after it has appeared, and what was written into it meanwhile is told by
/// nobody: so it is looked at from time to time besides.
const UNTOLD: Duration = Duration::from_secs(1);

/// Looks, and looks again with every change below the folder, until something is found or the time is up.
fn await_change<T>(folder: &Path, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let (changed, changes) = channel();
    let _watcher = watch(folder, move |_| {
        let _ = changed.send(());
    });
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let found = find();
        let left = deadline.saturating_duration_since(Instant::now());
        if found.is_some() || left.is_zero() {
            return found;
        }
        let _ = changes.recv_timeout(left.min(UNTOLD));
        while changes.try_recv().is_ok() {}
    }
}

/// Whether a session file below the folder holds these bytes.
fn holds(folder: &Path, mark: &[u8]) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        if path.is_dir() {
            return holds(&path, mark);
        }
        let session = path.extension().is_some_and(|end| end == "jsonl" || end == "json");
        session && fs::read(path).is_ok_and(|text| memchr::memmem::find(&text, mark).is_some())
    })
}

/// Calls out with what may have changed below a folder, until it is dropped.
pub(super) fn watch(
    folder: &Path,
    mut changed: impl FnMut(&[PathBuf]) + Send + 'static,
) -> RecommendedWatcher {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Who is called looks at the files, and that is no change.
        if let Ok(event) = event
            && !matches!(event.kind, EventKind::Access(_))
        {
            changed(&event.paths);
        }
    })
    .unwrap();
    watcher.watch(folder, RecursiveMode::Recursive).unwrap();
    watcher
}

/// The agent at work.
pub(super) struct Played<'a> {
    run: AgentRun<'a>,
    scene: &'a Scene,
}

impl<'a> Deref for Played<'a> {
    type Target = AgentRun<'a>;

    fn deref(&self) -> &AgentRun<'a> {
        &self.run
    }
}

impl Played<'_> {
    /// The session that this run is in, as published.
    pub(super) fn session(&self) -> SessionRecord {
        self.scene.wait("the session of this run", |records| self.current(records).cloned())
    }

    /// The words of the agent's command line.
    pub(super) fn words(&self) -> Vec<String> {
        let pid = self.session().pid.unwrap();
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    fn current<'r>(&self, records: &'r [SessionRecord]) -> Option<&'r SessionRecord> {
        let ours = |record: &&SessionRecord| {
            record.status == Status::Active
                && record.wrapper_pid.is_some_and(|pid| pid.0 == self.terminal.pid())
        };
        records.iter().find(ours)
    }

    /// Does something that brings the agent into another conversation, and waits for codemie to know.
    pub(super) fn moves(&self, act: impl FnOnce(&AgentRun<'_>)) {
        self.moves_from(&self.session(), act);
    }

    /// The same where the session before is known.
    pub(super) fn moves_from(&self, before: &SessionRecord, act: impl FnOnce(&AgentRun<'_>)) {
        act(&self.run);
        self.scene.wait("another session", |records| {
            self.current(records).filter(|now| now.session_id != before.session_id).map(drop)
        });
        self.wait_ready();
    }

    /// Puts a prompt and waits until its answer is written down: one that is only on the screen the agent loses when it is
    /// ended at that moment, even by its own command.
    pub(super) fn prompt(&self, text: &str) -> Call {
        let call = self.run.prompt(text);
        self.wait_written(&call);
        call
    }

    pub(super) fn wait_written(&self, call: &Call) {
        let folder = self.scene.written_to(call).0;
        let written = await_change(&folder, || self.scene.is_written(call).then_some(()));
        assert!(written.is_some(), "{} was never written down", call.id);
    }

    /// Types `/clear` and waits for codemie to know.
    pub(super) fn clear(&self) {
        self.moves(|run| run.command("/clear"));
    }
}
