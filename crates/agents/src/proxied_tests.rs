//! Requests that were recorded from the real agents: what each says of itself.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::Value;
use types::Timestamp;

use super::*;
use crate::Agent;

/// A request as the proxy sees it.
pub(crate) fn request(headers: &[(&str, &str)], body: Option<&str>) -> relay::Request {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap()));
    relay::Request {
        number: 1,
        route: String::new(),
        peer: relay::Peer::default(),
        at: Timestamp(0),
        method: Method::POST,
        path: "/v1/messages".to_owned(),
        headers: headers.collect::<HeaderMap>(),
        api: None,
        billing: None,
        body: body.map(|body| Bytes::from(body.to_owned())),
    }
}

/// One line of a recording.
#[derive(Debug, Deserialize)]
struct Recorded {
    /// What it was, by what was done when it was recorded.
    when: String,
    kind: CallKind,
    conversation: Option<String>,
    subagent: Option<String>,
    path: String,
    headers: Vec<(String, String)>,
    body: Value,
}

fn check(agent: &dyn Agent, recording: &str) {
    let mut kinds = std::collections::BTreeSet::new();
    for line in recording.lines() {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        let headers: Vec<(&str, &str)> =
            recorded.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let request = relay::Request {
            path: recorded.path.clone(),
            ..request(&headers, Some(&recorded.body.to_string()))
        };
        let expected = CallIdentity {
            conversation: recorded.conversation.clone().map(AgentSessionId),
            subagent: recorded.subagent.clone(),
            kind: recorded.kind,
            attempt: 1,
        };
        assert_eq!(agent.identify(&request), expected, "{}", recorded.when);
        assert!(relay::meter::api_of(&request.method, &request.path, None).is_some(), "{}", recorded.path);
        kinds.insert(recorded.kind.as_str());

        // Without its body a request is never taken for what it is not.
        let bare = agent.identify(&relay::Request { body: None, ..request });
        assert!(
            bare.kind == recorded.kind || bare.kind == CallKind::Other,
            "{}: {:?}",
            recorded.when,
            bare.kind
        );
    }
    assert!(kinds.len() >= 4, "a recording with {kinds:?} alone shows little");
}

#[test]
fn requests_of_claude_say_what_they_are_for() {
    let agent = &crate::claude::Claude;
    check(agent, include_str!("../../../tests/fixtures/proxy/claude-2.1.197.jsonl"));
    check(agent, include_str!("../../../tests/fixtures/proxy/claude-2.1.325.jsonl"));
}

#[test]
fn requests_of_codex_say_what_they_are_for() {
    check(&crate::codex::Codex, include_str!("../../../tests/fixtures/proxy/codex-0.166.0.jsonl"));
}

#[test]
fn requests_of_gemini_say_what_they_are_for() {
    check(&crate::gemini::Gemini, include_str!("../../../tests/fixtures/proxy/gemini-0.61.0.jsonl"));
}

