//! What the recordings show beside their totals ([`conformance`](crate::conformance)), and those of older versions.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files;
use super::lines::GeminiLines;
use crate::meter::form::{FormReader, Opened};
use crate::meter::line::Lines;
use crate::recordings::{Counted, besides_usage, count_all, read_whole, usage};
use types::Tokens;

fn lines(state: Option<&str>) -> Box<dyn Lines + Send> {
    Box::new(GeminiLines::new(state))
}

struct Case {
    name: String,
    truth: (u64, Tokens),
    files: Vec<(String, Vec<u8>)>,
}

fn cases() -> Vec<Case> {
    let cases = cases_in("tests/fixtures/gemini");
    assert_eq!(cases.len(), 7);
    cases
}

fn cases_in(folder: &str) -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let truths: Value = serde_json::from_slice(&fs::read(root.join("truth.json")).unwrap()).unwrap();
    let case = |(name, truth): (&String, &Value)| {
        let field = |name: &str| truth["main"]["usage"][name].as_u64().unwrap();
        let tokens = Tokens {
            input: field("input") - field("cached") + field("tool"),
            output: field("output") + field("thoughts"),
            cache_read: field("cached"),
            reasoning: field("thoughts"),
            ..Tokens::default()
        };
        let names = truth["session_files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap());
        let files =
            names.map(|file| (file.to_owned(), fs::read(root.join(name).join(PathBuf::from(file))).unwrap()));
        Case {
            name: name.clone(),
            truth: (truth["main"]["calls"].as_u64().unwrap(), tokens),
            files: files.collect(),
        }
    };
    truths.as_object().unwrap().iter().map(case).collect()
}

#[test]
fn records_of_a_sub_agent_are_marked() {
    for case in cases() {
        for (path, data) in &case.files {
            let mut counted = Counted::new();
            read_whole(data, lines(None), &mut counted);
            let subagent = path.split_once('/').and_then(|(_, name)| name.strip_suffix(".jsonl"));
            assert!(counted.values().all(|record| record.subagent.as_deref() == subagent), "{path}");
        }
    }
}

/// 0.20.2 and 0.30.1, whose conversations are documents; read as they grow, message by message.
#[test]
fn recordings_of_older_versions_count_each_call_once() {
    let cases = cases_in("tests/fixtures/gemini-older");
    assert_eq!(cases.len(), 2);
    for case in cases {
        for usage_only in [false, true] {
            let mut counted = Counted::new();
            for (path, data) in &case.files {
                let whole: Value = serde_json::from_slice(data).unwrap();
                let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
                let lines = if usage_only { GeminiLines::usage_only(None) } else { GeminiLines::new(None) };
                let mut followed = FormReader::new(files::form(file.path()), None, lines);
                let messages = whole["messages"].as_array().unwrap();
                for known in 1..=messages.len() {
                    let messages = serde_json::to_string_pretty(&messages[..known]).unwrap();
                    let grown = format!(
                        "{{\n  \"sessionId\": {},\n  \"messages\": {messages},\n  \"summary\": \"x\"\n}}",
                        whole["sessionId"]
                    );
                    fs::write(file.path(), grown).unwrap();
                    let batch = followed.next(&Opened::File(file.reopen().unwrap())).unwrap().unwrap();
                    assert_eq!(batch.unreadable, 0, "{path}");
                    assert_eq!(
                        batch.parsed.facts.session.map(|id| id.0).as_deref(),
                        whole["sessionId"].as_str()
                    );
                    count_all(&mut counted, batch.parsed.records);
                }
            }
            assert_eq!(usage(&counted), case.truth, "{}", case.name);
            let besides = if usage_only { [0; 6] } else { [4, 1, 0, 0, 0, 0] };
            assert_eq!(besides_usage(&counted), besides, "{}", case.name);
        }
    }
}
