//! The tools over a real store, with sessions that a test has made up.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard};

use serde_json::json;

use super::*;
use crate::live::{LaunchFailure, LaunchLine};
use crate::start;
use agents::dialog::Choice;
use pty::process::SystemProcesses;
use report::wait::{WaitError, WaitFor, Waited};
use runtime::live::events::Cursor;
use runtime::remote::RemoteError;
use runtime::remote::protocol::{
    AnswerRequest, Dialog, ScreenText, SendAnswer, SendRequest, StopAnswer, StopRequest,
};
use runtime::remote::send::{Recipient, SendError};
use store::session::lifecycle::{self, Binding, ConversationStart, RunStart};
use store::session::state::Ending;
use store::{BootAndPidNs, NewRun, Store, Workspace};
use types::{
    Activity, AgentSessionId, Delivery, EvidenceKind, Ids, LiveState, Moment, Pid, RandomIds, StartTime,
    Timestamp,
};

const SERVER: Pid = Pid(i32::MAX - 1);

fn me() -> Pid {
    Pid(i32::try_from(std::process::id()).unwrap())
}

/// The server is a child of this process, which is the wrapper of every session here.
struct Ancestry;

impl Processes for Ancestry {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        SystemProcesses.start_time(pid)
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        // Every process has a parent; above this one is nothing of ours.
        Some(if pid == SERVER { me() } else { Pid(1) })
    }
}

/// A server that is inside of no session.
struct Outside;

impl Processes for Outside {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        if pid == SERVER { Some(StartTime(1)) } else { SystemProcesses.start_time(pid) }
    }

    fn parent(&self, _: Pid) -> Option<Pid> {
        None
    }
}

struct GivenIds(SessionId);

impl Ids for GivenIds {
    fn uuid(&self) -> uuid::Uuid {
        self.0.0
    }
}

/// Hosts that a test has made up.
#[derive(Default)]
struct Hosts {
    /// What launchers were called with.
    launched: Mutex<Vec<LaunchLine>>,
    launches: AtomicUsize,
    /// The launcher starts the session and is killed before it answers.
    killed: AtomicBool,
    refuses: AtomicBool,
    screens: Mutex<HashMap<RunId, Vec<String>>>,
    sent: Mutex<Vec<SendRequest>>,
    answered: Mutex<Vec<AnswerRequest>>,
    /// What every agent asks.
    dialog: Mutex<Option<Dialog>>,
    waits: Mutex<Vec<Option<Moment>>>,
    /// How many sessions each wait was for.
    waited_for: Mutex<Vec<usize>>,
}

fn state(is: Activity) -> LiveState {
    LiveState { is, since: Timestamp(7), why: "a test".into(), source: None }
}

/// Sessions of a test and the tools that are asked about them.
struct Bench {
    tools: Tools,
    hosts: Arc<Hosts>,
    folder: tempfile::TempDir,
}

struct SharedHosts(Arc<Hosts>, Home);

impl LiveSessions for SharedHosts {
    fn launch(&self, line: &LaunchLine) -> Result<SessionId, LaunchFailure> {
        self.0.launches.fetch_add(1, Ordering::SeqCst);
        self.0.launched.lock().unwrap().push(line.clone());
        if self.0.refuses.load(Ordering::SeqCst) {
            return Err(LaunchFailure::Refused("claude: command not found".into()));
        }
        let named = |option: &str| {
            let at = line.args.iter().position(|arg| arg == option)?;
            line.args.get(at + 1)?.clone().into_string().ok()
        };
        let session = named("--session").and_then(|id| id.parse().ok()).unwrap_or(RandomIds.session());
        start(&self.1, session, &line.folder, named("--name"), line.parent);
        if self.0.killed.load(Ordering::SeqCst) {
            return Err(LaunchFailure::Unknown("killed".into()));
        }
        Ok(session)
    }

    fn state(&self, run: RunId) -> Result<LiveState, RemoteError> {
        let asks = self.0.dialog.lock().unwrap().is_some();
        self.screen(run).map(|_| state(if asks { Activity::NeedsInput } else { Activity::Idle }))
    }

    fn screen(&self, run: RunId) -> Result<ScreenText, RemoteError> {
        let screens = self.0.screens.lock().unwrap();
        let dialog = self.0.dialog.lock().unwrap().clone();
        screens.get(&run).map(|rows| ScreenText { rows: rows.clone(), dialog }).ok_or(RemoteError::NoHost)
    }

    fn send(&self, to: Recipient, request: &SendRequest) -> Result<SendAnswer, SendError> {
        self.screen(to.run).map_err(SendError::Remote)?;
        self.0.sent.lock().unwrap().push(request.clone());
        let (result, why) = (Delivery::TurnStarted, "it stands in the session file".into());
        Ok(SendAnswer { result, why, session: None, cursor: "c1".into() })
    }

