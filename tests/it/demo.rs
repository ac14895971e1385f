//! `codemie demo` from end to end: the real wrapper, the real tracker, a real PTY, and an agent that keeps to a script.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use codemie::demo::script::{Conversation, SCRIPT, Tool};
use rustix::process::Signal;
use serde_json::Value;

use crate::sandbox::{CODEMIE, Sandbox, output_of};
use crate::support::http::ask;
use crate::support::processes;
use crate::support::pty::{Exit, Start, TIMEOUT, Terminal};

fn start(sandbox: &Sandbox, args: &[&str]) -> Start {
    let argv = [CODEMIE].iter().chain(args).copied();
    Start::new(argv).env("HOME", sandbox.home()).cwd(sandbox.home()).size(30, 100)
}

fn on_terminal(sandbox: &Sandbox) -> Terminal {
    start(sandbox, &["demo"]).spawn()
}

/// The published records, oldest first.
fn records(sandbox: &Sandbox) -> Vec<Value> {
    let read =
        |entry: fs::DirEntry| -> Value { serde_json::from_slice(&fs::read(entry.path()).unwrap()).unwrap() };
    let folder = fs::read_dir(sandbox.path(".codemie/metrics/sessions")).unwrap();
    let mut records: Vec<Value> = folder.map(|entry| read(entry.unwrap())).collect();
    // A session and its successor may begin in the same millisecond; their names tell them apart.
    records.sort_by_key(|record| (record["startTime"].as_i64(), record["name"].to_string()));
    records
}

/// How each ended: status, reason, exit code.
fn endings(records: &[Value]) -> Vec<(&str, &str, Option<i64>)> {
    records
        .iter()
        .map(|record| {
            (
                record["status"].as_str().unwrap(),
                record["endReason"].as_str().unwrap(),
                record["exitCode"].as_i64(),
            )
        })
        .collect()
}

fn registered(sandbox: &Sandbox) -> usize {
    fs::read_dir(sandbox.path(".codemie/demo/sessions")).unwrap().count()
}

/// Two linked sessions that say what the script says, and text that names both.
fn assert_as_scripted(sandbox: &Sandbox, shown: &str) {
    let records = records(sandbox);
    assert_eq!(endings(&records), [("completed", "clear", None), ("completed", "exit", Some(0))]);
    let [first, second] = &records[..] else { unreachable!() };
    assert_eq!(first["transitionedTo"], second["sessionId"]);
    assert_eq!(second["transitionedFrom"], first["sessionId"]);
    assert_eq!((&first["transitionedFrom"], &second["transitionedTo"]), (&Value::Null, &Value::Null));
    assert_eq!(second["name"].as_str().unwrap(), format!("{}.2", first["name"].as_str().unwrap()));
    let evidence = records.iter().map(|record| record["correlation"]["evidence"].as_str().unwrap());
    assert_eq!(evidence.collect::<Vec<_>>(), ["assigned", "registry"]);
    for (record, conversation) in records.iter().zip(&SCRIPT) {
        assert_eq!(record["agent"], "demo");
        assert_usage(&record["usage"], conversation);
        let file = Path::new(record["correlation"]["agentSessionFile"].as_str().unwrap());
        assert!(file.starts_with(sandbox.path(".codemie/demo")) && file.exists(), "{}", file.display());
        let name = record["name"].as_str().unwrap();
        assert!(shown.contains(&format!("{name} ")), "{name} is not in:\n{shown}");
    }
    assert!(shown.contains("── /clear ──▶"), "{shown}");
    assert_eq!(registered(sandbox), 0, "a clean end leaves nothing registered");
}

fn assert_usage(usage: &Value, conversation: &Conversation) {
    let tokens = conversation.tokens();
    let tools: Vec<&Tool> = conversation.calls().filter_map(|call| call.tool.as_ref()).collect();
    let changes = tools.iter().any(|tool| matches!(tool, Tool::Edit { .. }));
    for (field, expected) in [
        ("apiCalls", conversation.calls().count() as u64),
        ("inputTokens", tokens.input),
        ("outputTokens", tokens.output),
        ("cacheReadTokens", tokens.cache_read),
        ("cacheWriteTokens", tokens.cache_write()),
        ("prompts", conversation.turns.len() as u64),
        ("toolCalls", tools.len() as u64),
        ("linesAdded", if changes { 5 } else { 0 }),
        ("linesRemoved", u64::from(changes)),
        ("toolErrors", 0),
    ] {
        assert_eq!(usage[field], expected, "{field}");
    }
    assert!(usage["costUsd"].as_f64().unwrap() > 0.0);
    assert_eq!(usage["unpricedModels"], Value::Array(Vec::new()));
}

