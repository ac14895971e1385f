//! Runs without a terminal, what is added to the arguments, and what the API refuses.

use std::{fs, thread};

use types::{Correlation, Link, SessionRecord};

use crate::real_sessions::scene::{Played, Scene};
use crate::real_sessions::story::{Recorded, story};
use crate::support::agents::Agent;
use crate::support::pty::Exit;
use crate::support::run::AgentRun;
use crate::support::stage::Form;

#[test]
fn piped_as_if_bare() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let bare = scene.stage.another();
    let expected = bare.pipe(Agent::Codex, Form::Bare, &["exec", "say something"], "");
    scene.configure("[agent.codex]\noriginator = true\n");
    let got = scene.print(&["exec", "say something"], "");
    assert_eq!(String::from_utf8_lossy(&got.stdout), String::from_utf8_lossy(&expected.stdout));
    assert_eq!(got.status, expected.status);
    let refused = scene.print(&["exec", "no [error 400]"], "");
    assert_eq!(refused.status.code(), Some(1));
    scene.expect(&["A startup by registry [say something] exit 0", "B startup by registry [] exit 1"]);

    let recorded = scene.recorded();
    let file = recorded[0].record.correlation.agent_session_file.as_ref().unwrap();
    let meta = fs::read_to_string(file).unwrap();
    let meta: serde_json::Value = serde_json::from_str(meta.lines().next().unwrap()).unwrap();
    assert!(meta["payload"]["originator"].as_str().unwrap().starts_with("codemie-"));
    let usage = &recorded[1].record.usage;
    assert_eq!((usage.api_errors, usage.prompts, usage.api_calls), (1, 1, 0));
    assert_eq!(recorded[0].record.agent_version.as_deref(), Some("0.166.0"));
}

const RUNS: usize = 6;

/// The lock is held for as long as the answer takes, and here that is next to nothing.
#[test]
fn many_at_once() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let exec = |n: usize| {
        let out = scene.print(&["exec", &format!("number {n}")], "");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    // The first alone: two that set up their databases at once find them damaged.
    exec(0);
    thread::scope(|scope| {
        for n in 1..RUNS {
            let exec = &exec;
            scope.spawn(move || exec(n));
        }
    });
    let story = story(&scene.recorded(), &scene.log());
    assert_eq!(story.len(), RUNS, "{story:#?}");
    for line in &story {
        assert!(line.contains(" startup by registry [number ") && line.ends_with("] exit 0"), "{story:#?}");
    }
    scene.expect(&story.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn one_argument_is_added_unless_told_otherwise() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let codex = scene.start(&[]);
    codex.prompt("one [run cat README.md] [write notes.txt] [edit notes.txt] [edit nowhere.txt]");
    assert_eq!((settings(&codex), kept_by_flag(&codex)), (vec![], true));
    let notes = noted(&scene, &codex.session());
    assert!(notes.contains("added: --no-daemon"), "{notes}");
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);
    let usage = scene.recorded().remove(0).record.usage;
    assert_eq!((usage.prompts, usage.tool_calls, usage.tool_errors), (1, 4, 1));
    assert_eq!((usage.files_changed, usage.lines_added, usage.lines_removed), (1, 5, 1));

    let codex = scene.start(&["-c", "check_for_update_on_startup=false"]);
    codex.prompt("two");
    assert_eq!(settings(&codex), ["check_for_update_on_startup=false"], "the user's own is enough");
    assert!(!kept_by_flag(&codex));
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);

    scene.configure("[agent.codex]\ninject = false\n");
    let codex = scene.start(&["--no-daemon"]);
    codex.prompt("three");
    assert_eq!(settings(&codex), [""; 0]);
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);
    scene.expect(&[
        "A startup by registry [one [run cat README.md] [write notes.txt] [edit notes.txt] [edit nowhere.txt]] exit 0",
        "B startup by registry [two] exit 0",
        "C startup by registry [three] exit 0",
    ]);
    let left = scene.stage.home.residents();
    assert!(left.is_empty(), "nothing outlives its run: {left:?}");
}

/// As a client of its server it shares one process with every other terminal, so that nothing it writes names this run.
#[test]
fn a_client_of_the_shared_server_is_bound_to_nothing_and_that_is_said() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    scene.configure("[agent.codex]\nembedded = false\n");
    // The first starts the server and so is its parent; the second finds it there.
    for prompt in ["one", "two"] {
        let codex = scene.start(&[]);
        AgentRun::prompt(&codex, prompt);
        assert_eq!((settings(&codex), kept_by_flag(&codex)), (vec![], false));
        // As a person does it: no other session is to be waited for.
        AgentRun::clear(&codex);
        AgentRun::prompt(&codex, "after the clear");
        assert_eq!(AgentRun::exit(&codex), Exit::Code(0));
        codex.terminal.wait_text("which conversation this was is not known");
    }
    let recorded = scene.recorded();
    assert_eq!(recorded.len(), 2, "a clear that nobody can attribute begins no session");
    for Recorded { record, .. } in recorded {
        let Correlation { status, agent_session_id, .. } = &record.correlation;
        assert_eq!((*status, agent_session_id), (Link::Failed, &None));
        assert_eq!(record.usage.api_calls, 0);
        let notes = noted(&scene, &record);
        assert!(notes.contains("nothing keeps it out of its shared background server"), "{notes}");
    }
}

/// Whether an argument alone keeps it in its own process.
fn kept_by_flag(codex: &Played<'_>) -> bool {
    codex.words().iter().any(|word| word == "--no-daemon")
}

/// What follows `-c` in the agent's arguments.
fn settings(codex: &Played<'_>) -> Vec<String> {
    codex.words().windows(2).filter(|pair| pair[0] == "-c").map(|pair| pair[1].clone()).collect()
}

fn noted(scene: &Scene, session: &SessionRecord) -> String {
    scene.evidence(session).into_iter().map(|evidence| evidence.detail + "\n").collect()
}
