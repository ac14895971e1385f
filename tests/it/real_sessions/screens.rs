//! Claude Code in each of its states: what it shows is read as that state. `CODEMIE_TEST_RECORD=1` writes the screens to
//! `tests/fixtures/screens/claude`, where `src/live/corpus_tests.rs` reads them without an agent.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use agents::live::{PublishedStatus, Shown};
use agents::registry;
use os::clock::{Clock, SystemClock};
use pty::process::SystemProcesses;
use runtime::live::{Sources, Turns, decide};
use serde_json::{Value, json};
use types::Pid;

use crate::support::agents::Agent;
use crate::support::recording::{Recording, drawn};
use crate::support::run::AgentRun;
use crate::support::screen::{composer, unspaced};
use crate::support::stage::{Stage, TIMEOUT};

const ROWS: u16 = 40;
const COLS: u16 = 120;

/// A screen that does not change for so long is finished; one with a spinner never is.
const STILL: Duration = Duration::from_millis(500);
const AT_MOST: Duration = Duration::from_secs(3);

#[test]
#[ignore = "the recorded screens are read without an agent; tests/run.sh --full runs it"]
fn claude_is_read_in_every_state() {
    play(Stage::set);
}

#[test]
#[ignore = "the recorded screens are read without an agent; tests/run.sh --full runs it"]
fn claude_2_1_325_is_read_in_every_state() {
    play(|| Stage::set_version(Agent::Claude, "2.1.325"));
}

fn play(stage: impl Fn() -> Option<Stage>) {
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        let Some(stage) = stage() else { return };
        // One that fails hides no other: each takes its time.
        let screens = Screens { stage };
        if catch_unwind(AssertUnwindSafe(|| scenario(&screens))).is_err() {
            failed.push(*name);
        }
    }
    assert_eq!(failed, [""; 0], "see above");
}

/// Each plays on a stage of its own: how a run begins is a part of most.
const SCENARIOS: &[(&str, fn(&Screens))] = &[
    ("before_the_prompt", before_the_prompt),
    ("conversation", conversation),
    ("menus", menus),
    ("permission_to_run", permission_to_run),
    ("permission_to_edit", permission_to_edit),
    ("plan", plan),
    ("question", question),
    ("resume_menu", resume_menu),
    ("compaction", compaction),
];

struct Screens {
    stage: Stage,
}

