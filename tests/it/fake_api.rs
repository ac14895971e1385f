//! The fake model API by itself, as a plain client sees it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fake_api::{FakeApi, Kind, Spent, Status, Vendor};

const SOON: Duration = Duration::from_secs(20);

fn open(api: &FakeApi, target: &str, headers: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(api.url().trim_start_matches("http://")).unwrap();
    let body = body.to_string();
    let length = body.len();
    write!(stream, "POST {target} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n{body}")
        .unwrap();
    stream
}

fn post(api: &FakeApi, target: &str, headers: &str, body: &Value) -> String {
    let mut answer = String::new();
    open(api, target, headers, body).read_to_string(&mut answer).unwrap();
    answer
}

/// The events of a streamed answer.
fn events(answer: &str) -> Vec<Value> {
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn claude(prompt: &str) -> Value {
    json!({"model": "claude-x", "stream": true, "tools": [{"name": "Bash"}],
           "messages": [{"role": "user", "content": [{"type": "text", "text": prompt}]}]})
}

const SESSION: &str = "X-Claude-Code-Session-Id: s-1\r\n";

#[test]
fn each_call_costs_numbers_of_its_own() {
    let api = FakeApi::start();
    for _ in 0..2 {
        post(&api, "/v1/messages?beta=true", SESSION, &claude("hello"));
    }
    let answer = post(&api, "/v1/messages", SESSION, &claude("[run ls]"));
    let events = events(&answer);
    assert_eq!(events.first().unwrap()["message"]["usage"]["output_tokens"], 1, "the start knows no output");
    let tool = events.iter().find(|event| event["content_block"]["type"] == "tool_use").unwrap();
    assert_eq!(tool["content_block"]["name"], "Bash");
    let end = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(end["usage"]["output_tokens"], 23);
    assert_eq!(end["delta"]["stop_reason"], "tool_use");
    let log = api.log();
    let first = &log.calls[0];
    assert_eq!((first.vendor, first.kind, first.model.as_str()), (Vendor::Anthropic, Kind::Main, "claude-x"));
    assert_eq!(first.text.as_deref(), Some("pong-1"));
    assert_eq!(first.body["messages"][0]["content"][0]["text"], "hello");
    let expected = Spent {
        calls: 3,
        input: 11 + 12 + 13,
        cache_write: 101 + 102 + 103,
        cache_read: 1001 + 1002 + 1003,
        output: 21 + 22 + 23,
        reasoning: 0,
    };
    assert_eq!(log.recorded("s-1"), expected);
    assert_eq!(log.recorded("s-2"), Spent::default());
}

#[test]
fn refusals_are_counted_and_cost_nothing() {
    let api = FakeApi::start();
    let statuses: Vec<String> = (0..3)
        .map(|_| post(&api, "/v1/messages", SESSION, &claude("[error 529 x2]")))
        .map(|answer| answer.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(statuses, ["529", "529", "200"]);
    let log = api.log();
    let statuses: Vec<Status> = log.calls.iter().map(|call| call.status).collect();
    assert_eq!(statuses, [Status::Refused(529), Status::Refused(529), Status::Complete]);
    assert_eq!(log.recorded("s-1").input, 13);
}

#[test]
fn a_held_answer_waits_for_its_release() {
    let api = FakeApi::start();
    let mut stream = open(&api, "/v1/messages", SESSION, &claude("[hold door]"));
    let status = |api: &FakeApi| api.log().calls.first().map(|call| call.status);
    api.wait_for(SOON, |log| log.calls.first().map(|_| ())).unwrap();
    assert_eq!(status(&api), Some(Status::Streaming));
    api.release("door");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.contains("held ") && answer.contains("pong-1") && answer.ends_with("0\r\n\r\n"),
        "{answer}"
    );
    api.wait_for(SOON, |log| (log.calls[0].status == Status::Complete).then_some(())).unwrap();
}

#[test]
fn a_client_that_hangs_up_is_noticed() {
    let api = FakeApi::start();
    let stream = open(&api, "/v1/messages", SESSION, &claude("[hold never]"));
    api.wait_for(SOON, |log| log.calls.first().map(|_| ())).unwrap();
    drop(stream);
    api.wait_for(SOON, |log| (log.calls[0].status == Status::Aborted).then_some(())).unwrap();
    assert_eq!(api.log().recorded("s-1"), Spent::default());
}

#[test]
fn a_cut_stream_has_no_end() {
    let api = FakeApi::start();
    let cut = post(&api, "/v1/messages", SESSION, &claude("[cut x1]"));
    assert!(cut.contains("pong-1") && !cut.contains("message_stop"), "{cut}");
    let whole = post(&api, "/v1/messages", SESSION, &claude("[cut x1]"));
    assert!(whole.contains("message_stop"), "{whole}");
    api.wait_for(SOON, |log| (log.calls[0].status == Status::Cut).then_some(())).unwrap();
}

#[test]
fn a_slow_answer_comes_in_pieces() {
    let api = FakeApi::start();
    let answer = post(&api, "/v1/messages", SESSION, &claude("[slow 50] [say done]"));
    let texts: Vec<String> =
        events(&answer).iter().filter_map(|e| e["delta"]["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(texts.len(), 11);
    assert_eq!(texts.last().unwrap(), "done");
}

#[test]
fn codex_and_gemini_are_answered_in_their_own_words() {
    let api = FakeApi::start();
    let user =
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]});
    let body = json!({"model": "gpt-x", "stream": true, "input": [user]});
    let answer = post(&api, "/v1/responses", "session-id: t\r\nthread-id: t\r\n", &body);
    let done = events(&answer).pop().unwrap();
    assert_eq!(done["type"], "response.completed");
    assert_eq!(done["response"]["usage"]["input_tokens"], 2010);

    let body = json!({"contents": [{"role": "user", "parts": [{"text": "context"}, {"text": "hello"}]}],
                      "tools": [{"functionDeclarations": [{"name": "read_file"}]}]});
    let answer = post(&api, "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", "", &body);
    assert_eq!(events(&answer).pop().unwrap()["usageMetadata"]["promptTokenCount"], 1020);
    let answer = post(&api, "/v1beta/models/gemini-x:generateContent", "", &body);
    assert!(answer.contains("pong-3"), "{answer}");

    let log = api.log();
    let vendors: Vec<_> =
        log.calls.iter().map(|call| (call.vendor, call.kind, call.prompt.as_str())).collect();
    let gemini = (Vendor::Google, Kind::Main, "hello");
    assert_eq!(vendors, [(Vendor::OpenAi, Kind::Main, "hello"), gemini, gemini]);
    // Disjoint: the uncached input, what was read from and written to the cache.
    let codex = log.calls[0].spent;
    assert_eq!((codex.input, codex.cache_read, codex.cache_write), (2010 - 501 - 51, 501, 51));
    assert_eq!(codex.input + codex.cache_read + codex.cache_write + codex.output, 2010 + 101);
}

