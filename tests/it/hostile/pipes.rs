//! Pipes where files are expected: nothing waits for them, live or afterwards.

use serde_json::Value;

use super::{bounded, make_pipe, pipe};
use crate::commands::World;
use crate::delivery::play::Play;
use crate::sandbox::{Sandbox, output_of};
use crate::support::pty::Exit;

const ID: &str = "7a276c6b-d81e-4b1f-9c9e-000000000001";

/// A pipe at every place where the agents keep what commands read.
fn pipes_everywhere(sandbox: &Sandbox) {
    for place in [
        &format!(".claude/projects/p/{ID}.jsonl"),
        ".claude/history.jsonl",
        ".claude.json",
        &format!(".codex/sessions/2026/11/17/rollout-2026-11-17T09-00-00-{ID}.jsonl"),
        ".codex/app-server-daemon/daemon.pid",
        ".gemini/projects.json",
        ".gemini/tmp/p/.project_root",
        ".gemini/tmp/p/logs.json",
        ".gemini/tmp/p/chats/session-2026-11-17T09-00-7a276c6b.jsonl",
        ".git/HEAD",
        ".git/config",
    ] {
        pipe(sandbox, place);
    }
}

#[test]
fn commands_do_not_wait_for_pipes_in_place_of_session_files() {
    let mut world = World::new();
    pipes_everywhere(&world.sandbox);
    let file = world.sandbox.path(&format!(".claude/projects/p/{ID}.jsonl"));
    let run = world.start("fix-auth");
    world.bind(run, ID, Some(&file));
    world.end(run, 0);
    for args in [
        &["show", "fix-auth"][..],
        &["explain", "fix-auth"],
        &["view", "fix-auth"],
        &["resume", "fix-auth"],
        &["show", "ffff0000"],
        &["view", "ffff0000"],
        &["resume", "ffff0000"],
        &["explain", "ffff0000"],
        &["usage", "--scan"],
        &["list"],
        &["doctor", "--timeout", "2s"],
    ] {
        let output = output_of(&mut bounded(&world.sandbox, args));
        assert!(output.code.is_some_and(|code| code < 124), "codemie {args:?}: {output:?}");
        if args == ["view", "fix-auth"] {
            assert!(output.err.contains("not a regular file"), "{output:?}");
        }
    }
}

#[test]
fn an_agent_starts_and_is_followed_among_pipes() {
    for place in [
        ".codemie/run/version-claude",
        ".codemie/run/deliver-backend.lock",
        ".codemie/logs/codemie.log",
        ".codemie/demo/projects/p/7a276c6b-d81e-4b1f-9c9e-000000000001.jsonl",
        ".git/HEAD",
        ".genie/state/sessions.json",
        "bin/package.json",
    ] {
        let play = Play::new("quiet = true\n");
        pipe(&play.sandbox, place);
        let terminal = play.start();
        assert_eq!(terminal.wait_exit(), Exit::Code(0), "{place}");
        let records = play.records();
        assert_eq!(records.len(), 2, "{place}: the /clear was seen: {records:?}");
        for record in &records {
            assert_eq!(record["correlation"]["status"], "matched", "{place}: {record}");
            let conversation = record["correlation"]["agentSessionId"].as_str().unwrap();
            assert_eq!(record["usage"]["apiCalls"], Value::from(play.truth(conversation)[0]), "{place}");
        }
    }
}

#[test]
fn settings_in_a_pipe_are_refused_and_the_program_runs() {
    let sandbox = Sandbox::new();
    make_pipe(&{
        std::fs::create_dir(sandbox.path(".codemie")).unwrap();
        sandbox.path(".codemie/config.toml")
    });
    let output = output_of(&mut bounded(&sandbox, &["run", "--", "sh", "-c", "exit 7"]));
    assert_eq!(output.code, Some(7), "{output:?}");
    let output = output_of(&mut bounded(&sandbox, &["config", "show"]));
    assert!(output.err.contains("config.toml: it is not a regular file"), "{output:?}");
}

#[test]
fn an_import_reads_a_pipe_that_is_named_and_none_that_lies_in_a_folder() {
    let sandbox = Sandbox::new();
    pipe(&sandbox, "old/sessions.json");
    let output = output_of(&mut bounded(&sandbox, &["import", "old"]));
    assert_eq!(output.code, Some(0), "{output:?}");
    let line = format!("printf '[]' | '{}' import /dev/stdin", crate::sandbox::CODEMIE);
    let output = output_of(sandbox.command("/usr/bin/timeout").args(["30", "sh", "-c", &line]));
    assert!(output.err.contains("/dev/stdin was not imported"), "{output:?}");
}
