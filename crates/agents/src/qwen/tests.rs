//! Qwen Code's own: arguments, lines, requests, routes, and a run that its registry names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Qwen;
use super::agent::{FORMAT, LAYOUT};
use super::lines::{QwenLines, read_turn};
use crate::correlate::{Beginning, Signal};
use crate::kit::registry::{RegistryFiles, RegistryObserver};
use crate::live::{ScreenReading, Shown, TurnKind};
use crate::meter::line::{Lines, ParsedLines};
use crate::meter::record::{ApiError, Fact};
use crate::meter::title::TitleSource;
use crate::process_table::ProcessTable;
use crate::proxied::tests::request;
use crate::transcript::{Item, ItemKind};
use crate::{
    Conversation, Invocation, InvocationKind, Launch, LaunchStart, Live, Observer, Proxied, ProxyRoute,
    ProxyStart,
};
use pty::screen::ScreenView;
use types::{AgentSessionId, CallKind, Pid, ProcessId, StartTime, Tokens};

const ID: &str = "11111111-1111-4111-8111-111111111111";

fn fixture(file: &str) -> Vec<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/qwen");
    std::fs::read(fixtures.join(file)).unwrap()
}

fn classify(line: &str) -> Invocation {
    Qwen.classify(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
}

#[test]
fn conversations_are_distinguished_from_management_commands() {
    use InvocationKind::{Interactive, NotAConversation, Print};
    for (line, kind, prompts) in [
        ("", Interactive, false),
        ("--yolo -m x", Interactive, false),
        ("-i hello", Interactive, true),
        ("hello there", Print, true),
        ("-p hello", Print, true),
        ("-o json hello", Print, true),
        ("-- mcp", Print, true),
        ("--acp", Print, false),
        ("review run", Print, false),
        ("review fetch", NotAConversation, false),
        ("mcp list", NotAConversation, false),
        ("-d sessions list", NotAConversation, false),
        ("--version", NotAConversation, false),
        ("-h", NotAConversation, false),
    ] {
        let invocation = classify(line);
        assert_eq!((invocation.kind, invocation.prompts), (kind, prompts), "qwen {line}");
    }
}

#[test]
fn arguments_name_the_conversation_and_decide_on_injection() {
    let id = AgentSessionId(ID.into());
    for (line, session, injectable) in [
        ("-p hi".to_owned(), Conversation::Fresh, true),
        ("--yolo".to_owned(), Conversation::Fresh, true),
        ("-c".to_owned(), Conversation::Continue, false),
        ("--resume".to_owned(), Conversation::Picker, false),
        (format!("--resume {ID}"), Conversation::Named(id.clone()), false),
        (format!("--session-id {ID}"), Conversation::Chosen(id.clone()), false),
        ("--session-id foo".to_owned(), Conversation::Unknown, false),
        (format!("-c --session-id {ID}"), Conversation::Unknown, false),
        (
            format!("--resume {ID} --fork-session"),
            Conversation::Fork { from: Some(id.clone()), to: None },
            false,
        ),
        ("-c --fork-session".to_owned(), Conversation::Fork { from: None, to: None }, false),
        ("--fork-session".to_owned(), Conversation::Unknown, false),
        ("--brand-new".to_owned(), Conversation::Fresh, false),
        ("--acp".to_owned(), Conversation::Fresh, false),
    ] {
        let invocation = classify(&line);
        assert_eq!((invocation.session, invocation.injectable), (session, injectable), "qwen {line}");
        assert!(invocation.persistent);
    }
    for line in ["--no-chat-recording", "--chat-recording=false -p x"] {
        assert!(!classify(line).persistent, "qwen {line}");
    }
}

#[test]
fn only_tried_versions_get_an_id() {
    let (invocation, fresh) = (classify(""), uuid::Uuid::from_u128(7));
    for (version, takes) in
        [("0.24.4", true), ("0.30.0-preview.1", true), ("0.23.9", false), ("1.0.0", false), ("latest", false)]
    {
        let (args, folder, version) = (&[][..], Path::new("/p"), Some(version));
        let start = LaunchStart { invocation: &invocation, args, version, fresh, var: &|_| None, folder };
        let added = Qwen.inject(&start);
        assert_eq!(added.is_some(), takes, "{version:?}");
    }
}

fn read(line: &serde_json::Value) -> ParsedLines {
    let mut parsed = ParsedLines::default();
    QwenLines::default().read(line.to_string().as_bytes(), &mut parsed).unwrap();
    parsed
}

fn event(event: serde_json::Value) -> serde_json::Value {
    let mut line = json!({"uuid": "u1", "sessionId": ID, "timestamp": "2026-11-17T06:48:32.256Z", "type": "system",
        "subtype": "ui_telemetry", "cwd": "/p", "version": "0.24.4", "gitBranch": "main"});
    line["systemPayload"]["uiEvent"] = event;
    line
}

#[test]
fn telemetry_lines_are_calls_tools_and_errors() {
    let answered = event(json!({"event.name": "qwen-code.api_response", "model": "m", "response_id": "r1",
        "input_token_count": 1010, "output_token_count": 101, "cached_content_token_count": 501,
        "thoughts_token_count": 11, "subagent_name": "helper"}));
    let parsed = read(&answered);
    assert_eq!((parsed.facts.cwd.as_deref(), parsed.facts.version.as_deref()), (Some("/p"), Some("0.24.4")));
    let [record] = &parsed.records[..] else { panic!("{parsed:?}") };
    assert_eq!(
        (record.key.as_str(), record.subagent.as_deref(), record.copied),
        ("u1", Some("helper"), false)
    );
    let Fact::Usage(usage) = &record.fact else { panic!("{record:?}") };
    let tokens = Tokens { input: 509, output: 101, cache_read: 501, reasoning: 11, ..Tokens::default() };
    assert_eq!((usage.tokens, usage.request_id.as_deref()), (tokens, Some("r1")));
    let none = event(json!({"event.name": "qwen-code.api_response", "input_token_count": 0}));
    assert!(read(&none).records.is_empty(), "a cut answer is no call");
    let mut broken = answered.clone();
    broken["systemPayload"]["uiEvent"]["input_token_count"] = json!("many");
    let unread = QwenLines::usage_only().read(broken.to_string().as_bytes(), &mut ParsedLines::default());
    assert!(unread.is_err(), "a count of another type is noticed");
    let refused = event(
        json!({"event.name": "qwen-code.api_error", "error_type": "BadRequestError", "status_code": 400}),
    );
    let error = Fact::Error(ApiError { status: Some(400), kind: "BadRequestError".into() });
    assert_eq!(read(&refused).records[0].fact, error);
    for (source, expected) in [("manual", TitleSource::User), ("auto", TitleSource::Agent)] {
        let line = json!({"type": "system", "subtype": "custom_title",
            "systemPayload": {"customTitle": "a title", "titleSource": source}});
        assert_eq!(read(&line).title.map(|title| title.source), Some(expected));
    }
}

#[test]
fn prompts_are_what_people_typed() {
    let line = |text: &str, more: serde_json::Value| {
        let mut line = json!({"uuid": "u", "type": "user", "provenance": "real_user", "timestamp": "2026-11-17T06:48:32Z",
            "message": {"role": "user", "parts": [{"text": text}]}});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let reminded = line("<system-reminder>\n1 agent\n</system-reminder>\nthird", json!({}));
    assert_eq!(read(&reminded).title.map(|title| title.text).as_deref(), Some("third"));
    let mark = read_turn(reminded.to_string().as_bytes()).map(|mark| mark.kind);
    assert_eq!(mark, Some(TurnKind::Prompt("third".into())));
    let steering = line("rather so", json!({"subtype": "mid_turn_user_message"}));
    assert_eq!(read(&steering).records.len(), 1, "typed while a turn goes on");
    let shown = crate::qwen::view::items(steering.to_string().as_bytes());
    assert!(
        matches!(&shown[..], [Item { kind: ItemKind::User(text), .. }] if text == "rather so"),
        "{shown:?}"
    );
    for other in [
        json!({"provenance": "system", "subtype": "notification"}),
        json!({"isSidechain": true, "agentId": "general-purpose-call_1_0"}),
    ] {
        assert!(read(&line("x", other)).records.is_empty());
    }
    let copied = read(&line("x", json!({"forkedFrom": {"sessionId": ID}})));
    assert!(copied.records[0].copied);
}

#[test]
fn turns_of_recorded_conversations_begin_and_end() {
    for (file, expected) in [
        (format!("plain/projects/-home-dev-project/chats/{ID}.jsonl"), ">first question|>second question|"),
        (
            "print/projects/-home-dev-project/chats/9e640c8c-34d0-44dc-b793-475de8128db8.jsonl".to_owned(),
            ">@@error 400|",
        ),
    ] {
        let bytes = fixture(&file);
        let marks = crate::live_fixtures::marks(&Qwen, bytes.split(|&byte| byte == b'\n'));
        assert_eq!(marks, expected, "{file}");
    }
    let tools = fixture("tools/projects/-home-dev-project/chats/22222222-2222-4222-8222-222222222222.jsonl");
    let marks = crate::live_fixtures::marks(&Qwen, tools.split(|&byte| byte == b'\n'));
    assert!(marks.ends_with("@@text all done...........|>@@think/quit|"), "{marks}");
}

/// Each call of the program, by the beginning of what it sent.
#[test]
fn requests_say_what_they_are_for() {
    let body = |system: &str, last: serde_json::Value, tools: usize| {
        json!({"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": last}],
            "tools": vec![json!({}); tools]})
        .to_string()
    };
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    for (system, last, tools, kind) in [
        ("You are Qwen Code, an interactive CLI agent", text("hello"), 20, CallKind::Main),
        ("You are Qwen Code, an interactive CLI agent", text("[SUGGESTION MODE: x"), 20, CallKind::Other),
        ("You are now acting as the managed memory extraction subagent", text("x"), 6, CallKind::Subagent),
        ("You are a general-purpose subagent", json!("x"), 6, CallKind::Subagent),
        ("You are a security classifier", json!("x"), 0, CallKind::Classifier),
        ("x <state_snapshot> y", json!("x"), 0, CallKind::Compact),
        ("x", json!("x"), 0, CallKind::Other),
    ] {
        let identity = Qwen.identify(&request(&[], Some(&body(system, last, tools))));
        assert_eq!((identity.kind, identity.conversation), (kind, None), "{system}");
    }
}

