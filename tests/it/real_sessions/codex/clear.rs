//! A new, empty conversation, by whatever keys; and keys that only look like it.

use crate::real_sessions::scene::Scene;
use crate::support::agents::Agent;
use crate::support::pty::Exit;
use crate::support::run::AgentRun;

/// The question that `/new` and `/fork` ask in a repository.
fn wait_where(run: &AgentRun<'_>, chosen: &str) {
    run.wait_for("the question where", |_, view| view.text().contains(&format!("› {chosen}")));
}

#[test]
fn every_way_to_clear() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let codex = scene.start(&[]);
    // It has no file, and will have none before the first word.
    let first = codex.session();
    assert_eq!(first.correlation.agent_session_file, None);
    codex.clear();
    codex.prompt("one");
    codex.moves(|run| run.command_as("/cl", "clear"));
    codex.prompt("after /cl");
    codex.moves(|run| {
        run.type_text("/cl");
        run.wait_menu("clear");
        run.terminal.send("\t");
        run.wait_composer("/clear");
        run.enter();
    });
    codex.prompt("after Tab");
    codex.moves(|run| {
        run.terminal.send("\x1b[200~/clear\x1b[201~");
        run.wait_composer("/clear");
        run.enter();
    });
    // The history holds what was typed before the clear.
    codex.moves(|run| {
        run.terminal.send("\x1b[A");
        run.wait_composer("/clear");
        run.enter();
    });
    codex.prompt("after a paste");
    // Thought better of it.
    codex.command("/new");
    wait_where(&codex, "1. Use current");
    codex.terminal.send("\x1b");
    codex.wait_ready();
    codex.prompt("still there");
    codex.moves(|run| {
        run.command("/new");
        wait_where(run, "1. Use current");
        run.enter();
    });
    codex.prompt("after /new");
    codex.moves(|run| {
        run.command("/new");
        wait_where(run, "1. Use current");
        run.terminal.send("\x1b[B");
        wait_where(run, "2. Create new");
        run.enter();
    });
    let before = codex.session();
    codex.prompt("in a worktree");
    scene.wait("the folder of the worktree", |records| {
        let now = records.iter().find(|record| record.session_id == before.session_id)?;
        now.working_directory.contains("/.codex/worktrees/").then_some(())
    });
    // Refused while it works.
    let since = codex.ask("take your time [hold gate]");
    codex.wait_call("the question", since, |call| call.prompt.contains("take your time"));
    codex.type_text("/clear");
    codex.enter();
    codex.terminal.wait_text("disabled while a task is in progress");
    scene.stage.api.release("gate");
    codex.wait_answer("take your time", since);
    codex.wait_ready();
    codex.prompt("still in the worktree");
    assert_eq!(codex.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by registry [] clear -> B",
        "B clear from A by registry [one] clear -> C",
        "C clear from B by registry [after /cl] clear -> D",
        "D clear from C by registry [after Tab] clear -> E",
        "E clear from D by registry [after a paste | still there] clear -> F",
        "F clear from E by registry [after /new] clear -> G",
        "G clear from F by registry [in a worktree | take your time [hold gate] | still in the worktree] exit 0",
    ]);
}

#[test]
fn two_that_clear_at_once() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    crate::real_sessions::together::two_clear_at_once(&scene, "registry");
}
