use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::claude::files::LAYOUT;
use crate::live::PublishedStatus;
use types::{AgentSessionId, StartTime};

fn kinds(file: &str) -> Vec<TurnKind> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude").join(file);
    let bytes = fs::read(path).unwrap();
    bytes.split(|byte| *byte == b'\n').filter_map(read_turn).map(|mark| mark.kind).collect()
}

fn kind(line: &str) -> Option<TurnKind> {
    read_turn(line.as_bytes()).map(|mark| mark.kind)
}

#[test]
fn recorded_turns_begin_with_a_prompt_and_end() {
    let plain = kinds("01-plain/projects/-home-dev-project/01000000-0000-4000-8000-000000000001.jsonl");
    let begun: Vec<usize> = (0..plain.len()).filter(|at| matches!(plain[*at], TurnKind::Prompt(_))).collect();
    assert_eq!(begun.len(), 3, "{plain:?}");
    assert_eq!(plain[begun[1]], TurnKind::Prompt("second prompt".into()));
    assert_eq!(plain.last(), Some(&TurnKind::Ended));
    let tools = kinds("02-tools/projects/-home-dev-project/02000000-0000-4000-8000-000000000002.jsonl");
    assert!(tools.contains(&TurnKind::Goes), "{tools:?}");
    assert_eq!(tools.last(), Some(&TurnKind::Ended), "{tools:?}");
}

