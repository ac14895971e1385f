//! Gemini CLI. It takes seconds to its prompt, so a run is made to tell as much as it can.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use types::Link;
use types::SessionRecord;
use types::Timestamp;

use super::scene::{Played, Scene};
use crate::support::agents::Agent;
use crate::support::pty::Exit;
use crate::support::screen::menu_choice;

const YOLO: [&str; 2] = ["--approval-mode", "yolo"];

#[test]
fn gemini_clears_tools_and_errors() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    let gemini = scene.start(&YOLO);
    gemini.prompt("first");
    gemini.clear();
    let file = scene.stage.home.project().join("notes.txt");
    gemini.prompt(&format!("tools [write {0}] [edit {0}] [run exit 3]", file.display()));
    gemini.moves(|run| run.command_as("/new", "clear"));
    gemini.prompt("helped [subagent say hello]");
    // Completed by the menu, and recalled.
    gemini.moves(|run| run.command_as("/cl", "clear"));
    gemini.moves(|run| {
        run.terminal.send("\x1b[A");
        run.wait_composer("/clear");
        run.enter();
    });
    // Refused by the API, and then not.
    gemini.ask("bad [error 400]");
    gemini.wait_for("the refusal", |_, view| view.text().contains("API Error"));
    gemini.wait_ready();
    gemini.prompt("good again");
    gemini.moves(|run| run.command("/clear"));
    gemini.prompt(" leading space");
    gemini.moves(|run| run.command("/clear"));
    // And out without a word: the agent takes its file away, the session stands.
    assert_eq!(gemini.exit(), Exit::Code(0));
    drop(gemini);
    scene.expect(&[
        "A startup by assigned [first] clear -> B",
        &format!(
            "B clear from A by log [tools [write {0}] [edit {0}] [run exit 3]] clear -> C",
            file.display()
        ),
        "C clear from B by log [helped [subagent say hello]] clear -> D",
        "D clear from C by log [] clear -> E",
        "E clear from D by log [good again] clear -> F",
        "F clear from E by log [leading space] clear -> G",
        "G clear from F by log [] exit 0",
    ]);
    let recorded = scene.recorded();
    let since: Vec<i64> = recorded[1..6].iter().map(|session| since_file(&session.record)).collect();
    println!("ms from a conversation's first line to its START: {since:?}");
    let usage = |at: usize| &recorded[at].record.usage;
    let b = usage(1);
    assert_eq!((b.prompts, b.tool_calls, b.tool_errors, b.files_changed), (1, 3, 0, 1));
    assert_eq!((b.lines_added, b.lines_removed), (5, 1), "three written, one made two");
    assert_eq!((usage(2).prompts, usage(2).tool_calls), (1, 2), "a sub-agent's call counts under its root");
    assert_eq!((usage(4).prompts, usage(4).api_errors), (2, 1));
    assert!(recorded[3].record.correlation.agent_session_file.is_some(), "it takes away only what it is in");
    assert_eq!(recorded[6].record.correlation.agent_session_file, None, "nothing was said in it");
    assert_eq!(recorded[0].record.agent_version.as_deref(), Some("0.61.0"));
}

/// Enter takes what the menu offers, even if that was for what was typed before.
fn menu_is_gone(gemini: &Played<'_>) {
    // Below the box stands then where one is.
    gemini.wait_for("no menu", |agent, view| {
        menu_choice(agent, &view.text()).is_some_and(|choice| choice == "workspace")
    });
}

/// How long after its file began a session did, in milliseconds.
fn since_file(session: &SessionRecord) -> i64 {
    let file = session.correlation.agent_session_file.as_ref().unwrap();
    let text = fs::read_to_string(file).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    session.start_time.0 - Timestamp::parse(header["startTime"].as_str().unwrap()).unwrap().0
}