#[test]
fn its_calls_are_led_only_where_its_settings_name_no_other_address() {
    let route = |settings: &str, vars: &[(&str, &str)], args: &[&str], configured: Option<&str>| {
        let home = tempfile::tempdir().unwrap();
        let (folder, own) = (home.path().join("project"), home.path().join(".qwen"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("settings.json"), settings).unwrap();
        let var = |name: &str| match name {
            "HOME" => Some(home.path().into()),
            _ => vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)),
        };
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let start = ProxyStart { args: &args, var: &var, folder: &folder, version: None, configured };
        match Qwen.proxy_route(&start) {
            ProxyRoute::Through { upstream, lead } => {
                assert_eq!(lead.set, [("OPENAI_BASE_URL", "ADDRESS".to_owned())]);
                Ok(upstream)
            }
            ProxyRoute::Unsure(why) => Err(why),
        }
    };
    let (openai, own) =
        (r#"{"security":{"auth":{"selectedType":"openai"}}}"#, [("OPENAI_BASE_URL", "https://api.x/v1/")]);
    assert_eq!(route(openai, &own, &[], None), Ok("https://api.x/v1".to_owned()));
    assert_eq!(route(openai, &[], &[], Some("https://gw.x/v1")), Ok("https://gw.x/v1".to_owned()));
    let oauth = r#"{"security":{"auth":{"selectedType":"qwen-oauth"}}}"#;
    let provider = r#"{"modelProviders":{"openai":[{"baseUrl":"https://y"}]}}"#;
    for (settings, vars, args) in [
        (oauth, &own[..], &[][..]),
        (provider, &own, &[]),
        (openai, &[], &[]),
        (openai, &[("OPENAI_BASE_URL", "x")], &[]),
        (openai, &own, &["--openai-base-url", "https://y"]),
        (openai, &own, &["-s"]),
        (openai, &[own[0], ("HTTPS_PROXY", "http://p")], &[]),
        ("{ modelProviders", &own, &[]),
    ] {
        assert!(route(settings, vars, args, None).is_err(), "{settings} {vars:?} {args:?}");
    }
}

