//! How runs end that are not left by the agent's own command, and what is found of one that vanished.

use rustix::process::Signal;

use crate::real_sessions::ending::wait_gone;
use crate::real_sessions::scene::Scene;
use crate::support::agents::Agent;
use crate::support::pty::Exit;

#[test]
fn ended_by_signals_and_killed_in_the_middle_of_an_answer() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    // It does not catch them: its launcher dies of the same signal, and so does codemie.
    for (prompt, signal) in [("one", Signal::TERM), ("two", Signal::HUP)] {
        let codex = scene.start(&[]);
        codex.prompt(prompt);
        codex.signal(signal);
        assert_eq!(codex.terminal.wait_exit(), Exit::Signal(signal.as_raw()));
    }
    scene.expect(&["A startup by registry [one] signal", "B startup by registry [two] signal"]);

    let codex = scene.start(&[]);
    codex.prompt("three");
    codex.clear();
    codex.prompt("four");
    let since = codex.ask("five [hold gate]");
    codex.wait_call("the question", since, |call| call.prompt.contains("five"));
    codex.signal(Signal::KILL);
    assert_eq!(codex.terminal.wait_exit(), Exit::Signal(9));
    wait_gone(&scene);
    assert!(scene.codemie(&["list", "--json"]).status.success());
    scene.expect(&[
        "A startup by registry [one] signal",
        "B startup by registry [two] signal",
        "C startup by registry [three] clear -> D",
        "D clear from C by registry [four] crash",
    ]);
}
