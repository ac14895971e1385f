//! Going on with a conversation of an earlier run.

use super::scene::Scene;
use crate::support::agents::Agent;
use crate::support::pty::Exit;

#[test]
fn resumed_continued_forked() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    let claude = scene.start(&[]);
    let first = claude.prompt("one").session.unwrap();
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);

    let claude = scene.start(&["--resume", &first]);
    claude.prompt("two");
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);
    scene.expect(&["A startup+resume by registry [one | two] exit 0"]);

    let claude = scene.start(&["--continue"]);
    claude.prompt("three");
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);
    scene.expect(&["A startup+resume+resume by registry [one | two | three] exit 0"]);

    assert!(scene.print(&["-p", "--continue", "five"], "").status.success());
    let claude = scene.start(&["--resume", &first, "--fork-session"]);
    claude.prompt("six");
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);

    let claude = scene.launch(&["--resume"]);
    // The fork is the latest; its name is that of its first prompt.
    claude.wait_for("the picker", |_, view| view.text().contains("❯ one"));
    claude.enter();
    claude.wait_ready();
    claude.prompt("seven");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup+resume+resume+resume by registry [one | two | three | five] exit 0",
        "B startup+resume by registry [six | seven] exit 0",
    ]);
}
