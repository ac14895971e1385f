//! Going on with a conversation of an earlier run.

use crate::real_sessions::scene::Scene;
use crate::support::agents::Agent;
use crate::support::pty::Exit;

#[test]
fn resumed_continued_forked_picked() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let codex = scene.start(&[]);
    let first = codex.prompt("one").session.unwrap();
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);

    let codex = scene.start(&["resume", &first]);
    codex.prompt("two");
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);
    scene.expect(&["A startup+resume by registry [one | two] exit 0"]);

    let codex = scene.start(&["resume", "--last"]);
    codex.prompt("three");
    codex.clear();
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);
    scene.expect(&[
        "A startup+resume+resume by registry [one | two | three] clear -> B",
        "B clear from A by registry [] exit 0",
    ]);

    let codex = scene.start(&["fork", &first]);
    codex.prompt("four");
    assert_eq!(codex.exit(), Exit::Code(0));
    drop(codex);
    assert!(scene.print(&["exec", "resume", &first, "five"], "").status.success());

    let codex = scene.launch(&["resume"]);
    codex.wait_for("the picker", |_, view| view.text().contains("Resume a previous session"));
    codex.wait_for("something to choose", |_, view| {
        view.text().lines().any(|line| line.contains("› ") && line.contains(" ago "))
    });
    codex.enter();
    codex.wait_ready();
    codex.prompt("six");
    assert_eq!(codex.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup+resume+resume+resume+resume by registry [one | two | three | five | six] exit 0",
        "B clear from A by registry [] exit 0",
        "C startup by registry [four] exit 0",
    ]);
}
