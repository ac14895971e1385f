//! The counting mistakes that other tools made, each by name.

use super::*;
use store::PicoDollars;

fn one_row(stage: &Stage) -> UsageRow {
    let mut rows = stage.scan().rows(By::Agent);
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

#[test]
fn the_same_message_under_several_session_ids_counts_once() {
    let stage = Stage::new();
    stage.put("a.jsonl", &[answer("m1", "a", 10), answer("m2", "a", 20)]);
    stage.put("b.jsonl", &[answer("m1", "b", 10), answer("m3", "b", 30)]);
    let row = one_row(&stage);
    assert_eq!((row.sums.api_calls, row.sums.output), (3, 60));
}

#[test]
fn the_largest_revision_counts_and_not_the_first_line() {
    let stage = Stage::new();
    for order in [[1, 7, 400], [400, 7, 1], [7, 400, 7]] {
        stage.forget();
        stage.put("s.jsonl", &order.map(|output| answer("m", "s", output)));
        assert_eq!((one_row(&stage).sums.api_calls, one_row(&stage).sums.output), (1, 400), "{order:?}");
    }
}

#[test]
fn revisions_in_two_files_are_one_call_of_the_first_with_the_larger_numbers() {
    let stage = Stage::new();
    let late = "2026-11-15T10:00:09.000Z";
    stage.put("a.jsonl", &[answer("m", "a", 5)]);
    stage.put(
        "b.jsonl",
        &[answer("m", "b", 9), Answer { id: "n", session: "b", at: late, ..Answer::default() }.line()],
    );
    assert_eq!(stage.sessions(), BTreeMap::from([("a".into(), 9), ("b".into(), 10)]));
}

#[test]
fn a_missing_request_id_changes_nothing() {
    let stage = Stage::new();
    let bare = Answer { more: "", ..Answer::default() }.line();
    let null = Answer { more: r#","requestId":null"#, ..Answer::default() }.line();
    stage.put("s.jsonl", &[bare, Answer::default().line(), null]);
    assert_eq!((one_row(&stage).sums.api_calls, one_row(&stage).sums.output), (1, 10));
}

#[test]
fn a_fork_that_copies_lines_owns_only_what_is_new() {
    let stage = Stage::new();
    let at = |at: &'static str, id: &'static str, session: &'static str| {
        Answer { id, session, at, ..Answer::default() }.line()
    };
    let old = ["2026-11-15T10:00:00.000Z", "2026-11-15T10:00:01.000Z"];
    // The copy has the smaller id: only its birth decides.
    stage.put(
        "a-fork.jsonl",
        &[
            at(old[0], "m1", "a-fork"),
            at(old[1], "m2", "a-fork"),
            at("2026-11-15T11:00:00.000Z", "m3", "a-fork"),
        ],
    );
    stage.put("parent.jsonl", &[at(old[0], "m1", "parent"), at(old[1], "m2", "parent")]);
    assert_eq!(stage.sessions(), BTreeMap::from([("a-fork".into(), 10), ("parent".into(), 20)]));
}

#[test]
fn a_line_marked_as_a_copy_never_decides_ownership() {
    let stage = Stage::new();
    let marked = r#","forkedFrom":{"sessionId":"z","messageUuid":"u"}"#;
    let copy = |id| Answer { id, session: "a", more: marked, ..Answer::default() }.line();
    stage.put("a.jsonl", &[copy("m1"), copy("m2"), answer("m3", "a", 10)]);
    let later = Answer { id: "m1", session: "z", at: "2026-11-15T12:00:00.000Z", ..Answer::default() }.line();
    stage.put("z.jsonl", &[later]);
    assert_eq!(
        stage.sessions(),
        BTreeMap::from([("a".into(), 20), ("z".into(), 10)]),
        "only copies of m2 are there: it was made, and its own file is gone"
    );
}

#[test]
fn a_sub_agent_counts_under_its_root_and_its_replay_not_again() {
    let stage = Stage::new();
    let side = |id, more| Answer { id, session: "root", more, ..Answer::default() }.line();
    let marks = r#","isSidechain":true,"agentId":"a1""#;
    stage.put("root.jsonl", &[answer("m1", "root", 10), side("m2", marks)]);
    stage.put("root/subagents/agent-a1.jsonl", &[side("m2", marks), side("m3", marks)]);
    // As earlier versions kept it: beside the session, known by its lines alone.
    stage.put("agent-a2.jsonl", &[side("m4", r#","isSidechain":true,"agentId":"a2""#)]);
    assert_eq!(stage.sessions(), BTreeMap::from([("root".into(), 40)]));
}

#[test]
fn sidechain_duplicates_in_the_main_file_count_once() {
    let stage = Stage::new();
    let side = Answer { more: r#","isSidechain":true"#, ..Answer::default() }.line();
    stage.put("s.jsonl", &[Answer::default().line(), side.clone(), side]);
    assert_eq!((one_row(&stage).sums.api_calls, one_row(&stage).sums.output), (1, 10));
}

#[test]
fn a_torn_last_line_waits_and_a_broken_one_is_reported() {
    let stage = Stage::new();
    let whole = answer("m2", "s", 20);
    let (head, tail) = whole.split_at(whole.len() - 9);
    let path =
        stage.put("s.jsonl", &[answer("m1", "s", 10), r#"{"type":"assistant","message":{"usage":{"#.into()]);
    let mut text = fs::read_to_string(&path).unwrap() + head;
    fs::write(&path, &text).unwrap();
    let scanned = stage.scan();
    assert_eq!((outputs(&scanned, By::Session)["s"], scanned.unreadable()), (10, vec![(path.clone(), 1)]));
    text.push_str(tail);
    text.push('\n');
    fs::write(&path, &text).unwrap();
    let scanned = stage.scan();
    assert_eq!((outputs(&scanned, By::Session)["s"], scanned.unreadable()), (30, vec![(path, 1)]));
}

#[test]
fn an_unknown_model_is_counted_and_named_and_has_no_price() {
    let stage = Stage::new();
    let unknown = Answer { id: "m2", model: "claude-next-9", ..Answer::default() }.line();
    stage.put("s.jsonl", &[answer("m1", "s", 10), unknown]);
    let row = one_row(&stage);
    assert_eq!(
        (row.sums.api_calls, row.sums.output, row.unpriced_models),
        (2, 20, vec!["claude-next-9".to_owned()])
    );
    // 1 × 5 + 10 × 25 dollars per million tokens
    assert_eq!(row.sums.cost, PicoDollars(255_000_000));
}

#[test]
fn one_hour_cache_writes_cost_more_than_five_minute_ones() {
    let stage = Stage::new();
    let usage = r#","cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":40}"#;
    stage.put("s.jsonl", &[Answer { usage, ..Answer::default() }.line()]);
    let row = one_row(&stage);
    assert_eq!(row.sums.cache_write, 100);
    // 1 × 5 + 10 × 25 + 60 × 6.25 + 40 × 10
    assert_eq!(row.sums.cost, PicoDollars(1_030_000_000));
}

#[test]
fn cache_reads_are_not_input() {
    let stage = Stage::new();
    let usage = r#","cache_read_input_tokens":5000"#;
    stage.put("s.jsonl", &[Answer { usage, ..Answer::default() }.line()]);
    let row = one_row(&stage);
    assert_eq!((row.sums.input, row.sums.cache_read, row.sums.cost), (1, 5000, PicoDollars(2_755_000_000)));
}

#[test]
fn usage_in_tool_results_and_synthetic_messages_are_no_calls() {
    let stage = Stage::new();
    let result = r#"{"type":"user","uuid":"u","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"\"assistant\""}]},"toolUseResult":{"role":"assistant","id":"msg_x","model":"claude-opus-4-8","usage":{"input_tokens":9,"output_tokens":9}}}"#;
    let synthetic = Answer { id: "x", model: "<synthetic>", ..Answer::default() }.line();
    stage.put("s.jsonl", &[result.into(), synthetic, answer("m", "s", 10)]);
    assert_eq!((one_row(&stage).sums.api_calls, one_row(&stage).sums.output), (1, 10));
}

#[test]
fn a_key_of_another_agent_is_another_call() {
    // No two agents share ids; the keys are kept apart all the same.
    assert_ne!(
        call::key_hash(read::agent_seed("claude"), b"m"),
        call::key_hash(read::agent_seed("codex"), b"m")
    );
}