    fn answer(&self, to: Recipient, request: &AnswerRequest) -> Result<SendAnswer, RemoteError> {
        self.screen(to.run)?;
        self.0.answered.lock().unwrap().push(request.clone());
        let (result, why) = (Delivery::Accepted, "the dialog has left the screen".into());
        Ok(SendAnswer { result, why, session: None, cursor: "c1".into() })
    }

    fn wait(&self, targets: &[LiveTarget], _: &WaitFor) -> Result<Waited, WaitError> {
        self.0.waited_for.lock().unwrap().push(targets.len());
        let target = targets.iter().find(|target| target.run.is_some()).unwrap();
        self.screen(target.run.as_ref().unwrap().id)?;
        let mut waits = self.0.waits.lock().unwrap();
        let result = if waits.is_empty() { None } else { waits.remove(0) };
        Ok(Waited {
            result,
            session: target.session.id,
            redirected_from: None,
            state: Some(state(Activity::Working)),
            cursor: Cursor::at(Timestamp(2)),
            answer_missing: false,
        })
    }

    fn stop(&self, run: RunId, _: StopRequest) -> Result<StopAnswer, RemoteError> {
        self.screen(run).map(|_| StopAnswer::default())
    }
}

/// A run of this process, which lives as long as the test does.
fn start(
    home: &Home,
    session: SessionId,
    folder: &Path,
    name: Option<String>,
    parent: Option<RunId>,
) -> RunId {
    let run = RandomIds.run();
    let begin = RunStart {
        run: NewRun {
            id: run,
            realm: BootAndPidNs::here(),
            wrapper: SystemProcesses.identify(me()).unwrap(),
            proxied: false,
        },
        agent: "claude".into(),
        local_only: false,
        agent_version: None,
        workspace: Workspace { cwd: folder.to_owned(), project: None, repository: None, branch: None },
        conversation: ConversationStart::Fresh,
        name,
        tags: Vec::new(),
        group: None,
        parent,
    };
    let now = Timestamp::parse("2026-11-17T10:00:00Z").unwrap();
    let mut store = Store::open(home, now).unwrap();
    store.write(|tx| lifecycle::start(tx, now, &GivenIds(session), &begin)).unwrap();
    run
}

impl Bench {
    fn new(scope: Scope, config: McpConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("project/sub")).unwrap();
        let hosts = Arc::new(Hosts::default());
        let tools = Self::server(&root, scope, config, &hosts, Box::new(Ancestry));
        Self { tools, hosts, folder }
    }

    fn server(
        root: &Path,
        scope: Scope,
        config: McpConfig,
        hosts: &Arc<Hosts>,
        processes: Box<dyn Processes + Send + Sync>,
    ) -> Tools {
        let home = Home::at(root.join("home"));
        let variables = [("HOME".into(), root.as_os_str().to_owned())];
        Tools::new(ToolContext {
            home: home.clone(),
            origin: Origin::given(variables, root.join("project")),
            scope,
            config,
            server: SERVER,
            processes,
            live: Box::new(SharedHosts(Arc::clone(hosts), home)),
        })
    }

    /// Another server of the same user.
    fn another(&self) -> Tools {
        let config = self.tools.given.config.clone();
        Self::server(&self.root(), self.tools.given.scope, config, &self.hosts, Box::new(Ancestry))
    }

    /// One that is inside of no session.
    fn outside(&self) -> Tools {
        let config = self.tools.given.config.clone();
        Self::server(&self.root(), self.tools.given.scope, config, &self.hosts, Box::new(Outside))
    }

    fn limits(max_sessions: u32, max_depth: u32) -> McpConfig {
        McpConfig { max_sessions, max_depth, ..McpConfig::default() }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// A session of another run, with a host.
    fn hosted(&self, name: &str, folder: &str) -> (RunId, SessionId) {
        let session = RandomIds.session();
        let folder = self.root().join(folder);
        let run = start(&self.tools.given.home, session, &folder, Some(name.into()), None);
        self.hosts.screens.lock().unwrap().insert(run, vec!["> ".into(), String::new()]);
        (run, session)
    }

    fn call(&self, tool: &str, arguments: Value) -> Result<Value, ToolError> {
        call(&self.tools, tool, arguments)
    }

    fn refused(&self, tool: &str, arguments: Value) -> ErrorCode {
        let error = self.call(tool, arguments).unwrap_err();
        assert!(!error.message.is_empty() && !error.next.is_empty(), "{error:?}");
        error.code
    }

    fn lines(&self) -> MutexGuard<'_, Vec<LaunchLine>> {
        self.hosts.launched.lock().unwrap()
    }

    /// Binds a session to a conversation of Claude's with these lines.
    fn converse(&self, session: SessionId, lines: &[u8]) -> PathBuf {
        let file = self.root().join("talk.jsonl");
        std::fs::File::create(&file).unwrap().write_all(lines).unwrap();
        let mut store = Store::open(&self.tools.given.home, Timestamp(0)).unwrap();
        let at = Timestamp::parse("2026-11-17T10:00:01Z").unwrap();
        let binding = Binding {
            agent_session: AgentSessionId("7a276c6b-0000-4000-8000-000000000003".into()),
            file: Some(file.clone()),
            evidence: EvidenceKind::Assigned,
        };
        store.write(|tx| lifecycle::bind(tx, at, &RandomIds, session, &binding)).unwrap();
        file
    }
}

