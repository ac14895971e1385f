//! Numbers, not words: canaries are planted wherever a person's words may stand, and must not sing anywhere outside.

use std::fs;

use serde_json::{Value, json};

use super::play::Play;
use crate::support::pty::Exit;
use crate::support::receiver::{Receiver, Reply};

const SESSION: &str = "0c000000-0000-4000-8000-00000000000c";

/// One word per place, so that a find tells which place leaks.
fn canary(place: &str) -> String {
    format!("canary-{place}")
}

const PLACES: [&str; 22] = [
    "prompt",
    "answer",
    "thinking",
    "command",
    "output",
    "file",
    "folder",
    "content",
    "old",
    "new",
    "pattern",
    "url",
    "error",
    "parent",
    "environment",
    "remote-user",
    "remote-password",
    "title",
    "subagent",
    "tool-name",
    "message-id",
    "model",
];

/// A conversation in which every place is taken.
fn transcript(cwd: &str) -> String {
    let mut lines = Vec::new();
    let mut number = 0;
    let mut line = |mut more: Value| {
        number += 1;
        let common = json!({"parentUuid": null, "isSidechain": false, "userType": "external", "entrypoint": "cli",
            "cwd": cwd, "sessionId": SESSION, "version": "2.1.197", "gitBranch": "main",
            "uuid": format!("0c000000-0000-4000-8000-1000000000{number:02}"), "timestamp": "@NOW@"});
        for (key, value) in common.as_object().unwrap() {
            more.as_object_mut().unwrap().entry(key.clone()).or_insert(value.clone());
        }
        lines.push(more.to_string());
    };
    line(json!({"type": "user", "message": {"role": "user", "content": canary("prompt")},
        "promptSource": "typed", "origin": {"kind": "human"}}));
    let path = format!("{cwd}/{}/{}.rs", canary("folder"), canary("file"));
    let tools = [
        ("Bash", json!({"command": format!("echo {}", canary("command")), "description": canary("command")})),
        ("Write", json!({"file_path": path, "content": canary("content")})),
        ("Edit", json!({"file_path": path, "old_string": canary("old"), "new_string": canary("new")})),
        ("Grep", json!({"pattern": canary("pattern"), "path": path})),
        (
            "WebFetch",
            json!({"url": format!("https://{}.example", canary("url")), "prompt": canary("prompt")}),
        ),
        (
            "Agent",
            json!({"subagent_type": canary("subagent"), "prompt": canary("prompt"), "description": "x"}),
        ),
    ];
    for (at, (name, input)) in tools.into_iter().enumerate() {
        let id = format!("toolu_0{at}");
        line(
            json!({"type": "assistant", "requestId": format!("req_{at}"), "message": {"id": format!("msg_0{at}"),
            "type": "message", "role": "assistant", "model": "claude-opus-4-8", "stop_reason": "tool_use",
            "content": [{"type": "thinking", "thinking": canary("thinking")}, {"type": "text", "text": canary("answer")},
                {"type": "tool_use", "id": id, "name": name, "input": input}],
            "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 1000,
                "cache_creation_input_tokens": 100}}}),
        );
        let patch = json!([{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1,
            "lines": [format!("-{}", canary("old")), format!("+{}", canary("new"))]}]);
        line(
            json!({"type": "user", "message": {"role": "user", "content": [{"tool_use_id": id, "type": "tool_result",
                "content": canary("output"), "is_error": name == "Bash"}]},
            "toolUseResult": {"filePath": path, "stdout": canary("output"), "structuredPatch": patch,
                "content": canary("content"), "originalFile": canary("old")}}),
        );
    }
    // Names that an agent, a model or a tool server chose freely.
    for (at, name) in ["tool-name", "server"].into_iter().enumerate() {
        let id = format!("toolu_/home/dev/{}-{at}", canary("message-id"));
        let tool = match name {
            "server" => format!("mcp__/home/dev/{}", canary("tool-name")),
            _ => format!("Bash(cat /home/dev/{})", canary("tool-name")),
        };
        line(json!({"type": "assistant", "requestId": format!("req_1{at}"), "message": {
            "id": format!("msg_/home/dev/{}-{at}", canary("message-id")),
            "type": "message", "role": "assistant", "model": format!("models of {}", canary("model")),
            "content": [{"type": "tool_use", "id": id, "name": tool, "input": {}}],
            "usage": {"input_tokens": 1, "output_tokens": 2}}}));
        line(json!({"type": "user", "message": {"role": "user", "content": [{"tool_use_id": id,
            "type": "tool_result", "content": "x"}]}}));
    }
    line(
        json!({"type": "assistant", "isApiErrorMessage": true, "error": canary("error"), "apiErrorStatus": 400,
        "message": {"id": "0c00", "model": "<synthetic>", "role": "assistant", "type": "message",
            "content": [{"type": "text", "text": format!("API Error: 400 {}", canary("error"))}],
            "usage": {"input_tokens": 0, "output_tokens": 0}}}),
    );
    line(json!({"type": "ai-title", "aiTitle": canary("title")}));
    line(json!({"type": canary("title"), "message": canary("title")}));
    lines.join("\n") + "\n"
}

