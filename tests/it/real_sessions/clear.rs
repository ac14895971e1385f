//! A new, empty conversation, by whatever keys; and keys that only look like it.

use super::scene::Scene;
use crate::support::pty::Exit;

/// Between 2.1.197 and 2.1.325 the agent changed its mind on what clears: `/clearx` does no more, ` /clear` does.
const LATER: (u64, u64, u64) = (2, 1, 198);

on_both_versions!(
    every_way_to_clear,
    keys_that_clear_nothing,
    cleared_without_a_word,
    a_queued_clear_waits_for_the_answer
);

fn every_way_to_clear(scene: &Scene) {
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
    claude.moves(|run| match scene.version() {
        version if version < LATER => run.command_as("/clearx", "clear"),
        _ => run.command("/clear"),
    });
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
        "A startup by assigned [first] clear -> B",
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

fn keys_that_clear_nothing(scene: &Scene) {
    let claude = scene.start(&[]);
    claude.prompt("please do /clear now");
    if scene.version() < LATER {
        claude.prompt(" /clear");
    } else {
        // Now that clears.
        claude.moves(|run| {
            run.type_text(" /clear");
            run.enter();
        });
    }
    assert_eq!(claude.exit(), Exit::Code(0));
    if scene.version() < LATER {
        scene.expect(&["A startup by assigned [please do /clear now |  /clear] exit 0"]);
    } else {
        scene.expect(&[
            "A startup by assigned [please do /clear now] clear -> B",
            "B clear from A by registry [] exit 0",
        ]);
    }
}

fn cleared_without_a_word(scene: &Scene) {
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
        "A startup by assigned [] clear -> B",
        "B clear from A by registry [one] clear -> C",
        "C clear from B by registry [] clear -> D",
        "D clear from C by registry [] clear -> E",
        "E clear from D by registry [two] clear -> F",
        "F clear from E by registry [] exit 0",
    ]);
}

fn a_queued_clear_waits_for_the_answer(scene: &Scene) {
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
        "A startup by assigned [take your time [slow 5000]] clear -> B",
        "B clear from A by registry [after the queue] exit 0",
    ]);
}
