//! view, and conversations that never ran through codemie.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use store::session::lifecycle::RunStart;

use super::World;

const TOOLS: &str = "02-tools/projects/-home-dev-project/02000000-0000-4000-8000-000000000002.jsonl";
const CONVERSATION: &str = "02000000-0000-4000-8000-000000000002";

fn fixture() -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/claude").join(TOOLS)).unwrap()
}

/// A recorded conversation where Claude Code would have put it.
fn recorded(world: &World) -> PathBuf {
    let name = format!(".claude/projects/-home-dev-project/{CONVERSATION}.jsonl");
    world.sandbox.file(&name, std::str::from_utf8(&fixture()).unwrap())
}

fn bound(world: &mut World, name: &str) -> (super::Run, PathBuf) {
    let file = recorded(world);
    let run = world.start(name);
    world.bind(run, CONVERSATION, Some(&file));
    (run, file)
}

fn texts(page: &Value) -> Vec<String> {
    let text =
        |item: &Value| format!("{} {}", item["role"].as_str().unwrap(), item["text"].as_str().unwrap());
    page["items"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn pages_by_cursor_make_up_the_whole() {
    let mut world = World::new();
    let (run, _) = bound(&mut world, "fix-auth");
    let whole = world.json(&["view", "fix-auth", "--json"]);
    assert_eq!(whole["sessionId"], run.session.to_string());
    assert_eq!((&whole["truncated"], &whole["pending"]), (&json!(false), &json!(false)));
    let all = texts(&whole);
    assert!(all.contains(&"tool exit 3".into()) && all.contains(&"user @@pair".into()), "{all:#?}");
    assert!(whole["items"][0]["time"].as_i64().is_some_and(|time| time > 1_700_000_000_000));
    let failed = whole["items"].as_array().unwrap().iter().find(|item| item["failed"] == true).unwrap();
    assert_eq!(failed["text"], "Exit code 3");

    let (mut paged, mut cursor) = (Vec::new(), "start".to_owned());
    for page in 0.. {
        assert!(page < 100, "paging does not end");
        let page = world.json(&["view", "fix-auth", "--since", &cursor, "--tail-bytes", "400", "--json"]);
        paged.extend(texts(&page));
        page["cursor"].as_str().unwrap().clone_into(&mut cursor);
        if page["truncated"] == false {
            break;
        }
    }
    assert_eq!(paged, all);
    assert_eq!(cursor, whole["cursor"].as_str().unwrap(), "the end is where the whole ended");
    let end = world.json(&["view", "fix-auth", "--tail-bytes", "300", "--json"]);
    let end_texts = texts(&end);
    assert!(
        !end_texts.is_empty() && end_texts.len() < all.len() && all.ends_with(&end_texts),
        "{end_texts:#?}"
    );
    assert_eq!(end["truncated"], true);

    world.fails(&["view", "fix-auth", "--since", "nonsense"], 2, "cursor");
    world.fails(&["view", "fix-auth", "--since", "1.0.0"], 1, "leave --since out");
}

#[test]
fn a_person_reads_who_said_what() {
    let mut world = World::new();
    bound(&mut world, "fix-auth");
    let text = world.out(&["view", "fix-auth"]);
    assert!(text.starts_with("you  "), "{text}");
    for word in
        ["\n@@pair\n", "\nclaude  ", "\nTwo at once.\n  · Bash echo one\n", "  ✗ failed: Exit code 3\n"]
    {
        assert!(text.contains(word), "{word:?} is missing:\n{text}");
    }
    let output = world.run(&["view", "fix-auth", "--tail-bytes", "100"]);
    assert!(output.code == Some(0) && output.err.contains("only the end"), "{output:?}");
}

#[test]
fn an_answer_that_stands_before_its_prompt_is_read_behind_it() {
    let mut world = World::new();
    let line = |kind: &str, id: &str, parent: Option<&str>, time: &str, text: &str| {
        json!({"type": kind, "uuid": id, "parentUuid": parent, "timestamp": time, "promptSource": "typed",
            "message": {"model": "claude-opus-4-8", "content": text}})
    };
    let lines = [
        line("assistant", "b", Some("a"), "2026-11-16T09:00:01Z", "the answer"),
        line("user", "a", None, "2026-11-16T09:00:00Z", "the question"),
        line("user", "c", Some("b"), "2026-11-16T09:01:00Z", "and another"),
    ];
    let content = lines.map(|line| line.to_string()).join("\n") + "\n";
    let file = world.sandbox.file(".claude/projects/-home-dev-project/inverted.jsonl", &content);
    let run = world.start("inverted");
    world.bind(run, "inverted", Some(&file));
    let page = world.json(&["view", "inverted", "--since", "start", "--json"]);
    assert_eq!(texts(&page), ["user the question", "assistant the answer", "user and another"]);
    let text = world.out(&["view", "inverted"]);
    assert!(text.starts_with("you  ") && text.matches("\nyou  ").count() == 1, "{text}");
}

#[test]
fn without_a_conversation_it_says_why() {
    let mut world = World::new();
    let silent = world.start("silent");
    assert!(world.out(&["view", "silent"]).contains("pending"));
    let page = world.json(&["view", "silent", "--json"]);
    assert_eq!((&page["pending"], &page["items"], &page["cursor"]), (&json!(true), &json!([]), &json!(null)));
    world.bind(silent, "7a276c6b", None);
    assert!(world.out(&["view", "silent"]).contains("pending"), "bound, but nothing was said");
    world.end(silent, 0);
    assert!(world.out(&["view", "silent"]).contains("ended before anything was said"));

    let (_, file) = bound(&mut world, "deleted");
    fs::remove_file(&file).unwrap();
    world.store.write(|tx| tx.set_agent_session_file(silent.session, &file)).unwrap();
    world.fails(&["view", "silent"], 1, "codemie show silent");

    let program = world.start_as(&RunStart { agent: "true".into(), ..World::begin("program") });
    world.end(program, 0);
    world.fails(&["view", "program"], 1, "no agent");
    world.start_as(&RunStart { agent: "codex".into(), ..World::begin("unread") });
    assert!(world.out(&["view", "unread"]).contains("pending"), "whether its files can be read or not");
}

#[test]
fn a_conversation_that_was_moved_is_found() {
    let mut world = World::new();
    let (_, file) = bound(&mut world, "moved");
    let elsewhere = file.parent().unwrap().parent().unwrap().join("-home-dev-other");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(&file, elsewhere.join(file.file_name().unwrap())).unwrap();
    assert!(world.out(&["view", "moved"]).contains("Two at once."));
}

#[test]
fn following_goes_on_until_the_session_ends() {
    let mut world = World::new();
    let (run, file) = bound(&mut world, "followed");
    let mut child = world
        .command(&["view", "followed", "--follow", "--json", "--tail-bytes", "50"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut page = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(page()["items"].as_array().unwrap().len(), 1, "the end of what was said before");
    let line = json!({"type": "user", "promptSource": "typed", "message": {"content": "one more"}});
    let mut transcript = OpenOptions::new().append(true).open(file).unwrap();
    writeln!(transcript, "{line}").unwrap();
    assert_eq!(texts(&page()), ["user one more"]);
    world.end(run, 0);
    assert!(lines.next().is_none(), "it ends with the session");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_conversation_that_never_ran_through_codemie_can_be_read_and_nothing_else() {
    let world = World::new();
    let file = recorded(&world);
    let shown = world.json(&["show", &CONVERSATION[..6], "--json"]);
    assert_eq!(shown["foreign"], true);
    assert_eq!(shown["correlation"]["agentSessionFile"], file.to_str().unwrap());
    assert_eq!(shown["workingDirectory"], "/home/dev/project");
    assert!(world.out(&["show", CONVERSATION]).contains("codemie resume"));
    let page = world.json(&["view", CONVERSATION, "--json"]);
    assert_eq!((&page["sessionId"], &page["agentSessionId"]), (&json!(null), &json!(CONVERSATION)));
    assert!(texts(&page).contains(&"user @@pair".into()));
    for args in [
        &["rename", CONVERSATION, "x"][..],
        &["tag", CONVERSATION, "x"],
        &["archive", CONVERSATION],
        &["explain", CONVERSATION],
        &["export", CONVERSATION],
    ] {
        world.fails(args, 3, "codemie resume");
    }
    assert!(world.listed(&["--all"]).is_empty(), "only with --scan");
    world.fails(&["show", "0200000f"], 3, "no session");
}

/// As a store may hold it that was made before ids were looked at.
#[test]
fn an_id_that_would_be_an_option_of_the_agent_is_not_gone_on_with() {
    let mut world = World::new();
    let run = world.start("fix-build");
    world.bind(run, "--dangerously-skip-permissions", None);
    world.end(run, 0);
    world.fails(&["resume", "fix-build"], 1, "it cannot be continued");
}
