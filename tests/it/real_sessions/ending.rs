//! How runs end that are not left by the agent's own command, and what is found of one that vanished.

use std::time::Duration;

use rustix::process::Signal;
use types::SessionRecord;
use types::Status;

use super::scene::Scene;
use crate::support::processes;
use crate::support::pty::Exit;

on_both_versions!(ended_by_signals, killed_in_the_middle_of_an_answer);

fn ended_by_signals(scene: &Scene) {
    for (prompt, signal, code) in [("one", Signal::TERM, 143), ("two", Signal::HUP, 129)] {
        let claude = scene.start(&[]);
        claude.prompt(prompt);
        claude.signal(signal);
        assert_eq!(claude.terminal.wait_exit(), Exit::Code(code));
    }
    let claude = scene.start(&[]);
    claude.prompt("three");
    claude.command("/clear");
    claude.signal(Signal::TERM);
    assert_eq!(claude.terminal.wait_exit(), Exit::Code(143));

    let (a, b) = ("A startup by assigned [one] signal 143", "B startup by assigned [two] signal 129");
    // Whether it still cleared is the agent's affair.
    if scene.recorded().len() == 3 {
        scene.expect(&[a, b, "C startup by assigned [three] signal 143"]);
    } else {
        let cleared = "C startup by assigned [three] clear -> D";
        scene.expect(&[a, b, cleared, "D clear from C by registry [] signal 143"]);
    }
}

fn killed_in_the_middle_of_an_answer(scene: &Scene) {
    let claude = scene.start(&[]);
    claude.prompt("one");
    claude.clear();
    claude.prompt("two");
    let since = claude.ask("three [hold gate]");
    claude.wait_call("the question", since, |call| call.prompt.contains("three"));
    claude.signal(Signal::KILL);
    assert_eq!(claude.terminal.wait_exit(), Exit::Signal(9));
    wait_gone(scene);

    // Whatever comes next finds it, and finds it before it says anything.
    let listed = scene.codemie(&["list", "--json"]);
    let listed: Vec<SessionRecord> = serde_json::from_slice(&listed.stdout).unwrap();
    let listed: Vec<Status> = listed.iter().map(|session| session.status).collect();
    assert_eq!(listed, [Status::Interrupted, Status::Completed]);
    scene.expect(&["A startup by assigned [one] clear -> B", "B clear from A by registry [two] crash"]);
}

/// Waits until nobody of the scene's home is left.
pub(super) fn wait_gone(scene: &Scene) {
    for pid in scene.stage.home.residents() {
        assert!(processes::wait_dead(pid, Duration::from_secs(30)), "{pid} outlives the wrapper");
    }
}
