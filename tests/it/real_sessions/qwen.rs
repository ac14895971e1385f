//! Qwen Code. Where its memory is on, a sub-agent looks after each turn for something to remember: [`remembering`].

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::scene::{Played, Scene};
use super::story::spent;
use super::together::two_clear;
use crate::support::agents::Agent;
use crate::support::fake_api::{Call, Kind, Spent, Status};
use crate::support::pty::Exit;
use crate::support::screen::menu_choice;

/// Waits for the answer to the prompt of the command line.
fn first_answer(qwen: &Played<'_>, prompt: &str) {
    let answer = qwen.wait_answer(prompt, 0);
    qwen.wait_written(&answer);
    qwen.wait_ready();
}

/// A sub-agent works in the background; what it came to is handed to the model, whose answer is the end of it.
fn helped(qwen: &Played<'_>, prompt: &str) {
    let since = qwen.ask(prompt);
    let answers_it = |call: &Call| {
        let notified = call.body["messages"].as_array().unwrap().last().unwrap().to_string();
        call.kind == Kind::Main && call.status == Status::Complete && notified.contains("<task-notification>")
    };
    let answer = qwen.wait_call("what the sub-agent came to", since, answers_it);
    qwen.wait_written(&answer);
    qwen.wait_ready();
}

#[test]
fn qwen_clears_tools_and_errors() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    let qwen = scene.start(&["--yolo", "--prompt-interactive", "first"]);
    first_answer(&qwen, "first");
    qwen.clear();
    let file = scene.stage.home.project().join("notes.txt");
    let tools = format!("tools [write {0}] [edit {0}] [run exit 3]", file.display());
    qwen.prompt(&tools);
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n2b\nthree\n");
    qwen.moves(|run| run.command_as("/new", "clear"));
    helped(&qwen, "helped [subagent say hello]");
    qwen.moves(|run| run.command_as("/reset", "clear"));
    // Refused by the API, and then not.
    qwen.ask("bad [error 400]");
    qwen.wait_for("the refusal", |_, view| view.text().contains("API Error"));
    qwen.wait_ready();
    qwen.prompt("good again");
    // By the menu, which completes the first letters by Enter or Tab.
    for (letters, key, prompt) in [("/cl", "\r", "completed by Enter"), ("/cle", "\t", "completed by Tab")] {
        qwen.moves(|run| {
            run.type_text(letters);
            run.wait_menu("clear");
            run.terminal.send(key);
            run.wait_composer("/clear");
            // Before the menu has gone it completes once more.
            run.wait_for("no menu", |agent, view| menu_choice(agent, &view.text()).is_none());
            run.enter();
        });
        qwen.prompt(prompt);
    }
    qwen.moves(|run| run.command("/clear"));
    qwen.moves(|run| {
        run.terminal.send("\x1b[A");
        run.wait_composer("/clear");
        run.enter();
    });
    // And out without a word.
    assert_eq!(qwen.exit(), Exit::Code(0));
    drop(qwen);
    scene.expect(&[
        "A startup by assigned [first] clear -> B",
        &format!("B clear from A by registry [{tools}] clear -> C"),
        "C clear from B by registry [helped [subagent say hello]] clear -> D",
        "D clear from C by registry [good again] clear -> E",
        "E clear from D by registry [completed by Enter] clear -> F",
        "F clear from E by registry [completed by Tab] clear -> G",
        "G clear from F by registry [] clear -> H",
        "H clear from G by registry [] exit 0",
    ]);
    let recorded = scene.recorded();
    let usage = |at: usize| &recorded[at].record.usage;
    let b = usage(1);
    assert_eq!(
        (b.prompts, b.tool_calls, b.tool_errors, b.files_changed),
        (1, 3, 1, 1),
        "a command that fails is an error"
    );
    assert_eq!((b.lines_added, b.lines_removed), (5, 1), "three written, one made two");
    assert_eq!((usage(2).prompts, usage(2).tool_calls), (1, 1));
    assert_eq!((usage(3).prompts, usage(3).api_errors), (2, 1));
    assert_eq!(recorded[7].record.correlation.agent_session_file, None, "nothing was said in it");
    assert_eq!(recorded[0].record.agent_version.as_deref(), Some("0.24.4"));
}

#[test]
fn qwen_print_and_resume() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    let printed = scene.print(&["-p", "one"], "");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let first = scene.log().sessions()[0].clone();
    let refused = scene.print(&["never [error 400]"], "");
    assert_eq!(refused.status.code(), Some(1), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(scene.print(&["--resume", &first, "-p", "two"], "").status.success());
    scene.expect(&["A startup+resume by assigned [one | two] exit 0", "B startup by assigned [] exit 1"]);

    let qwen = scene.start(&["--resume", &first]);
    qwen.prompt("three");
    assert_eq!(qwen.exit(), Exit::Code(0));
    drop(qwen);
    // The latest one.
    let qwen = scene.start(&["-c"]);
    qwen.prompt("four");
    qwen.clear();
    qwen.prompt("five");
    qwen.moves(|run| {
        run.command("/resume");
        run.wait_for("the picker", |_, view| view.text().contains("│ › five"));
        run.terminal.send("\x1b[B");
        run.wait_for("the second line", |_, view| view.text().contains("│ › one"));
        run.enter();
    });
    qwen.prompt("six");
    assert_eq!(qwen.exit(), Exit::Code(0));
    drop(qwen);
    scene.expect(&[
        "A startup+resume+resume+resume+switch from C by assigned [one | two | three | four | six] exit 0",
        "B startup by assigned [] exit 1",
        "C clear from A by registry [five] switch -> A",
    ]);
    let view = String::from_utf8(scene.codemie(&["view", &first]).stdout).unwrap();
    for said in ["one", "two", "three", "four", "six"] {
        assert_eq!(view.lines().filter(|line| line.trim() == said).count(), 1, "{view}");
    }
    assert!(!view.contains("five"), "{view}");
}

