//! By what a session is bound: the registry until the agent's version is known, then by the id codemie chose.

use super::scene::{Played, Scene};
use crate::support::agents::Agent;
use crate::support::pty::Exit;

#[test]
fn the_id_is_chosen_once_the_version_is_known() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    let claude = scene.start(&[]);
    claude.prompt("one");
    assert_eq!(session_flags(&claude), [""; 0], "nothing is added for an unknown version");
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);

    let claude = scene.start(&[]);
    let asked = claude.prompt("two");
    assert_eq!(session_flags(&claude), [asked.session.unwrap()]);
    claude.clear();
    claude.prompt("three");
    // Out by ^D, twice as it asks.
    claude.terminal.send("\x04");
    claude.terminal.wait_text("again to exit");
    claude.terminal.send("\x04");
    assert_eq!(claude.terminal.wait_exit(), Exit::Code(0));
    drop(claude);

    scene.configure("[agent.claude]\ninject = false\n");
    let claude = scene.start(&[]);
    claude.prompt("four");
    assert_eq!(session_flags(&claude), [""; 0], "nothing is added where that is switched off");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by registry [one] exit 0",
        "B startup by assigned [two] clear -> C",
        "C clear from B by registry [three] exit 0",
        "D startup by registry [four] exit 0",
    ]);
}

/// What follows `--session-id` in the agent's arguments.
fn session_flags(claude: &Played<'_>) -> Vec<String> {
    claude.words().windows(2).filter(|pair| pair[0] == "--session-id").map(|pair| pair[1].clone()).collect()
}
