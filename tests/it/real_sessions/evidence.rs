//! By what a session is bound: the id that codemie chose, or the registry where none was added.

use std::fs;

use super::scene::{Played, Scene};
use crate::support::agents::Agent;
use crate::support::pty::Exit;

on_both_versions!(the_id_is_chosen_where_the_version_is_known);

fn the_id_is_chosen_where_the_version_is_known(scene: &Scene) {
    let claude = scene.start(&[]);
    let asked = claude.prompt("one");
    assert_eq!(session_flags(&claude), [asked.session.unwrap()], "its package says which version it is");
    claude.clear();
    claude.prompt("two");
    // Out by ^D, twice as it asks.
    claude.terminal.send("\x04");
    claude.terminal.wait_text("again to exit");
    claude.terminal.send("\x04");
    assert_eq!(claude.terminal.wait_exit(), Exit::Code(0));
    drop(claude);

    scene.configure("[agent.claude]\ninject = false\n");
    let claude = scene.start(&[]);
    claude.prompt("three");
    assert_eq!(session_flags(&claude), [""; 0], "nothing is added where that is switched off");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by assigned [one] clear -> B",
        "B clear from A by registry [two] exit 0",
        "C startup by registry [three] exit 0",
    ]);
}

/// A program that no installer has put where it is: its version is known once it has said it itself.
#[test]
fn the_id_is_chosen_once_the_version_is_known() {
    let Some(mut scene) = Scene::set(Agent::Claude) else { return };
    let program = scene.stage.home.path().join("bin/claude");
    fs::create_dir(program.parent().unwrap()).unwrap();
    let installed = scene.stage.home.program(Agent::Claude).canonicalize().unwrap();
    fs::hard_link(&installed, &program).or_else(|_| fs::copy(&installed, &program).map(drop)).unwrap();
    scene.stage.home.pin(Agent::Claude, program);
    let claude = scene.start(&[]);
    claude.prompt("one");
    assert_eq!(session_flags(&claude), [""; 0], "nothing is added for an unknown version");
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);

    let claude = scene.start(&[]);
    let asked = claude.prompt("two");
    assert_eq!(session_flags(&claude), [asked.session.unwrap()]);
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&["A startup by registry [one] exit 0", "B startup by assigned [two] exit 0"]);
}

/// What follows `--session-id` in the agent's arguments.
fn session_flags(claude: &Played<'_>) -> Vec<String> {
    claude.words().windows(2).filter(|pair| pair[0] == "--session-id").map(|pair| pair[1].clone()).collect()
}