fn qwen(prompt: &str) -> Value {
    json!({"model": "qwen-x", "stream": true, "tools": [{"type": "function"}],
           "messages": [{"role": "system", "content": "You are Qwen Code, an interactive CLI agent"},
                        {"role": "user", "content": [{"type": "text", "text": prompt}]}]})
}

#[test]
fn chat_completions_end_with_their_usage() {
    let api = FakeApi::start();
    let answer = post(&api, "/v1/chat/completions", "", &qwen("hello"));
    assert!(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{answer}");
    let sent = events(&answer);
    let texts: Vec<&str> = sent.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(texts.concat(), "pong-1");
    let reasons: Vec<&str> = sent.iter().filter_map(|e| e["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(reasons, ["stop"]);
    let usage = &sent.last().unwrap()["usage"];
    assert!(sent.iter().rev().skip(1).all(|event| event["usage"].is_null()), "only the last event knows it");
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(1010), &json!(101)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 501);

    let call = post(&api, "/v1/chat/completions", "", &qwen("[together [run ls] [write a.txt]]"));
    let call = events(&call);
    let tools = call.iter().find_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array()).unwrap();
    let names: Vec<_> =
        tools.iter().map(|tool| (&tool["index"], tool["function"]["name"].as_str())).collect();
    assert_eq!(names, [(&json!(0), Some("run_shell_command")), (&json!(1), Some("write_file"))]);
    let arguments: Value = serde_json::from_str(tools[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["command"], "ls");

    let mut whole = qwen("hello");
    whole["stream"] = json!(false);
    let whole = post(&api, "/v1/chat/completions", "", &whole);
    let whole: Value = serde_json::from_str(whole.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "pong-3");
    assert_eq!(whole["usage"]["total_tokens"], 1030 + 103);
    let refused = post(&api, "/v1/chat/completions", "", &qwen("[error 400]"));
    assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("refused with 400"), "{refused}");

    // Disjoint: the uncached input and what was read from the cache. What was thought is part of the output.
    let log = api.log();
    assert_eq!((log.calls[0].vendor, log.calls[0].kind), (Vendor::OpenAiChat, Kind::Main));
    let expected =
        Spent { calls: 1, input: 509, cache_read: 501, cache_write: 0, output: 101, reasoning: 11 };
    assert_eq!(log.calls[0].spent, expected);
    assert_eq!(log.calls[3].status, Status::Refused(400));
}

/// By what each begins with, as recorded from the program.
#[test]
fn what_a_chat_completion_is_for_shows_in_its_words() {
    let api = FakeApi::start();
    let ask = |instructions: &str, prompt: &str, tools: usize| {
        let mut body = qwen(prompt);
        body["messages"][0]["content"] = json!(instructions);
        body["tools"] = json!(vec![json!({}); tools]);
        post(&api, "/v1/chat/completions", "", &body);
        let call = api.log().calls.pop().unwrap();
        (call.kind, call.recorded())
    };
    let main = "You are Qwen Code, a non-interactive CLI agent";
    let extractor = "You are now acting as the managed memory extraction subagent";
    assert_eq!(ask(main, "hello", 10), (Kind::Main, true));
    assert_eq!(ask(main, "[SUGGESTION MODE: Suggest what", 10), (Kind::Suggestion, false));
    assert_eq!(ask(extractor, "Managed memory has", 6), (Kind::Subagent, true));
    assert_eq!(ask("You are a general-purpose subagent working", "count", 6), (Kind::Subagent, true));
    assert_eq!(ask("Answer with a <state_snapshot>", "hello", 0), (Kind::Compact, true));
    assert_eq!(ask("You are a security classifier", "hello", 0), (Kind::Side, false));
}

#[test]
fn strangers_are_named() {
    let api = FakeApi::start();
    assert!(post(&api, "/v1/messages/count_tokens", "", &json!({})).contains("input_tokens"));
    assert!(post(&api, "/telemetry?x=1", "", &json!({})).starts_with("HTTP/1.1 404"));
    assert_eq!(api.log().strangers, ["POST /telemetry?x=1"]);
}
