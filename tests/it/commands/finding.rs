//! Which session was which: titles, the list to choose from, the search through conversations.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Run, World, assert_left_by, assert_restored};
use crate::sandbox::CODEMIE;
use crate::support::pty::{Start, Terminal};
use agents::meter::title::Title;
use store::session::lifecycle::RunStart;

const IDS: [&str; 3] = [
    "7a276c6b-d81e-4000-8000-000000000001",
    "7b276c6b-d81e-4000-8000-000000000002",
    "8c276c6b-d81e-4000-8000-000000000003",
];

/// Lines as Claude Code writes them: a prompt and its answer.
fn conversation(id: &str, folder: &str, prompt: &str, answer: &str) -> String {
    let prompt = json!({"type": "user", "uuid": format!("u{id}"), "sessionId": id, "cwd": folder,
        "timestamp": "2026-11-16T09:00:00.000Z", "promptSource": "typed", "message": {"role": "user", "content": prompt}});
    let answer = json!({"type": "assistant", "uuid": format!("a{id}"), "sessionId": id, "cwd": folder,
        "timestamp": "2026-11-16T09:00:05.000Z",
        "message": {"id": format!("m{id}"), "model": "claude-opus-4-8", "content": [{"type": "text", "text": answer}]}});
    format!("{prompt}\n{answer}\n")
}

/// A home with three sessions in two folders, the last used first: `docs` elsewhere, `proxy-meter` and `fix-auth` in `widgets`.
/// Each has a conversation.
struct Finding {
    world: World,
    widgets: PathBuf,
}

impl Finding {
    fn new() -> Self {
        let world = World::new();
        let (widgets, gadgets) = (world.sandbox.path("widgets"), world.sandbox.path("gadgets"));
        for folder in [&widgets, &gadgets] {
            // Projects of their own, wherever the tests are run.
            fs::create_dir_all(folder.join(".git")).unwrap();
        }
        world.sandbox.script("bin/claude", "echo \"CALLED $* IN $(pwd)\"; read line; echo \"READ $line\"");
        let mut finding = Self { world, widgets: widgets.canonicalize().unwrap() };
        let gadgets = gadgets.canonicalize().unwrap();
        let widgets = finding.widgets.clone();
        finding.session(
            0,
            "fix-auth",
            &widgets,
            "why does the login page flicker?",
            "The Proxy sets its cookie twice.",
        );
        finding.session(1, "proxy-meter", &widgets, "meter every call of the proxy", "It counts calls now.");
        finding.session(2, "docs", &gadgets, "write the docs", "They are in docs/.");
        finding
    }

    fn session(
        &mut self,
        which: usize,
        name: &str,
        folder: &std::path::Path,
        prompt: &str,
        answer: &str,
    ) -> Run {
        let id = IDS[which];
        let cwd = folder.to_str().unwrap();
        let slug: String =
            cwd.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let path = format!(".claude/projects/{slug}/{id}.jsonl");
        let file = self.world.sandbox.file(&path, &conversation(id, cwd, prompt, answer));
        let mut begin: RunStart = World::begin(name);
        folder.clone_into(&mut begin.workspace.cwd);
        begin.workspace.project = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let run = self.world.start_as(&begin);
        self.world.bind(run, id, Some(&file));
        let title = Title::of_prompt(prompt).unwrap();
        self.world.store.write(|tx| tx.set_title(run.session, &title)).unwrap();
        self.world.call(run, &format!("m{id}"), "claude-opus-4-8", Some(2_000_000_000));
        self.world.end(run, 0);
        run
    }

    /// A command on a terminal, in the folder `widgets`.
    fn terminal(&self, args: &[&str], columns: u16, variables: &[(&str, &str)]) -> Terminal {
        let line = std::iter::once(CODEMIE).chain(args.iter().copied());
        let bin = self.world.sandbox.path("bin");
        let mut start = Start::new(line)
            .env("HOME", self.world.sandbox.home())
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("CODEMIE_QUIET", "1")
            .cwd(&self.widgets)
            .size(24, columns);
        for (name, value) in variables {
            start = start.env(*name, *value);
        }
        start.spawn()
    }
}

#[test]
fn a_session_is_chosen_by_typing_and_resumed_in_its_folder() {
    let finding = Finding::new();
    let terminal = finding.terminal(&["resume"], 100, &[]);
    // Those of this folder first, though another was used later.
    terminal.wait_for("the list", |view| {
        let text = view.text();
        let at = |name: &str| text.find(name);
        text.contains("3/3") && at("proxy-meter") < at("fix-auth") && at("fix-auth") < at("docs")
    });
    terminal.wait_text("It counts calls now.");
    terminal.send("flick");
    terminal.wait_text("1/3");
    terminal.wait_text("The Proxy sets its cookie twice.");
    terminal.send("\r");
    terminal.wait_text(&format!("CALLED --resume {} IN {}", IDS[0], finding.widgets.display()));
    // The agent has a terminal as if nothing had been there before.
    terminal.send("hello\r");
    terminal.wait_text("READ hello");
    assert_eq!(terminal.wait_exit().shell_code(), 0);
    assert_restored(&terminal);
}

