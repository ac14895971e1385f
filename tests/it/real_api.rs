//! The fake API's log against what the agents write into their own session files: it is the truth only if a careful
//! reader of the files finds the same numbers.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::agents::Agent;
use crate::support::fake_api::{Kind, Spent, Status};
use crate::support::pty::Exit;
use crate::support::run::AgentRun;
use crate::support::stage::Stage;

#[test]
fn claude_files_hold_what_the_log_says() {
    let Some(stage) = Stage::set() else { return };
    let claude = AgentRun::start(&stage, Agent::Claude, &[]);
    let file = stage.home.project().join("notes.txt");
    claude.prompt("first [together [run echo a] [run echo b]]");
    claude.prompt(&format!("[write {0}] [edit {0}]", file.display()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n2b\nthree\n");
    claude.command("/compact");
    let compact = claude.wait_call("a compaction", 0, |call| call.kind == Kind::Compact);
    claude.wait_ready();
    claude.prompt("again [error 529 x1]");

    // Queued while the answer is held back, done after it.
    let since = claude.ask("wait [hold door]");
    claude.wait_call("the answer begun", since, |call| call.prompt.contains("wait"));
    claude.command("/clear");
    stage.api.release("door");
    let held = claude.wait_answer("wait", since);
    claude.wait_ready();

    let last = claude.prompt("second [subagent count things [run echo sub]]");
    assert_ne!(last.session, held.session);
    let since = claude.ask("stop [hold never]");
    claude.wait_call("the answer begun", since, |call| call.prompt.contains("stop"));
    claude.wait_for("the agent at work", |_, view| view.text().contains("esc to interrupt"));
    claude.terminal.send("\x1b");
    claude.wait_call("the agent hang up", since, |call| call.status == Status::Aborted);
    claude.wait_ready();
    assert_eq!(claude.exit(), Exit::Code(0));

    let log = stage.api.log();
    assert_eq!(log.sessions(), [held.session.clone().unwrap(), last.session.unwrap()], "\n{log}");
    assert_eq!(compact.session, held.session);
    assert!(log.calls.iter().any(|call| call.status == Status::Refused(529)), "\n{log}");
    let subagents = log.calls.iter().filter(|call| call.kind == Kind::Subagent && call.subagent.is_some());
    assert_eq!(subagents.count(), 2, "\n{log}");
    let found = claude_files(stage.home.path());
    for session in log.sessions() {
        assert_eq!(found.get(&session), Some(&log.recorded(&session)), "{session}\n{log}");
    }
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn codex_files_hold_what_the_log_says() {
    let Some(stage) = Stage::set() else { return };
    let codex = AgentRun::start(&stage, Agent::Codex, &[]);
    codex.prompt("first [run echo a] [write notes.txt] [edit notes.txt]");
    assert_eq!(fs::read_to_string(stage.home.project().join("notes.txt")).unwrap(), "one\n2\n2b\nthree\n");
    codex.command("/compact");
    codex.wait_call("a compaction", 0, |call| call.kind == Kind::Compact);
    codex.wait_ready();
    let first = codex.prompt("again [error 500 x1]");
    codex.clear();
    let second = codex.prompt("second [subagent say hello]");
    codex
        .wait_call("the sub-agent's answer", 0, |c| c.kind == Kind::Subagent && c.status == Status::Complete);
    assert_eq!(codex.exit(), Exit::Code(0));

    let log = stage.api.log();
    assert_eq!(log.sessions(), [first.session.unwrap(), second.session.unwrap()], "\n{log}");
    let found = codex_files(stage.home.path());
    for session in log.sessions() {
        assert_eq!(found.get(&session), Some(&log.recorded(&session)), "{session}\n{log}");
    }
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn gemini_files_hold_what_the_log_says() {
    let Some(stage) = Stage::set() else { return };
    let gemini = AgentRun::start(&stage, Agent::Gemini, &["--approval-mode", "yolo"]);
    let file = stage.home.project().join("notes.txt");
    gemini.prompt(&format!("[run echo a] [write {0}] [edit {0}]", file.display()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n2b\nthree\n");
    gemini.clear();
    gemini.prompt("second [subagent say hello]");
    assert_eq!(gemini.exit(), Exit::Code(0));

    let log = stage.api.log();
    assert!(log.calls.iter().any(|call| call.kind == Kind::Subagent), "\n{log}");
    let recorded: Spent = log.calls.iter().filter(|call| call.recorded()).map(|call| call.spent).sum();
    assert_eq!(gemini_files(stage.home.path()), recorded, "\n{log}");
}

#[test]
fn qwen_files_hold_what_the_log_says() {
    let Some(stage) = Stage::set() else { return };
    let qwen = AgentRun::start(&stage, Agent::Qwen, &["--yolo"]);
    let file = stage.home.project().join("notes.txt");
    qwen.prompt(&format!("[run echo a] [write {0}] [edit {0}]", file.display()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n2b\nthree\n");
    qwen.prompt("again [error 500 x1]");
    qwen.clear();
    qwen.prompt("second");
    assert_eq!(qwen.exit(), Exit::Code(0));

    let log = stage.api.log();
    assert!(log.calls.iter().any(|call| call.status == Status::Refused(500)), "\n{log}");
    let recorded: Spent = log.calls.iter().filter(|call| call.recorded()).map(|call| call.spent).sum();
    assert_eq!(qwen_files(stage.home.path()), recorded, "\n{log}");
}

/// Per session; one `message.id` counts once, however many lines and files repeat it.
fn claude_files(home: &Path) -> HashMap<String, Spent> {
    let mut calls = HashMap::new();
    for line in lines(&home.join(".claude/projects")) {
        let (message, usage) = (&line["message"], &line["message"]["usage"]);
        if line["type"] == "assistant" && message["model"] != "<synthetic>" {
            let number = |name: &str| usage[name].as_u64().unwrap();
            let spent = Spent {
                calls: 1,
                input: number("input_tokens"),
                cache_read: number("cache_read_input_tokens"),
                cache_write: number("cache_creation_input_tokens"),
                output: number("output_tokens"),
                reasoning: 0,
            };
            calls.insert(message["id"].to_string(), (text(&line["sessionId"]), spent));
        }
    }
    per_session(calls.into_values())
}

/// Per root session, so that a sub-agent counts where it was started.
fn codex_files(home: &Path) -> HashMap<String, Spent> {
    let mut calls = HashMap::new();
    for line in lines(&home.join(".codex/sessions")) {
        let (payload, usage) = (&line["payload"], &line["payload"]["usage"]);
        if line["type"] == "token_usage_record" {
            let number = |name: &str| usage[name].as_u64().unwrap();
            let (cache_read, cache_write) =
                (number("cached_input_tokens"), number("cache_write_input_tokens"));
            let spent = Spent {
                calls: 1,
                input: number("input_tokens") - cache_read - cache_write,
                cache_read,
                cache_write,
                output: number("output_tokens"),
                reasoning: number("reasoning_output_tokens"),
            };
            calls.insert(payload["response_id"].to_string(), (text(&payload["session_id"]), spent));
        }
    }
    per_session(calls.into_values())
}

fn gemini_files(home: &Path) -> Spent {
    let mut calls = HashMap::new();
    for line in lines(&home.join(".gemini/tmp")) {
        let tokens = &line["tokens"];
        if line["type"] == "gemini" && tokens.is_object() {
            let number = |name: &str| tokens[name].as_u64().unwrap();
            let spent = Spent {
                calls: 1,
                input: number("input") - number("cached") + number("tool"),
                cache_read: number("cached"),
                cache_write: 0,
                output: number("output") + number("thoughts"),
                reasoning: number("thoughts"),
            };
            calls.insert(line["id"].to_string(), spent);
        }
    }
    calls.into_values().sum()
}

fn qwen_files(home: &Path) -> Spent {
    let mut calls = HashMap::new();
    for line in lines(&home.join(".qwen/projects")) {
        let event = &line["systemPayload"]["uiEvent"];
        if event["event.name"] == "qwen-code.api_response" {
            let number = |name: &str| event[name].as_u64().unwrap();
            let cache_read = number("cached_content_token_count");
            let spent = Spent {
                calls: 1,
                input: number("input_token_count") - cache_read,
                cache_read,
                cache_write: 0,
                output: number("output_token_count"),
                reasoning: number("thoughts_token_count"),
            };
            calls.insert(event["response_id"].to_string(), spent);
        }
    }
    calls.into_values().sum()
}

fn per_session(calls: impl Iterator<Item = (String, Spent)>) -> HashMap<String, Spent> {
    let mut sessions: HashMap<String, Spent> = HashMap::new();
    for (session, spent) in calls {
        *sessions.entry(session).or_default() += spent;
    }
    sessions
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Every line of every `.jsonl` file beneath a folder.
fn lines(folder: &Path) -> Vec<Value> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            lines.extend(self::lines(&path));
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = fs::read_to_string(path).unwrap();
            lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
    }
    lines
}
