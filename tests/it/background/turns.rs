//! Turns of a scripted Claude Code in the background: when `wait` reports their end, and what can be read then.

use std::path::PathBuf;

use os::clock::{Clock, SystemClock};
use serde_json::Value;

use super::{Scene, Viewer};
use crate::support::scripted::await_some;

const CONVERSATION: &str = "7a276c6b-0000-4000-8000-00000000000a";

/// A stand-in for Claude Code that publishes what it does and writes its conversation on command, a line each:
///
/// - `turn PAUSE WORD`: works, writes the prompt, reports that it is idle, and writes the answer so many seconds later;
/// - `late PAUSE WORD`: works, reports that it is idle, and writes the prompt and the answer so many seconds later;
/// - `mute WORD`: a turn whose answer is never written.
const SCRIPT: &str = r#"
root="$HOME/.claude"
project="$root/projects/$(pwd -P | sed 's/[^A-Za-z0-9]/-/g')"
mkdir -p "$root/sessions" "$project"
id=7a276c6b-0000-4000-8000-00000000000a
read -r _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ start _ < /proc/$$/stat
be() {
  printf '{"pid":%s,"sessionId":"%s","procStart":"%s","cwd":"%s","version":"2.1.197","status":"%s","statusUpdatedAt":%s}' \
    $$ "$id" "$start" "$(pwd -P)" "$1" "$(date +%s%3N)" > "$root/sessions/$$.new"
  mv "$root/sessions/$$.new" "$root/sessions/$$.json"
}
now() { date -u +%Y-%m-%dT%H:%M:%S.%3NZ; }
prompt() {
  printf '{"type":"user","sessionId":"%s","uuid":"u-%s","timestamp":"%s","message":{"role":"user","content":"prompt %s"}}\n' \
    "$id" "$1" "$(now)" "$1" >> "$project/$id.jsonl"
}
answer() {
  printf '{"type":"assistant","sessionId":"%s","uuid":"a-%s","timestamp":"%s","message":{"id":"m-%s","role":"assistant","model":"claude-opus-4-8","content":[{"type":"text","text":"answer %s"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}}\n' \
    "$id" "$1" "$(now)" "$1" "$1" >> "$project/$id.jsonl"
}
be idle
echo ready
while read -r order pause word; do
  be busy
  case $order in
  turn) prompt "$word"; be idle; sleep "$pause"; answer "$word" ;;
  late) be idle; sleep "$pause"; prompt "$word"; answer "$word" ;;
  mute) prompt "$pause"; be idle ;;
  esac
done
"#;

/// A scripted agent in the background.
struct Agent {
    scene: Scene,
    program: PathBuf,
}

impl Agent {
    fn new() -> Self {
        let scene = Scene::new();
        let program = scene.sandbox.script("agent/claude", SCRIPT);
        Self { scene, program }
    }

    fn codemie(&self, args: &[&str]) -> (Option<i32>, String, String) {
        self.scene.codemie_with(&self.program, args)
    }