fn kind_of_message(message: &str) -> Option<TurnKind> {
    kind(&format!(r#"{{"type":"assistant","message":{message}}}"#))
}

#[test]
fn each_line_says_what_it_can_about_the_turn() {
    let user = |content: &str, more: &str| {
        kind(&format!(r#"{{"type":"user"{more},"message":{{"role":"user","content":{content}}}}}"#))
    };
    let assistant = |stop: &str, more: &str| {
        kind(&format!(
            r#"{{"type":"assistant"{more},"message":{{"id":"m","content":[],"stop_reason":{stop}}}}}"#
        ))
    };
    assert_eq!(user(r#""hi""#, ""), Some(TurnKind::Prompt("hi".into())));
    assert_eq!(user(r#"[{"type":"text","text":"hi"}]"#, ""), Some(TurnKind::Prompt("hi".into())));
    assert_eq!(user(r#""hi""#, r#","isSidechain":true"#), None, "a sub-agent's");
    assert_eq!(user(r#""hi""#, r#","isMeta":true"#), None);
    assert_eq!(user(r#""<command-name>/model</command-name>""#, ""), None);
    let result = r#"[{"type":"tool_result","tool_use_id":"t","content":"x"}]"#;
    assert_eq!(user(result, ""), Some(TurnKind::Goes));
    let refused = r#"[{"type":"text","text":"[Request interrupted by user for tool use]"}]"#;
    assert_eq!(user(refused, ""), Some(TurnKind::Ended));
    assert_eq!(
        user(r#""[Request interrupted by user]""#, r#","interruptedMessageId":"m""#),
        Some(TurnKind::Ended)
    );
    assert_eq!(assistant(r#""end_turn""#, ""), Some(TurnKind::Ended));
    assert_eq!(assistant(r#""tool_use""#, ""), Some(TurnKind::Goes));
    assert_eq!(assistant(r#""max_tokens""#, ""), Some(TurnKind::Goes), "it may go on by itself");
    assert_eq!(assistant("null", ""), Some(TurnKind::Goes));
    let block = |kind: &str, stop: &str| {
        kind_of_message(&format!(r#"{{"id":"m","content":[{{"type":"{kind}"}}],"stop_reason":{stop}}}"#))
    };
    assert_eq!(block("text", r#""end_turn""#), Some(TurnKind::Ended));
    assert_eq!(block("thinking", r#""end_turn""#), Some(TurnKind::Goes), "its text comes in the next line");
    assert_eq!(block("text", "null"), Some(TurnKind::Speaks), "an older version's");
    assert_eq!(block("text", r#""max_tokens""#), Some(TurnKind::Speaks));
    assert_eq!(block("tool_use", "null"), Some(TurnKind::Goes));
    assert_eq!(block("text", r#""tool_use""#), Some(TurnKind::Goes));
    assert_eq!(assistant(r#""end_turn""#, r#","isSidechain":true"#), None);
    assert_eq!(assistant("null", r#","isApiErrorMessage":true"#), Some(TurnKind::Ended));
    assert_eq!(kind(r#"{"type":"system","subtype":"turn_duration"}"#), Some(TurnKind::Ended));
    for silent in [r#"{"type":"system","subtype":"compact_boundary"}"#, r#"{"type":"mode"}"#, "{", ""] {
        assert_eq!(kind(silent), None, "{silent}");
    }
}

/// Processes by pid: who started them, and when.
struct Table(BTreeMap<i32, (i32, u64)>);

impl Processes for Table {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        self.0.get(&pid.0).map(|(_, start)| StartTime(*start))
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        self.0.get(&pid.0).map(|(parent, _)| Pid(*parent))
    }

    fn children(&self, pid: Pid) -> Vec<Pid> {
        self.0.iter().filter(|(_, (parent, _))| *parent == pid.0).map(|(child, _)| Pid(*child)).collect()
    }
}

#[test]
fn the_entry_of_the_process_or_of_one_below_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let files = RegistryFiles::at(LAYOUT, folder.path());
    fs::create_dir_all(files.registry()).unwrap();
    let write = |pid: i32, start: u64, status: &str| {
        let text = format!(r#"{{"pid":{pid},"sessionId":"s-{pid}","procStart":"{start}"{status}}}"#);
        fs::write(files.registry_entry(Pid(pid)), text).unwrap();
    };
    let table = Table([(10, (1, 100)), (11, (10, 101)), (12, (11, 102))].into());
    let of = |pid: i32| published(&files, Pid(pid), &table);
    assert_eq!(of(10), None);
    write(12, 102, r#","status":"busy","statusUpdatedAt":5"#);
    let conversation = Some(AgentSessionId("s-12".into()));
    let busy = Published { status: PublishedStatus::Busy, since: Some(Timestamp(5)), conversation };
    assert_eq!(of(10), Some(busy), "a launcher's child");
    write(11, 101, r#","status":"idle""#);
    assert_eq!(of(10).map(|published| published.status), Some(PublishedStatus::Idle), "the nearest");
    write(10, 99, r#","status":"busy""#);
    assert_eq!(
        of(10).map(|published| published.status),
        Some(PublishedStatus::Idle),
        "10 is a killed process's"
    );
    write(10, 100, "");
    assert_eq!(of(10), None, "print mode says nothing");
    assert_eq!(of(99), None);
    fs::write(files.registry_entry(Pid(12)), "").unwrap();
    assert_eq!(of(12), None, "torn");
}

#[test]
fn a_prompt_is_given_as_an_operand() {
    let words = |prompt: &str| {
        prompt_arguments(prompt)
            .map(|args| args.into_iter().map(|arg| arg.into_string().unwrap()).collect::<Vec<_>>())
    };
    for prompt in ["hello there", "-p is an option", "two\nlines", "/review", "mcp servers are what?"] {
        assert_eq!(words(prompt), Some(vec!["--".to_owned(), prompt.to_owned()]));
    }
    for prompt in ["mcp", "update", "", "  "] {
        assert_eq!(words(prompt), None, "{prompt:?}");
    }
}

#[test]
fn daemons_are_recognised_by_their_command_lines() {
    for (line, is) in [
        ("/opt/claude daemon run", true),
        ("/home/dev/.local/share/claude/versions/2.1.325 --bg-spare x", true),
        ("claude --bg-pty-host /tmp/x", true),
        ("claude --daemon-worker", true),
        ("claude", false),
        ("claude daemon", false),
        ("claude -- daemon runs", false),
        ("dockerd daemon run", false),
        ("sh -c claude daemon run", false),
        ("", false),
    ] {
        let command: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        assert_eq!(is_shared_daemon(&command), is, "{line}");
    }
}