#[test]
fn qwen_forks_and_the_picker_at_the_start() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    let qwen = scene.start(&[]);
    qwen.prompt("one");
    let first = scene.log().sessions()[0].clone();
    assert_eq!(qwen.exit(), Exit::Code(0));
    drop(qwen);
    let qwen = scene.start(&["--resume", &first, "--fork-session"]);
    qwen.prompt("two");
    assert_eq!(qwen.exit(), Exit::Code(0));
    drop(qwen);
    assert!(scene.print(&["-c", "--fork-session", "-p", "three"], "").status.success());
    let qwen = scene.launch(&["--resume"]);
    qwen.wait_for("the picker", |_, view| view.text().contains("│ › one"));
    qwen.enter();
    qwen.wait_ready();
    qwen.prompt("four");
    assert_eq!(qwen.exit(), Exit::Code(0));
    drop(qwen);
    scene.expect(&[
        "A startup by assigned [one] exit 0",
        // A fork's file stands there before the registry's entry, and with `-p` there is none.
        "B startup by log [two] exit 0",
        "C startup+resume by log [three | four] exit 0",
    ]);
}

/// Without codemie's id a run in a terminal is bound by its registry entry, and a printed one by its file or by nothing.
#[test]
fn qwen_without_our_id() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    scene.configure("[agent.qwen]\ninject = false\n");
    let qwen = scene.start(&[]);
    qwen.prompt("one");
    qwen.clear();
    qwen.prompt("two");
    assert_eq!(qwen.exit(), Exit::Code(0));
    drop(qwen);
    scene.expect(&["A startup by registry [one] clear -> B", "B clear from A by registry [two] exit 0"]);
    assert!(scene.print(&["-p", "printed"], "").status.success());
    let (recorded, log) = (scene.recorded(), scene.log());
    let (printed, conversation) = (&recorded[2].record, log.sessions().pop().unwrap());
    assert_eq!((recorded.len(), log.sessions().len()), (3, 3), "{}", scene.picture());
    // Its file is empty at first. Where the prompt comes more than a second later (a busy machine), another process may have made it.
    match &printed.correlation.agent_session_id {
        Some(id) => assert_eq!((&id.0, spent(printed)), (&conversation, log.recorded(&conversation))),
        None => assert_eq!(spent(printed), Spent::default(), "{}", scene.picture()),
    }
}

#[test]
fn qwen_ended_by_signals() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    for (prompt, signal) in [("one", Signal::TERM), ("two", Signal::HUP)] {
        let qwen = scene.start(&[]);
        qwen.prompt(prompt);
        qwen.signal(signal);
        assert_eq!(qwen.terminal.wait_exit(), Exit::Signal(signal.as_raw()));
    }
    scene.expect(&["A startup by assigned [one] signal", "B startup by assigned [two] signal"]);
}

#[test]
fn two_qwens_that_clear_at_once() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    two_clear(&scene, "assigned", "registry");
}

/// Has its memory on, as it is by default.
fn remembering(scene: &Scene) {
    let path = scene.stage.home.path().join(".qwen/settings.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    settings["memory"] = json!({"enableManagedAutoMemory": true});
    fs::write(path, settings.to_string()).unwrap();
}

/// What it looks for after a turn is written down and counted, what it suggests to type next is neither.
#[test]
fn qwen_memories_are_counted_and_suggestions_are_not() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    remembering(&scene);
    let qwen = scene.start(&[]);
    let mut seen = 0;
    for prompt in ["one", "two"] {
        qwen.prompt(prompt);
        let remembered = |call: &Call| call.kind == Kind::Subagent && call.status == Status::Complete;
        let call = qwen.wait_call("the memory's call", seen, remembered);
        qwen.wait_written(&call);
        seen = scene.stage.api.log().calls.len();
    }
    let suggested = |call: &Call| call.kind == Kind::Suggestion && call.status == Status::Complete;
    let suggestion = qwen.wait_call("a suggestion", 0, suggested);
    assert_eq!(qwen.exit(), Exit::Code(0));
    assert!(!scene.is_written(&suggestion));
    drop(qwen);
    scene.expect(&["A startup by assigned [one | two] exit 0"]);
    assert_eq!(scene.recorded()[0].record.usage.api_calls, 4);
}