    fn json(&self, args: &[&str]) -> Value {
        let (code, out, err) = self.codemie(args);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}: {out}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {out:?}: {error}"))
    }

    /// Starts it, and connects to it once it is bound. Returns its id, and the cursor of the start.
    fn start(&self) -> (String, String) {
        let started = self.json(&["run", "--detach", "--json", "--name", "worker", "claude"]);
        let text = |key: &str| started[key].as_str().unwrap().to_owned();
        (text("sessionId"), text("cursor"))
    }

    /// As `codemie mcp` starts it.
    fn start_through_mcp(&self) -> String {
        let (code, out, err) =
            self.codemie(&["run", "--detach", "--through-mcp", "--name", "worker", "claude"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        out.trim().to_owned()
    }

    fn connect(&self, session: &str) -> Viewer {
        let mut viewer = self.scene.attach(session, 24, 80);
        viewer.wait_for("ready");
        await_some("its conversation", || {
            let record = self.scene.record(session);
            (record["correlation"]["agentSessionId"] == CONVERSATION).then_some(())
        });
        viewer
    }

    fn wait(&self, cursor: &str) -> Value {
        self.json(&[
            "wait",
            "worker",
            "--until",
            "turn-end",
            "--cursor",
            cursor,
            "--timeout",
            "60s",
            "--json",
        ])
    }

    fn view(&self) -> String {
        self.codemie(&["view", "worker"]).1
    }
}

#[test]
fn turn_end_is_held_until_the_answer_can_be_read() {
    let agent = Agent::new();
    let (session, mut cursor) = agent.start();
    let mut viewer = agent.connect(&session);
    for (order, word) in [("turn 0.3", "one"), ("late 0.3", "two"), ("turn 0", "three")] {
        viewer.keys(&format!("{order} {word}\n"));
        let waited = agent.wait(&cursor);
        let view = agent.view();
        assert!(view.contains(&format!("answer {word}")), "{waited}\n{view}");
        assert_eq!(
            (&waited["result"], &waited["state"]["is"]),
            (&"turn-end".into(), &"idle".into()),
            "{waited}"
        );
        assert_eq!(waited.get("answer"), None, "{waited}");
        waited["cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
}

#[test]
fn turn_without_an_answer_ends_and_says_so() {
    let agent = Agent::new();
    let (session, cursor) = agent.start();
    agent.connect(&session).keys("mute one\n");
    let waited = agent.wait(&cursor);
    assert_eq!((&waited["result"], &waited["answer"]), (&"turn-end".into(), &"missing".into()), "{waited}");
    assert!(agent.view().contains("prompt one"));
    let (code, out, _) = agent.codemie(&["wait", "worker", "--until", "turn-end"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("(answer missing)"), "{out}");
}

#[test]
fn notify_command_runs_once_for_each_event() {
    let agent = Agent::new();
    let notices = agent.scene.sandbox.path("notices");
    let script = r#"echo "$CODEMIE_NOTIFY_EVENT $CODEMIE_NOTIFY_STATE" >> "$HOME/notices""#;
    let config = format!("notify.command = ['sh', '-c', '{script}']\n");
    agent.scene.sandbox.file(".codemie/config.toml", &config);
    let (session, mut cursor) = agent.start();
    let mut viewer = agent.connect(&session);
    for order in ["late 0.2 one", "turn 0.2 two", "late 0 three"] {
        viewer.keys(&format!("{order}\n"));
        agent.wait(&cursor)["cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
    assert_eq!(agent.codemie(&["stop", "worker"]).0, Some(0));
    let read = || std::fs::read_to_string(&notices).unwrap_or_default();
    await_some("the notice of its end", || read().contains("exit").then_some(()));
    assert_eq!(read(), "turn-end idle\nturn-end idle\nturn-end idle\nexit \n");
}

#[test]
fn resume_in_the_background_prints_the_id_and_its_prompt_is_a_turn() {
    let agent = Agent::new();
    let (session, cursor) = agent.start();
    agent.connect(&session).keys("turn 0 one\n");
    agent.wait(&cursor);
    assert_eq!(agent.codemie(&["stop", "worker"]).0, Some(0));
    let resumed = agent.codemie(&["resume", "worker", "--detach"]);
    assert_eq!(resumed, (Some(0), format!("{session}\n"), String::new()));
    drop(agent.connect(&session));
    let held = agent.json(&["wait", "worker", "--until", "turn-end", "--timeout", "60s", "--json"]);
    assert_eq!(held["result"], "turn-end", "nothing was asked: {held}");
    assert_eq!(agent.codemie(&["stop", "worker"]).0, Some(0));

    let resumed = agent.json(&["resume", "worker", "--detach", "--json", "--", "--", "go on"]);
    assert_eq!(resumed["sessionId"], session.as_str());
    let mut viewer = agent.connect(&session);
    let (code, out, _) = agent.codemie(&["wait", "worker", "--until", "turn-end", "--timeout", "500ms"]);
    assert_eq!(code, Some(5), "the prompt is not answered yet: {out}");
    viewer.keys("turn 0.1 two\n");
    let waited = agent.wait(resumed["cursor"].as_str().unwrap());
    assert!(agent.view().contains("answer two"), "{waited}");
}

#[test]
fn idle_session_of_mcp_that_nobody_needs_ends_and_can_be_resumed() {
    let agent = Agent::new();
    agent.scene.sandbox.file(".codemie/config.toml", "[mcp]\nidleLimit = '100ms'\n");
    let session = agent.start_through_mcp();
    let record = agent.scene.await_ended(&session);
    assert_eq!(record["endReason"], "stopped", "{record}");
    for command in ["explain", "show"] {
        let (_, out, err) = agent.codemie(&[command, "worker"]);
        assert!(out.contains("mcp.idleLimit is reached: the session was stopped"), "{command}: {out}{err}");
    }
    // By a person's hand it has no such limit.
    let resumed = agent.codemie(&["resume", "worker", "--detach"]);
    assert_eq!(resumed, (Some(0), format!("{session}\n"), String::new()));
    let mut viewer = agent.connect(&session);
    viewer.keys("turn 0 one\n");
    let (_, shown, _) = agent.codemie(&["show", "worker"]);
    assert!(!shown.contains("idleLimit"), "{shown}");
}

#[test]
fn session_of_mcp_stays_while_somebody_is_attached() {
    let agent = Agent::new();
    agent.scene.sandbox.file(".codemie/config.toml", "mcp.idleLimit = '1s'\n");
    let session = agent.start_through_mcp();
    let viewer = agent.connect(&session);
    await_some("it is idle for longer than its limit", || {
        let record = agent.scene.record(&session);
        assert_eq!(record["status"], "active", "{record}");
        let since = record["state"]["since"].as_i64()?;
        (record["state"]["is"] == "idle" && SystemClock.now().0 - since > 2_000).then_some(())
    });
    drop(viewer);
    assert_eq!(agent.scene.await_ended(&session)["endReason"], "stopped");
}