/// The entry is that of the grandchild of what was started; its token is never read.
#[test]
fn the_registry_names_the_conversation_of_the_innermost_process() {
    let home = tempfile::tempdir().unwrap();
    let files = RegistryFiles::at(&LAYOUT, home.path());
    std::fs::create_dir_all(files.registry()).unwrap();
    let mut observer = RegistryObserver::new(&FORMAT, files.clone(), Path::new("/nowhere/project"));
    let launcher = ProcessId { pid: Pid(10), start: StartTime(1) };
    let mut processes = ProcessTable::new(&[
        (10, 1, "node /x/bin/qwen"),
        (11, 2, "node --expose-gc /x/@qwen-code/qwen-code/cli.js"),
        (12, 3, "node --expose-gc /x/@qwen-code/qwen-code/cli.js"),
    ]);
    processes.adopt(11, 10).adopt(12, 11);
    let entry = |id: &str| {
        json!({"schemaVersion": 1, "pid": 12, "procStart": "8a6d5f0c-boot:3", "sessionId": id, "cwd": "/nowhere/project",
            "startedAt": 5, "qwenVersion": "0.24.4", "kind": "tui", "ipcToken": "secret"})
    };
    let path = files.registry_entry(Pid(12));
    std::fs::write(&path, entry(ID).to_string()).unwrap();
    let seen = observer.look(launcher, &processes);
    assert_eq!(seen.adopted, Some(ProcessId { pid: Pid(12), start: StartTime(3) }));
    assert_eq!(seen.version.as_deref(), Some("0.24.4"));
    assert!(!format!("{seen:?}").contains("secret"));
    let [Signal::Registry { entry: named, file }] = &seen.signals[..] else { panic!("{seen:?}") };
    assert_eq!((named.session.0.as_str(), *file), (ID, Beginning::Absent));
    // It changes with `/clear`, before there is a file.
    let next = "33333333-3333-4333-8333-333333333333";
    std::fs::write(&path, entry(next).to_string() + " ").unwrap();
    let seen = observer.look(launcher, &processes);
    let named = seen.signals.iter().any(|signal| {
        matches!(signal, Signal::Registry { entry, file: Beginning::Absent } if entry.session.0 == next)
    });
    assert!(named, "{seen:?}");
    let written = files.session_file(Path::new("/nowhere/project"), &AgentSessionId(next.into()));
    assert_eq!(written, home.path().join(format!("projects/-nowhere-project/chats/{next}.jsonl")));
}

