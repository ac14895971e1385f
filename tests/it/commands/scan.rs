//! `usage --scan`: the real binary over session files, beside a store and without one.

use std::fs;

use crate::support::scripted::{Scripted, install};
use crate::support::trees::{self, Counts, Plan};

use super::*;

fn counts(row: &Value) -> Counts {
    let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    Counts {
        calls: number("apiCalls"),
        input: number("inputTokens"),
        output: number("outputTokens"),
        cache_read: number("cacheReadTokens"),
        cache_write: number("cacheWriteTokens"),
        cost: 0,
    }
}

#[test]
fn a_scan_counts_every_file_wrapped_or_not() {
    let mut world = World::new();
    let root = world.sandbox.path(".claude");
    let truth = trees::make(&root, Plan { seed: 12, bytes: 1_500_000, session_bytes: 80_000 }).unwrap();
    assert!(truth.unreadable > 0 && truth.models.len() == 3, "another seed has what is asked for below");
    for round in 0..2 {
        let report = world.json(&["usage", "--scan", "--by", "session", "--json"]);
        assert_eq!(report["by"], "session");
        assert_eq!(counts(&report["total"]), Counts { cost: 0, ..truth.total }, "{round}");
        let pico = PicoDollars(i64::try_from(truth.total.cost).unwrap());
        let off = report["total"]["costUsd"].as_f64().unwrap() - pico.dollars();
        assert!(off.abs() < 1e-9, "{pico}: {off}");
        assert_eq!(report["total"]["unpricedModels"], serde_json::json!(["claude-next-9"]));
        assert_eq!(
            (&report["files"], &report["unreadableLines"]),
            (&truth.files.into(), &truth.unreadable.into())
        );
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), truth.sessions.len());
        for row in rows {
            let expected = truth.sessions[row["key"].as_str().unwrap()];
            assert_eq!((counts(row), &row["foreign"]), (Counts { cost: 0, ..expected }, &true.into()));
        }
    }
    assert!(world.listed(&[]).is_empty(), "conversations that were not wrapped are listed with --scan alone");
    assert!(world.out(&["list"]).contains("codemie list --scan"));
    let listed = world.json(&["list", "--scan", "--json"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), truth.sessions.len());
    for record in listed {
        let expected = truth.sessions[record["correlation"]["agentSessionId"].as_str().unwrap()];
        assert_eq!(
            (counts(&record["usage"]), &record["foreign"]),
            (Counts { cost: 0, ..expected }, &true.into())
        );
    }
    let last: Vec<_> = listed.iter().map(|record| record["lastCallTime"].as_i64().unwrap()).collect();
    assert!(last.is_sorted_by(|a, b| a >= b), "{last:?}");
    let table = world.out(&["list", "--scan"]);
    assert_eq!(table.matches("not wrapped").count(), listed.len(), "{table}");
    assert_eq!(world.json(&["usage", "--json"])["total"]["apiCalls"], 0, "and not counted unless asked for");

    // One of them is a session's: it stays one, under its name.
    let wrapped = truth.sessions.keys().next().unwrap().clone();
    let run = world.start("fix-auth");
    world.bind(run, &wrapped, None);
    world.call(run, "msg_live", "claude-opus-4-8", Some(2_000_000_000));
    let report = world.json(&["usage", "--scan", "--by", "session", "--json"]);
    assert_eq!(world.json(&["list", "--scan", "--json"]).as_array().unwrap().len(), truth.sessions.len());
    assert_eq!(
        world.json(&["list", "--status", "not-wrapped", "--json"]).as_array().unwrap().len(),
        truth.sessions.len() - 1,
        "a session's conversation is the session's"
    );
    assert_eq!(report["total"]["apiCalls"], truth.total.calls + 1);
    let row = report["rows"].as_array().unwrap().iter().find(|row| row["key"] == *wrapped).unwrap();
    assert_eq!(
        (&row["apiCalls"], &row["foreign"]),
        (&(truth.sessions[&wrapped].calls + 1).into(), &Value::Null)
    );

    let text = world.out(&["usage", "--scan", "--by", "session"]);
    assert!(text.contains("fix-auth"), "{text}");
    for told in [
        "No price is known for claude-next-9",
        "lines could not be read, the first in",
        "not run through codemie: not wrapped",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let others = truth.sessions.len() - 1;
    let text = world.out(&["usage", "--scan"]);
    assert!(text.contains(&format!("\n{others} conversations, $")), "{text}");
    assert!(text.contains("+, were not run through codemie.\n"), "{text}");
    let csv = world.out(&["usage", "--scan", "--by", "model", "--csv"]);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(csv.starts_with("key,agent,inputTokens"), "{csv}");
    for (by, rows) in [
        ("day", truth.days.len()),
        ("project", truth.projects.len() + 1),
        ("branch", truth.branches.len() + 1),
    ] {
        // The wrapped session has a project, a branch and perhaps a day of its own.
        let report = world.json(&["usage", "--scan", "--by", by, "--json"]);
        let found = report["rows"].as_array().unwrap().len();
        assert!(found == rows || by == "day" && found == rows + 1, "{by}: {found}");
        assert_eq!(report["total"]["apiCalls"], truth.total.calls + 1, "{by}");
    }
    let none = world.json(&["usage", "--scan", "--since", "1s", "--json"]);
    assert_eq!((&none["rows"], &none["files"]), (&serde_json::json!([]), &truth.files.into()));
}