fn call(tools: &Tools, tool: &str, arguments: Value) -> Result<Value, ToolError> {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    let abandoned = AtomicBool::new(false);
    tools.call(tool, arguments, &Call { abandoned: &abandoned, report: &|_| {} })
}

fn answer_line(number: usize, text: &str) -> String {
    let uuid = uuid::Uuid::from_u128(number as u128);
    let line = json!({
        "type": "assistant", "uuid": uuid, "timestamp": "2026-11-17T10:00:02.000Z",
        "message": {"id": format!("m{number}"), "role": "assistant", "content": [{"type": "text", "text": text}]},
    });
    format!("{line}\n")
}

#[test]
fn a_session_is_started_in_the_callers_folder_under_an_id_chosen_before() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let (own, _) = bench.hosted("orchestrator", "project");
    let started = bench.call("start_session", json!({"agent": "claude", "name": "helper"})).unwrap();
    assert_eq!(
        (&started["created"], &started["name"], &started["pending"]),
        (&json!(true), &json!("helper"), &json!(false))
    );
    let lines = bench.lines();
    let words: Vec<&str> = lines[0].args.iter().map(|arg| arg.to_str().unwrap()).collect();
    let id = started["sessionId"].as_str().unwrap();
    assert_eq!(words, ["run", "--detach", "--through-mcp", "--session", id, "--name", "helper", "claude"]);
    assert_eq!((&lines[0].folder, lines[0].parent), (&bench.root().join("project"), Some(own)));
    drop(lines);
    let listed = bench.call("list_sessions", json!({"active": true, "scope": "mine"})).unwrap();
    let names: Vec<&str> =
        listed["sessions"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"helper") && names.contains(&"orchestrator"), "{names:?}");
}

#[test]
fn one_key_makes_one_session_also_for_two_callers_at_once() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let ask = json!({"agent": "claude", "idempotency_key": "k1"});
    let another = bench.another();
    let ids: Vec<String> = std::thread::scope(|threads| {
        let servers = [&bench.tools, &another, &bench.tools, &another];
        let start = |server| call(server, "start_session", ask.clone()).unwrap();
        let calls: Vec<_> = servers.map(|server| threads.spawn(move || start(server))).into_iter().collect();
        calls.into_iter().map(|call| call.join().unwrap()["sessionId"].as_str().unwrap().to_owned()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(bench.hosts.launches.load(Ordering::SeqCst), 1);
    let again = bench.call("start_session", ask).unwrap();
    assert_eq!(again["created"], false);
    let other = json!({"agent": "claude", "name": "other", "idempotency_key": "k1"});
    assert_eq!(bench.refused("start_session", other), ErrorCode::KeyReused);
}

#[test]
fn a_launcher_that_is_killed_after_the_start_is_found_again() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    bench.hosts.killed.store(true, Ordering::SeqCst);
    let ask = json!({"agent": "claude", "idempotency_key": "k1"});
    let first = bench.call("start_session", ask.clone()).unwrap();
    assert_eq!(bench.call("start_session", ask).unwrap()["sessionId"], first["sessionId"]);
    assert_eq!(bench.hosts.launches.load(Ordering::SeqCst), 1);
}

#[test]
fn a_key_whose_launcher_was_killed_before_the_start_starts_its_session_later() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let ask = json!({"agent": "claude", "idempotency_key": "k1"});
    let first = bench.call("start_session", ask.clone()).unwrap();
    // The same request again under a key that somebody claimed two minutes ago and then was killed.
    let chosen = RandomIds.session();
    let request = format!(
        "{:?}",
        serde_json::from_value::<forms::StartSession>(json!({"agent": "claude", "idempotency_key": "k2"}))
            .unwrap()
    );
    let before = Timestamp(os::clock::Clock::now(&os::clock::SystemClock).0 - 120_000);
    let server = ProcessId { pid: SERVER, start: StartTime(0) };
    let mut store = Store::open(&bench.tools.given.home, before).unwrap();
    start::claim(&mut store, "k2", &request, chosen, server, before).unwrap();
    let ask = json!({"agent": "claude", "idempotency_key": "k2"});
    let second = bench.call("start_session", ask).unwrap();
    assert_eq!((&second["sessionId"], &second["created"]), (&json!(chosen.to_string()), &json!(true)));
    assert_ne!(first["sessionId"], second["sessionId"]);
}