impl Screens {
    fn start(&self, arguments: &[&str]) -> AgentRun<'_> {
        AgentRun::start(&self.stage, Agent::Claude, arguments)
    }

    fn launch(&self, arguments: &[&str]) -> AgentRun<'_> {
        AgentRun::launch(&self.stage, Agent::Claude, arguments)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.home.path().join(name)
    }

    /// Changes what the agent remembers.
    fn change(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let path = self.file(file);
        let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(path, value.to_string()).unwrap();
    }

    /// It asks before it does anything.
    fn ask_first(&self) {
        self.change(".claude/settings.json", |settings| {
            settings["permissions"] = json!({"allow": [], "defaultMode": "default"});
        });
    }

    /// The screen must be read as this state; `why`: a part of the reason.
    fn expect(&self, run: &AgentRun<'_>, state: &str, what: &str, composer: Option<&str>, why: Option<&str>) {
        let claude = registry::by_name("claude").unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let view = drawn(&run.terminal.bytes(), ROWS, COLS);
            let pid = Pid(run.terminal.pid());
            let home = self.stage.home.path().to_owned();
            let var = |name: &str| (name == "HOME").then(|| home.clone().into_os_string());
            let published = claude.published(&var, pid, &SystemProcesses);
            let conversation = published.as_ref().and_then(|published| published.conversation.clone());
            let file =
                conversation.and_then(|id| claude.conversations(&var, &id.0).pop()).map(|found| found.file);
            let mut turns = Turns::of(claude);
            turns.look(file.as_deref()).unwrap();
            let reading = claude.read_screen(&view);
            let sources = Sources {
                published: published.as_ref(),
                screen: Some(&reading),
                turn: turns.last(),
                ..Sources::default()
            };
            let decided = decide(&sources, SystemClock.now());
            let read =
                (decided.is.as_str(), reading.composer.as_ref().map(|composer| composer.text.as_str()));
            let right = read == (state, composer)
                && why.is_none_or(|why| decided.why.contains(why))
                && (state != "idle" || reading.shown == Some(Shown::Quiet));
            let recording = std::env::var_os("CODEMIE_TEST_RECORD").is_some();
            if right || recording {
                if recording {
                    let registry = published.as_ref().map(|published| match &published.status {
                        PublishedStatus::Idle => "idle".to_owned(),
                        PublishedStatus::Busy => "busy".to_owned(),
                        PublishedStatus::Waiting(what) => format!("waiting {what}"),
                        PublishedStatus::Dialog(what) => format!("dialog {what}"),
                    });
                    let (major, minor, patch) = self.stage.home.version(Agent::Claude);
                    let version = format!("{major}.{minor}.{patch}");
                    let lines = file.as_deref().map(last_lines).unwrap_or_default();
                    let recorded = Recording {
                        agent: &format!("claude {version}"),
                        state,
                        composer,
                        registry: registry.as_deref(),
                        why,
                        lines: &lines,
                        home: &home.display().to_string(),
                    };
                    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/screens/claude");
                    recorded.write(&view, &folder.join(format!("{state}-{what}-{version}.txt")));
                    if !right {
                        println!("{state}-{what}-{version} is read as {decided:?} from {sources:?}");
                    }
                }
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{state} {what} is read as {decided:?} from {sources:?}\n{}",
                view.rows.join("\n")
            );
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Waits for a text on the screen, then for the screen to be finished.
fn wait_shown(run: &AgentRun<'_>, text: &str) {
    run.wait_for(&format!("{text:?}"), |_, view| view.text().contains(text));
    let (mut seen, began, mut changed) = (run.terminal.mark(), Instant::now(), Instant::now());
    while changed.elapsed() < STILL && began.elapsed() < AT_MOST {
        thread::sleep(Duration::from_millis(50));
        let now = run.terminal.mark();
        if now != seen {
            (seen, changed) = (now, Instant::now());
        }
    }
}

/// The last lines that say something about turns.
fn last_lines(file: &Path) -> Vec<u8> {
    let claude = registry::by_name("claude").unwrap();
    let bytes = fs::read(file).unwrap();
    let marked: Vec<&[u8]> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n") && claude.read_turn(line).is_some())
        .collect();
    marked[marked.len().saturating_sub(3)..].concat()
}

fn before_the_prompt(screens: &Screens) {
    let mut projects = Value::Null;
    screens.change(".claude.json", |state| {
        projects = std::mem::replace(&mut state["projects"], json!({}));
    });
    let run = screens.launch(&[]);
    wait_shown(&run, "trust");
    screens.expect(&run, "dialog", "trust", None, Some("trust"));
    drop(run);
    screens.change(".claude.json", |state| {
        state["projects"] = projects;
        state["customApiKeyResponses"] = json!({"approved": [], "rejected": []});
    });
    let run = screens.launch(&[]);
    wait_shown(&run, "API key");
    screens.expect(&run, "dialog", "api-key", None, Some("API key"));
    // The choice of a theme cannot be played here: before it the agent asks its vendor's server, and ends without it.
}

fn conversation(screens: &Screens) {
    let run = screens.start(&[]);
    wait_shown(&run, "❯");
    screens.expect(&run, "idle", "first", Some(""), None);
    run.prompt("hello");
    wait_shown(&run, "pong-");
    screens.expect(&run, "idle", "answered", Some(""), None);
    run.type_text("some text");
    wait_shown(&run, "some text");
    screens.expect(&run, "idle", "typed", Some("some text"), None);
    run.terminal.send("\\");
    run.wait_composer("some text\\");
    run.enter();
    run.wait_composer("some text");
    run.terminal.send("a second line");
    wait_shown(&run, "a second line");
    screens.expect(&run, "idle", "typed-lines", Some("some text\na second line"), None);
    run.terminal.send("\x1b[D\x1b[D\x1b[D");
    wait_shown(&run, "a second line");
    screens.expect(&run, "idle", "typed-caret-inside", Some("some text\na second line"), None);
    run.terminal.send("\x1b[F");
    erase(&run);
    // Not by `type_text`, which takes this for the placeholder.
    run.terminal.send("Try \"this\"");
    wait_shown(&run, "Try \"this\"");
    screens.expect(&run, "idle", "typed-like-a-placeholder", Some("Try \"this\""), None);
    erase(&run);
    run.ask("[say Which of the two files do you mean?\\n\\nDo you want to proceed?]");
    wait_shown(&run, "Do you want to proceed?");
    run.wait_ready();
    wait_shown(&run, "Do you want to proceed?");
    screens.expect(&run, "idle", "prose-question", Some(""), None);
    let rule = "─".repeat(60);
    run.ask(&format!(
        "[say The dialog was:\\n\\n```\\n{rule}\\n Bash command\\n\\n Do you want to proceed?\\n ❯ 1. Yes\\n   2. No\\n\\n Esc to cancel\\n```]"
    ));
    wait_shown(&run, "The dialog was");
    run.wait_ready();
    wait_shown(&run, "The dialog was");
    screens.expect(&run, "idle", "prose-dialog", Some(""), None);
    run.ask("[hold door]");
    wait_shown(&run, "esc to interrupt");
    screens.expect(&run, "working", "streaming", Some(""), None);
    run.type_text("a further prompt");
    screens.expect(&run, "working", "streaming-typed", Some("a further prompt"), None);
    run.enter();
    // The line is not empty then: it says how to get the prompt back.
    run.wait_for("the prompt above the line", |agent, view| {
        composer(agent, &view.text()).is_some_and(|text| text != unspaced("a further prompt"))
    });
    wait_shown(&run, "a further prompt");
    screens.expect(&run, "working", "queued", Some(""), None);
    screens.stage.api.release("door");
    run.wait_for("the queued prompt's answer", |_, view| view.text().matches("pong-").count() >= 2);
    run.wait_ready();
    run.ask("[run tail -f /dev/null]");
    wait_shown(&run, "⎿");
    screens.expect(&run, "working", "tool", Some(""), None);
    run.terminal.send("\x1b");
    // It does not always say that it was interrupted.
    run.wait_ready();
    screens.expect(&run, "idle", "interrupted", Some(""), None);
}

fn menus(screens: &Screens) {
    let run = screens.start(&[]);
    run.type_text("/mod");
    wait_shown(&run, "/model");
    screens.expect(&run, "idle", "slash-menu", Some("/mod"), None);
    erase(&run);
    run.command("/model");
    wait_shown(&run, "Esc");
    screens.expect(&run, "dialog", "model", None, None);
    run.terminal.send("\x1b");
    run.wait_ready();
    run.command("/config");
    wait_shown(&run, "Esc");
    screens.expect(&run, "dialog", "config", None, None);
    // Clears its search, leaves the search, closes it.
    for _ in 0..3 {
        if composer(Agent::Claude, &run.terminal.text()).is_none() {
            run.terminal.send("\x1b");
            thread::sleep(STILL);
        }
    }
    run.wait_ready();
    run.terminal.send("?");
    wait_shown(&run, "for commands");
    screens.expect(&run, "idle", "shortcuts", Some(""), None);
    run.terminal.send("\x7f");
    run.wait_ready();
    let pasted: Vec<String> = (0..40).map(|line| format!("line {line}")).collect();
    run.terminal.send(format!("\x1b[200~{}\x1b[201~", pasted.join("\n")));
    wait_shown(&run, "Pasted text");
    screens.expect(&run, "idle", "pasted", Some("[Pasted text #1 +39 lines]"), None);
}

fn permission_to_run(screens: &Screens) {
    screens.ask_first();
    let run = screens.start(&[]);
    run.ask("[run touch made.txt]");
    wait_shown(&run, "Do you want to proceed?");
    screens.expect(&run, "needs-input", "bash", None, Some("permission to run a command"));
    run.terminal.send("\x1b");
    wait_shown(&run, "nterrupted");
    screens.expect(&run, "idle", "refused", Some(""), None);
}

fn permission_to_edit(screens: &Screens) {
    screens.ask_first();
    fs::write(screens.stage.home.project().join("notes.txt"), "one\ntwo\nthree\n").unwrap();
    let notes = screens.stage.home.project().join("notes.txt").display().to_string();
    let run = screens.start(&[]);
    run.ask(&format!("[tool Read {{\"file_path\": \"{notes}\"}}] [edit {notes}]"));
    wait_shown(&run, "Do you want to");
    screens.expect(&run, "needs-input", "edit", None, Some("permission to change a file"));
    run.terminal.send("\x1b");
    run.wait_ready();
    let fresh = screens.stage.home.project().join("fresh.txt").display().to_string();
    run.ask(&format!("[write {fresh}]"));
    wait_shown(&run, "Do you want to");
    screens.expect(&run, "needs-input", "write", None, Some("permission to change a file"));
    run.terminal.send("\x1b");
    run.wait_ready();
    run.ask(r#"[tool WebFetch {"url": "https://docs.example.com/x", "prompt": "read it"}]"#);
    wait_shown(&run, "Do you want to");
    screens.expect(&run, "needs-input", "fetch", None, Some("permission to fetch a page"));
}

fn plan(screens: &Screens) {
    let run = screens.start(&["--permission-mode", "plan"]);
    screens.expect(&run, "idle", "plan-mode", Some(""), None);
    let call = run.prompt("what is there");
    fs::write(plan_file(&call.body.to_string()), "# A plan\n\n1. Do this.\n2. Do that.\n").unwrap();
    run.ask(r##"[tool ExitPlanMode {"plan": "# A plan\n\n1. Do this.\n2. Do that.\n"}]"##);
    wait_shown(&run, "proceed?");
    screens.expect(&run, "needs-input", "plan", None, Some("plan"));
}

/// The file that the agent tells the model to write its plan to.
fn plan_file(request: &str) -> PathBuf {
    let mark = "/.claude/plans/";
    let at = request.rfind(mark).expect("a file for the plan");
    let begin =
        request[..at].rfind(|letter: char| letter.is_whitespace() || letter == '"').map_or(0, |at| at + 1);
    let end = at + request[at..].find(".md").expect("its end") + ".md".len();
    let path = PathBuf::from(&request[begin..end]);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

/// Takes back what was typed.
fn erase(run: &AgentRun<'_>) {
    run.terminal.send("\x7f".repeat(60));
    run.wait_ready();
}

fn question(screens: &Screens) {
    let run = screens.start(&[]);
    let options =
        r#"[{"label": "Red", "description": "a warm one"}, {"label": "Blue", "description": "a cold one"}]"#;
    let questions = format!(
        r#"{{"questions": [{{"question": "Which colour is it to be?", "header": "Colour", "multiSelect": false, "options": {options}}}]}}"#
    );
    run.ask(&format!("[tool AskUserQuestion {questions}]"));
    wait_shown(&run, "2. Blue");
    screens.expect(&run, "needs-input", "question", None, Some("a question"));
}

fn resume_menu(screens: &Screens) {
    let run = screens.start(&[]);
    run.prompt("the first conversation");
    run.exit();
    drop(run);
    let run = screens.start(&[]);
    run.prompt("another conversation");
    run.exit();
    drop(run);
    let run = screens.launch(&["--resume"]);
    // The ages of the conversations change by the second; this stands below them.
    wait_shown(&run, "Ctrl+A to show all projects");
    screens.expect(&run, "dialog", "resume", None, Some("conversation"));
}

fn compaction(screens: &Screens) {
    let run = screens.start(&[]);
    for prompt in ["one", "two", "three"] {
        run.prompt(prompt);
    }
    run.command("/compact keep [hold compaction]");
    wait_shown(&run, "ompacting");
    screens.expect(&run, "working", "compacting", Some(""), Some("compact"));
    screens.stage.api.release("compaction");
}
