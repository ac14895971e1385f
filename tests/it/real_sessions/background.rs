//! Conversations that go on without a terminal: `/fork` and `/background` of Claude Code 2.1.325.

use rustix::process::Signal;

use super::scene::Scene;
use crate::support::agents::Agent;
use crate::support::processes;
use crate::support::pty::Exit;
use crate::support::stage::TIMEOUT;

/// A copy of the conversation goes on beside it: a session of its own that knows its parent.
#[test]
fn forked_claude_2_1_325() {
    let Some(scene) = Scene::set_version(Agent::Claude, "2.1.325") else { return };
    let claude = scene.start(&[]);
    claude.prompt("one");
    let since = scene.stage.api.log().calls.len();
    claude.command("/fork go on");
    let call = claude.wait_answer("go on", since);
    scene.wait("the session of the fork", |records| (records.len() == 2).then_some(()));
    claude.wait_written(&call);
    claude.wait_ready();
    claude.prompt("two");
    assert_eq!(claude.exit(), Exit::Code(0));
    // The copy outlives the terminal; nobody sees its end, and the next command finds it.
    for pid in scene.stage.home.residents() {
        processes::signal(pid, Signal::KILL);
        assert!(processes::wait_dead(pid, TIMEOUT), "{pid} outlives a kill");
    }
    assert!(scene.codemie(&["list"]).status.success());
    scene.expect(&["A startup by assigned [one | two] exit 0", "B startup by registry [go on] crash"]);
    let recorded = scene.recorded();
    let [parent, fork] = &recorded[..] else { panic!("{}", scene.picture()) };
    assert_eq!(fork.record.parent_session_id.as_ref(), Some(&parent.record.session_id));
    assert_eq!(parent.record.parent_session_id, None);
}

/// The terminal ends, and the conversation goes on under a new id whenever somebody asks.
#[test]
fn given_to_the_background_claude_2_1_325() {
    let Some(scene) = Scene::set_version(Agent::Claude, "2.1.325") else { return };
    let claude = scene.start(&[]);
    claude.prompt("one");
    claude.command("/background");
    assert_eq!(claude.terminal.wait_exit(), Exit::Code(0));
    drop(claude);
    let recorded = scene.recorded();
    let [before, after] = &recorded[..] else { panic!("{}", scene.picture()) };
    assert_eq!(before.record.transitioned_to.as_ref(), Some(&after.record.session_id));
    let conversation = after.record.correlation.agent_session_id.as_ref().unwrap().0.clone();

    // Attached again, without a session of codemie's: what is said is found by the next command.
    let claude = scene.start(&["attach", &conversation[..8]]);
    claude.prompt("two");
    assert!(scene.codemie(&["list"]).status.success());
    scene.expect(&["A startup by assigned [one] switch -> B", "B switch from A by log [two] exit 0"]);
}
