//! A new, empty conversation, by whatever keys; and keys that only look like it.

use super::scene::Scene;
use crate::support::agents::Agent;
use crate::support::pty::Exit;

#[test]
fn every_way_to_clear() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    let claude = scene.start(&[]);
    claude.prompt("first");
    claude.moves(|run| run.command("/clear"));
    claude.prompt("after typing");
    claude.moves(|run| {
        run.type_text("/cl");
        run.wait_menu("clear");
        run.terminal.send("\t");
        run.wait_composer("/clear [name]");
        run.enter();
    });
    claude.prompt("after Tab");
    claude.moves(|run| run.command_as("/clearx", "clear"));
    claude.prompt("after a slip");
    claude.moves(|run| run.command_as("/reset", "clear"));
    claude.prompt("after /reset");
    claude.moves(|run| run.command_as("/new", "clear"));
    claude.prompt("after /new");
    claude.moves(|run| {
        run.terminal.send("\x1b[200~/clear\x1b[201~");
        run.wait_composer("/clear");
        run.enter();
    });
    // The history also holds what was asked in conversations before.
    claude.moves(|run| {
        run.terminal.send("\x1b[A");
        run.wait_composer("/clear");
        run.enter();
    });
    claude.prompt("after recall");
    claude.moves(|run| run.command("/clear a good name"));
    claude.prompt("after a name");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by registry [first] clear -> B",
        "B clear from A by registry [after typing] clear -> C",
        "C clear from B by registry [after Tab] clear -> D",
        "D clear from C by registry [after a slip] clear -> E",
        "E clear from D by registry [after /reset] clear -> F",
        "F clear from E by registry [after /new] clear -> G",
        "G clear from F by registry [] clear -> H",
        "H clear from G by registry [after recall] clear -> I",
        "I clear from H by registry [after a name] exit 0",
    ]);
}

#[test]
fn keys_that_clear_nothing() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    let claude = scene.start(&[]);
    claude.prompt(" /clear");
    claude.prompt("please do /clear now");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&["A startup by registry [ /clear | please do /clear now] exit 0"]);
}

#[test]
fn cleared_without_a_word() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    let claude = scene.start(&[]);
    claude.clear();
    claude.prompt("one");
    claude.clear();
    claude.clear();
    claude.clear();
    claude.prompt("two");
    // And out at once: the last conversation is known to have been, if only just.
    claude.command("/clear");
    claude.wait_ready();
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by registry [] clear -> B",
        "B clear from A by registry [one] clear -> C",
        "C clear from B by registry [] clear -> D",
        "D clear from C by registry [] clear -> E",
        "E clear from D by registry [two] clear -> F",
        "F clear from E by registry [] exit 0",
    ]);
}

#[test]
fn a_queued_clear_waits_for_the_answer() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    let claude = scene.start(&[]);
    let before = claude.session();
    let since = claude.ask("take your time [slow 5000]");
    claude.wait_call("the question", since, |call| call.prompt.contains("take your time"));
    claude.moves_from(&before, |run| {
        run.type_text("/clear");
        run.enter();
        run.wait_composer("");
        assert_eq!(
            claude.session().session_id,
            before.session_id,
            "nothing is cleared while the answer streams"
        );
        run.wait_answer("take your time", since);
    });
    claude.prompt("after the queue");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by registry [take your time [slow 5000]] clear -> B",
        "B clear from A by registry [after the queue] exit 0",
    ]);
}
