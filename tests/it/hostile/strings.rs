//! Strings as nobody should write them, in old stores and exports: taken in short, listed for ever.

use std::fs;

use serde_json::{Value, json};

use super::{bounded, sources};
use crate::commands::World;
use crate::sandbox::{CODEMIE, CommandOutput, Sandbox, output_of};
use crate::support::pty::{Exit, Start};

/// Longer than a format's width may be.
const ENDLESS: usize = 70_000;

fn commands(sandbox: &Sandbox, name: &str) -> Vec<CommandOutput> {
    let all = [
        &["list", "--all"][..],
        &["list", "--all", "--json"],
        &["show", name],
        &["explain", name],
        &["usage", "--by", "session"],
        &["usage", "--by", "project"],
        &["usage", "--by", "branch", "--csv"],
        &["prune", "--older-than", "1s", "--dry-run"],
        &["doctor", "--timeout", "5s"],
        &["sync", "--status"],
        &["sync", "preview"],
        &["view", name],
    ];
    let ran = all.map(|args| {
        let result = output_of(&mut bounded(sandbox, args));
        assert!(result.code.is_some_and(|code| code < 101), "codemie {args:?}: {}", tail(&result.err));
        result
    });
    ran.into()
}

fn tail(text: &str) -> String {
    text.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect()
}

#[test]
fn an_old_store_of_endless_strings_is_taken_in_short_and_listed() {
    let sandbox = Sandbox::new();
    let long = |letter: char| letter.to_string().repeat(ENDLESS);
    let entry = json!({"agent": long('a'), "name": long('n'), "sessionId": long('s'), "model": long('m'),
        "created": "2026-11-01T00:00:00Z", "lastUsed": "2026-11-01T01:00:00Z", "status": "completed"});
    let store = json!({"version": 3, "sessions": {long('k'): entry, "plain": {"agent": "claude"}}});
    fs::create_dir_all(sandbox.path("p/.genie/state")).unwrap();
    let file = sandbox.file("p/.genie/state/sessions.json", &store.to_string());
    let old = json!({"sessionId": long('i'), "agentName": long('b'), "startTime": 1_794_000_000_000_i64,
        "workingDirectory": format!("/{}", long('w')), "project": long('p'), "branch": long('r'),
        "repository": long('q'), "provider": long('v'), "correlation": {"agentSessionFile": long('f')}});
    let other = sandbox.file("old/one.json", &old.to_string());
    for round in ["2 sessions imported", "0 sessions imported, 2 already here"] {
        let result = output_of(&mut bounded(&sandbox, &["import", file.to_str().unwrap()]));
        assert!(
            result.code == Some(0) && result.out.contains(round),
            "{}",
            tail(&(result.out + &result.err))
        );
    }
    let result = output_of(&mut bounded(&sandbox, &["import", other.to_str().unwrap()]));
    assert!(result.out.contains("1 session imported"), "{}", tail(&(result.out + &result.err)));
    let ran = commands(&sandbox, "plain");
    let list: Value = serde_json::from_str(&ran[1].out).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 3);
    for result in ran {
        let longest = result.out.lines().chain(result.err.lines()).map(|line| line.chars().count()).max();
        assert!(longest.unwrap_or(0) < 6000, "{}", tail(&result.out));
    }
}

#[test]
fn an_export_of_endless_strings_is_taken_in_short_and_listed() {
    let mut world = World::new();
    let run = world.start("fix-auth");
    world.bind(run, "7a276c6b-d81e", None);
    world.call(run, "msg_1", "claude-opus-4-8", None);
    world.end(run, 0);
    let mut export = world.json(&["export", "fix-auth"]);
    let endless = "x\u{202e}\x1b[2J".repeat(ENDLESS / 6);
    let session = &mut export["sessions"][0]["session"];
    for field in ["agent", "agentVersion", "project", "repository", "branch", "workingDirectory"] {
        session[field] = endless.clone().into();
    }
    session["tags"] = json!([endless]);
    for evidence in export["sessions"][0]["evidence"].as_array_mut().unwrap() {
        (evidence["source"], evidence["detail"]) = (endless.clone().into(), endless.clone().into());
    }
    let elsewhere = Sandbox::new();
    let file = elsewhere.file("export.json", &export.to_string());
    let result = output_of(&mut bounded(&elsewhere, &["import", file.to_str().unwrap()]));
    assert_eq!(result.code, Some(0), "{}", tail(&result.err));
    for result in commands(&elsewhere, "fix-auth") {
        for text in [&result.out, &result.err] {
            assert!(text.chars().count() < 40_000, "{}", tail(text));
            assert!(!text.contains(['\x1b', '\u{202e}']), "{}", tail(text));
        }
    }
    // The same on a terminal.
    let start = Start::new([CODEMIE, "list"]).env("HOME", elsewhere.home()).size(24, 60);
    let terminal = start.spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert!(
        terminal.text().contains("fix-auth") && !terminal.text().contains('\u{202e}'),
        "{}",
        terminal.text()
    );
}

#[test]
fn no_width_of_a_format_is_made_at_run_time() {
    // Rust ends the program where such a width is beyond 65,535. Constants are written in capitals.
    let allowed = [
        "crates/dashboard/src/chart.rs", // decimal places, a handful
        "crates/format/src/lib.rs",      // the same
    ];
    let mut found = Vec::new();
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        if allowed.contains(&name.as_str()) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let mut rest = line;
            while let Some(at) = rest.find('{') {
                rest = &rest[at + 1..];
                let inside = rest.split(['}', '{']).next().unwrap_or_default();
                if let Some((_, format)) = inside.split_once(':')
                    && let Some((before, _)) = format.split_once('$')
                    && before.ends_with(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit())
                    && !before.contains([' ', '"', '('])
                {
                    found.push(format!("{name}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    }
    assert_eq!(found, [""; 0], "use output::table::padded");
}
