//! The real Claude Code with codemie's MCP server: the model calls `start_session`, and a second agent works in the background.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::CODEMIE;
use crate::support::agents::Agent;
use crate::support::fake_api::{Call, Kind};
use crate::support::stage::{Form, Stage, TIMEOUT};

fn sessions(stage: &Stage) -> Vec<Value> {
    let listed = stage.run(&[CODEMIE.into(), "list".into(), "--all".into(), "--json".into()], "");
    serde_json::from_slice(&listed.stdout).unwrap()
}

fn named<'a>(sessions: &'a [Value], name: &str) -> &'a Value {
    sessions.iter().find(|session| session["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn claude_starts_a_session_in_the_background_by_a_tool_call() {
    let Some(stage) = Stage::set() else { return };
    let environment: Value = stage
        .home
        .environment(&stage.api)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let config = stage.home.path().join("mcp.json");
    let server = json!({"command": CODEMIE, "args": ["mcp", "--scope", "mine"], "env": environment});
    fs::write(&config, json!({"mcpServers": {"codemie": server}}).to_string()).unwrap();
    let start = json!({"agent": "claude", "name": "child", "prompt": "greetings to the child", "idempotency_key": "one"});
    let prompt =
        format!("[tool mcp__codemie__start_session {start}] [tool mcp__codemie__start_session {start}]");
    let output = stage.pipe(
        Agent::Claude,
        Form::Wrapped,
        &[
            "-p",
            &prompt,
            "--mcp-config",
            config.to_str().unwrap(),
            "--strict-mcp-config",
            "--allowedTools",
            "mcp__codemie__start_session",
        ],
        "",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The child's own prompt reaches its model, once, although its parent has ended and asked twice.
    let greeted = stage.api.wait_for(TIMEOUT, |log| {
        // The parent's prompt quotes it.
        let asked = |call: &&Call| {
            call.kind == Kind::Main && call.prompt.trim().starts_with("greetings to the child")
        };
        let calls = log.calls.iter().filter(asked);
        Some(calls.count()).filter(|count| *count > 0)
    });
    assert_eq!(greeted, Some(1), "{}", stage.api.log());
    let all = sessions(&stage);
    let child = named(&all, "child");
    let parent = all.iter().find(|session| session["sessionId"] == child["parentSessionId"]);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert_eq!(parent.map(|parent| &parent["status"]), Some(&json!("completed")), "{all:#?}");
    assert_eq!((&child["status"], &child["agent"]), (&json!("active"), &json!("claude")), "{all:#?}");
    let stopped = stage.run(&[CODEMIE.into(), "stop".into(), "child".into()], "");
    assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    let begun = Instant::now();
    while named(&sessions(&stage), "child")["endReason"] != "stopped" {
        assert!(begun.elapsed() < TIMEOUT, "{:#?}", sessions(&stage));
        std::thread::sleep(Duration::from_millis(50));
    }
}