#[test]
fn on_a_terminal_it_is_played_and_told() {
    let sandbox = Sandbox::new();
    let terminal = on_terminal(&sandbox);
    terminal.wait_text("demo agent");
    terminal.wait_text("/clear: a new conversation");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    let shown = terminal.text();
    assert!(!shown.contains("demo agent"), "the agent's screen is gone:\n{shown}");
    assert!(shown.contains("codemie shim install") && shown.contains("codemie list"), "{shown}");
    assert_eq!(terminal.modes(), terminal.first_modes());
    assert_as_scripted(&sandbox, &shown);
}

#[test]
fn without_a_terminal_only_the_result_is_told() {
    let sandbox = Sandbox::new();
    let output = output_of(&mut sandbox.codemie(&["demo"]));
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{output:?}");
    assert!(!output.out.contains('\x1b'), "{output:?}");
    assert!(output.out.contains("codemie shim install"), "{output:?}");
    assert_as_scripted(&sandbox, &output.out);
    // To whoever has the shims, nobody offers them.
    assert_eq!(output_of(&mut sandbox.codemie(&["shim", "install"])).code, Some(0));
    let output = output_of(&mut sandbox.codemie(&["demo"]));
    assert!(!output.out.contains("shim install") && output.out.contains("codemie list"), "{output:?}");
}

#[test]
fn its_own_backend_has_received_both_sessions_and_shows_them() {
    let sandbox = Sandbox::new();
    // Wherever else events are sent, these are not.
    sandbox.file(".codemie/config.toml", "[backend]\nurl = 'http://127.0.0.1:1'\n");
    let output = output_of(&mut sandbox.codemie(&["demo"]));
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{output:?}");
    assert!(output.out.contains("lets one browser in, once, within ten minutes"), "{output:?}");
    let entrance = output.out.lines().find_map(|line| line.trim().strip_prefix("http://")).unwrap();
    let (address, path) = entrance.split_once('/').unwrap();
    let (status, headers, _) = ask(address, "GET", &format!("/{path}"), &[], &[]).unwrap();
    assert_eq!(status, 200, "{headers}");
    let cookie = headers.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = ("cookie".to_owned(), cookie.split(';').next().unwrap().to_owned());
    let (status, _, page) = ask(address, "GET", "/sessions", &[cookie], &[]).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, 200);
    for record in records(&sandbox) {
        let name = record["name"].as_str().unwrap();
        assert!(page.contains(name), "{name} is not in {page}");
        assert_eq!(record["sync"]["pending"], 0, "it waits for nobody else");
    }
    let (status, headers, _) = ask(address, "GET", &format!("/{path}"), &[], &[]).unwrap();
    assert!((300..400).contains(&status) && headers.contains("/login"), "let in once: {headers}");
    let (_, _, door) = ask(address, "GET", "/login", &[], &[]).unwrap();
    let door = String::from_utf8(door).unwrap();
    assert!(door.contains("codemie demo") && !door.contains("codemie dashboard"), "{door}");

    // Another demonstration's backend has all of it; this one ends.
    assert_eq!(output_of(&mut sandbox.codemie(&["demo"])).code, Some(0));
    let deadline = Instant::now() + TIMEOUT;
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "two backends of one home");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn it_costs_nothing_and_goes_when_it_is_told_to() {
    let sandbox = Sandbox::new();
    let output = output_of(
        sandbox.codemie(&["demo", "--quiet", "--open"]).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY"),
    );
    assert!(output.err.contains("no browser to open: http://127.0.0.1:"), "{output:?}");
    let usage = output_of(&mut sandbox.codemie(&["usage"]));
    assert!(usage.out.starts_with("Only the demonstration was recorded, which is not counted."), "{usage:?}");
    let usage = output_of(&mut sandbox.codemie(&["usage", "--json"]));
    let usage: Value = serde_json::from_str(&usage.out).unwrap();
    assert_eq!((&usage["rows"], &usage["files"]), (&serde_json::json!([]), &0.into()));
    let pruned = output_of(&mut sandbox.codemie(&["prune", "--agent", "demo"]));
    assert!(pruned.out.contains("2 sessions of demo that ended removed."), "{pruned:?}");
    let list = output_of(&mut sandbox.codemie(&["list", "--all", "--json"]));
    assert_eq!(list.out, "[]\n");
    assert!(!sandbox.path(".codemie/demo").exists(), "its files go with it");
}

