//! `codemie top` over background sessions: they are read, sent texts, attached to and stopped from there.

use super::Scene;
use crate::sandbox::CODEMIE;
use crate::support::pty::Start;

#[test]
fn a_background_session_is_attached_to_and_stopped_from_top() {
    let scene = Scene::new();
    scene.start("talk", "stty -echo; echo ready; while read line; do echo \"got $line\"; done");
    let terminal = Start::new([CODEMIE, "top"])
        .env("HOME", scene.sandbox.home())
        .env("PATH", "/usr/bin:/bin")
        .env("PAGER", "sed s/ready/as-in-the-pager/; read -r line </dev/tty")
        .size(24, 100)
        .spawn();
    terminal.wait_text("1 active");
    terminal.wait_text("in the background; a attaches this terminal");
    // One that starts meanwhile is shown at once.
    scene.start("other", "sleep 600");
    terminal.wait_text("2 active");
    terminal.send("\r");
    terminal.wait_text("as-in-the-pager");
    terminal.send("\r");
    terminal.wait_text("2 active");
    // The way of `codemie send`, with its answer: only agents take prompts.
    terminal.send("m");
    terminal.wait_text("to talk: ");
    terminal.send("hi\r");
    terminal.wait_text("talk: rejected: ");
    terminal.send("a");
    terminal.wait_text("ready");
    terminal.send("hello\r");
    terminal.wait_text("got hello");
    terminal.send("\x1cd");
    terminal.wait_for("the view again", |view| {
        let text = view.text();
        text.contains("2 active") && text.contains("detached from talk")
    });
    terminal.send("s");
    terminal.wait_text("Stop talk, with everything it started? y/n");
    terminal.send("y");
    terminal.wait_for("its end", |view| {
        let text = view.text();
        text.contains("talk has been stopped.") && text.contains("1 active")
    });
    terminal.send("q");
    assert_eq!(terminal.wait_exit().shell_code(), 0);
    assert_eq!(terminal.modes(), terminal.first_modes());
    assert_eq!(scene.await_ended("talk")["endReason"], "stopped");
}
