//! From one conversation into an existing or copied one, inside a run.

use super::scene::Scene;
use crate::support::pty::Exit;

on_both_versions!(branch_and_the_picker);

fn branch_and_the_picker(scene: &Scene) {
    let claude = scene.start(&[]);
    claude.prompt("one");
    claude.moves(|run| run.command("/branch"));
    claude.prompt("two");
    claude.clear();
    claude.prompt("three");
    claude.moves(|run| {
        run.command("/resume");
        // The latest of the others is the branch.
        run.wait_for("the picker", |_, view| view.text().contains("❯ one (Branch)"));
        run.enter();
    });
    claude.prompt("four");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by assigned [one] switch -> B",
        "B switch+switch from C by registry [two | four] exit 0",
        "C clear from B by registry [three] switch -> B",
    ]);
}