#[test]
fn quietly_it_tells_the_numbers_alone() {
    let sandbox = Sandbox::new();
    let terminal = start(&sandbox, &["demo", "--quiet"]).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    let bytes = String::from_utf8(terminal.bytes()).unwrap();
    assert!(
        !bytes.contains("demo agent") && !bytes.contains("shim install") && !bytes.contains("http://"),
        "{bytes}"
    );
    assert_as_scripted(&sandbox, &terminal.text());
}

#[test]
fn control_c_leaves_a_sane_terminal_and_ended_sessions() {
    let sandbox = Sandbox::new();
    let cleared = [("completed", "clear", None), ("failed", "exit", Some(130))];
    for (moment, expected) in [("Thinking…", &cleared[1..]), ("/clear: a new conversation", &cleared[..])] {
        let before = records_so_far(&sandbox);
        let terminal = on_terminal(&sandbox);
        terminal.wait_text(moment);
        terminal.send("\x03");
        assert_eq!(terminal.wait_exit(), Exit::Code(130), "{moment}");
        assert_eq!(terminal.modes(), terminal.first_modes(), "{moment}");
        let shown = terminal.text();
        assert!(!shown.contains("demo agent") && shown.contains("SESSION"), "{shown}");
        let records = records(&sandbox);
        assert_eq!(endings(&records[before..]), expected, "{moment}");
        assert_eq!(registered(&sandbox), 0, "{moment}");
    }
}

fn records_so_far(sandbox: &Sandbox) -> usize {
    fs::read_dir(sandbox.path(".codemie/metrics/sessions")).map_or(0, Iterator::count)
}

#[test]
fn a_window_closed_in_the_middle_ends_the_session_and_the_next_one_tidies_up() {
    let sandbox = Sandbox::new();
    let mut terminal = on_terminal(&sandbox);
    terminal.wait_text("Thinking…");
    let pid = terminal.pid();
    terminal.hang_up();
    assert!(processes::wait_dead(pid, TIMEOUT));
    let ended = records(&sandbox);
    assert_eq!(endings(&ended), [("failed", "signal", None)]);
    assert_eq!(ended[0]["signal"], Signal::HUP.as_raw());
    assert_eq!(registered(&sandbox), 1, "killed, it could not take its entry out");
    assert_eq!(output_of(&mut sandbox.codemie(&["demo"])).code, Some(0));
    assert_eq!(registered(&sandbox), 0);
}

#[test]
fn a_killed_wrapper_is_made_up_for_by_the_next_command() {
    let sandbox = Sandbox::new();
    let terminal = on_terminal(&sandbox);
    terminal.wait_text("Write(greet.py)");
    processes::signal(terminal.pid(), Signal::KILL);
    assert_eq!(terminal.wait_exit(), Exit::Signal(9));
    drop(terminal); // with whoever is left of it
    assert_eq!(output_of(&mut sandbox.codemie(&["demo"])).code, Some(0));
    let records = records(&sandbox);
    assert_eq!(endings(&records)[0], ("interrupted", "crash", None));
    let first = SCRIPT[0].calls().next().unwrap().tokens;
    let input = records[0]["usage"]["inputTokens"].as_u64().unwrap();
    assert!(input >= first.input, "what was on the screen is counted: {input}");
}

#[test]
fn a_home_that_cannot_be_written_is_said() {
    let sandbox = Sandbox::new();
    let home = sandbox.file("a file", "").join("home");
    let output = output_of(sandbox.codemie(&["demo"]).env("CODEMIE_HOME", &home));
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
    let expected = format!("codemie: cannot write to {}; set CODEMIE_HOME", home.display());
    assert!(output.err.starts_with(&expected), "{output:?}");
}