#[test]
fn a_start_that_was_refused_leaves_its_key_free() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    bench.hosts.refuses.store(true, Ordering::SeqCst);
    let ask = json!({"agent": "claude", "idempotency_key": "k1"});
    assert_eq!(bench.refused("start_session", ask.clone()), ErrorCode::StartFailed);
    bench.hosts.refuses.store(false, Ordering::SeqCst);
    assert_eq!(bench.call("start_session", ask).unwrap()["created"], true);
}

#[test]
fn what_the_user_did_not_allow_is_refused_before_anything_starts() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    for (arguments, code) in [
        (json!({"agent": "bash"}), ErrorCode::UnknownAgent),
        (json!({"agent": "--name"}), ErrorCode::UnknownAgent),
        (json!({"agent": "demo"}), ErrorCode::UnknownAgent),
        (
            json!({"agent": "claude", "args": ["--dangerously-skip-permissions"]}),
            ErrorCode::ArgumentNotAllowed,
        ),
        (json!({"agent": "claude", "name": "--detach"}), ErrorCode::InvalidArguments),
        (json!({"agent": "claude", "name": "a\nb"}), ErrorCode::InvalidArguments),
        (json!({"agent": "claude", "cwd": "/"}), ErrorCode::FolderNotAllowed),
        (json!({"agent": "claude", "cwd": "../home"}), ErrorCode::FolderNotAllowed),
        (json!({"agent": "claude", "prompt": "!id"}), ErrorCode::TextNotAllowed),
        (json!({"agent": "claude", "prompt": "\u{1b}[A"}), ErrorCode::TextNotAllowed),
        (json!({"agent": "claude", "env": {"A": "b"}}), ErrorCode::InvalidArguments),
        (json!({"agent": 7}), ErrorCode::InvalidArguments),
        (json!({}), ErrorCode::InvalidArguments),
        (json!({"agent": "claude", "idempotency_key": "a\0b"}), ErrorCode::InvalidArguments),
    ] {
        assert_eq!(bench.refused("start_session", arguments.clone()), code, "{arguments}");
    }
    assert_eq!(bench.lines().len(), 0);
    assert_eq!(bench.refused("list_sessions", json!({"scope": "all"})), ErrorCode::ScopeTooWide);
}

#[test]
fn sessions_are_limited_in_number_and_depth() {
    let bench = Bench::new(Scope::Project, Bench::limits(2, 1));
    bench.hosted("orchestrator", "project");
    for _ in 0..2 {
        bench.call("start_session", json!({"agent": "claude"})).unwrap();
    }
    assert_eq!(bench.refused("start_session", json!({"agent": "claude"})), ErrorCode::TooManySessions);
    let flat = Bench::new(Scope::Project, Bench::limits(2, 0));
    assert_eq!(flat.refused("start_session", json!({"agent": "claude"})), ErrorCode::TooDeep);
}