#[test]
fn the_list_can_be_left_by_keys_and_signals_and_the_terminal_is_restored() {
    let finding = Finding::new();
    assert_left_by(&["\x1b", "\x03", "\x04"], "Enter resume", || finding.terminal(&["resume"], 80, &[]));
}

#[test]
fn keys_rename_archive_and_show() {
    let finding = Finding::new();
    let terminal = finding.terminal(&["resume"], 100, &[]);
    terminal.wait_text("Enter resume");
    terminal.send("docs\x12");
    terminal.wait_text("new name: docs");
    terminal.send("\x15fix-auth\r");
    terminal.wait_text("fix-auth");
    terminal.wait_for("the refusal", |view| view.text().contains("taken") || view.text().contains("already"));
    terminal.send("\x15manual\r");
    terminal
        .wait_for("the new name", |view| view.text().contains("manual") && !view.text().contains("new name"));
    terminal.send("\x15fix-auth\x18");
    terminal.wait_text("0/2");
    terminal.send("\x15manual\x13");
    assert_eq!(terminal.wait_exit().shell_code(), 0);
    terminal.wait_text("title");
    assert_restored(&terminal);
    let listed = finding.world.json(&["list", "--json"]);
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["manual", "proxy-meter"]);
}

#[test]
fn every_width_shows_what_tells_sessions_apart() {
    let finding = Finding::new();
    for (columns, shown, left_out) in [
        (40, &["fix-auth", "why does th"][..], &["$0.00", "widgets"][..]),
        (80, &["fix-auth", "why does the lo", "$0.00", "completed", "Esc leave"], &["gadgets "]),
        (100, &["fix-auth", "why does the login", "$0.00", "completed", "gadgets", "Esc leave"], &[]),
        (140, &["why does the login page flicker?", "widgets", "gadgets", "completed"], &[]),
        (200, &["why does the login page flicker?", "widgets", "gadgets", "completed"], &[]),
    ] {
        let terminal = finding.terminal(&["resume"], columns, &[("NO_COLOR", "1")]);
        terminal.wait_text("3/3");
        terminal.wait_for(&format!("{shown:?} at {columns}"), |view| {
            let text = view.text();
            shown.iter().all(|part| text.contains(part))
        });
        let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        assert!(!["\x1b[0;3", "\x1b[0;1;3"].iter().any(|colour| bytes.contains(colour)), "{columns}: colour");
        terminal.wait_for("the rest", |view| !left_out.iter().any(|part| view.text().contains(part)));
        // Another size is drawn at once.
        terminal.resize(15, 60);
        terminal.wait_for("the new size", |view| {
            view.text().lines().last().is_some_and(|last| last.contains("Enter"))
        });
        terminal.send("\x1b");
        terminal.wait_exit();
    }
}

#[test]
fn without_a_terminal_resume_says_what_to_give() {
    let finding = Finding::new();
    let output = finding.world.run(&["resume"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.err.contains("which session?") && output.err.contains("--last"), "{output:?}");
    let terminal = finding.terminal(&["resume"], 80, &[("TERM", "dumb")]);
    terminal.wait_text("which session?");
    assert_eq!(terminal.wait_exit().shell_code(), 2);
}

#[test]
fn the_session_used_last_in_this_project_is_resumed() {
    let finding = Finding::new();
    let terminal = finding.terminal(&["resume", "--last", "--", "--model", "opus"], 80, &[]);
    terminal.wait_text(&format!("CALLED --resume {} --model opus", IDS[1]));
    terminal.send("\r");
    terminal.wait_exit();
}

#[test]
fn a_unique_beginning_of_a_name_names_a_session() {
    let finding = Finding::new();
    assert_eq!(finding.world.json(&["show", "prox", "--json"])["name"], "proxy-meter");
    let output = finding.world.run(&["show", "pro"]);
    assert_eq!(output.code, Some(3), "three letters are too few: {output:?}");
}

fn texts(found: &Value) -> Vec<&str> {
    found.as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap()).collect()
}

