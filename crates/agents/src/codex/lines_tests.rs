use super::*;
use crate::meter::record::Tool;
use types::ToolKind;

fn meta(extra: &str) -> String {
    format!(
        r#"{{"timestamp":"2026-11-16T10:00:00.000Z","ordinal":0,"type":"session_meta","payload":{{"id":"t","session_id":"t","cwd":"/p","source":"cli","thread_source":"user","git":{{"branch":"main"}}{extra}}}}}"#
    )
}

fn line(kind: &str, payload: &str) -> String {
    format!(r#"{{"timestamp":"2026-11-16T10:00:01.000Z","ordinal":1,"type":"{kind}","payload":{payload}}}"#)
}

fn read(lines: &mut CodexLines, texts: &[String]) -> ParsedLines {
    let mut parsed = ParsedLines::default();
    for text in texts {
        lines.read(text.as_bytes(), &mut parsed).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    parsed
}

fn facts(texts: &[String]) -> Vec<(String, Fact)> {
    let parsed = read(&mut CodexLines::new(None), texts);
    parsed.records.into_iter().map(|record| (record.key, record.fact)).collect()
}

fn usage(response: &str) -> String {
    line(
        "token_usage_record",
        &format!(
            r#"{{"thread_id":"t","session_id":"t","response_id":"{response}","usage":{{"input_tokens":1030,"cached_input_tokens":503,"cache_write_input_tokens":27,"output_tokens":103,"reasoning_output_tokens":13,"total_tokens":1133}}}}"#
        ),
    )
}

#[test]
fn a_call_has_disjoint_token_counts_and_the_model_of_its_turn() {
    let texts = [
        meta(""),
        line("turn_context", r#"{"model":"gpt-5.5","cwd":"/q"}"#),
        usage("r1"),
        line(
            "event_msg",
            r#"{"type":"thread_settings_applied","thread_settings":{"service_tier":"priority"}}"#,
        ),
        line("turn_context", r#"{"model":"gpt-6-sol"}"#),
        usage("r2"),
    ];
    for mut lines in [CodexLines::new(None), CodexLines::usage_only(None)] {
        let parsed = read(&mut lines, &texts);
        let tokens = Tokens {
            input: 500,
            output: 103,
            cache_read: 503,
            cache_write_5m: 27,
            cache_write_1h: 0,
            reasoning: 13,
        };
        let call = |model: &str, tier| Usage { model: model.into(), tokens, tier, request_id: None };
        let expected = [("r1", call("gpt-5.5", Tier::Standard)), ("r2", call("gpt-6-sol", Tier::Fast))];
        for (record, (key, call)) in parsed.records.iter().zip(expected) {
            assert_eq!((record.key.as_str(), &record.fact), (key, &Fact::Usage(call)));
            assert_eq!((record.copied, record.subagent.as_deref()), (false, None));
        }
        assert_eq!(parsed.records.len(), 2);
        let facts = parsed.facts;
        assert_eq!(facts.session, Some(AgentSessionId("t".into())));
        assert_eq!((facts.cwd.as_deref(), facts.branch.as_deref()), (Some("/q"), Some("main")));
        assert_eq!(facts.first_at, Timestamp::parse("2026-11-16T10:00:00.000Z"));
    }
}

#[test]
fn a_call_has_the_tier_of_its_thread_also_when_reading_goes_on_later() {
    for (setting, tier) in [
        ("{}", Tier::Standard),
        (r#"{"service_tier":null}"#, Tier::Standard),
        (r#"{"service_tier":"default"}"#, Tier::Standard),
        (r#"{"service_tier":"priority"}"#, Tier::Fast),
        (r#"{"service_tier":"flex"}"#, Tier::Flex),
        (r#"{"service_tier":"ultrafast"}"#, Tier::Ultrafast),
        (r#"{"service_tier":"brand-new"}"#, Tier::Unknown),
    ] {
        let settings = format!(r#"{{"type":"thread_settings_applied","thread_settings":{setting}}}"#);
        let texts = [meta(""), line("event_msg", &settings)];
        for usage_only in [false, true] {
            let reader = if usage_only { CodexLines::usage_only } else { CodexLines::new };
            let mut lines = reader(None);
            read(&mut lines, &texts);
            let mut later = reader(lines.state().as_deref());
            for lines in [&mut lines, &mut later] {
                assert_eq!(tier_of_call(lines), tier, "{setting}");
            }
        }
    }
}

#[test]
fn a_state_written_before_there_were_other_tiers_than_fast_is_read() {
    for (state, tier) in [
        (r#"{"thread":"t","model":"gpt-5.5","fast":true,"prompts":0,"sums":{}}"#, Tier::Fast),
        (r#"{"thread":"t","model":"gpt-5.5","prompts":0,"sums":{}}"#, Tier::Standard),
    ] {
        let mut lines = CodexLines::new(Some(state));
        assert_eq!(lines.memory.model, "gpt-5.5");
        assert_eq!(tier_of_call(&mut lines), tier);
    }
}

fn tier_of_call(lines: &mut CodexLines) -> Tier {
    match &read(lines, &[usage("r1")]).records[..] {
        [Record { fact: Fact::Usage(usage), .. }] => usage.tier,
        others => panic!("{others:?}"),
    }
}

#[test]
fn a_sub_agent_counts_for_its_root_and_has_no_prompts() {
    let prompt = line(
        "event_msg",
        r#"{"type":"item_completed","thread_id":"s","item":{"type":"UserMessage","id":"u1","content":[]}}"#,
    );
    let call = line(
        "token_usage_record",
        r#"{"thread_id":"s","session_id":"t","response_id":"r9","usage":{"input_tokens":1}}"#,
    );
    let own = meta("").replace("\"id\":\"t\"", "\"id\":\"s\"").replace("\"user\"", "\"subagent\"");
    let parsed = read(&mut CodexLines::new(None), &[own, prompt.clone(), call]);
    assert_eq!(parsed.facts.session, Some(AgentSessionId("t".into())));
    let [only] = &parsed.records[..] else { panic!("{:?}", parsed.records) };
    assert_eq!((only.key.as_str(), only.subagent.as_deref()), ("r9", Some("s")));
    // A review writes its sub-agent's first message into its own file as well.
    assert_eq!(facts(&[meta(""), prompt.clone()]), []);
    let ours = prompt.replace("\"thread_id\":\"s\"", "\"thread_id\":\"t\"");
    assert_eq!(facts(&[meta(""), ours]), [("u1".to_owned(), Fact::Prompt)]);
}

#[test]
fn failed_turns_are_api_errors() {
    let turn = |error: &str| {
        line("event_msg", &format!(r#"{{"type":"task_complete","turn_id":"n1","error":{error}}}"#))
    };
    for (error, status, kind) in [
        (r#"{"codex_error_info":"other","message":"secret"}"#, None, "other"),
        (
            r#"{"codex_error_info":{"http_connection_failed":{"http_status_code":401}}}"#,
            Some(401),
            "http_connection_failed",
        ),
        (
            r#"{"codex_error_info":{"response_too_many_failed_attempts":{"http_status_code":429}}}"#,
            Some(429),
            "response_too_many_failed_attempts",
        ),
        (r#"{"codex_error_info":{"new_kind":null}}"#, None, "new_kind"),
        (r#"{"message":"x"}"#, None, "unknown"),
        (r#"{"codex_error_info":7}"#, None, "unknown"),
    ] {
        let expected = Fact::Error(ApiError { status, kind: kind.to_owned() });
        assert_eq!(facts(&[meta(""), turn(error)]), [("n1".to_owned(), expected)], "{error}");
    }
    let fine = line("event_msg", r#"{"type":"task_complete","turn_id":"n1","error":null}"#);
    assert_eq!(facts(&[meta(""), fine]), []);
}

#[test]
fn tools_that_the_vendor_runs_are_one_line() {
    let search = line("response_item", r#"{"type":"web_search_call","id":"ws_1","status":"completed"}"#);
    let tool = Tool {
        name: "web_search".into(),
        ok: true,
        kind: ToolKind::Other,
        file: None,
        further: Vec::new(),
        lines_added: 0,
        lines_removed: 0,
    };
    assert_eq!(facts(&[meta(""), search]), [("ws_1".to_owned(), Fact::Tool(tool))]);
}

#[test]
fn older_versions_are_counted_by_their_sums() {
    let count = |total: u64, last: u64| {
        line(
            "event_msg",
            &format!(
                r#"{{"type":"token_count","info":{{"total_token_usage":{{"input_tokens":{total}}},"last_token_usage":{{"input_tokens":{last}}}}}}}"#
            ),
        )
    };
    let answer = line("response_item", r#"{"type":"message","role":"assistant","content":[]}"#);
    let texts = [
        meta(""),
        line("event_msg", r#"{"type":"user_message","message":"hi"}"#),
        line("event_msg", r#"{"type":"token_count","info":null}"#),
        answer.clone(),
        count(10, 10),
        count(10, 10),
        answer.clone(),
        count(35, 25),
        // A newer version continues the file.
        answer,
        usage("r1"),
        count(1065, 1030),
    ];
    let counted = |mut lines: CodexLines| -> Vec<(String, u64)> {
        let records = read(&mut lines, &texts).records.into_iter();
        let calls = records.filter_map(|record| match record.fact {
            Fact::Usage(usage) => Some((record.key, usage.tokens.input)),
            _ => None,
        });
        calls.collect()
    };
    let expected = [("t:1".to_owned(), 10), ("t:2".to_owned(), 25), ("r1".to_owned(), 500)];
    assert_eq!(counted(CodexLines::new(None)), expected);
    assert_eq!(counted(CodexLines::usage_only(None)), expected);
    assert_eq!(facts(&texts)[0], ("t:1".to_owned(), Fact::Prompt));
}

#[test]
fn unreadable_lines_are_reported_and_unknown_ones_are_not() {
    let mut lines = CodexLines::new(None);
    let mut scan = CodexLines::usage_only(None);
    let mut parsed = ParsedLines::default();
    for broken in [
        "{".to_owned(),
        "7".to_owned(),
        line("token_usage_record", r#"{"response_id":"r","usage":{"input_tokens":"7"}}"#),
        line("token_usage_record", r#"{"response_id":"r","usage":{"input_tokens":-7}}"#),
        line("token_usage_record", r#"{"usage":{"input_tokens":7}}"#),
        line("session_meta", "7"),
    ] {
        assert!(lines.read(broken.as_bytes(), &mut parsed).is_err(), "{broken}");
        assert!(scan.read(broken.as_bytes(), &mut parsed).is_err(), "{broken}");
    }
    for fine in [
        "",
        "  ",
        r#"{"type":"from_the_future","payload":7}"#,
        r#"{"type":7}"#,
        &line("event_msg", r#"{"type":"from_the_future"}"#),
        &line("event_msg", r#"{"type":"item_completed","item":7}"#),
        &line("response_item", r#"{"type":"function_call_output","call_id":"never","output":{"a":1}}"#),
        &line("token_usage_record", r#"{"response_id":"r"}"#),
    ] {
        assert!(lines.read(fine.as_bytes(), &mut parsed).is_ok(), "{fine}");
        assert!(scan.read(fine.as_bytes(), &mut parsed).is_ok(), "{fine}");
    }
    assert_eq!(parsed.records, []);
}

#[test]
fn state_survives_a_restart_and_another_file_begins_without() {
    let call = line("response_item", r#"{"type":"function_call","name":"exec_command","call_id":"c1"}"#);
    let output =
        line("response_item", r#"{"type":"function_call_output","call_id":"c1","output":"Exit code: 0"}"#);
    let mut lines = CodexLines::new(None);
    assert_eq!(lines.state(), None);
    read(&mut lines, &[meta(""), line("turn_context", r#"{"model":"gpt-5.5"}"#), call]);
    let mut lines = CodexLines::new(lines.state().as_deref());
    let parsed = read(&mut lines, &[output.clone(), usage("r1")]);
    assert!(matches!(&parsed.records[0].fact, Fact::Tool(tool) if tool.ok && tool.name == "exec_command"));
    assert!(matches!(&parsed.records[1].fact, Fact::Usage(usage) if usage.model == "gpt-5.5"));
    assert!(lines.state().is_some_and(|state| state.len() < 300), "{:?}", lines.state());
    lines.forget();
    assert_eq!(lines.state(), None);
    assert_eq!(CodexLines::new(Some("broken")).state(), None);
}