#[test]
fn pruned_conversations_stay_counted_and_known_to_a_scan() {
    let sandbox = Sandbox::new();
    let agent = install(&sandbox);
    let folder = sandbox.path("project");
    fs::create_dir(&folder).unwrap();
    let mut run = Scripted::start(&sandbox, &agent, &folder, &[]);
    run.be("one");
    run.order("say m1");
    run.order("say m2");
    assert_eq!(run.exit(0), Some(0));
    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&output_of(&mut sandbox.codemie(args)).out).unwrap()
    };
    let by_session = ["usage", "--by", "session", "--json"];
    let scan = ["usage", "--by", "session", "--json", "--scan"];
    let (plain, scanned) = (json(&by_session), json(&scan));
    assert_eq!((&plain["total"]["apiCalls"], &scanned["rows"]), (&2.into(), &plain["rows"]));

    let conn = rusqlite::Connection::open(sandbox.path(".codemie/codemie.db")).unwrap();
    conn.execute("UPDATE session SET ended_at = 1", []).unwrap();
    let pruned = json(&["prune", "--older-than", "1d", "--json"]);
    assert_eq!(pruned["sessions"].as_array().unwrap().len(), 1);
    assert_eq!((json(&by_session), json(&scan)), (plain, scanned));
    let text = output_of(&mut sandbox.codemie(&["usage", "--scan"])).out;
    assert!(text.contains("All of it was run through codemie."), "{text}");

    let mut again = Scripted::start(&sandbox, &agent, &folder, &["--resume", "one"]);
    again.be("one");
    again.order("say m3");
    assert_eq!(again.exit(0), Some(0));
    for args in [&by_session[..], &scan] {
        let report = json(args);
        let rows: Vec<_> = report["rows"].as_array().unwrap().iter().collect();
        assert_eq!(
            (rows.len(), &rows[0]["key"], &rows[0]["apiCalls"]),
            (1, &"one".into(), &3.into()),
            "{report}"
        );
    }
}

#[test]
fn a_scan_without_a_store_makes_none_and_keeps_what_it_remembers_private() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    trees::make(&sandbox.path(".claude"), Plan { seed: 6, bytes: 200_000, session_bytes: 50_000 }).unwrap();
    let result = output_of(&mut sandbox.codemie(&["usage", "--scan"]));
    assert_eq!((result.code, result.err.as_str()), (Some(0), ""), "{result:?}");
    assert!(result.out.contains("claude"), "{result:?}");
    assert!(!sandbox.path(".codemie/codemie.db").exists());
    let mode = |path: &str| fs::metadata(sandbox.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(".codemie"), mode(".codemie/scan")), (0o700, 0o700));
    for file in trees::files(&sandbox.path(".codemie/scan")) {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0, "{}", file.display());
    }
}

#[test]
fn nothing_to_scan_says_what_to_do() {
    let sandbox = Sandbox::new();
    let result = output_of(&mut sandbox.codemie(&["usage", "--scan"]));
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.out.contains("No calls in any session file"), "{result:?}");
}