#[test]
fn words_are_found_in_all_conversations_with_who_said_them() {
    let finding = Finding::new();
    let folder = finding.widgets.to_str().unwrap().to_owned();
    let foreign = "9d276c6b-d81e-4000-8000-000000000004";
    finding.world.sandbox.file(
        &format!(".claude/projects/-elsewhere/{foreign}.jsonl"),
        &conversation(foreign, "/elsewhere", "a proxy of another kind", "Yes."),
    );
    let found = finding.world.json(&["search", "PROXY", "--json"]);
    let mut all = texts(&found);
    assert_eq!(all[0], "The Proxy sets its cookie twice.", "the newest first");
    all.sort_unstable();
    assert_eq!(
        all,
        ["The Proxy sets its cookie twice.", "a proxy of another kind", "meter every call of the proxy"]
    );
    let hit = &found[0];
    let fields: Vec<&String> = hit.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["agent", "agentSessionId", "cursor", "role", "sessionId", "text", "time"]);
    assert_eq!(
        (&hit["role"], &hit["agentSessionId"], &hit["agent"]),
        (&json!("assistant"), &json!(IDS[0]), &json!("claude"))
    );
    let session = hit["sessionId"].as_str().unwrap();
    let page = finding.world.json(&["view", session, "--since", hit["cursor"].as_str().unwrap(), "--json"]);
    assert_eq!(page["items"][0]["text"], "The Proxy sets its cookie twice.");
    let unwrapped = found.as_array().unwrap().iter().find(|hit| hit["agentSessionId"] == foreign).unwrap();
    assert_eq!(unwrapped["sessionId"], Value::Null);
    for (args, expected) in [
        (&["proxy", "cookie"][..], 1),
        (&["the proxy"], 2),
        (&["proxy", "--role", "user"], 2),
        (&["proxy", "--agent", "codex"], 0),
        (&["proxy", "--project", "WIDG"], 2),
        (&["proxy", "--project", &folder], 2),
        (&["proxy", "--project", "elsewhere"], 1),
        (&["proxy", "--since", "2026-11-17"], 0),
        (&["proxy", "-n", "1"], 1),
        (&["absent-word"], 0),
    ] {
        let line: Vec<&str> = ["search", "--json"].into_iter().chain(args.iter().copied()).collect();
        assert_eq!(texts(&finding.world.json(&line)).len(), expected, "{args:?}");
    }
    let printed = finding.world.run(&["search", "proxy", "-n", "2"]);
    assert!(printed.out.contains("fix-auth") && printed.out.contains("1 older"), "{printed:?}");
    assert_eq!(finding.world.run(&["search", " "]).code, Some(2));
}

#[test]
fn enter_on_a_hit_opens_the_conversation_there() {
    let finding = Finding::new();
    finding.world.sandbox.script("bin/my-pager", "echo PAGED; cat; read line </dev/tty");
    let terminal = finding.terminal(&["search", "cookie"], 80, &[("PAGER", "my-pager")]);
    terminal.wait_text("open the conversation there");
    terminal.send("\r");
    terminal.wait_for("the answer without the prompt before it", |view| {
        let text = view.text();
        text.contains("PAGED")
            && text.contains("The Proxy sets its cookie twice.")
            && !text.contains("flicker")
    });
    terminal.send("\r");
    terminal.wait_text("open the conversation there");
    terminal.send("\x1b");
    assert_eq!(terminal.wait_exit().shell_code(), 0);
    assert_restored(&terminal);
}

#[test]
fn a_list_is_narrowed_by_words_and_filters_and_sorted() {
    let mut finding = Finding::new();
    let run = finding.world.start("later");
    let names = |finding: &mut Finding, args: &[&str]| -> Vec<String> {
        let line: Vec<&str> = ["list", "--json"].into_iter().chain(args.iter().copied()).collect();
        let listed = finding.world.json(&line);
        listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    for (args, expected) in [
        (&[][..], &["later", "docs", "proxy-meter", "fix-auth"][..]),
        (&["LOGIN"], &["fix-auth"]),
        (&["widg", "proxy"], &["proxy-meter"]),
        (&["--project", "GADG"], &["docs"]),
        (&["--branch", "mai"], &["later", "docs", "proxy-meter", "fix-auth"]),
        (&["--branch", "other"], &[]),
        (&["--status", "active"], &["later"]),
        (&["--status", "completed", "--sort", "name"], &["docs", "fix-auth", "proxy-meter"]),
        (&["--model", "OPUS"], &["docs", "proxy-meter", "fix-auth"]),
        (&["--model", "gpt"], &[]),
        (&["--sort", "started", "-n", "1"], &["later"]),
    ] {
        assert_eq!(names(&mut finding, args), expected, "{args:?}");
    }
    finding.world.end(run, 0);
    // Opened again it moves up.
    let mut again = World::begin("x");
    again.name = None;
    again.conversation =
        store::session::lifecycle::ConversationStart::Named(types::AgentSessionId(IDS[0].into()));
    let again = finding.world.start_as(&again);
    assert_eq!(names(&mut finding, &[])[0], "fix-auth");
    finding.world.end(again, 0);
    let completed = finding.world.run(&["complete", "sessions", "--hints"]);
    assert!(completed.out.starts_with("fix-auth\twhy does the login page flicker?\n"), "{completed:?}");
    for (what, expected) in [("projects", "gadgets"), ("branches", "main"), ("models", "claude-opus-4-8")] {
        let words = finding.world.run(&["complete", what]).out;
        assert!(words.lines().any(|word| word == expected), "{what}: {words}");
    }
}