#[test]
fn number_of_sessions_is_limited_over_all_servers() {
    let bench = Bench::new(Scope::Project, Bench::limits(3, 1));
    let servers = [bench.outside(), bench.outside()];
    let started: Vec<Result<Value, ToolError>> = std::thread::scope(|threads| {
        let calls: Vec<_> = servers
            .iter()
            .flat_map(|server| [server; 4])
            .map(|server| threads.spawn(|| call(server, "start_session", json!({"agent": "claude"}))))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let refused: Vec<ErrorCode> = started.iter().filter_map(|one| Some(one.as_ref().err()?.code)).collect();
    assert_eq!(refused, [ErrorCode::TooManySessions; 5]);
    // The run of one goes on in another session, that of another one ends: one place is free.
    let [first, second] = [0, 1].map(|at| {
        let ids: Vec<SessionId> =
            started.iter().flatten().map(|one| one["sessionId"].as_str().unwrap().parse().unwrap()).collect();
        ids[at]
    });
    let mut store = Store::open(&bench.tools.given.home, Timestamp(0)).unwrap();
    let at = Timestamp::parse("2026-11-17T10:00:05Z").unwrap();
    let run = |store: &mut Store, session| {
        let run = store.read(|view| view.run_number(view.session(session)?.unwrap().run.unwrap()));
        run.map_or_else(|error: store::Error| panic!("{error}"), |run| run.unwrap().id)
    };
    let (first, second) = (run(&mut store, first), run(&mut store, second));
    let clear = lifecycle::Transition { kind: types::TransitionKind::Clear, binding: None, workspace: None };
    store.write(|tx| lifecycle::transition(tx, at, &RandomIds, first, &clear)).unwrap();
    let how = Ending { reason: types::EndReason::Stopped, exit: None };
    store.write(|tx| lifecycle::end(tx, at, second, how)).unwrap();
    let again = |server| call(server, "start_session", json!({"agent": "claude"})).map(drop);
    assert_eq!(again(&servers[1]), Ok(()));
    assert_eq!(again(&servers[0]).unwrap_err().code, ErrorCode::TooManySessions);
    // A start that is refused takes no place.
    store
        .write(|tx| lifecycle::end(tx, at, first, Ending { reason: types::EndReason::Stopped, exit: None }))
        .unwrap();
    bench.hosts.refuses.store(true, Ordering::SeqCst);
    assert_eq!(again(&servers[0]).unwrap_err().code, ErrorCode::StartFailed);
    bench.hosts.refuses.store(false, Ordering::SeqCst);
    assert_eq!(again(&servers[0]), Ok(()));
}

#[test]
fn a_session_out_of_scope_is_answered_as_if_there_were_none() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    bench.hosted("orchestrator", "project");
    let (_, stranger) = bench.hosted("secret-plan", "elsewhere");
    let id = stranger.to_string();
    for session in [id.as_str(), "secret-plan", "secret-pla", &id[..8]] {
        for (tool, arguments) in [
            ("get_session_data", json!({"session": session})),
            ("send_message", json!({"session": session, "text": "hi"})),
            ("wait_for_session", json!({"session": session})),
            ("resume_session", json!({"session": session})),
            ("end_session", json!({"session": session})),
            ("explain_session", json!({"session": session})),
        ] {
            let error = bench.call(tool, arguments).unwrap_err();
            assert_eq!(error, ToolError::no_such_session(session, &[]), "{tool}");
        }
    }
    let listed = bench.call("list_sessions", json!({})).unwrap();
    assert!(!listed.to_string().contains("secret"), "{listed}");
    let near = bench.call("get_session_data", json!({"session": "orchestratr"})).unwrap_err();
    assert!(near.next.contains("orchestrator"), "{near:?}");
}

#[test]
fn a_session_without_a_conversation_is_pending_and_shows_its_screen() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let (run, _) = bench.hosted("quiet", "project");
    bench.hosts.screens.lock().unwrap().insert(run, vec!["Trust this folder?".into(), "  ".into()]);
    let data = bench.call("get_session_data", json!({"session": "quiet"})).unwrap();
    assert_eq!((&data["pending"], &data["screen"]), (&json!(true), &json!(["Trust this folder?"])));
    assert_eq!((&data["status"], &data["state"]["is"]), (&json!("active"), &json!("idle")));
    // A host that does not answer is no end, and no error.
    bench.hosts.screens.lock().unwrap().clear();
    let data = bench.call("get_session_data", json!({"session": "quiet"})).unwrap();
    assert_eq!((&data["pending"], &data["status"]), (&json!(true), &json!("active")));
    // Nor is a session missing that was started and is not recorded yet.
    let id = RandomIds.session();
    bench.tools.started().insert(id, StartedHere { agent: "codex".into(), name: None });
    let data = bench.call("get_session_data", json!({"session": id.to_string()})).unwrap();
    assert_eq!((&data["pending"], &data["agent"]), (&json!(true), &json!("codex")));
}

#[test]
fn a_conversation_is_read_within_its_cap_from_either_end() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let (_, session) = bench.hosted("talk", "project");
    let texts: Vec<String> = (0..60).map(|at| format!("\"{at}\" {}", "ä\"\n".repeat(at))).collect();
    let lines: String = texts.iter().enumerate().map(|(at, text)| answer_line(at, text)).collect();
    let file = bench.converse(session, lines.as_bytes());
    for most in [1_000, 2_000, 48_000] {
        let page = |cursor: Option<&str>| {
            let mut ask = json!({"session": "talk", "max_chars": most});
            if let Some(cursor) = cursor {
                ask["cursor"] = json!(cursor);
            }
            let data = bench.call("get_session_data", ask).unwrap();
            let length = data.to_string().chars().count();
            assert!(length <= most, "{length} of {most}");
            data
        };
        let read = |data: &Value| -> Vec<String> {
            let items = data["items"].as_array().unwrap();
            items.iter().map(|item| item["text"].as_str().unwrap().to_owned()).collect()
        };
        let (mut backwards, mut data) = (Vec::new(), page(None));
        loop {
            backwards.splice(0..0, read(&data));
            let Some(before) = data["before"].as_str() else { break };
            data = page(Some(before));
        }
        assert_eq!(backwards, texts, "{most} characters, from the end");
        let (mut forwards, mut data) = (Vec::new(), page(Some("start")));
        loop {
            forwards.extend(read(&data));
            if data["truncated"] == false {
                break;
            }
            data = page(data["cursor"].as_str());
        }
        assert_eq!(forwards, texts, "{most} characters, from the beginning");
    }
    for cursor in ["before-", "before-1.2.3", "x", "1.2"] {
        let code = bench.refused("get_session_data", json!({"session": "talk", "cursor": cursor}));
        assert_eq!(code, ErrorCode::StaleCursor, "{cursor}");
    }
    // A file that cannot be read is an error, and not an end.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let error = bench.call("get_session_data", json!({"session": "talk"})).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unreadable, "{error:?}");
}