const AGENT: &str = r#"
root=$CLAUDE_CONFIG_DIR
mkdir -p "$root/sessions" "$root/projects/p"
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)
now=$(date -u +%Y-%m-%dT%H:%M:%S.000Z)
printf '{"pid":%s,"sessionId":"@ID@","cwd":"%s","procStart":"%s","version":"2.1.197","kind":"interactive"}' \
    $$ "$PWD" "$start" >"$root/sessions/$$.json"
sed "s/@NOW@/$now/" "$root/transcript" >"$root/projects/p/@ID@.jsonl"
until grep -q @ID@ "$CODEMIE_HOME/metrics/sessions/$CODEMIE_SESSION_ID.json" 2>/dev/null; do sleep 0.05; done
rm "$root/sessions/$$.json"
"#;

/// The places whose canary sings in a text.
fn singing(text: &str) -> Vec<&'static str> {
    PLACES.into_iter().filter(|place| text.contains(&canary(place))).collect()
}

#[test]
fn no_word_of_a_person_leaves_the_machine() {
    let receiver = Receiver::start(|received| match received.path.as_str() {
        "/v1/events" => {
            let events: Vec<Value> = serde_json::from_slice(&received.body).unwrap();
            Reply::Status(200, json!({"accepted": events.len(), "duplicates": 0, "rejected": []}).to_string())
        }
        "/old/v1/metrics" => Reply::Status(200, json!({"success": true}).to_string()),
        _ => Reply::Bytes(Vec::new(), "application/x-protobuf"),
    });
    let url = receiver.url();
    let config = format!(
        "[backend]\nurl = '{url}'\ntoken = 't'\n[otlp]\nendpoint = '{url}'\n[codemieV1]\nurl = '{url}/old'\n[log]\nlevel = 'debug'\n"
    );
    let play = Play::new(&config);
    let folder = play.sandbox.path(&format!("{}/widgets", canary("parent")));
    fs::create_dir_all(folder.join(".git")).unwrap();
    let remote = format!(
        "https://{}:{}@git.example/acme/widgets.git",
        canary("remote-user"),
        canary("remote-password")
    );
    fs::write(folder.join(".git/config"), format!("[remote \"origin\"]\n\turl = {remote}\n")).unwrap();
    fs::write(folder.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    play.sandbox.file(".codemie/demo/transcript", &transcript(folder.to_str().unwrap()));
    play.sandbox.script("bin/claude", &AGENT.replace("@ID@", SESSION));

    let command = format!(
        "cd '{}'; exec \"$CODEMIE_UNDER_TEST\" claude",
        folder.to_str().unwrap().replace('\'', "'\\''")
    );
    let terminal = play.start_in_shell(&command, &[("SECRET", canary("environment"))]);
    assert_eq!(terminal.wait_exit(), Exit::Code(0), "{}", terminal.text());
    let synced = play.codemie(&["sync"]);
    assert_eq!(synced.code, Some(0), "{synced:?}");

    // All of it was read, or its silence would mean nothing.
    let records = play.records();
    let usage = &records[0]["usage"];
    assert_eq!(
        (&usage["apiCalls"], &usage["toolCalls"], &usage["toolErrors"]),
        (&json!(8), &json!(8), &json!(1)),
        "{records:?}"
    );
    assert_eq!((&usage["prompts"], &usage["apiErrors"]), (&json!(1), &json!(1)), "{records:?}");
    let received = receiver.received();
    let all: String = received.iter().map(|one| one.text()).collect();
    for path in ["/v1/events", "/v1/metrics", "/v1/logs", "/old/v1/metrics"] {
        assert!(received.iter().any(|one| one.path == path), "nothing was sent to {path}");
    }
    for word in ["acme/widgets", "WebFetch", "claude-opus-4-8", "rs", SESSION] {
        assert!(all.contains(word), "{word} should be told");
    }
    assert_eq!(singing(&all), [""; 0], "sent");
    assert_eq!(singing(&play.log()), [""; 0], "logged:\n{}", play.log());

    play.forget_deliveries();
    let preview = play.codemie(&["sync", "preview"]);
    assert!(preview.out.contains("/v1/events") && preview.out.contains("WebFetch"), "{preview:?}");
    assert_eq!(singing(&(preview.out + &preview.err)), [""; 0], "printed by preview");
    let sung = singing(&transcript(folder.to_str().unwrap()));
    assert!(sung.len() >= 17, "the canaries were there: {sung:?}");
}
