//! What the recordings show beside their totals ([`conformance`](crate::conformance)).

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::lines::ClaudeLines;
use crate::meter::line::Lines;
use crate::recordings::{Counted, read_whole, usage};
use types::Tokens;

fn lines(state: Option<&str>) -> Box<dyn Lines + Send> {
    Box::new(ClaudeLines::new(state))
}

fn truth(value: &Value) -> (u64, Tokens) {
    let field = |name: &str| value[name].as_u64().unwrap();
    let tokens = Tokens {
        input: field("input_tokens"),
        output: field("output_tokens"),
        cache_read: field("cache_read_input_tokens"),
        cache_write_5m: field("cache_creation_input_tokens"),
        ..Tokens::default()
    };
    (field("calls"), tokens)
}

struct Case {
    name: String,
    truth: Value,
    /// Path under `projects/`, and content.
    files: Vec<(String, Vec<u8>)>,
}

fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude");
    let truth: Value = serde_json::from_slice(&std::fs::read(root.join("truth.json")).unwrap()).unwrap();
    let cases: Vec<Case> = truth
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, truth)| {
            let projects = root.join(name).join("projects");
            let files = truth["files"].as_object().unwrap().keys();
            let files =
                files.map(|file| (file.clone(), std::fs::read(projects.join(PathBuf::from(file))).unwrap()));
            Case { name: name.clone(), truth: truth.clone(), files: files.collect() }
        })
        .collect();
    assert_eq!(cases.len(), 8);
    cases
}

#[test]
fn totals_equal_the_truth_per_file() {
    for case in cases() {
        for usage_only in [false, true] {
            for (path, data) in &case.files {
                let lines = if usage_only { ClaudeLines::usage_only() } else { ClaudeLines::new(None) };
                let mut one = Counted::new();
                assert_eq!(read_whole(data, Box::new(lines), &mut one), 0, "{path}");
                let expected = truth(&case.truth["files"][path]["distinct_messages"]);
                assert_eq!(usage(&one), expected, "{} {path}", case.name);
            }
        }
    }
}

#[test]
fn copies_are_marked_where_the_agent_marks_them_and_subagents_are_named() {
    for case in cases() {
        for (path, data) in &case.files {
            let mut counted = Counted::new();
            read_whole(data, lines(None), &mut counted);
            let copied = counted.values().filter(|record| record.copied).count();
            let branch = path.contains("30374d2a");
            assert_eq!(
                copied,
                if branch { 5 + 4 + 1 } else { 0 },
                "{path}: calls, prompts and a tool before the branch"
            );
            let subagent =
                path.split("/subagents/agent-").nth(1).and_then(|name| name.strip_suffix(".jsonl"));
            assert!(counted.values().all(|record| record.subagent.as_deref() == subagent), "{path}");
        }
    }
}
