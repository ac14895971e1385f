//! Other versions of Codex and Gemini CLI through codemie: the same few things done in each, and what codemie must know of them.
//! `tests/run.sh` installs the usual versions, with `--full` the older ones; a version that is not there is left out, and says so.
//!
//! A cell is right, or it is known beforehand that less can be known. It is never a wrong number and never a false event.
//!
//! Screens differ between versions, so a run is driven by what they have in common: the typed text shows, the API hears it, the
//! answer shows.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use types::SessionRecord;

use super::scene::{Played, Scene};
use super::story::{spent, story};
use crate::support::agents::Agent;
use crate::support::fake_api::{CallLog, Spent};
use crate::support::pty::Exit;
use crate::support::screen::unspaced;

/// After which time keys that had no effect are typed again: an agent that is still loading swallows them.
const SWALLOWED: Duration = Duration::from_secs(3);
const TRIES: usize = 20;

/// What is done in each version: two prompts, a new conversation, a prompt, another one, a prompt, and out; then one prompt
/// without a terminal.
struct Row {
    agent: Agent,
    version: &'static str,
    /// The command that begins a new conversation.
    clear: &'static str,
    /// What must have been recorded.
    story: &'static [&'static str],
    /// What is said of this version, in `doctor`.
    known: Option<&'static str>,
}

const CODEX: [&str; 4] = [
    "A startup by registry [one | two] clear -> B",
    "B clear from A by registry [three] clear -> C",
    "C clear from B by registry [four] exit 0",
    "D startup by registry [printed] exit 0",
];

/// The first `/clear` goes on under the same id.
const GEMINI_DOCUMENTS: [&str; 3] = [
    "A startup by log [one | two | three] clear -> B",
    "B clear from A by log [four] exit 0",
    "C startup by log [printed] exit 0",
];

const GEMINI_BY_LOG: [&str; 4] = [
    "A startup by log [one | two] clear -> B",
    "B clear from A by log [three] clear -> C",
    "C clear from B by log [four] exit 0",
    "D startup by log [printed] exit 0",
];

const GEMINI_ASSIGNED: [&str; 4] = [
    "A startup by assigned [one | two] clear -> B",
    "B clear from A by log [three] clear -> C",
    "C clear from B by log [four] exit 0",
    "D startup by assigned [printed] exit 0",
];

fn codex(version: &'static str, clear: &'static str) -> Row {
    Row { agent: Agent::Codex, version, clear, story: &CODEX, known: None }
}

