use super::*;
use types::{AgentSessionId, Timestamp, ToolKind};

fn read(lines: &[&str]) -> ParsedLines {
    let mut reader = ClaudeLines::new(None);
    let mut parsed = ParsedLines::default();
    for line in lines {
        reader.read(line.as_bytes(), &mut parsed).unwrap();
    }
    parsed
}

fn one(line: &str) -> Record {
    let mut records = read(&[line]).records;
    assert_eq!(records.len(), 1, "{line}");
    records.remove(0)
}

fn assistant(message: &str, rest: &str) -> String {
    format!(
        r#"{{"message":{message},"type":"assistant","uuid":"u1","timestamp":"2026-11-16T00:02:26.886Z"{rest}}}"#
    )
}

const USAGE: &str = r#"{"input_tokens":12,"cache_creation_input_tokens":102,"cache_read_input_tokens":1002,"output_tokens":22}"#;

#[test]
fn an_answer_is_its_message_id_and_final_usage() {
    let message = format!(r#"{{"id":"msg_1","model":"claude-opus-4-8","usage":{USAGE}}}"#);
    let record = one(&assistant(&message, r#","requestId":"req_1""#));
    assert_eq!(record.key, "msg_1");
    assert_eq!(record.at, Timestamp(1_794_787_346_886));
    assert_eq!((record.copied, record.subagent.as_deref()), (false, None));
    let Fact::Usage(usage) = record.fact else { panic!("{record:?}") };
    assert_eq!(usage.model, "claude-opus-4-8");
    assert_eq!(usage.request_id.as_deref(), Some("req_1"));
    assert_eq!(
        usage.tokens,
        Tokens { input: 12, output: 22, cache_read: 1002, cache_write_5m: 102, ..Tokens::default() }
    );
    assert_eq!(usage.tier, Tier::Standard);
}

/// Claude Code 2.1.325.
#[test]
fn thinking_tokens_are_reasoning_within_the_output() {
    for (details, reasoning) in [
        (r#","output_tokens_details":{"thinking_tokens":7}"#, 7),
        (r#","output_tokens_details":{}"#, 0),
        (r#","output_tokens_details":null"#, 0),
        ("", 0),
    ] {
        let message = format!(r#"{{"id":"m","model":"x","usage":{{"output_tokens":22{details}}}}}"#);
        let Fact::Usage(usage) = one(&assistant(&message, "")).fact else { panic!("no usage") };
        assert_eq!((usage.tokens.output, usage.tokens.reasoning), (22, reasoning), "{details}");
    }
}

#[test]
fn usage_is_read_in_all_its_forms() {
    for (usage, (five, hour), fast) in [
        (r#"{"cache_creation_input_tokens":9}"#, (9, 0), false),
        (r#"{"cache_creation_input_tokens":9,"cache_creation":null,"speed":"standard"}"#, (9, 0), false),
        (
            r#"{"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":4}}"#,
            (5, 4),
            false,
        ),
        (
            r#"{"cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":4}}"#,
            (5, 4),
            false,
        ),
        // The total was billed, whatever the split.
        (
            r#"{"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_1h_input_tokens":4}}"#,
            (0, 3),
            false,
        ),
        (r#"{"input_tokens":null,"speed":"fast","service_tier":"standard"}"#, (0, 0), true),
        (r#"{"speed":7,"service_tier":"priority","iterations":[{"x":1}]}"#, (0, 0), false),
    ] {
        let record = one(&assistant(&format!(r#"{{"id":"m","model":"x","usage":{usage}}}"#), ""));
        let Fact::Usage(read) = record.fact else { panic!("{usage}") };
        assert_eq!((read.tokens.cache_write_5m, read.tokens.cache_write_1h), (five, hour), "{usage}");
        assert_eq!(read.tier == Tier::Fast, fast, "{usage}");
    }
}

#[test]
fn synthetic_messages_are_no_calls_and_api_errors_are_marked() {
    let synthetic = format!(r#"{{"id":"x","model":"<synthetic>","usage":{USAGE}}}"#);
    assert!(read(&[&assistant(&synthetic, r#","isApiErrorMessage":false"#)]).records.is_empty());
    let record =
        one(&assistant(&synthetic, r#","isApiErrorMessage":true,"apiErrorStatus":400,"error":"unknown""#));
    assert_eq!(record.key, "u1");
    assert_eq!(record.fact, Fact::Error(ApiError { status: Some(400), kind: "unknown".into() }));
    let record = one(&assistant(&synthetic, r#","isApiErrorMessage":true,"error":"server_error""#));
    assert_eq!(record.fact, Fact::Error(ApiError { status: None, kind: "server_error".into() }));
}

#[test]
fn copies_and_subagents_are_marked() {
    let message = format!(r#"{{"id":"m","model":"x","usage":{USAGE}}}"#);
    assert!(one(&assistant(&message, r#","forkedFrom":{"sessionId":"s","messageUuid":"u"}"#)).copied);
    assert!(!one(&assistant(&message, r#","forkedFrom":null"#)).copied);
    let record = one(&assistant(&message, r#","isSidechain":true,"agentId":"a5d0""#));
    assert_eq!(record.subagent.as_deref(), Some("a5d0"));
    let record = one(&assistant(&message, r#","isSidechain":true"#));
    assert_eq!(record.subagent.as_deref(), Some("sidechain"));
}

#[test]
fn prompts_are_recognised() {
    let typed = r#""promptSource":"typed","origin":{"kind":"human"}"#;
    for (content, rest, prompt) in [
        (r#""fix it""#, typed, true),
        (r#""fix it""#, r#""promptSource":"sdk""#, true),
        (r#""fix it""#, r#""promptSource":"system""#, false),
        (r#""/review 12""#, typed, true),
        (r#""fix it""#, r#""userType":"external""#, true), // a version without promptSource
        (r#""fix it""#, r#""origin":{"kind":"task-notification"}"#, false),
        (r#""fix it""#, r#""origin":{"kind":"human"}"#, true),
        (r#""fix it""#, r#""origin":"odd""#, true),
        (r#"[{"type":"text","text":"look"},{"type":"image","source":{}}]"#, typed, true),
        (r#"[{"type":"image","source":{}}]"#, r#""x":1"#, true),
        (r#""fix it""#, r#""isMeta":true"#, false),
        (r#""Caveat""#, r#""isMeta":true,"promptSource":"typed""#, false),
        (r#""This session is being continued""#, r#""isCompactSummary":true"#, false),
        (r#""do it, sub-agent""#, r#""isSidechain":true,"agentId":"a""#, false),
        (r#""<command-name>/clear</command-name>\n""#, r#""x":1"#, false),
        (r#""<command-message>review</command-message>""#, r#""x":1"#, false),
        (r#""<local-command-stdout>ok</local-command-stdout>""#, r#""x":1"#, false),
        (r#""<bash-input>ls</bash-input>""#, r#""x":1"#, false),
        (r#""<command-name> is a tag""#, typed, true), // typed by a person all the same
        (
            r#"[{"type":"text","text":"[Request interrupted by user]"}]"#,
            r#""interruptedMessageId":"m""#,
            false,
        ),
        (r#"[{"type":"text","text":"[Request interrupted by user for tool use]"}]"#, r#""x":1"#, false),
        (r#"[{"type":"tool_result","tool_use_id":"t","content":"ok"}]"#, r#""toolUseResult":{}"#, false),
        (r#"[{"type":"tool_result","tool_use_id":"t","content":"ok"}]"#, r#""x":1"#, false),
    ] {
        let line = format!(
            r#"{{"type":"user","uuid":"u9","message":{{"role":"user","content":{content}}},{rest}}}"#
        );
        let prompts: Vec<_> = read(&[&line]).records;
        assert_eq!(prompts.iter().any(|record| record.fact == Fact::Prompt), prompt, "{line}");
        assert!(prompts.iter().all(|record| record.key == "u9"), "{line}");
    }
}

#[test]
fn a_tool_call_is_recorded_with_its_result_in_either_order() {
    let call = assistant(
        r#"{"id":"m","model":"x","content":[{"type":"tool_use","id":"toolu_1","name":"Edit","input":{"file_path":"/p/a.rs"}}]}"#,
        "",
    );
    let result = r#"{"type":"user","timestamp":"2026-11-16T00:02:27.000Z","agentId":"a5d0","forkedFrom":{},"message":{"content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":false,"content":"x"}]},"toolUseResult":{"filePath":"/p/a.rs","structuredPatch":[{"lines":["-a","+b","+c"]}]}}"#;
    for order in [[call.as_str(), result], [result, call.as_str()]] {
        let records = read(&order).records;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].key, "toolu_1");
        assert_eq!(records[0].at, Timestamp(1_794_787_347_000));
        assert_eq!((records[0].copied, records[0].subagent.as_deref()), (true, Some("a5d0")));
        let Fact::Tool(tool) = &records[0].fact else { panic!("{records:?}") };
        assert_eq!((tool.name.as_str(), tool.kind, tool.ok), ("Edit", ToolKind::Edit, true));
        assert_eq!((tool.lines_added, tool.lines_removed), (2, 1));
    }
}

#[test]
fn an_open_tool_call_survives_a_restart() {
    let call = assistant(
        r#"{"id":"m","model":"x","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}]}"#,
        "",
    );
    let result = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":true}]},"toolUseResult":"Error: Exit code 3"}"#;
    let mut before = ClaudeLines::new(None);
    assert_eq!(before.state(), None);
    before.read(call.as_bytes(), &mut ParsedLines::default()).unwrap();
    let state = before.state().unwrap();
    let mut after = ClaudeLines::new(Some(&state));
    let mut parsed = ParsedLines::default();
    after.read(result.as_bytes(), &mut parsed).unwrap();
    assert!(matches!(&parsed.records[0].fact, Fact::Tool(tool) if tool.name == "Bash" && !tool.ok));
    assert_eq!(after.state(), None);
    assert_eq!(ClaudeLines::new(Some("rubbish")).state(), None);
}

#[test]
fn unknown_lines_are_ignored_and_broken_ones_are_errors() {
    for line in [
        "",
        "  \r",
        r#"{"type":"progress","data":{"deep":[[[]]]}}"#,
        r#"{"type":["odd"]}"#,
        "{}",
        r#"{"type":"assistant"}"#,
        r#"{"type":"assistant","message":{"id":"m","model":"x"}}"#,
        r#"{"type":"user","message":"text"}"#,
        r#"{"type":"user","message":{"content":7}}"#,
        r#"{"type":"user","timestamp":7,"cwd":[],"message":{"content":[7]}}"#,
    ] {
        assert!(read(&[line]).records.is_empty(), "{line}");
    }
    for line in [
        "{",
        "\0\0\0",
        r#"{"type":"assistant","message":"#,
        r#"{"type":"assistant","message":{"model":"x","usage":{}}}"#,
        r#"{"type":"assistant","message":{"id":"m","usage":{"input_tokens":-1}}}"#,
        r#"{"type":"assistant","message":{"id":"m","usage":{"input_tokens":"12"}}}"#,
        r#"{"type":"assistant"} {"type":"assistant"}"#,
        "\u{feff}{}",
    ] {
        let mut parsed = ParsedLines::default();
        assert!(ClaudeLines::new(None).read(line.as_bytes(), &mut parsed).is_err(), "{line}");
        assert!(parsed.records.is_empty(), "{line}");
    }
    assert!(ClaudeLines::new(None).read(b"{\"type\":\"\xff\"}", &mut ParsedLines::default()).is_err());
}

#[test]
fn the_latest_value_of_a_fact_counts() {
    let facts = read(&[
        r#"{"type":"mode","sessionId":"s1"}"#,
        r#"{"type":"user","sessionId":"s1","cwd":"/home/dev/caf\u00e9","version":"2.1.197","gitBranch":"main","timestamp":"2026-11-16T00:00:02.000Z"}"#,
        r#"{"type":"user","sessionId":"s1","timestamp":"2026-11-16T00:00:01.000Z"}"#,
        r#"{"type":"relocated","relocatedCwd":"/home/dev/other","sessionId":"s1"}"#,
    ])
    .facts;
    assert_eq!(facts.session, Some(AgentSessionId("s1".into())));
    assert_eq!(facts.cwd.as_deref(), Some("/home/dev/other"));
    assert_eq!(facts.version.as_deref(), Some("2.1.197"));
    assert_eq!(facts.branch.as_deref(), Some("main"));
    assert_eq!(facts.last_at.unwrap().since(facts.first_at.unwrap()).as_secs(), 1);
}

#[test]
fn the_fast_way_finds_the_same_calls() {
    let call = assistant(
        &format!(
            r#"{{"id":"m","model":"x","usage":{USAGE},"content":[{{"type":"tool_use","id":"t","name":"Bash"}}]}}"#
        ),
        "",
    );
    let prompt = r#"{"type":"user","uuid":"u","message":{"content":"the \"assistant\" \"usage\""}}"#;
    let mut fast = ClaudeLines::usage_only();
    let mut parsed = ParsedLines::default();
    for line in [call.as_str(), prompt, r#"{"type":"mode"}"#] {
        fast.read(line.as_bytes(), &mut parsed).unwrap();
    }
    assert_eq!(parsed.records, vec![one(&call)]);
    assert_eq!(fast.state(), None);
    assert!(fast.read(b"{\"type\":\"us", &mut parsed).is_err());
}

#[test]
fn the_fast_way_and_the_whole_way_agree_on_odd_lines() {
    let usage = format!(r#"{{"id":"m","model":"x","usage":{USAGE}}}"#);
    for line in [
        format!(r#"{{"type":"assistant","message":{usage}}}"#),
        format!(r#"{{"a":true,"b":-1.5,"c":null,"type":"assistant","message":{usage}}}"#),
        format!(r#"{{ "type": "assistant", "message": {usage} }}"#),
        format!(r#"{{"no\"te":"x","type":"assistant","message":{usage}}}"#),
        format!(r#"{{"data":{{"type":"user"}},"type":"assistant","message":{usage}}}"#),
        format!(r#"{{"message":{usage},"type":"user"}}"#),
        format!(r#"{{"message":{usage},"type":["assistant"]}}"#),
        format!(r#"{{"type":"user","message":{usage}}}"#),
        r#"{"message":"\"usage\"","x":"usage","type":"assistant"}"#.to_owned(),
        r#"{"message":["assistant","usage"],"type":"progress"}"#.to_owned(),
        r#"{"message":["assistant","usage"],"type":"assistant"}"#.to_owned(),
        r#"{"message":{"usage":[1]},"type":"assistant"}"#.to_owned(),
        r#"{"message":{"usage":null},"type":"assistant"}"#.to_owned(),
        r#"{"message":{"model":"<synthetic>","usage":{}},"type":"assistant"}"#.to_owned(),
        r#"{"message":{"usage":{}},"type":"assistant"}"#.to_owned(),
        r#"{"message":null,"usage":1,"type":"assistant"}"#.to_owned(),
    ] {
        let outcome = |mut reader: ClaudeLines| {
            let mut parsed = ParsedLines::default();
            let read = reader.read(line.as_bytes(), &mut parsed).is_ok();
            parsed.records.retain(|record| matches!(record.fact, Fact::Usage(_)));
            (read, parsed.records)
        };
        assert_eq!(outcome(ClaudeLines::usage_only()), outcome(ClaudeLines::new(None)), "{line}");
    }
}
