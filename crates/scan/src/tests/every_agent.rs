//! The other agents' files through the scanner: every recording, and the mistakes that other tools made with them.

use serde_json::Value;

use super::*;
use agents::codex::lines::CodexLines;
use agents::meter::line::{Lines, ParsedLines};
use agents::meter::record::Fact;
use types::PicoDollars;

/// A home folder with all agents' files.
struct Everyone(tempfile::TempDir);

impl Everyone {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, path: &str, lines: &[String]) -> PathBuf {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, lines.iter().map(|line| line.clone() + "\n").collect::<String>()).unwrap();
        path
    }

    fn scan(&self) -> Scanned {
        let home: OsString = self.0.path().into();
        let scanner = Scanner {
            folder: self.0.path().join(".codemie/scan"),
            agents: agents::registry::AGENTS,
            var: &|name| (name == "HOME").then(|| home.clone()),
            days: Days::of(TimeZone::UTC),
            prices: &pricing::PriceList::default(),
            watch: None,
        };
        scanner.scan(None, Span::default()).unwrap()
    }

    /// Calls, uncached input, cache reads, output, reasoning.
    fn spent(&self) -> [i64; 5] {
        let rows = self.scan().rows(By::Agent);
        rows.first().map_or([0; 5], |row| {
            [row.sums.api_calls, row.sums.input, row.sums.cache_read, row.sums.output, row.sums.reasoning]
        })
    }
}

fn fixtures(agent: &str) -> (PathBuf, Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(agent);
    let truth = serde_json::from_slice(&fs::read(folder.join("truth.json")).unwrap()).unwrap();
    (folder, truth)
}

/// Copies a recording, a piece of every file at a time, with a scan after each.
fn play(from: &Path, home: &Everyone, to: &str, expected: [i64; 5], what: &str) {
    let files: Vec<_> = trees::files(from)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .map(|path| (home.0.path().join(to).join(path.strip_prefix(from).unwrap()), fs::read(path).unwrap()))
        .collect();
    for step in 1..=3 {
        for (path, bytes) in &files {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = fs::File::options().append(true).create(true).open(path).unwrap();
            let piece = &bytes[bytes.len() * (step - 1) / 3..bytes.len() * step / 3];
            std::io::Write::write_all(&mut file, piece).unwrap();
        }
        home.scan();
    }
    assert_eq!(home.spent(), expected, "{what}, growing");
    fs::remove_dir_all(home.0.path().join(".codemie")).unwrap();
    assert_eq!(home.spent(), expected, "{what}, at once");
    assert_eq!(home.scan().unreadable(), [], "{what}");
}

#[test]
fn every_recording_of_codex_sums_to_the_truth() {
    let (folder, truth) = fixtures("codex");
    for (case, truth) in truth.as_object().unwrap() {
        let count = |name: &str| truth["main"]["usage"][name].as_i64().unwrap();
        let cached = count("cached_input_tokens");
        let expected = [
            truth["main"]["calls"].as_i64().unwrap(),
            count("input_tokens") - cached,
            cached,
            count("output_tokens"),
            count("reasoning_output_tokens"),
        ];
        play(&folder.join(case).join("sessions"), &Everyone::new(), ".codex/sessions", expected, case);
    }
}

#[test]
fn every_recording_of_gemini_sums_to_the_truth() {
    let (folder, truth) = fixtures("gemini");
    for (case, truth) in truth.as_object().unwrap() {
        let count = |name: &str| truth["main"]["usage"][name].as_i64().unwrap();
        let expected = [
            truth["main"]["calls"].as_i64().unwrap(),
            count("input") - count("cached") + count("tool"),
            count("cached"),
            count("output") + count("thoughts"),
            count("thoughts"),
        ];
        play(&folder.join(case), &Everyone::new(), ".gemini/tmp/widgets/chats", expected, case);
    }
}

