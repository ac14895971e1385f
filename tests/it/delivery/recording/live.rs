//! Runs of a scripted agent: each way to begin and to end, and the lines of its files.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture::Comparison;
use super::stable::Stable;
use super::{codemie, compare_requests, file, receiver, settings, successful_output};
use crate::sandbox::{Sandbox, output_of};
use crate::support::processes;
use crate::support::scripted::{Scripted, await_some, install};

fn conversation(number: u32) -> String {
    format!("0e000000-0000-4000-8000-{number:012}")
}

struct Stage {
    sandbox: Sandbox,
    folder: PathBuf,
    agent: PathBuf,
    stable: Stable,
    lines: u32,
}

impl Stage {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.file(
            "work/widgets/.git/config",
            "[remote \"origin\"]\n\turl = https://git.example/acme/widgets.git\n",
        );
        sandbox.file("work/widgets/.git/HEAD", "ref: refs/heads/main\n");
        let folder = fs::canonicalize(sandbox.path("work/widgets")).unwrap();
        let agent = install(&sandbox);
        let mut stable = Stable::live();
        for home in [fs::canonicalize(sandbox.home()).unwrap(), sandbox.home().to_owned()] {
            let home = home.to_str().unwrap();
            stable.replace(home, "@home@");
            // Claude Code calls a project's folder after its path.
            stable.replace(&home.replace(|c: char| !c.is_ascii_alphanumeric(), "-"), "@home-dashed@");
        }
        Self { sandbox, folder, agent, stable, lines: 0 }
    }

    fn start(&self, args: &[&str]) -> Scripted {
        Scripted::start(&self.sandbox, &self.agent, &self.folder, args)
    }

    /// Appends a line to a conversation's file, with what every line has.
    fn write(&mut self, run: &mut Scripted, id: &str, place: &str, mut line: Value) {
        self.lines += 1;
        let common = json!({"parentUuid": null, "isSidechain": false, "userType": "external", "cwd": self.folder,
            "sessionId": id, "version": "2.1.197", "gitBranch": "main",
            "uuid": format!("0d000000-0000-4000-8000-{:012}", self.lines), "timestamp": self.stable.next_line()});
        for (key, value) in common.as_object().unwrap() {
            line.as_object_mut().unwrap().entry(key.clone()).or_insert(value.clone());
        }
        run.order(&format!("write {place} {line}"));
    }

    fn say(&mut self, run: &mut Scripted, id: &str, key: &str, output: u32) {
        self.write(run, id, id, answer(key, "claude-opus-4-8", &json!([]), output));
    }

    /// The session of a conversation.
    fn record(&self, id: &str) -> Option<Value> {
        let listed = successful_output(&self.sandbox, &["list", "--all", "--json"]).out;
        let records: Vec<Value> = serde_json::from_str(&listed).unwrap();
        records.into_iter().find(|record| record["correlation"]["agentSessionId"] == id)
    }

    /// Waits until the session of a conversation has a field with this value.
    fn wait(&self, id: &str, field: &str, value: &Value) {
        await_some(&format!("{field} {value} of {id}"), || {
            (self.record(id)?.pointer(field) == Some(value)).then_some(())
        });
    }

    /// Its own name holds the minute it began in.
    fn rename(&self, id: &str, name: &str) {
        let record = self.record(id).unwrap();
        successful_output(&self.sandbox, &["rename", record["name"].as_str().unwrap(), name]);
    }
}