#[test]
fn a_conversation_of_200_megabytes_is_read_by_its_end() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let (_, session) = bench.hosted("long", "project");
    let file = bench.converse(session, b"");
    let line = answer_line(1, &"x".repeat(100_000));
    let mut written = std::io::BufWriter::new(std::fs::File::create(file).unwrap());
    for _ in 0..2_000 {
        written.write_all(line.as_bytes()).unwrap();
    }
    written.flush().unwrap();
    let begun = std::time::Instant::now();
    let mut cursor = None;
    for _ in 0..5 {
        let mut ask = json!({"session": "long"});
        if let Some(cursor) = &cursor {
            ask["cursor"] = json!(cursor);
        }
        let data = bench.call("get_session_data", ask).unwrap();
        assert!(data.to_string().chars().count() <= 2_000 && data["truncated"] == true);
        cursor = data["before"].as_str().map(str::to_owned);
        assert!(cursor.is_some());
    }
    // Reading all of it takes longer than this.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn messages_go_to_running_sessions_in_the_background_and_never_to_the_callers_own() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let (own, _) = bench.hosted("orchestrator", "project");
    // The first run of this process is taken for the caller's.
    bench.call("list_sessions", json!({})).unwrap();
    assert_eq!(bench.tools.caller.lock().unwrap().as_ref().unwrap().run.unwrap().id, own);
    let (other, _) = bench.hosted("helper", "project/sub");
    let ask = json!({"session": "helper", "text": "go on", "idempotency_key": "m1"});
    let sent = bench.call("send_message", ask).unwrap();
    assert_eq!((&sent["result"], &sent["cursor"]), (&json!("turn_started"), &json!("c1")));
    assert_eq!(bench.hosts.sent.lock().unwrap()[0].idempotency_key.as_deref(), Some("m1"));
    for text in ["!id", "a\u{1b}b", " "] {
        let code = bench.refused("send_message", json!({"session": "helper", "text": text}));
        assert_eq!(code, ErrorCode::TextNotAllowed);
    }
    let to_itself = json!({"session": "orchestrator", "text": "yes, you may"});
    assert_eq!(bench.refused("send_message", to_itself), ErrorCode::Refused);
    bench.hosts.screens.lock().unwrap().remove(&other);
    let to_a_terminal = json!({"session": "helper", "text": "hi"});
    assert_eq!(bench.refused("send_message", to_a_terminal), ErrorCode::Foreground);
    assert_eq!(bench.refused("resume_session", json!({"session": "helper"})), ErrorCode::AlreadyRunning);
}

#[test]
fn a_wait_ends_with_what_it_waits_for_or_is_pending_with_a_cursor() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    bench.hosted("helper", "project");
    bench.hosts.waits.lock().unwrap().push(Some(Moment::TurnEnd));
    for (until, result) in [(json!("turn-end"), "turn-end"), (json!(["exit", "needs-input"]), "pending")] {
        let ask = json!({"session": "helper", "until": until, "timeout_ms": 0});
        let waited = bench.call("wait_for_session", ask).unwrap();
        assert_eq!(
            (&waited["result"], &waited["cursor"]),
            (&json!(result), &json!(Cursor::at(Timestamp(2)).to_string()))
        );
        assert_eq!(waited["state"]["is"], "working");
    }
    bench.hosted("reviewer", "project");
    bench.hosts.waits.lock().unwrap().push(Some(Moment::Exit));
    let both = json!({"sessions": ["helper", "reviewer"], "timeout_ms": 0});
    assert_eq!(bench.call("wait_for_session", both).unwrap()["result"], "exit");
    assert_eq!(*bench.hosts.waited_for.lock().unwrap(), [1, 1, 2]);
    for wrong in [
        json!({}),
        json!({"sessions": []}),
        json!({"session": "helper", "sessions": ["reviewer"]}),
        json!({"sessions": vec!["helper"; 101]}),
    ] {
        assert_eq!(bench.refused("wait_for_session", wrong), ErrorCode::InvalidArguments);
    }
    let hidden = json!({"sessions": ["helper", "nobody"]});
    assert_eq!(bench.refused("wait_for_session", hidden), ErrorCode::NoSuchSession);
    let unknown = json!({"session": "helper", "until": "tea"});
    assert_eq!(bench.refused("wait_for_session", unknown), ErrorCode::InvalidArguments);
}

