//! The examples of docs/orchestrating.md and docs/mcp.md, carried out one after the other on a scripted Claude Code: what the
//! pages show is what comes.
//!
//! A fence of `console` is a command after `$ ` and what it prints. A fence of `json` with a `tool` is a call, and the next one
//! its answer. Answers are compared by their fields and the kinds of their values; words that callers decide by are compared as
//! they stand.

use std::collections::HashMap;
use std::fs;

use serde_json::{Value, json};

use super::Scene;
use crate::mcp::Server;
use crate::sandbox::{CODEMIE, output_of};
use crate::support::scripted::await_some;

/// In this order: the second goes on with the sessions of the first.
const PAGES: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/docs/orchestrating.md"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mcp.md"),
];

/// A Claude Code that paints its composer, answers each prompt at once, asks for a permission where a prompt is to touch a file, and
/// begins a new conversation at `/clear`.
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/background/documented.sh");

/// What stands in a fence, and where it begins.
struct Fence {
    kind: String,
    text: String,
    place: String,
}

fn fences(page: &str) -> Vec<Fence> {
    let (mut fences, mut open): (Vec<Fence>, Option<Fence>) = (Vec::new(), None);
    let name = page.rsplit('/').next().unwrap_or(page);
    for (number, line) in fs::read_to_string(page).unwrap().lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => fences.extend(open.take()),
            (Some(kind), None) => {
                let place = format!("{name}:{}", number + 1);
                open = Some(Fence { kind: kind.to_owned(), text: String::new(), place });
            }
            (None, Some(fence)) => fence.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence of {name} is not closed");
    fences
}

/// Fields whose values callers decide by.
const DECIDING: &[&str] = &[
    "result",
    "is",
    "agent",
    "role",
    "text",
    "ended",
    "already",
    "created",
    "pending",
    "status",
    "code",
    "background",
    "truncated",
    "verdict",
    "screen",
];

/// Where an answer differs from the page: other fields, other kinds of values, another word.
fn difference(shown: &Value, seen: &Value, at: &str) -> Option<String> {
    let field = at.rsplit('/').next().unwrap_or_default();
    match (shown, seen) {
        (Value::Object(shown), Value::Object(seen)) => {
            let names = |fields: &serde_json::Map<String, Value>| fields.keys().cloned().collect::<Vec<_>>();
            if names(shown) != names(seen) {
                return Some(format!("{at}: fields {:?}, the page shows {:?}", names(seen), names(shown)));
            }
            shown.iter().find_map(|(name, value)| difference(value, &seen[name], &format!("{at}/{name}")))
        }
        // How many there are is the agent's version's affair; the page shows one.
        (Value::Array(shown), Value::Array(seen)) if matches!(field, "evidence" | "additions") => {
            seen.iter().find_map(|seen| difference(&shown[0], seen, &format!("{at}[]")))
        }
        (Value::Array(shown), Value::Array(seen)) => {
            if shown.len() != seen.len() {
                return Some(format!("{at}: {} entries, the page shows {}", seen.len(), shown.len()));
            }
            shown.iter().zip(seen).find_map(|(shown, seen)| difference(shown, seen, &format!("{at}[]")))
        }
        _ if DECIDING.contains(&field) => {
            (shown != seen).then(|| format!("{at}: {seen}, the page shows {shown}"))
        }
        _ => {
            let kind =
                |value: &Value| [value.is_null(), value.is_string(), value.is_number(), value.is_boolean()];
            (kind(shown) != kind(seen)).then(|| format!("{at}: {seen}, the page shows {shown}"))
        }
    }
}

/// The page's ids and cursors, and what they are here.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// Learns what stands for the page's values in an answer.
    fn learn(&mut self, shown: &Value, seen: &Value) {
        match (shown, seen) {
            (Value::Object(shown), Value::Object(seen)) => {
                for (name, value) in shown {
                    let Some(seen) = seen.get(name) else { continue };
                    match (value.as_str(), seen.as_str()) {
                        (Some(value), Some(seen))
                            if matches!(name.as_str(), "sessionId" | "cursor" | "before" | "hash") =>
                        {
                            self.0.insert(value.to_owned(), seen.to_owned());
                        }
                        _ => self.learn(value, seen),
                    }
                }
            }
            (Value::Array(shown), Value::Array(seen)) => {
                shown.iter().zip(seen).for_each(|(shown, seen)| self.learn(shown, seen));
            }
            _ => {}
        }
    }

    fn here(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (page, here)| text.replace(page, here))
    }
}

