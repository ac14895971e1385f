//! `codemie stop`, and `codemie resume` of a conversation that somebody writes to: the real binary, real processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;

use crate::sandbox::{CommandOutput, Sandbox, output_of};
use crate::support::processes;
use crate::support::scripted::{self, Scripted, await_some};

const ID: &str = "7a276c6b-0000-4000-8000-000000000003";

struct Scene {
    sandbox: Sandbox,
}

impl Scene {
    fn new() -> Self {
        Self { sandbox: Sandbox::new() }
    }

    /// A wrapped shell, without a terminal, that has written the pid of something in a session of its own.
    fn start(&self, name: &str, script: &str) -> (Child, i32) {
        let note = self.sandbox.path(&format!("{name}.pid"));
        let script = format!(
            "setsid sh -c 'echo $$ >\"$0\".new; mv \"$0\".new \"$0\"; exec sleep 600' \"$0\" & {script}"
        );
        let mut command = self.sandbox.codemie(&["run", "--name", name, "--", "sh", "-c", &script]);
        command.arg(&note).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let below = await_some("the process in a session of its own", || {
            std::fs::read_to_string(&note).ok()?.trim().parse().ok()
        });
        await_some("the START", || self.status(name));
        (child, below)
    }

    fn status(&self, name: &str) -> Option<()> {
        let conn = Connection::open(self.sandbox.path(".codemie/codemie.db")).ok()?;
        conn.query_row("SELECT 1 FROM session WHERE name = ?1", [name], |_| Ok(())).ok()
    }

    fn codemie(&self, args: &[&str]) -> CommandOutput {
        output_of(&mut self.sandbox.codemie(args))
    }