#[test]
fn ending_a_session_twice_is_no_error() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let (run, _) = bench.hosted("helper", "project");
    let ended = bench.call("end_session", json!({"session": "helper"})).unwrap();
    assert_eq!((&ended["ended"], &ended["already"]), (&json!(true), &json!(false)));
    let mut store = Store::open(&bench.tools.given.home, Timestamp(0)).unwrap();
    let at = Timestamp::parse("2026-11-17T10:00:05Z").unwrap();
    let how = Ending { reason: types::EndReason::Stopped, exit: None };
    store.write(|tx| lifecycle::end(tx, at, run, how)).unwrap();
    let ended = bench.call("end_session", json!({"session": "helper"})).unwrap();
    assert_eq!((&ended["ended"], &ended["already"]), (&json!(true), &json!(true)));
    assert_eq!(bench.refused("send_message", json!({"session": "helper", "text": "hi"})), ErrorCode::Ended);
    let waited = bench.call("wait_for_session", json!({"session": "helper"})).unwrap();
    assert_eq!(waited["result"], "exit");
}

#[test]
fn genies_names_start_agents_and_configured_command_lines() {
    let genie = [("shell".to_owned(), vec!["sh".to_owned(), "-c".into(), "cat".into()])];
    let config = McpConfig { genie: genie.into(), ..Bench::limits(8, 2) };
    let bench = Bench::new(Scope::Project, config);
    for (agent, expected) in [("shell", "-- sh -c cat"), ("claude", "claude")] {
        bench.call("run", json!({"agent": agent})).unwrap();
        let lines = bench.lines();
        let line = &lines.last().unwrap().args[5..];
        let line: Vec<&str> = line.iter().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(line.join(" "), expected);
    }
    assert_eq!(bench.refused("run", json!({"agent": "bash"})), ErrorCode::UnknownAgent);
    let option = json!({"agent": "shell", "prompt": "-c"});
    assert_eq!(bench.refused("run", option), ErrorCode::TextNotAllowed);
    bench.hosted("helper", "project");
    assert_eq!(bench.call("view", json!({"sessionId": "helper"})).unwrap()["pending"], true);
    assert_eq!(bench.call("stop", json!({"sessionId": "helper"})).unwrap()["ended"], true);
}

fn asked() -> Dialog {
    let choice = |number, label: &str| Choice { number, label: label.into() };
    let text = format!("Bash command\n\n{}\n\nProceed?", "touch made.txt ".repeat(100));
    Dialog {
        hash: "0123456789abcdef".into(),
        text,
        choices: vec![choice(1, "Yes"), choice(2, &"No ".repeat(60))],
    }
}

#[test]
fn what_a_session_asks_comes_with_its_screen_and_within_the_cap() {
    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    let (run, session) = bench.hosted("worker", "project");
    bench.converse(session, answer_line(1, &"word ".repeat(1000)).as_bytes());
    let screen = (0..60).map(|row| format!("row {row} of the screen")).collect();
    bench.hosts.screens.lock().unwrap().insert(run, screen);
    let data = bench.call("get_session_data", json!({"session": "worker"})).unwrap();
    assert!(data.get("dialog").is_none() && data["screen"].is_null(), "{data}");
    *bench.hosts.dialog.lock().unwrap() = Some(asked());
    for most in [100, 2_000, 5_000, 48_000] {
        let data = bench.call("get_session_data", json!({"session": "worker", "max_chars": most})).unwrap();
        assert!(data.to_string().chars().count() <= most.max(1_000), "{most}: {data}");
        assert_eq!(data["dialog"]["hash"], "0123456789abcdef");
        assert!(data["dialog"]["text"].as_str().unwrap().starts_with("Bash"), "{most}: {data}");
        assert_eq!(data["dialog"]["choices"][0], json!({"number": 1, "label": "Yes"}));
        if most == 48_000 {
            assert_eq!(data["dialog"]["text"], asked().text);
            assert_eq!((data["screen"].as_array().unwrap().len(), &data["truncated"]), (60, &json!(false)));
            assert!(data["items"][0]["text"].as_str().unwrap().len() > 4_000);
        } else {
            assert_eq!(data["truncated"], true, "{most}");
        }
    }
}