fn gemini(version: &'static str, story: &'static [&'static str], known: Option<&'static str>) -> Row {
    Row { agent: Agent::Gemini, version, clear: "/clear", story, known }
}

#[test]
fn codex_0_60_1() {
    codex("0.60.1", "/new").plays();
}

#[test]
fn codex_0_92_0() {
    codex("0.92.0", "/new").plays();
}

#[test]
fn codex_0_120_0() {
    codex("0.120.0", "/clear").plays();
}

#[test]
fn codex_0_150_1() {
    codex("0.150.1", "/clear").plays();
}

#[test]
fn codex_0_166_0() {
    codex("0.166.0", "/clear").plays();
}

const SAME_ID: Option<&str> = Some("the first /clear of a run goes on under the same id");

#[test]
fn gemini_0_20_2() {
    gemini("0.20.2", &GEMINI_DOCUMENTS, SAME_ID).plays();
}

#[test]
fn gemini_0_30_1() {
    gemini("0.30.1", &GEMINI_DOCUMENTS, SAME_ID).plays();
}

#[test]
fn gemini_0_40_1() {
    gemini("0.40.1", &GEMINI_BY_LOG, Some("does not take one")).plays();
}

#[test]
fn gemini_0_51_0() {
    gemini("0.51.0", &GEMINI_ASSIGNED, None).plays();
}

#[test]
fn gemini_0_61_0() {
    gemini("0.61.0", &GEMINI_ASSIGNED, None).plays();
}

impl Row {
    fn plays(&self) {
        let usual =
            [(Agent::Codex, "0.166.0"), (Agent::Gemini, "0.61.0")].contains(&(self.agent, self.version));
        let full = std::env::var_os("CODEMIE_TEST_FULL").is_some();
        if !usual && !full && !self.agent.program_in(self.version).exists() {
            println!("| {} {} | only with --full |", self.agent.name(), self.version);
            return;
        }
        let scene = if usual { Scene::set(self.agent) } else { Scene::set_version(self.agent, self.version) };
        let Some(scene) = scene else { return };
        self.in_a_terminal(&scene);
        let arguments: &[&str] = match self.agent {
            Agent::Codex => &["exec", "--skip-git-repo-check", "printed"],
            _ => &["-p", "printed"],
        };
        let printed = scene.print(arguments, "");
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        self.is_recorded(&scene);
        is_scanned(&scene);
        is_viewed(&scene);
        self.is_said(&scene);
        println!("| {} {} | right |", self.agent.name(), self.version);
    }

    fn in_a_terminal(&self, scene: &Scene) {
        let run = scene.launch(&[]);
        wait_line(&run);
        for prompt in ["one", "two"] {
            ask(&run, prompt);
        }
        for prompt in ["three", "four"] {
            begin_anew(&run, self.clear);
            ask(&run, prompt);
        }
        show(&run, "/quit");
        run.enter();
        assert_eq!(run.terminal.wait_exit(), Exit::Code(0));
    }

    fn is_recorded(&self, scene: &Scene) {
        let (recorded, log) = (scene.recorded(), scene.log());
        assert_eq!(
            story(&recorded, &log),
            self.story,
            "{} {}\n{}",
            self.agent.name(),
            self.version,
            scene.picture()
        );
        for record in recorded.iter().map(|session| &session.record) {
            let id = &record.correlation.agent_session_id.as_ref().unwrap().0;
            assert_eq!(counted(spent(record)), counted(log.recorded(id)), "{}", scene.picture());
            assert_eq!(record.usage.coverage.as_str(), "transcript", "{}", scene.picture());
            assert_eq!(record.agent_version.as_deref(), Some(self.version), "{}", scene.picture());
        }
    }

    fn is_said(&self, scene: &Scene) {
        let doctor = String::from_utf8(scene.codemie(&["doctor"]).stdout).unwrap();
        let doctor: String = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = self.known.is_none_or(|known| doctor.contains(known));
        assert!(said, "{doctor}");
        if self.known == SAME_ID {
            let explained = scene.evidence(&scene.recorded()[0].record);
            let said = explained.iter().any(|evidence| evidence.detail.contains("goes on under the same id"));
            assert!(said, "{}", scene.picture());
        }
    }
}

/// The same calls again, by someone who never saw the runs.
fn is_scanned(scene: &Scene) {
    let log = scene.log();
    let all: Spent = log.calls.iter().filter(|call| call.recorded()).map(|call| call.spent).sum();
    let stranger = tempfile::tempdir().unwrap();
    for home in [stranger.path().to_owned(), scene.stage.home.codemie_home()] {
        let mut usage = Command::new(env!("CARGO_BIN_EXE_codemie"));
        usage.args(["usage", "--scan", "--json"]).current_dir(scene.stage.home.project());
        usage.env_clear().envs(scene.stage.home.environment(&scene.stage.api)).env("CODEMIE_HOME", home);
        let output = usage.output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let field = |name: &str| told["total"][name].as_u64().unwrap();
        let found = Spent {
            calls: field("apiCalls"),
            input: field("inputTokens"),
            cache_read: field("cacheReadTokens"),
            cache_write: field("cacheWriteTokens"),
            output: field("outputTokens"),
            reasoning: field("reasoningTokens"),
        };
        assert_eq!(counted(found), counted(all), "{told}\n{log}");
        assert_eq!(told["unreadableLines"], 0);
    }
}

fn is_viewed(scene: &Scene) {
    let recorded = scene.recorded();
    let first: &SessionRecord = &recorded[0].record;
    let view = String::from_utf8(scene.codemie(&["view", &first.session_id]).stdout).unwrap();
    for said in ["one", "two", "pong-"] {
        assert!(view.contains(said), "{view}");
    }
    let show = scene.codemie(&["show", &first.session_id]);
    assert!(show.status.success(), "{}", String::from_utf8_lossy(&show.stderr));
}

/// Older versions of Codex do not say what was written to the cache; it is input there.
fn counted(spent: Spent) -> Spent {
    Spent { input: spent.input + spent.cache_write, cache_write: 0, ..spent }
}

/// Waits until there is a line to type in.
fn wait_line(run: &Played<'_>) {
    run.wait_for("a line to type in", |agent, view| line_is(agent, &view.text(), |_| true));
}

/// Puts a prompt and waits until its answer is there and nothing is being worked on.
fn ask(run: &Played<'_>, prompt: &str) {
    let since = run.stage.api.log().calls.len();
    show(run, prompt);
    let heard =
        |log: &CallLog| log.calls[since..].iter().any(|call| call.prompt.contains(prompt)).then_some(());
    let pressed = (0..TRIES).any(|_| {
        run.enter();
        run.stage.api.wait_for(SWALLOWED, heard).is_some()
    });
    assert!(pressed, "the API never heard {prompt:?}\n{}", run.terminal.text());
    let answer = run.wait_answer(prompt, since).text.unwrap();
    run.wait_for(&format!("the answer {answer:?}"), |_, view| {
        let text = view.text();
        text.contains(&answer) && !text.contains("esc to interrupt") && !text.contains("esc to cancel")
    });
}

/// Begins a new conversation. Asked where to, it takes the first answer.
fn begin_anew(run: &Played<'_>, command: &str) {
    show(run, command);
    run.enter();
    let mut asked = false;
    let mut taken = |agent: Agent, text: &str| {
        asked |= text.contains("Use current");
        asked || line_is(agent, text, |line| line != command)
    };
    run.wait_for("a new conversation", |agent, view| taken(agent, &view.text()));
    if asked {
        run.enter();
        run.wait_for("the answer taken", |_, view| !view.text().contains("Use current"));
    }
    wait_line(run);
}

/// Whether the line one types in is there, and is like this.
fn line_is(agent: Agent, screen: &str, like: impl Fn(&str) -> bool) -> bool {
    match agent {
        Agent::Codex => {
            let row = screen.lines().rev().find_map(|row| row.strip_prefix('›'));
            row.is_some_and(|row| like(row.trim()))
        }
        // What stands there while nothing is typed.
        _ => screen.contains("Type your message"),
    }
}

/// Types a text until it shows.
fn show(run: &Played<'_>, text: &str) {
    const ERASE_LINE: &str = "\x15";
    let shown = (0..TRIES).any(|attempt| {
        run.terminal.send(if attempt > 0 { ERASE_LINE } else { "" });
        run.terminal.send(text);
        run.terminal.holds_within(SWALLOWED, |view| unspaced(&view.text()).contains(&unspaced(text)))
    });
    assert!(shown, "{text:?} never showed\n{}", run.terminal.text());
}
