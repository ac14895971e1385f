//! The real agents in the background: started, spoken to, waited for, looked at, cleared and stopped, and what was recorded of it
//! equals the API's log.

use std::ffi::OsString;
use std::process::Output;

use serde_json::Value;

use super::scene::Scene;
use crate::support::agents::{Agent, in_full_form};
use crate::support::fake_api::{Call, Kind, Status};
use crate::support::processes;
use crate::support::pty::{Exit, Start};
use crate::support::run::AgentRun;
use crate::support::scripted::await_some;
use crate::support::stage::TIMEOUT;

const NAME: &str = "hosted";

/// A session in the background that ends with the test.
struct Hosted<'a> {
    scene: &'a Scene,
    agent: Agent,
}

impl Drop for Hosted<'_> {
    fn drop(&mut self) {
        processes::kill_started_in(self.scene.stage.home.path());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl<'a> Hosted<'a> {
    /// Starts it and waits until it is known to be idle.
    fn start(scene: &'a Scene, agent: Agent, arguments: &[&str]) -> Self {
        let hosted = Self { scene, agent };
        let line = [&["run", "--detach", "--name", NAME, agent.name()][..], arguments].concat();
        let output = scene.codemie(&line);
        assert!(output.status.success(), "{output:?}");
        let id = text(&output.stdout);
        let record = hosted.show(id.trim());
        assert_eq!((&record["name"], &record["status"]), (&NAME.into(), &"active".into()), "{record}");
        hosted
    }

    fn run(&self, line: &[&str]) -> Output {
        self.scene.codemie(line)
    }

    fn show(&self, session: &str) -> Value {
        let output = self.run(&["show", session, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// Waits until the session is in this state.
    fn wait_state(&self, wanted: &str) -> Value {
        let mut last = Value::Null;
        let mut look = || {
            last = self.show(NAME)["state"].clone();
            (last["is"] == wanted).then(|| last.clone())
        };
        let deadline = std::time::Instant::now() + TIMEOUT;
        loop {
            if let Some(state) = look() {
                return state;
            }
            if std::time::Instant::now() > deadline {
                let screen = self.screen();
                panic!("never {wanted}: {last}\n{screen}\n{}", self.scene.picture());
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn screen(&self) -> String {
        let run = self.show(NAME)["runId"].as_str().unwrap().parse().unwrap();
        let home = os::home::Home::at(self.scene.stage.home.codemie_home());
        runtime::remote::client::screen(&home, run)
            .map_or_else(|error| error.to_string(), |rows| rows.join("\n"))
    }

    /// Sends a text; returns the answer.
    fn send(&self, session: &str, message: &str, expected: &[&str]) -> Value {
        let output = self.run(&["send", session, message, "--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{output:?}\n{}\n{}", self.screen(), self.scene.picture()));
        let result = answer["result"].as_str().unwrap();
        assert!(
            expected.contains(&result),
            "{message:?}: {answer}\n{}\n{}",
            self.screen(),
            self.scene.picture()
        );
        answer
    }

    fn wait(&self, session: &str, cursor: &Value, until: &str) -> Value {
        let cursor = cursor.as_str().unwrap();
        let output = self.run(&["wait", session, "--cursor", cursor, "--until", until, "--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(answer["result"], until, "{answer}\n{}\n{}", self.screen(), self.scene.picture());
        answer
    }

    /// Asks something and waits until the turn is over and its answer is in the conversation's file.
    fn prompt(&self, session: &str, message: &str) -> Call {
        let sent = self.send(session, message, &["turn_started"]);
        self.wait(session, &sent["cursor"], "turn-end");
        self.written(message)
    }

    fn written(&self, message: &str) -> Call {
        let call = self.scene.stage.api.wait_for(TIMEOUT, |log| {
            let answered = |call: &&Call| {
                call.kind == Kind::Main
                    && call.status == Status::Complete
                    && call.text.is_some()
                    && call.prompt.contains(message)
            };
            log.calls.iter().find(answered).cloned()
        });
        let call =
            call.unwrap_or_else(|| panic!("{message:?} never came to the API\n{}", self.scene.picture()));
        await_some("the answer in the conversation's file", || self.scene.is_written(&call).then_some(()));
        call
    }

    /// A person's terminal, attached.
    fn attach(&self) -> AgentRun<'a> {
        let argv: Vec<OsString> = vec![env!("CARGO_BIN_EXE_codemie").into(), "attach".into(), NAME.into()];
        let terminal = self.scene.stage.prepare(Start::new(argv)).spawn();
        AgentRun { terminal, agent: self.agent, stage: &self.scene.stage }
    }
}

fn whole_life(agent: Agent, scene: &Scene) {
    let hosted = Hosted::start(scene, agent, &[]);
    hosted.wait_state("idle");
    hosted.prompt(NAME, "first");
    hosted.prompt(NAME, "second\nof two lines");
    let view = text(&hosted.run(&["view", NAME]).stdout);
    assert!(view.contains("of two lines"), "{view}");

    let person = hosted.attach();
    person.wait_ready();
    person.prompt("third");
    person.terminal.send("\x1cd");
    assert_eq!(person.terminal.wait_exit(), Exit::Code(0));
    assert!(person.terminal.text().contains("detached from"), "{}", person.terminal.text());

    let before = hosted.show(NAME)["sessionId"].clone();
    hosted.wait_state("idle");
    hosted.send(NAME, "/clear", &["accepted", "turn_started", "queued"]);
    let next = format!("{NAME}.2");
    scene.wait("the session after the clear", |records| {
        records.iter().find(|record| record.name == next).map(drop)
    });
    // Spoken to by its old name, the run answers in its new session.
    let sent = hosted.send(NAME, "fourth", &["turn_started"]);
    assert_eq!(sent["redirectedFrom"], before, "{sent}");
    hosted.wait(NAME, &sent["cursor"], "turn-end");
    hosted.written("fourth");

    let record = hosted.show(&next);
    let stopped = hosted.run(&["stop", &next]);
    assert!(stopped.status.success(), "{stopped:?}");
    for field in ["pid", "wrapperPid"] {
        let pid = record[field].as_i64().unwrap().try_into().unwrap();
        assert!(processes::wait_dead(pid, TIMEOUT), "{field} {pid} is left");
    }
    let exit = scene.recorded().last().unwrap().record.exit_code;
    let exit = exit.map_or_else(String::new, |code| format!(" {code}"));
    scene.expect_shape(&[
        "A startup [first | second\nof two lines | third] clear -> B",
        &format!("B clear from A [fourth] stopped{exit}"),
    ]);
}

#[test]
fn claude_in_the_background() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    whole_life(Agent::Claude, &scene);
}

#[test]
fn claude_2_1_325_in_the_background() {
    let Some(scene) = Scene::set_version(Agent::Claude, "2.1.325") else { return };
    whole_life(Agent::Claude, &scene);
}

#[test]
fn codex_in_the_background() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    whole_life(Agent::Codex, &scene);
}

#[test]
fn gemini_in_the_background() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    whole_life(Agent::Gemini, &scene);
}

#[test]
fn qwen_in_the_background() {
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    whole_life(Agent::Qwen, &scene);
}

/// What was sent, what the answer was, and how often it stands in the conversation.
struct Sent {
    text: String,
    when: &'static str,
    result: String,
    why: String,
}

/// Of about so many bytes, unlike any other.
fn body(n: usize) -> String {
    let line = |n: usize, size: usize| {
        let mut text = format!("text {n}:");
        while text.len() < size {
            text.push_str(" word");
        }
        text.truncate(size);
        text
    };
    match n % 6 {
        // One byte: each letter once, up to 200 texts.
        0 => char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghij"[n / 6]).to_string(),
        1 => line(n, 1700),
        2 => line(n, 4095),
        3 => line(n, 4096),
        4 => format!("text {n}:\n\tindented by a tab\n\n  and by blanks\nlast"),
        // The long ones are few: an agent takes seconds for each.
        _ if n % 18 == 17 => line(n, 100_000),
        _ => line(n, 300),
    }
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Sends of every size, while idle, while working, and right after the start: each is in the conversation exactly once where
/// the answer says so, and not at all where it was rejected.
fn table_of_sends(agent: Agent, scene: &Scene) {
    let count = if std::env::var_os("CODEMIE_TEST_FULL").is_some() { 200 } else { 30 };
    let hosted = Hosted::start(scene, agent, &[]);
    let mut sent: Vec<Sent> = Vec::new();
    for n in 0..count {
        let slow = n % 3 == 1;
        let when = match n {
            0 => "right after the start",
            _ if n % 3 == 2 => "while working",
            _ => "while idle",
        };
        let text = if slow { format!("text {n}: take your time [slow 2500]") } else { body(n) };
        let output = hosted.run(&["send", NAME, &text, "--json", "--timeout", "60s"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let word = |field: &str| answer[field].as_str().unwrap().to_owned();
        sent.push(Sent { text, when, result: word("result"), why: word("why") });
        if !slow {
            // The next one is sent to an idle agent.
            hosted.wait_state("idle");
        }
    }
    hosted.wait_state("idle");
    let prompts = || -> Vec<String> {
        let view = hosted.run(&["view", NAME, "--json", "--tail-bytes", "50000000"]);
        let page: Value = serde_json::from_slice(&view.stdout).unwrap();
        let items = page["items"].as_array().unwrap().iter();
        items
            .filter(|item| item["role"] == "user")
            .map(|item| item["text"].as_str().unwrap().to_owned())
            .collect()
    };
    // Texts that were queued one after the other may be submitted as one prompt.
    let found = |prompts: &[String], sent: &Sent| {
        let wanted = flat(&sent.text);
        let times = |text: &String| match wanted.len() {
            // A letter stands in other texts, too: as a line it is the one that was sent.
            1 => text.lines().filter(|line| line.trim() == wanted).count(),
            _ => flat(text).matches(&wanted).count(),
        };
        prompts.iter().map(times).sum::<usize>()
    };
    // What was queued is written down when its turn comes.
    let last = sent.last().unwrap();
    await_some("the last text in the conversation", || {
        (found(&prompts(), last) > 0 || last.result == "rejected").then_some(())
    });
    let prompts = prompts();
    let mut counts = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for one in &sent {
        let times = found(&prompts, one);
        *counts.entry((one.when, one.result.clone(), times.min(2))).or_insert(0) += 1;
        let right = match one.result.as_str() {
            "accepted" | "queued" | "turn_started" => times == 1,
            "rejected" => times == 0,
            _ => times <= 1,
        };
        if !right {
            wrong.push(format!(
                "{} ({} bytes, {}): {} times; {}",
                one.result,
                one.text.len(),
                one.when,
                times,
                one.why
            ));
        }
    }
    for ((when, result, times), count) in &counts {
        println!("{} {when}: {result}, {times} times in the conversation: {count}", agent.name());
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), scene.picture());
}

impl Hosted<'_> {
    /// Has it ask for the permission to make a file, and answers by the choice whose label begins so.
    fn asked_for(&self, file: &str, mark: &str, choice: &str) {
        let sent = self.send(NAME, mark, &["turn_started"]);
        let asked = self.wait(NAME, &sent["cursor"], "needs-input");
        let record = await_some("the dialog", || {
            let record = self.show(NAME);
            record["dialog"]["hash"].is_string().then_some(record)
        });
        let dialog = &record["dialog"];
        assert!(dialog["text"].as_str().unwrap().contains(&format!("touch {file}")), "{record}");
        let chosen = dialog["choices"].as_array().unwrap().iter();
        let mut chosen = chosen.filter(|one| one["label"].as_str().unwrap().starts_with(choice));
        let number = chosen.next().unwrap_or_else(|| panic!("{record}"))["number"].to_string();
        let hash = dialog["hash"].as_str().unwrap();
        let output = self.run(&["answer", NAME, "--dialog", hash, &number, "--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(answer["result"], "accepted", "{answer}\n{}", self.screen());
        // Once more it is not that dialog.
        let output = self.run(&["answer", NAME, "--dialog", hash, &number]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        self.wait(NAME, &asked["cursor"], "turn-end");
    }
}

/// The agent asks before it makes a file: with a yes it makes it, with a no it does not.
fn permissions_are_answered(agent: Agent, scene: &Scene, arguments: &[&str], yes: &str) {
    let hosted = Hosted::start(scene, agent, arguments);
    hosted.wait_state("idle");
    let project = scene.stage.home.project();
    let mark = |file: &str| match agent {
        // Codex asks where the model says that a command needs more than its sandbox.
        Agent::Codex => format!(
            r#"[tool exec_command {{"cmd": "touch {file}", "sandbox_permissions": "require_escalated", "justification": "a test"}}]"#
        ),
        _ => format!("[run touch {file}]"),
    };
    hosted.asked_for("allowed.txt", &mark("allowed.txt"), yes);
    assert!(project.join("allowed.txt").exists(), "{}", hosted.screen());
    hosted.asked_for("refused.txt", &mark("refused.txt"), "No");
    assert!(!project.join("refused.txt").exists(), "{}", hosted.screen());
}

/// Claude asks before it does anything.
fn asking_first(scene: &Scene) {
    let settings = scene.stage.home.path().join(".claude/settings.json");
    let permissions = serde_json::json!({"permissions": {"allow": [], "defaultMode": "default"}});
    std::fs::write(settings, permissions.to_string()).unwrap();
}

#[test]
fn permissions_of_claude_are_answered() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    asking_first(&scene);
    permissions_are_answered(Agent::Claude, &scene, &[], "Yes");
}

#[test]
fn permissions_of_claude_2_1_325_are_answered() {
    let Some(scene) = Scene::set_version(Agent::Claude, "2.1.325") else { return };
    asking_first(&scene);
    permissions_are_answered(Agent::Claude, &scene, &[], "Yes");
}

#[test]
fn permissions_of_codex_are_answered() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    permissions_are_answered(Agent::Codex, &scene, &["-a", "on-request", "-s", "read-only"], "Yes");
}

#[test]
fn permissions_of_gemini_are_answered() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    permissions_are_answered(Agent::Gemini, &scene, &["--approval-mode", "default"], "Allow once");
}

#[test]
fn permissions_of_qwen_are_answered() {
    if !in_full_form() {
        return;
    }
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    permissions_are_answered(Agent::Qwen, &scene, &["--approval-mode", "default"], "Yes");
}

#[test]
fn every_text_arrives_once_at_claude() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    table_of_sends(Agent::Claude, &scene);
}

#[test]
fn every_text_arrives_once_at_codex() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    table_of_sends(Agent::Codex, &scene);
}

#[test]
fn every_text_arrives_once_at_gemini() {
    let Some(scene) = Scene::set(Agent::Gemini) else { return };
    table_of_sends(Agent::Gemini, &scene);
}

#[test]
fn every_text_arrives_once_at_qwen() {
    if !in_full_form() {
        return;
    }
    let Some(scene) = Scene::set(Agent::Qwen) else { return };
    table_of_sends(Agent::Qwen, &scene);
}