#[test]
fn variables_move_its_folders() {
    let files = |vars: &[(&str, &str)]| {
        let var = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        RegistryFiles::from_env(&LAYOUT, var).map(|files| (files.registry(), files.projects()))
    };
    let paths = |registry: &str, projects: &str| Some((PathBuf::from(registry), PathBuf::from(projects)));
    assert_eq!(files(&[("HOME", "/h")]), paths("/h/.qwen/sessions", "/h/.qwen/projects"));
    assert_eq!(files(&[("QWEN_HOME", "/q")]), paths("/q/sessions", "/q/projects"));
    let moved = files(&[("HOME", "/h"), ("QWEN_RUNTIME_DIR", "/r")]);
    assert_eq!(moved, paths("/h/.qwen/sessions", "/r/projects"));
    assert_eq!(files(&[]), None);
}

/// As the program sets it: padded to 80 columns, with a sign in front that asks for plain letters.
#[test]
fn titles_are_read() {
    let working = Shown::Working("working on a turn".to_owned());
    let asking = Shown::NeedsInput("it waits for an answer".to_owned());
    let rule = "─".repeat(40);
    let composer = [&rule, ">   Type your message or @path/to/file", &rule].map(str::to_owned).to_vec();
    for (title, with_composer, without) in [
        ("Qwen - project      ", Some(Shown::Quiet), None),
        ("◐\u{fe0e} Qwen - project", Some(working.clone()), Some(working)),
        ("✳\u{fe0e} a name of its own", Some(asking.clone()), Some(asking)),
        ("", None, None),
    ] {
        let title = title.to_owned();
        let screen = ScreenView { title, ..ScreenView::default() };
        assert_eq!(
            Qwen.read_screen(&screen),
            ScreenReading { reported: without, ..ScreenReading::default() }
        );
        let screen = ScreenView { rows: composer.clone(), cursor: (1, 2), ..screen };
        let reading = Qwen.read_screen(&screen);
        assert_eq!(
            (reading.reported, reading.shown),
            (with_composer, Some(Shown::Quiet)),
            "{}",
            screen.title
        );
    }
}