#[test]
fn gemini_print_resume_and_the_browser() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    let printed = scene.print(&["-p", "one"], "");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let refused = scene.print(&["-p", "never [error 400]"], "");
    assert_eq!(refused.status.code(), Some(1));
    let first = scene.log().sessions()[0].clone();
    // The latest is the refused one, in which nothing was answered; by number it is the first.
    assert!(scene.print(&["--resume", "1", "-p", "two"], "").status.success());
    scene.expect(&["A startup+resume by assigned [one | two] exit 0", "B startup by assigned [] exit 1"]);

    let gemini = scene.start(&["--resume", &first]);
    gemini.prompt("three");
    gemini.clear();
    gemini.prompt("four");
    gemini.moves(|run| {
        run.command("/resume");
        // The first line is where we are.
        run.wait_for("the browser", |_, view| view.text().contains("❯ #1"));
        run.terminal.send("\x1b[B");
        run.wait_for("the second line", |_, view| view.text().contains("❯ #2"));
        run.enter();
    });
    gemini.prompt("five");
    assert_eq!(gemini.exit(), Exit::Code(0));
    drop(gemini);
    scene.expect(&[
        "A startup+resume+resume+switch from C by assigned [one | two | three | five] exit 0",
        "B startup by assigned [] exit 1",
        "C clear from A by log [four] switch -> A",
    ]);
    let view = scene.codemie(&["view", &first]);
    let view = String::from_utf8_lossy(&view.stdout).into_owned();
    for said in ["one", "two", "three", "five"] {
        assert_eq!(view.matches(said).count(), 1, "{view}");
    }
    assert!(!view.contains("four"), "{view}");
}

#[test]
fn gemini_ended_by_signals() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    // To the agent's first process alone they mean nothing; its group has to have them.
    for (prompt, signal) in [("one", Signal::TERM), ("two", Signal::HUP)] {
        let gemini = scene.start(&[]);
        gemini.prompt(prompt);
        gemini.signal(signal);
        assert_eq!(gemini.terminal.wait_exit(), Exit::Code(0));
    }
    scene.expect(&["A startup by assigned [one] signal 0", "B startup by assigned [two] signal 0"]);
}

#[test]
fn two_geminis_that_clear_at_once() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    let pair = [scene.launch(&[]), scene.launch(&[])];
    for gemini in &pair {
        gemini.wait_ready();
    }
    for (gemini, name) in pair.iter().zip(["left", "right"]) {
        gemini.prompt(name);
    }
    let before = pair.each_ref().map(Played::session);
    for gemini in &pair {
        gemini.type_text("/clear");
    }
    for gemini in &pair {
        gemini.enter();
    }
    for (gemini, before) in pair.iter().zip(&before) {
        gemini.moves_from(before, |_| {});
    }
    for gemini in &pair {
        // END and START stand; which file is whose nobody knows.
        let session = gemini.session();
        let now = scene.wait("both files seen", |records| {
            let now = records.iter().find(|record| record.session_id == session.session_id)?;
            (now.correlation.status == Link::Ambiguous).then(|| now.clone())
        });
        assert_eq!(now.correlation.agent_session_id, None);
    }
    for (gemini, name) in pair.iter().zip(["left again", "right again"]) {
        gemini.prompt(name);
    }
    for gemini in &pair {
        assert_eq!(gemini.exit(), Exit::Code(0));
    }
    let sides = |record: &str| if record == before[0].session_id { "left" } else { "right" };
    let recorded = scene.recorded();
    assert_eq!(recorded.len(), 4);
    let story: Vec<String> = super::story::story(&recorded, &scene.log());
    for session in &recorded[2..] {
        let side = sides(session.record.transitioned_from.as_ref().unwrap());
        let line = story.iter().find(|line| line.contains(&format!("[{side} again]"))).unwrap();
        assert!(line.contains(" by log ") && line.ends_with("exit 0"), "{story:#?}");
    }
    let lines: Vec<&str> = story.iter().map(String::as_str).collect();
    scene.expect(&lines);
}

