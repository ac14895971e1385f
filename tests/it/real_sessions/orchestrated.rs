//! Several real agents in the background at once, each spoken to, waited for and read: when `wait` reports the turn's end, the
//! answer can be read, also right after a `/clear`.

use std::process::Output;

use serde_json::Value;

use super::scene::Scene;
use crate::support::agents::{Agent, in_full_form};
use crate::support::processes;
use crate::support::scripted::await_some;

/// Sessions at once, and rounds of each.
fn size() -> (usize, usize) {
    if std::env::var_os("CODEMIE_TEST_FULL").is_some() { (8, 25) } else { (2, 4) }
}

/// Every so many rounds a new conversation is begun first.
const CLEAR_EVERY: usize = 4;

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// One round; what is wrong with it.
fn round(scene: &Scene, name: &str, question: &str) -> Option<String> {
    let sent = json(&scene.codemie(&["send", name, question, "--timeout", "120s", "--json"]));
    let cursor = sent["cursor"].as_str().unwrap_or_default();
    // Right after a `/clear` nothing may show yet what the agent does with it.
    if !matches!(sent["result"].as_str(), Some("turn_started" | "accepted" | "queued")) {
        return Some(format!("{question}: {sent}"));
    }
    let waiting = ["wait", name, "--cursor", cursor, "--until", "turn-end", "--timeout", "120s", "--json"];
    let waited = json(&scene.codemie(&waiting));
    let session = waited["sessionId"].as_str().unwrap_or(name);
    let page = json(&scene.codemie(&["view", session, "--json"]));
    let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
    let asked = items.iter().rposition(|item| {
        item["role"] == "user" && item["text"].as_str().is_some_and(|text| text.contains(question))
    });
    let answered = asked.is_some_and(|at| items[at..].iter().any(|item| item["role"] == "assistant"));
    let right = answered
        && waited["result"] == "turn-end"
        && waited["state"]["is"] != "working"
        && waited.get("answer").is_none_or(Value::is_null);
    (!right).then(|| format!("{question}: {waited}\n{page}"))
}

/// Starts one and waits until it can be spoken to. One after the other: of several Codex that make a new home at once some give up.
fn start(scene: &Scene, agent: Agent, name: &str) {
    // Of several Gemini CLI in one folder, one takes the first file of another away, and nothing tells two new conversations apart.
    let folder = scene.stage.home.project().join(if agent == Agent::Gemini { name } else { "" });
    std::fs::create_dir_all(&folder).unwrap();
    let started = scene.codemie_in(&folder, &["run", "--detach", "--name", name, agent.name()]);
    assert!(started.status.success(), "{started:?}");
    await_some("an idle agent", || {
        let shown = json(&scene.codemie(&["show", name, "--json"]));
        assert_eq!(shown["status"], "active", "{shown}");
        (shown["state"]["is"] == "idle").then_some(())
    });
}

fn answers_are_there_when_a_turn_has_ended(agent: Agent, scene: &Scene) {
    let (sessions, rounds) = size();
    let name_of = |number: usize| format!("worker{number}");
    (0..sessions).for_each(|number| start(scene, agent, &name_of(number)));
    let one = |number: usize| {
        let (name, mut wrong) = (name_of(number), Vec::new());
        for n in 0..rounds {
            if n % CLEAR_EVERY == CLEAR_EVERY - 1 {
                let cleared = json(&scene.codemie(&["send", &name, "/clear", "--timeout", "120s", "--json"]));
                if cleared["result"] == "rejected" {
                    wrong.push(format!("{name}: {cleared}"));
                }
            }
            wrong.extend(round(scene, &name, &format!("question {number}-{n}.")));
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..sessions).map(|number| scope.spawn(move || one(number))).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    processes::kill_started_in(scene.stage.home.path());
    println!("{}: {} of {} rounds wrong", agent.name(), wrong.len(), sessions * rounds);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn answers_of_claude_can_be_read() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    answers_are_there_when_a_turn_has_ended(Agent::Claude, &scene);
}

#[test]
fn answers_of_claude_2_1_325_can_be_read() {
    let Some(scene) = Scene::set_version(Agent::Claude, "2.1.325") else { return };
    answers_are_there_when_a_turn_has_ended(Agent::Claude, &scene);
}

#[test]
fn answers_of_codex_can_be_read() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    answers_are_there_when_a_turn_has_ended(Agent::Codex, &scene);
}

#[test]
fn answers_of_gemini_can_be_read() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    answers_are_there_when_a_turn_has_ended(Agent::Gemini, &scene);
}

#[test]
fn answers_of_qwen_can_be_read() {
    if !in_full_form() {
        return;
    }
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    answers_are_there_when_a_turn_has_ended(Agent::Qwen, &scene);
}
