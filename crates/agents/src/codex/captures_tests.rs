//! What the recordings show beside their totals ([`conformance`](crate::conformance)), per thread; and again as an older version
//! would have written them, without the lines that record a call.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::{CodexFiles, thread_of};
use super::lines::CodexLines;
use super::shape::peek;
use crate::meter::line::Lines;
use crate::meter::record::Fact;
use crate::recordings::{Counted, count_all, pieces_readers_and_restarts_change_nothing, read_whole, usage};
use types::Tokens;

fn lines(state: Option<&str>) -> Box<dyn Lines + Send> {
    Box::new(CodexLines::new(state))
}

fn tokens(truth: &Value) -> Tokens {
    let field = |name: &str| truth[name].as_u64().unwrap();
    Tokens {
        input: field("input_tokens") - field("cached_input_tokens"),
        output: field("output_tokens"),
        cache_read: field("cached_input_tokens"),
        reasoning: field("reasoning_output_tokens"),
        ..Tokens::default()
    }
}

struct Case {
    name: String,
    truth: Value,
    files: Vec<(String, Vec<u8>)>,
}

impl Case {
    /// As a version writes it that reports calls by sums alone.
    fn older(mut self) -> Self {
        for (_, data) in &mut self.files {
            let lines = data.split_inclusive(|byte| *byte == b'\n');
            *data =
                lines.filter(|line| peek(line) != Some(b"token_usage_record")).flatten().copied().collect();
        }
        self
    }
}

fn cases() -> Vec<Case> {
    let cases = cases_in("tests/fixtures/codex");
    assert_eq!(cases.len(), 6);
    cases
}

fn cases_in(folder: &str) -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let truths: Value = serde_json::from_slice(&fs::read(root.join("truth.json")).unwrap()).unwrap();
    let case = |(name, truth): (&String, &Value)| {
        let files = CodexFiles::at(root.join(name)).all().files.into_iter().map(|file| file.path);
        let read = |path: PathBuf| (path.to_str().unwrap().to_owned(), fs::read(&path).unwrap());
        Case { name: name.clone(), truth: truth.clone(), files: files.map(read).collect() }
    };
    truths.as_object().unwrap().iter().map(case).collect()
}

fn totals_equal_the_truth(case: &Case) {
    for usage_only in [false, true] {
        let mut all = Counted::new();
        // Twice, and backwards: a key counts once.
        for (path, data) in case.files.iter().chain(case.files.iter().rev()) {
            let lines = if usage_only { CodexLines::usage_only(None) } else { CodexLines::new(None) };
            let mut one = Counted::new();
            assert_eq!(read_whole(data, Box::new(lines), &mut one), 0, "{path}");
            let thread = thread_of(Path::new(path)).unwrap();
            let own = one.iter().filter(|(_, record)| !record.copied);
            let own: Counted = own.map(|(key, record)| (key.clone(), record.clone())).collect();
            assert_eq!(usage(&own).1, tokens(&case.truth["per_thread"][&thread.0]), "{} {path}", case.name);
            count_all(&mut all, one.into_values());
        }
        let truth = &case.truth["main"];
        let expected = (truth["calls"].as_u64().unwrap(), tokens(&truth["usage"]));
        assert_eq!(usage(&all), expected, "{}", case.name);
    }
}

#[test]
fn totals_equal_the_truth_per_thread_and_per_case() {
    cases().iter().for_each(totals_equal_the_truth);
}

/// True of all six: each has an event with new sums for every answer.
#[test]
fn sums_alone_give_the_same_totals() {
    cases().into_iter().map(Case::older).for_each(|case| totals_equal_the_truth(&case));
}

#[test]
fn random_pieces_and_restarts_change_no_sums() {
    for case in cases().into_iter().map(Case::older) {
        pieces_readers_and_restarts_change_nothing(&case.name, &case.files, &lines);
    }
}

#[test]
fn every_call_has_its_model() {
    for case in cases().into_iter().chain(cases().into_iter().map(Case::older)) {
        for (path, data) in &case.files {
            for lines in [CodexLines::new(None), CodexLines::usage_only(None)] {
                let mut counted = Counted::new();
                read_whole(data, Box::new(lines), &mut counted);
                for (key, record) in &counted {
                    if let Fact::Usage(usage) = &record.fact {
                        assert_eq!(usage.model, "gpt-5.5", "{key:?} in {path}");
                    }
                }
            }
        }
    }
}

#[test]
fn sub_agents_are_named() {
    for case in cases() {
        for (path, data) in &case.files {
            let mut counted = Counted::new();
            read_whole(data, lines(None), &mut counted);
            let thread = thread_of(Path::new(path)).unwrap();
            let subagent = (thread.0 == "01a1e192-16db-7803-8175-097b8643701d").then_some(thread.0);
            assert!(counted.values().all(|record| record.subagent == subagent && !record.copied), "{path}");
        }
    }
}

/// Real recordings of 0.60.1, 0.92.0 and 0.120.0: both orders of a call's lines, forks that copy, sums that begin at zero.
#[test]
fn recordings_of_older_versions_count_each_call_once() {
    let cases = cases_in("tests/fixtures/codex-older");
    assert_eq!(cases.len(), 4);
    for case in &cases {
        totals_equal_the_truth(case);
        pieces_readers_and_restarts_change_nothing(&case.name, &case.files, &lines);
    }
}
