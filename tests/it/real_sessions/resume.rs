//! Going on with a conversation of an earlier run.

use super::scene::Scene;
use crate::support::pty::Exit;
use crate::support::run::AgentRun;

on_both_versions!(resumed_continued_forked);

fn resumed_continued_forked(scene: &Scene) {
    let claude = scene.start(&[]);
    let first = claude.prompt("one").session.unwrap();
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);

    let claude = scene.start(&["--resume", &first]);
    claude.prompt("two");
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);
    scene.expect(&["A startup+resume by assigned [one | two] exit 0"]);

    let claude = scene.start(&["--continue"]);
    claude.prompt("three");
    claude.clear();
    // Claude Code itself, bare too, holds this answer back until something else happens in the conversation. (It seems to be
    // the one that brings the new conversation to as many messages as the old one had.)
    let held_back = AgentRun::prompt(&claude, "four");
    claude.prompt("five");
    assert!(scene.is_written(&held_back));
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);
    scene.expect(&[
        "A startup+resume+resume by assigned [one | two | three] clear -> B",
        "B clear from A by registry [four | five] exit 0",
    ]);

    // The conversation after the clear is the latest.
    assert!(scene.print(&["-p", "--continue", "six"], "").status.success());
    let claude = scene.start(&["--resume", &first, "--fork-session"]);
    claude.prompt("seven");
    assert_eq!(claude.exit(), Exit::Code(0));
    drop(claude);

    let claude = scene.launch(&["--resume"]);
    // The fork is the latest; its name is that of its first prompt.
    claude.wait_for("the picker", |_, view| view.text().contains("❯ one"));
    claude.enter();
    claude.wait_ready();
    claude.prompt("eight");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup+resume+resume by assigned [one | two | three] clear -> B",
        "B clear+resume by registry [four | five | six] exit 0",
        "C startup+resume by registry [seven | eight] exit 0",
    ]);
}