fn is_id(text: &str) -> bool {
    text.trim().len() == 36 && text.trim().chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
}

#[test]
fn every_example_of_the_pages_for_orchestrators_is_what_comes() {
    let scene = Scene::new();
    scene.sandbox.file(".git/HEAD", "ref: refs/heads/main\n");
    scene.sandbox.script("bin/claude", &fs::read_to_string(AGENT).unwrap());
    scene.sandbox.script("bin/codemie", &format!("exec '{CODEMIE}' \"$@\""));
    let claude = scene.sandbox.path("bin/claude");
    scene.sandbox.file(
        ".codemie/config.toml",
        &format!(
            "agent.claude.path = {}\nquiet = true\nmcp.allowAnswers = true\n",
            json!(claude.to_str().unwrap())
        ),
    );
    let path = format!("{}:{}", scene.sandbox.path("bin").display(), crate::sandbox::TOOLS);
    let mut server = Server::start(&scene.sandbox);
    server.open();
    let (mut names, mut differences) = (Names::default(), Vec::new());
    let mut asked: Vec<String> = Vec::new();
    let mut fences = PAGES.into_iter().flat_map(fences);
    while let Some(fence) = fences.next() {
        let (shown, seen) = match fence.kind.as_str() {
            "console" => {
                let (command, shown) = fence.text.split_once('\n').unwrap();
                let command = names.here(command.strip_prefix("$ ").expect("a command"));
                let mut shell = scene.sandbox.command("sh");
                let output = output_of(shell.args(["-c", &command]).env("PATH", &path));
                assert!(output.err.is_empty(), "{}: {output:?}", fence.place);
                if is_id(shown) {
                    assert!(is_id(&output.out), "{}: {output:?}", fence.place);
                    names.0.insert(shown.trim().to_owned(), output.out.trim().to_owned());
                    continue;
                }
                asked.push(command.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
                match (serde_json::from_str(shown), serde_json::from_str(&output.out)) {
                    (Ok(shown), Ok(seen)) => (shown, seen),
                    _ => panic!("{}: {command} prints {output:?}", fence.place),
                }
            }
            "json" => {
                let call: Value = serde_json::from_str(&names.here(&fence.text)).unwrap();
                let tool = call["tool"].as_str().unwrap_or_else(|| panic!("{}: no call", fence.place));
                let shown = fences.next().expect("an answer");
                let shown = serde_json::from_str(&shown.text)
                    .unwrap_or_else(|error| panic!("{}: {error}", shown.place));
                asked.push(tool.to_owned());
                let params = json!({"name": tool, "arguments": call["arguments"]});
                let id = json!(fence.place);
                server
                    .say_json(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
                (shown, server.answer_to(&id)["result"]["structuredContent"].clone())
            }
            _ => continue,
        };
        names.learn(&shown, &seen);
        if let Some(differs) = difference(&shown, &seen, "") {
            differences.push(format!(
                "{}: {differs}\n{}",
                fence.place,
                serde_json::to_string_pretty(&seen).unwrap()
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // Every tool has an example.
    server.say_json(&json!({"jsonrpc": "2.0", "id": "tools", "method": "tools/list"}));
    let listed = server.answer_to(&json!("tools"));
    let tools: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    for tool in &tools {
        assert!(asked.iter().any(|asked| asked == tool), "the pages have no example of {tool}");
    }
    for command in ["run", "wait", "send", "show", "usage", "stop"] {
        assert!(asked.iter().any(|asked| *asked == format!("codemie {command}")), "no example of {command}");
    }
    assert_eq!(server.close().0, Some(0));
    // The page resumes it last.
    scene.codemie(&["stop", "reviewer"]);
    await_some("all sessions have ended", || {
        (scene.codemie(&["list", "--active", "--json"]).1.trim() == "[]").then_some(())
    });
}