fn answer(key: &str, model: &str, content: &Value, output: u32) -> Value {
    json!({"type": "assistant", "requestId": format!("req_{key}"), "message": {"id": key, "type": "message",
        "role": "assistant", "model": model, "content": content, "usage": {"input_tokens": 10, "output_tokens": output,
            "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}}}})
}

fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    json!([{"type": "tool_use", "id": id, "name": name, "input": input}])
}

fn tool_result(id: &str, failed: bool, result: &Value) -> Value {
    json!({"type": "user", "toolUseResult": result, "message": {"role": "user", "content": [{"tool_use_id": id,
        "type": "tool_result", "content": "x", "is_error": failed}]}})
}

/// A conversation with a line of every kind. Each step is waited for, so that it is read before the next is written.
fn whole_conversation(stage: &mut Stage, run: &mut Scripted, id: &str) {
    let prompt = json!({"type": "user", "message": {"role": "user", "content": "hello"}, "promptSource": "typed",
        "origin": {"kind": "human"}});
    stage.write(run, id, id, prompt);
    stage.wait(id, "/usage/prompts", &json!(1));
    // The same call twice: its second line revises what the first said.
    stage.say(run, id, "msg_a", 5);
    stage.wait(id, "/usage/outputTokens", &json!(5));
    stage.say(run, id, "msg_a", 50);
    stage.wait(id, "/usage/outputTokens", &json!(50));
    let path = stage.folder.join("src/main.rs");
    let patch =
        json!([{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 2, "lines": ["-a", "+b", "+c"]}]);
    let tools = [
        ("Read", json!({"file_path": path}), false, json!({"file": {"filePath": path}})),
        (
            "Write",
            json!({"file_path": path, "content": "a\nb\n"}),
            false,
            json!({"type": "create", "filePath": path, "content": "a\nb\n", "structuredPatch": []}),
        ),
        (
            "Edit",
            json!({"file_path": path, "old_string": "a", "new_string": "b\nc"}),
            false,
            json!({"filePath": path, "structuredPatch": patch}),
        ),
        ("Bash", json!({"command": "false"}), true, json!({"stdout": ""})),
        ("Bash(cat /home/x)", json!({}), false, json!({})),
        ("mcp__tracker__find", json!({}), false, json!({})),
    ];
    let count = tools.len();
    for (number, (name, input, failed, result)) in (1..).zip(tools) {
        let key = format!("toolu_{number}");
        stage.write(
            run,
            id,
            id,
            answer(&format!("msg_t{number}"), "claude-opus-4-8", &tool_use(&key, name, &input), 1),
        );
        stage.write(run, id, id, tool_result(&key, failed, &result));
        stage.wait(id, "/usage/toolCalls", &json!(number));
    }
    stage.write(run, id, id, answer("msg_/home/dev/x", "models of mine", &json!([]), 1));
    stage.wait(id, "/usage/apiCalls", &json!(count + 2));
    let sidechain = answer("msg_sub", "claude-haiku-4-5", &json!([]), 7);
    stage.write(
        run,
        id,
        &format!("{id}/subagents/agent-a1"),
        with(sidechain, json!({"isSidechain": true, "agentId": "a1"})),
    );
    stage.wait(id, "/usage/apiCalls", &json!(count + 3));
    let error = json!({"type": "assistant", "isApiErrorMessage": true, "error": "rate_limit", "apiErrorStatus": 429,
        "message": {"id": "0e00", "model": "<synthetic>", "role": "assistant", "type": "message",
            "content": [{"type": "text", "text": "API Error: 429"}], "usage": {"input_tokens": 0, "output_tokens": 0}}});
    stage.write(run, id, id, error);
    stage.wait(id, "/usage/apiErrors", &json!(1));
}

fn with(mut line: Value, more: Value) -> Value {
    let Value::Object(more) = more else { return line };
    line.as_object_mut().unwrap().extend(more);
    line
}

#[test]
fn live_runs_are_sent_as_recorded() {
    let mut stage = Stage::new();
    let [first, second, third, fourth] = [1, 2, 3, 4].map(conversation);

    // Start, clear, switch back, exit.
    let mut run = stage.start(&["--session-id", &first]);
    run.be(&first);
    whole_conversation(&mut stage, &mut run, &first);
    stage.rename(&first, "renamed");
    successful_output(&stage.sandbox, &["tag", "renamed", "night"]);
    run.be(&second);
    stage.say(&mut run, &second, "msg_b", 3);
    stage.wait(&second, "/usage/apiCalls", &json!(1));
    run.be(&first);
    stage.say(&mut run, &first, "msg_c", 4);
    stage.wait(&first, "/usage/outputTokens", &json!(50 + 6 + 1 + 7 + 4));
    assert_eq!(run.exit(0), Some(0));
    stage.wait(&first, "/status", &json!("completed"));

    // Resume, failure.
    let mut run = stage.start(&["--resume", &second]);
    run.be(&second);
    stage.say(&mut run, &second, "msg_d", 3);
    stage.wait(&second, "/usage/apiCalls", &json!(2));
    assert_eq!(run.exit(3), Some(3));
    stage.wait(&second, "/status", &json!("failed"));

    // A signal.
    let mut run = stage.start(&["--session-id", &third]);
    run.be(&third);
    stage.rename(&third, "signalled");
    stage.say(&mut run, &third, "msg_e", 3);
    stage.wait(&third, "/usage/apiCalls", &json!(1));
    processes::signal(run.pid(), Signal::TERM);
    run.wait();
    stage.wait(&third, "/endReason", &json!("signal"));

    // The wrapper vanishes, and the next command ends its session.
    let mut run = stage.start(&["--session-id", &fourth]);
    run.be(&fourth);
    stage.rename(&fourth, "vanished");
    stage.say(&mut run, &fourth, "msg_f", 3);
    // Such a session ends with its last sign of life, which is this line or something later.
    stage.stable.forget_last_line();
    stage.wait(&fourth, "/usage/apiCalls", &json!(1));
    processes::kill_family(run.pid());
    run.wait();
    stage.wait(&fourth, "/endReason", &json!("crash"));

    // A program that is no agent: nothing of it is ever bound.
    let plain = output_of(
        codemie(&stage.sandbox, &["run", "--name", "plain", "--", "true"]).current_dir(&stage.folder),
    );
    assert_eq!(plain.code, Some(0), "{plain:?}");

    let mut comparison = Comparison::default();
    let receiver = receiver();
    stage.sandbox.file(".codemie/config.toml", &settings(&receiver));
    successful_output(&stage.sandbox, &["sync", "--backfill"]);
    compare_requests(&mut comparison, &mut stage.stable, "live", &receiver.received());

    let mut shown = String::new();
    for args in [&["show", "renamed", "--json"][..], &["export", "signalled"]] {
        write!(shown, "codemie {}\n{}", args.join(" "), successful_output(&stage.sandbox, args).out).unwrap();
    }
    let record = stage.record(&first).unwrap();
    let id = record["sessionId"].as_str().unwrap();
    let published = stage.sandbox.path(&format!(".codemie/metrics/sessions/{id}.json"));
    writeln!(shown, "published\n{}", file(&published)).unwrap();
    let (before, rest) = shown.split_once("\"evidence\": [").unwrap();
    let (evidence, after) = rest.split_once("\"records\": [").unwrap();
    let stable = &mut stage.stable;
    let parts = [stable.apply(before), stable.apply_beside_lines(evidence), stable.apply(after)];
    comparison
        .add("live.shown.txt", &format!("{}\"evidence\": [{}\"records\": [{}", parts[0], parts[1], parts[2]));
    comparison.finish();
}
