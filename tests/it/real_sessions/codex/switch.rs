//! From one conversation into an existing or copied one, inside a run; and what changes a conversation without leaving it.

use crate::real_sessions::scene::Scene;
use crate::support::agents::Agent;
use crate::support::fake_api::{Kind, Status};
use crate::support::pty::Exit;

#[test]
fn fork_and_the_picker() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let codex = scene.start(&[]);
    codex.prompt("one");
    codex.moves(|run| {
        run.command("/fork");
        run.wait_for("the question where", |_, view| view.text().contains("› 1. Use current"));
        run.enter();
    });
    codex.prompt("two");
    codex.clear();
    codex.prompt("three");
    codex.moves(|run| {
        run.command("/resume");
        run.wait_for("the picker", |_, view| view.text().contains("Resume a previous session"));
        // The latest is the present one, before it the fork, before that where all began.
        run.wait_for("three to choose from", |_, view| view.text().matches(" ago ").count() >= 3);
        run.terminal.send("\x1b[B");
        run.terminal.send("\x1b[B");
        run.wait_for("the last of them", |_, view| {
            let text = view.text();
            text.lines().filter(|line| line.contains(" ago ")).nth(2).is_some_and(|line| line.contains('›'))
        });
        run.enter();
    });
    codex.prompt("four");
    assert_eq!(codex.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup+switch from C by registry [one | four] exit 0",
        "B switch from A by registry [two] clear -> C",
        "C clear from B by registry [three] switch -> A",
    ]);
}

#[test]
fn sub_agents_reviews_asides_and_compaction() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let codex = scene.start(&[]);
    codex.prompt("one [subagent look around]");
    codex.wait_call("the sub-agent's answer", 0, |call| {
        call.kind == Kind::Subagent && call.status == Status::Complete
    });
    let since = scene.log().calls.len();
    codex.command("/review");
    codex.wait_for("the presets", |_, view| view.text().contains("› 1. Review against"));
    codex.terminal.send("\x1b[B");
    codex.wait_for("the second", |_, view| view.text().contains("› 2. Review uncommitted"));
    codex.enter();
    codex.wait_call("the review", since, |call| {
        call.kind == Kind::Subagent && call.status == Status::Complete
    });
    codex.wait_for("the review's end", |_, view| view.text().contains("Code review finished"));
    codex.wait_ready();
    let since = scene.log().calls.len();
    codex.command("/side");
    codex.wait_for("the aside", |_, view| view.text().contains("Side from main thread"));
    codex.terminal.send("between us");
    codex.wait_for("the question typed", |_, view| view.text().contains("› between us"));
    codex.enter();
    codex.wait_call("the aside", since, |call| call.kind == Kind::Side && call.status == Status::Complete);
    codex.terminal.send("\x03");
    codex.wait_for("the conversation again", |_, view| !view.text().contains("Side from main thread"));
    codex.wait_ready();
    let since = scene.log().calls.len();
    codex.command("/compact");
    codex.wait_call("the summary", since, |call| call.kind == Kind::Compact);
    codex.wait_ready();
    codex.prompt("two");
    assert_eq!(codex.exit(), Exit::Code(0));
    scene.expect(&["A startup by registry [one [subagent look around] | two] exit 0"]);
    let log = scene.log();
    let helpers = log.calls.iter().filter(|call| call.kind == Kind::Subagent && call.recorded());
    assert_eq!(helpers.count(), 2, "{log}");
}