/// One that starts takes away what is empty in its folder, another's file too; that one writes on without a header.
#[test]
fn a_gemini_whose_file_another_takes_away() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    let idle = scene.start(&YOLO);
    let session = idle.session().session_id;
    let file = scene.wait("its file", |records| {
        let record = records.iter().find(|record| record.session_id == session)?;
        record.correlation.agent_session_file.clone().filter(|file| fs::exists(file).unwrap())
    });
    let other = scene.start(&YOLO);
    scene.wait("it was taken away", |_| (!fs::exists(&file).unwrap()).then_some(()));
    idle.prompt("spoken after all");
    idle.clear();
    other.prompt("the other");
    for gemini in [&idle, &other] {
        assert_eq!(gemini.exit(), Exit::Code(0));
    }
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["sessionId"].is_null(), "{text}");
    let calls: Vec<&Value> = lines.iter().filter(|line| line["tokens"].is_object()).collect();
    let tokens =
        |kind: &str| -> u64 { calls.iter().map(|line| line["tokens"][kind].as_u64().unwrap()).sum() };
    let output = tokens("output") + tokens("thoughts");
    let recorded = scene.recorded();
    let told = &recorded.iter().find(|told| told.record.session_id == session).unwrap().record;
    assert_eq!((told.usage.prompts, told.usage.api_calls), (1, i64::try_from(calls.len()).unwrap()));
    assert_eq!(told.usage.output_tokens, i64::try_from(output).unwrap());
    assert_eq!(told.correlation.agent_session_file.as_ref(), Some(&file));
    assert!(output > 0 && told.transitioned_to.is_some() && recorded.len() == 3);
}

#[test]
fn gemini_without_our_id_and_what_stays_in_a_conversation() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    scene.configure("[agent.gemini]\ninject = false\n");
    let gemini = scene.start(&YOLO);
    gemini.prompt("one");
    gemini.prompt("two");
    gemini.type_text("/chat save here");
    menu_is_gone(&gemini);
    gemini.enter();
    gemini.wait_for("the checkpoint", |_, view| view.text().contains("checkpoint saved"));
    gemini.prompt("three");
    gemini.type_text("/chat resume here");
    gemini.wait_menu("here");
    gemini.enter();
    gemini.wait_for("the checkpoint's end", |_, view| !view.text().contains("three"));
    gemini.wait_ready();
    gemini.prompt("four");
    gemini.command("/rewind");
    gemini.wait_for("the prompts", |_, view| view.text().contains("● Stay"));
    gemini.terminal.send("\x1b[A");
    gemini.wait_for("the last prompt", |_, view| view.text().contains("● four"));
    gemini.enter();
    gemini.wait_for("the question", |_, view| view.text().contains("● 1. Rewind"));
    gemini.enter();
    // It gives the prompt back to be changed.
    gemini.wait_composer("four");
    gemini.terminal.send("teen");
    gemini.wait_composer("fourteen");
    gemini.enter();
    gemini.wait_answer("fourteen", 0);
    gemini.wait_ready();
    gemini.clear();
    gemini.prompt("five");
    assert_eq!(gemini.exit(), Exit::Code(0));
    drop(gemini);
    scene.expect(&[
        "A startup by log [one | two | three | four | fourteen] clear -> B",
        "B clear from A by log [five] exit 0",
    ]);
    let first = &scene.recorded()[0].record;
    assert_eq!(first.usage.prompts, 5, "what was written again was not asked again");
    let view = String::from_utf8(scene.codemie(&["view", &first.session_id]).stdout).unwrap();
    let said = |text: &str| view.lines().filter(|line| line.ends_with(text)).count();
    // The checkpoint's first message holds the agent's own context too, and a rewind takes it out of the conversation.
    assert_eq!(
        [said("one"), said("two"), said("three"), said("fourteen")],
        [0, 1, 0, 1],
        "as it stands now: {view}"
    );
    assert_eq!(said(" four"), 0, "{view}");
}
