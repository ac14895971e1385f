//! Runs without a terminal, what is added to the arguments, and what the API refuses.

use std::{fs, thread};

use wire::SessionRecord;

use crate::real_sessions::scene::{Played, Scene};
use crate::real_sessions::story::story;
use crate::support::agents::Agent;
use crate::support::pty::Exit;
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
fn one_setting_is_added_unless_told_otherwise() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let codex = scene.start(&[]);
    codex.prompt("one [run cat README.md] [write notes.txt] [edit notes.txt] [edit nowhere.txt]");
    assert_eq!(settings(&codex), ["notice.model_migrations.codemie=codemie"]);
    let notes = noted(&scene, &codex.session());
    assert!(notes.contains("added: -c notice.model_migrations.codemie=codemie"), "{notes}");
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);
    let usage = scene.recorded().remove(0).record.usage;
    assert_eq!((usage.prompts, usage.tool_calls, usage.tool_errors), (1, 4, 1));
    assert_eq!((usage.files_changed, usage.lines_added, usage.lines_removed), (1, 5, 1));

    let codex = scene.start(&["-c", "check_for_update_on_startup=false"]);
    codex.prompt("two");
    assert_eq!(settings(&codex), ["check_for_update_on_startup=false"], "the user's own is enough");
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

/// What follows `-c` in the agent's arguments.
fn settings(codex: &Played<'_>) -> Vec<String> {
    codex.words().windows(2).filter(|pair| pair[0] == "-c").map(|pair| pair[1].clone()).collect()
}

fn noted(scene: &Scene, session: &SessionRecord) -> String {
    scene.evidence(session).into_iter().map(|evidence| evidence.detail + "\n").collect()
}