fn codex(kind: &str, payload: &str) -> String {
    format!(r#"{{"timestamp":"2026-11-16T10:00:01.000Z","type":"{kind}","payload":{payload}}}"#)
}

const ROLLOUT: &str =
    ".codex/sessions/2026/11/16/rollout-2026-11-16T10-00-00-01a1e18d-46b4-7352-92dc-1e28b60230dc.jsonl";

#[test]
fn openai_input_includes_cache_which_is_not_counted_twice() {
    let home = Everyone::new();
    let usage = r#"{"input_tokens":1000,"cached_input_tokens":600,"output_tokens":50,"reasoning_output_tokens":20,"total_tokens":1050}"#;
    home.put(
        ROLLOUT,
        &[
            codex("session_meta", r#"{"id":"t","cwd":"/p"}"#),
            codex("token_usage_record", &format!(r#"{{"response_id":"resp_1","usage":{usage}}}"#)),
        ],
    );
    assert_eq!(home.spent(), [1, 400, 600, 50, 20]);
}

#[test]
fn calls_of_every_tier_cost_the_same_in_a_scan_and_read_live() {
    let usage = r#"{"input_tokens":10,"cached_input_tokens":0,"output_tokens":1}"#;
    // 10 input and 1 output, in dollars per million tokens.
    for (tier, cost) in [
        ("default", Some(10 * 2 + 10)),
        ("priority", Some(10 * 4 + 20)),
        ("flex", Some(10 + 5)),
        ("ultrafast", Some(10 * 12 + 60)),
        ("brand-new", None),
    ] {
        let cost = cost.map(|cost| PicoDollars(cost * 1_000_000));
        let settings = format!(
            r#"{{"type":"thread_settings_applied","thread_settings":{{"model":"gpt-6.1-sol","service_tier":"{tier}"}}}}"#
        );
        let lines = [
            codex("session_meta", r#"{"id":"t","cwd":"/p"}"#),
            codex("event_msg", &settings),
            codex("token_usage_record", &format!(r#"{{"response_id":"r","usage":{usage}}}"#)),
        ];
        let (mut live, mut parsed) = (CodexLines::new(None), ParsedLines::default());
        for line in &lines {
            live.read(line.as_bytes(), &mut parsed).unwrap();
        }
        let [Fact::Usage(usage)] =
            &parsed.records.iter().map(|record| record.fact.clone()).collect::<Vec<_>>()[..]
        else {
            panic!("{:?}", parsed.records)
        };
        assert_eq!(pricing::cost(&usage.model, &usage.tokens, usage.tier), cost, "{tier}");

        let home = Everyone::new();
        home.put(ROLLOUT, &lines);
        for time in ["first", "from the cache"] {
            let [row] = <[_; 1]>::try_from(home.scan().rows(By::Agent)).unwrap();
            assert_eq!(row.sums.cost, cost.unwrap_or_default(), "{tier}, {time}");
            assert_eq!(row.unpriced_calls.values().sum::<i64>(), i64::from(cost.is_none()), "{tier}, {time}");
        }
    }
}

#[test]
fn gemini_input_includes_cache_which_is_not_counted_twice() {
    let home = Everyone::new();
    let tokens = r#"{"input":1000,"output":50,"cached":600,"thoughts":20,"tool":5,"total":1075}"#;
    let message = format!(
        r#"{{"id":"m1","timestamp":"2026-11-16T10:00:01.000Z","type":"gemini","content":"x","tokens":{tokens},"model":"gemini-2.5-pro"}}"#
    );
    home.put(
        ".gemini/tmp/widgets/chats/session-2026-11-16T10-00-11111111.jsonl",
        &[
            r#"{"sessionId":"11111111-2222-4333-8444-555555555555","projectHash":"h","startTime":"2026-11-16T10:00:00.000Z","kind":"main"}"#.into(),
            message.clone(),
            // Once more, whole and in a replay.
            message.clone(),
            format!(r#"{{"$set":{{"messages":[{message}]}}}}"#),
        ],
    );
    assert_eq!(home.spent(), [1, 405, 600, 70, 20]);
}

#[test]
fn re_emitted_and_reset_token_counts_of_codex_count_once() {
    let home = Everyone::new();
    let answer = || codex("response_item", r#"{"type":"message","role":"assistant","content":[]}"#);
    let count = |total: u64, last: u64| {
        let sums =
            |count: u64| format!(r#"{{"input_tokens":{count},"cached_input_tokens":0,"output_tokens":0}}"#);
        let info = format!(r#"{{"total_token_usage":{},"last_token_usage":{}}}"#, sums(total), sums(last));
        codex("event_msg", &format!(r#"{{"type":"token_count","info":{info}}}"#))
    };
    let lines = [
        codex("session_meta", r#"{"id":"t","cwd":"/p"}"#),
        answer(),
        count(10, 10),
        count(10, 10), // repeated
        answer(),
        count(35, 25),
        answer(),
        count(7, 7), // the context ran over, and the sum begins again
        count(7, 7),
    ];
    for step in 1..=lines.len() {
        home.put(ROLLOUT, &lines[..step]);
        home.scan();
    }
    assert_eq!(home.spent()[..2], [3, 42]);
}

#[test]
fn archived_sessions_are_counted() {
    let home = Everyone::new();
    let name = ROLLOUT.rsplit('/').next().unwrap();
    let usage = r#"{"input_tokens":10,"cached_input_tokens":0,"output_tokens":5}"#;
    let lines = [
        codex("session_meta", r#"{"id":"t","cwd":"/p"}"#),
        codex("token_usage_record", &format!(r#"{{"response_id":"r","usage":{usage}}}"#)),
    ];
    let path = home.put(ROLLOUT, &lines);
    assert_eq!(home.spent()[..2], [1, 10]);
    let archived = home.0.path().join(".codex/archived_sessions");
    fs::create_dir_all(&archived).unwrap();
    fs::rename(path, archived.join(name)).unwrap();
    let scanned = home.scan();
    assert_eq!((home.spent()[..2].to_vec(), scanned.files()), (vec![1, 10], 1));
}