    fn record(&self, name: &str) -> Value {
        let output = self.codemie(&["show", name, "--json"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        serde_json::from_str(&output.out).unwrap()
    }
}

#[test]
fn stop_ends_a_run_with_what_left_its_group_and_says_so_once_more_afterwards() {
    let scene = Scene::new();
    let (mut child, below) = scene.start("fix-auth", "trap 'exit 5' TERM; while :; do sleep 0.05; done");
    let stopped = scene.codemie(&["stop", "fix-auth"]);
    assert_eq!(
        (stopped.code, stopped.out.as_str()),
        (Some(0), "fix-auth has been stopped.\n"),
        "{stopped:?}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(!processes::alive(below), "it was in a session of its own");
    let record = scene.record("fix-auth");
    assert_eq!((&record["endReason"], &record["exitCode"]), (&"stopped".into(), &5.into()), "{record}");
    assert_eq!(record["status"], "completed", "whatever code it exits with");
    let (listed, shown) = (scene.codemie(&["list"]).out, scene.codemie(&["show", "fix-auth"]).out);
    assert!(listed.contains(" stopped ") && !listed.contains("failed"), "{listed}");
    assert!(shown.starts_with("fix-auth  stopped (exit code 5)"), "{shown}");
    for (status, found) in [("stopped", true), ("completed", true), ("failed", false), ("idle", false)] {
        let listed = scene.codemie(&["list", "--status", status]);
        assert_eq!((listed.code, listed.out.contains("fix-auth")), (Some(0), found), "{status}: {listed:?}");
    }
    let again = scene.codemie(&["stop", "fix-auth", "--json"]);
    let report: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!((again.code, &report["result"]), (Some(0), &"ended-before".into()), "{again:?}");
    assert_eq!(scene.codemie(&["stop", "nobody"]).code, Some(3));
    assert_eq!(scene.codemie(&["stop"]).code, Some(2));
}

#[test]
fn a_wrapper_that_does_not_answer_is_killed_and_its_session_has_been_stopped() {
    let scene = Scene::new();
    let (mut child, below) = scene.start("stuck", "trap '' TERM; while :; do sleep 600; done");
    let waiting = std::thread::spawn(move || child.wait().unwrap());
    let stopped = scene.codemie(&["stop", "stuck", "--grace", "200ms"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    waiting.join().unwrap();
    assert!(!processes::alive(below));
    assert_eq!(scene.record("stuck")["endReason"], "stopped");
}

#[test]
fn all_mine_are_stopped_at_once() {
    let scene = Scene::new();
    let script = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.05; done";
    let runs: Vec<(Child, i32)> = ["a", "b", "c"].map(|name| scene.start(name, script)).into();
    let (mut children, below): (Vec<Child>, Vec<i32>) = runs.into_iter().unzip();
    let waiting = std::thread::spawn(move || children.iter_mut().all(|child| child.wait().is_ok()));
    let begun = Instant::now();
    let stopped = scene.codemie(&["stop", "--all-mine", "--json"]);
    let reports: Value = serde_json::from_str(&stopped.out).unwrap();
    assert_eq!((stopped.code, reports.as_array().unwrap().len()), (Some(0), 3), "{stopped:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(waiting.join().unwrap());
    assert!(below.iter().all(|pid| !processes::alive(*pid)));
    assert_eq!(scene.codemie(&["stop", "--all-mine"]).out, "No session of yours is running.\n");
}

/// A stand-in that notes its pid, and whose arguments name the conversation.
fn agent(sandbox: &Sandbox) -> PathBuf {
    sandbox.script("waiting/claude", "echo $$ >>\"$HOME/started\"; exec sleep 600")
}

fn started(sandbox: &Sandbox) -> Vec<i32> {
    let pids = std::fs::read_to_string(sandbox.path("started")).unwrap_or_default();
    pids.lines().map(|pid| pid.parse().unwrap()).collect()
}

fn resume(sandbox: &Sandbox, agent: &Path, args: &[&str]) -> Command {
    let mut command = sandbox.codemie(&["resume"]);
    command.args(args).env("CODEMIE_REAL_CLAUDE", agent).stdin(Stdio::null());
    command
}

/// A session of the stand-in that has ended.
fn ended_session(sandbox: &Sandbox) {
    let stand_in = scripted::install(sandbox);
    let mut first = Scripted::start(sandbox, &stand_in, sandbox.home(), &[]);
    first.be(ID);
    first.order("say msg_1");
    assert_eq!(first.exit(0), Some(0));
}

#[test]
fn of_many_that_continue_one_conversation_at_once_one_goes_on() {
    let scene = Scene::new();
    ended_session(&scene.sandbox);
    let agent = agent(&scene.sandbox);
    let mut children: Vec<Child> = (0..6)
        .map(|_| {
            let mut command = resume(&scene.sandbox, &agent, &[ID]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let refused = await_some("five refusals", || {
        let ended: Vec<i32> =
            children.iter_mut().filter_map(|child| child.try_wait().unwrap()?.code()).collect();
        (ended.len() == 5).then_some(ended)
    });
    assert_eq!(refused, [1; 5]);
    await_some("the one agent", || (!started(&scene.sandbox).is_empty()).then_some(()));
    await_some("the START", || (scene.record(ID)["status"] == "active").then_some(()));
    let stopped = scene.codemie(&["stop", ID]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    for mut child in children {
        child.wait().unwrap();
    }
    assert_eq!(started(&scene.sandbox).len(), 1, "one agent ran");
}

#[test]
fn a_bare_agent_in_the_conversation_is_reported_and_ended_only_on_request() {
    let scene = Scene::new();
    ended_session(&scene.sandbox);
    let agent = agent(&scene.sandbox);
    // A process of the agent's own, registered in the conversation.
    let mut bare = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = bare.id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    let entry =
        format!(r#"{{"pid":{pid},"sessionId":"{ID}","procStart":"{start}","cwd":"/p","version":"2.1.197"}}"#);
    scene.sandbox.file(&format!(".claude/sessions/{pid}.json"), &entry);
    let refused = output_of(&mut resume(&scene.sandbox, &agent, &[ID]));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.err.contains(&format!("claude (pid {pid})")) && refused.err.contains("takeover"),
        "{refused:?}"
    );
    assert_eq!(bare.try_wait().unwrap(), None);
    let mut taking = resume(&scene.sandbox, &agent, &["--on-conflict", "takeover", ID]);
    let mut taking = taking.stdout(Stdio::null()).spawn().unwrap();
    assert!(!bare.wait().unwrap().success(), "it was asked to end");
    await_some("the agent", || (started(&scene.sandbox).len() == 1).then_some(()));
    await_some("the START", || (scene.record(ID)["status"] == "active").then_some(()));
    assert_eq!(scene.codemie(&["stop", ID]).code, Some(0));
    taking.wait().unwrap();
}