#[test]
fn nonsense_is_nobodys_call() {
    for agent in [&crate::claude::Claude as &dyn Agent, &crate::codex::Codex, &crate::gemini::Gemini] {
        for body in [
            None,
            Some(""),
            Some("[]"),
            Some("null"),
            Some(r#"{"tools":null,"messages":{},"input":"x","contents":1}"#),
        ] {
            let long = "x".repeat(LONGEST_ID + 1);
            let headers = [
                ("x-claude-code-session-id", long.as_str()),
                ("x-claude-code-agent-id", "a b"),
                ("x-claude-code-request-class", "new"),
                ("x-stainless-retry-count", "many"),
                ("session-id", long.as_str()),
                ("thread-id", "/etc"),
                ("x-codex-turn-metadata", "{"),
            ];
            assert_eq!(agent.identify(&request(&headers, body)), CallIdentity::default(), "{body:?}");
        }
    }
}

#[test]
fn the_class_that_a_request_of_claude_names_is_believed() {
    let tools = r#"{"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"hello"}]}"#;
    for (class, kind) in [
        ("main", CallKind::Main),
        ("subagent", CallKind::Subagent),
        ("workflow", CallKind::Subagent),
        ("compaction", CallKind::Compact),
        ("auxiliary", CallKind::Other),
        ("side_reply", CallKind::Other),
        ("of a later version", CallKind::Main),
    ] {
        let headers = [("x-claude-code-request-class", class), ("x-stainless-retry-count", "2")];
        let identity = crate::claude::Claude.identify(&request(&headers, Some(tools)));
        assert_eq!((identity.kind, identity.attempt), (kind, 3), "{class}");
    }
}

#[test]
fn older_versions_of_claude_name_their_session_in_the_body() {
    for (user, session) in [
        (r#""user_abc_account__session_7a276c6b-1""#, Some("7a276c6b-1")),
        (r#""{\"device_id\":\"d\",\"session_id\":\"7a276c6b-2\"}""#, Some("7a276c6b-2")),
        (r#""somebody""#, None),
    ] {
        let body = format!(r#"{{"metadata":{{"user_id":{user}}}}}"#);
        let identity = crate::claude::Claude.identify(&request(&[], Some(&body)));
        assert_eq!(identity.conversation.map(|id| id.0).as_deref(), session);
    }
}

/// What was not recorded but read in the program.
#[test]
fn further_requests_of_gemini() {
    for (body, kind) in [
        (
            r#"{"generationConfig":{"responseJsonSchema":{"properties":{"reasoning":{},"next_speaker":{}}}}}"#,
            CallKind::Classifier,
        ),
        (
            r#"{"generationConfig":{"responseJsonSchema":{"properties":{"unproductive_state_confidence":{}}}}}"#,
            CallKind::Classifier,
        ),
        (r#"{"generationConfig":{"responseSchema":{"properties":{"model_choice":{}}}}}"#, CallKind::Router),
        (
            r#"{"contents":[{"parts":[{"text":"Summarize the user's primary intent or goal in this conversation in ONE sentence."}]}]}"#,
            CallKind::Title,
        ),
        (r#"{"contents":[{"parts":[{"text":"a page to be summarised"}]}]}"#, CallKind::Other),
    ] {
        assert_eq!(crate::gemini::Gemini.identify(&request(&[], Some(body))).kind, kind, "{body}");
    }
}

/// Versions without metadata, as `tests/fixtures/codex-older` has them.
#[test]
fn older_versions_of_codex() {
    let compaction = r#"{"tools":[{}],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"You are performing a CONTEXT CHECKPOINT COMPACTION. …"}]}]}"#;
    let turn = r#"{"tools":[{}],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}]}"#;
    for (headers, body, kind, subagent) in [
        (&[("session_id", "s-1")][..], turn, CallKind::Main, None),
        (&[("session_id", "s-1")], compaction, CallKind::Compact, None),
        (&[("session-id", "s-1"), ("thread-id", "t-1")], turn, CallKind::Subagent, Some("t-1")),
        (&[("session_id", "s-1"), ("x-openai-subagent", "review")], turn, CallKind::Subagent, None),
        (&[("session_id", "s-1")], r#"{"generate":false,"tools":[{}]}"#, CallKind::Other, None),
    ] {
        let identity = crate::codex::Codex.identify(&request(headers, Some(body)));
        assert_eq!(identity.conversation.map(|id| id.0).as_deref(), Some("s-1"));
        assert_eq!((identity.kind, identity.subagent.as_deref()), (kind, subagent), "{headers:?} {body}");
    }
}

/// The tokens that a reader of files makes of lines.
fn in_a_file(lines: &mut dyn crate::meter::line::Lines, file: &[Value]) -> (String, types::Tokens) {
    let mut parsed = crate::meter::line::ParsedLines::default();
    for line in file {
        lines.read(line.to_string().as_bytes(), &mut parsed).unwrap();
    }
    let record = parsed.records.pop().unwrap();
    let crate::meter::record::Fact::Usage(usage) = record.fact else { panic!("{:?}", record.fact) };
    (record.key, usage.tokens)
}

/// The tokens that the proxy's meter makes of an answer.
fn in_an_answer(api: relay::Api, events: &[Value]) -> (String, types::Tokens) {
    let mut meter = relay::meter::AnswerMeter::new(api, &HeaderMap::new());
    for event in events {
        let _ = meter.read(format!("data: {event}\n\n").as_bytes());
    }
    let metered = meter.finish();
    (metered.response_id.unwrap_or_default(), metered.tokens.unwrap())
}

/// A call is reconciled by its key and never added: both must come to the same numbers.
#[test]
fn the_meter_and_the_readers_of_files_agree() {
    use serde_json::json;
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut count = || rng.u64(0..10_000);
        let [input, output, read, short, long, thought, tool] = std::array::from_fn(|_| count());

        let usage = json!({
            "input_tokens": input, "output_tokens": output, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": short + long,
            "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
            "output_tokens_details": {"thinking_tokens": thought},
            "server_tool_use": {"web_search_requests": 3}, "service_tier": "standard",
        });
        let line = json!({"type": "assistant", "uuid": "u", "message": {"id": "msg_1", "model": "m", "usage": usage}});
        let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {
            "input_tokens": input, "output_tokens": 1, "cache_read_input_tokens": read}}});
        let delta = json!({"type": "message_delta", "usage": usage});
        assert_eq!(
            in_an_answer(relay::Api::Messages, &[start, delta]),
            in_a_file(&mut crate::claude::lines::ClaudeLines::new(None), &[line]),
        );

        let all = input + read + short;
        let line = json!({"type": "token_usage_record", "payload": {"response_id": "resp_1", "usage": {
            "input_tokens": all, "cached_input_tokens": read, "cache_write_input_tokens": short,
            "output_tokens": output, "reasoning_output_tokens": thought}}});
        let last = json!({"type": "response.completed", "response": {"id": "resp_1", "usage": {
            "input_tokens": all, "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": short},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": thought}}}});
        assert_eq!(
            in_an_answer(relay::Api::Responses, &[last]),
            in_a_file(&mut crate::codex::lines::CodexLines::new(None), &[line]),
        );

        let line = json!({"id": "own", "type": "gemini", "model": "m", "tokens": {
            "input": input + read, "output": output, "cached": read, "thoughts": thought, "tool": tool}});
        let chunk = json!({"usageMetadata": {"promptTokenCount": input + read, "candidatesTokenCount": output,
            "cachedContentTokenCount": read, "thoughtsTokenCount": thought, "toolUsePromptTokenCount": tool}});
        assert_eq!(
            in_an_answer(relay::Api::Gemini, &[chunk]).1,
            in_a_file(&mut crate::gemini::lines::GeminiLines::new(None), &[line]).1,
        );
    }
}