#[test]
fn dialogs_are_answered_only_where_the_user_allows_it_and_never_ones_own() {
    let ask = |session: &str| json!({"session": session, "dialog": "0123456789abcdef", "choice": 1});
    let allowed = McpConfig { allow_answers: true, ..Bench::limits(8, 2) };
    let bench = Bench::new(Scope::Project, allowed);
    // The first run is the one around the server.
    bench.hosted("orchestrator", "project");
    bench.hosted("worker", "project");
    bench.hosted("elsewhere", ".");
    assert_eq!(bench.refused("answer_dialog", ask("orchestrator")), ErrorCode::Refused);
    assert_eq!(bench.refused("answer_dialog", ask("elsewhere")), ErrorCode::NoSuchSession);
    assert_eq!(bench.hosts.answered.lock().unwrap().len(), 0);
    let answer = bench.call("answer_dialog", ask("worker")).unwrap();
    assert_eq!(answer["result"], "accepted");
    let request = AnswerRequest { dialog: "0123456789abcdef".into(), choice: 1 };
    assert_eq!(*bench.hosts.answered.lock().unwrap(), [request]);

    let bench = Bench::new(Scope::Project, Bench::limits(8, 2));
    bench.hosted("orchestrator", "project");
    bench.hosted("worker", "project");
    let error = bench.call("answer_dialog", ask("worker")).unwrap_err();
    assert!(error.message.contains("there is no tool"), "{error}");
    assert!(list(true, false).iter().all(|tool| tool.name != "answer_dialog"));
}

#[test]
fn every_tool_has_schemas_for_its_arguments_and_answers() {
    for tool in list(true, true) {
        assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
        assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
        let output = tool.output_schema.unwrap();
        assert_eq!(output["type"], "object", "{}", tool.name);
        // The official SDK refuses a property whose schema is `true`.
        let properties = output["properties"].as_object().unwrap();
        assert!(properties.values().all(Value::is_object), "{}: {properties:?}", tool.name);
        for field in ["code", "message", "next"] {
            assert!(output["properties"].get(field).is_some(), "{}: {field}", tool.name);
        }
        assert!(tool.description.is_some_and(|about| about.len() > 20));
    }
    assert_eq!((list(false, false).len(), list(true, false).len(), list(true, true).len()), (8, 12, 13));
}

/// Every text in a schema that says what something is, with the way to it.
fn descriptions(value: &Value, at: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| name == "description") {
                    Some(text) => found.push((at.to_owned(), text.to_owned())),
                    None => descriptions(value, &format!("{at}/{name}"), found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| descriptions(value, at, found)),
        _ => {}
    }
}

#[test]
fn descriptions_speak_to_a_caller_and_not_of_the_source() {
    let listed = serde_json::to_value(list(true, true)).unwrap();
    let mut found = Vec::new();
    descriptions(&listed, "", &mut found);
    assert!(found.len() > 100, "{}", found.len());
    for (at, text) in found {
        // `LiveState`, Option<String>, crate::mcp: a capital inside a word that begins with one, and what stands between words.
        let is_type = |word: &str| {
            let mut letters = word.chars();
            letters.next().is_some_and(char::is_uppercase)
                && word.chars().any(char::is_lowercase)
                && letters.any(char::is_uppercase)
        };
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        let types: Vec<&str> = words.filter(|word| is_type(word)).collect();
        assert_eq!(types, [""; 0], "{at}: {text}");
        for source in ["[`", "`]", "::", "Option<", "Vec<", "schema spells", "serde", "\n"] {
            assert!(!text.contains(source), "{at}: {text}");
        }
    }
}

/// What callers see. It changes with the tools alone: `CODEMIE_RECORD=1` writes it anew.
#[test]
fn listed_tools_are_those_of_the_fixture() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/mcp/tools.json");
    let listed = serde_json::to_string_pretty(&list(true, true)).unwrap() + "\n";
    if std::env::var_os("CODEMIE_RECORD").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &listed).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    assert!(listed == recorded, "{} differs; look at what CODEMIE_RECORD=1 changes in it", path.display());
}

#[test]
fn arbitrary_arguments_are_refused_without_a_panic() {
    let bench = Bench::new(Scope::Mine, Bench::limits(8, 2));
    let mut random = fastrand::Rng::with_seed(13);
    let names =
        ["session", "agent", "text", "cursor", "until", "timeout_ms", "max_chars", "scope", "args", "x"];
    for _ in 0..2_000 {
        let mut arguments = JsonObject::new();
        for _ in 0..random.usize(0..4) {
            let name = names[random.usize(0..names.len())];
            let value = match random.u8(0..7) {
                0 => Value::Null,
                1 => json!(random.i64(..)),
                2 => json!(random.f64() * 1e300),
                3 => json!([random.bool(), "--x", {"y": []}]),
                4 => json!("-\u{0}\u{7f}".repeat(random.usize(0..200))),
                5 => json!({"a": {"b": {"c": null}}}),
                _ => json!((0..random.usize(0..12)).map(|_| random.char(..)).collect::<String>()),
            };
            arguments.insert(name.to_owned(), value);
        }
        let tools = list(true, true);
        // Nothing waits here: a wait needs a session, and there is none.
        let tool = &tools[random.usize(0..tools.len())];
        let abandoned = AtomicBool::new(true);
        let call = Call { abandoned: &abandoned, report: &|_| {} };
        let _ = bench.tools.call(&tool.name, arguments, &call);
    }
    assert_eq!(bench.call("list_sessions", json!({})).unwrap()["scope"], "mine");
}
