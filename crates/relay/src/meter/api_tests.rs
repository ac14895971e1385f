//! Whole answers of the four APIs, through the meter, in pieces of every length.

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use pricing::tier::Tier;
use types::Tokens;

use crate::meter::{AnswerMeter, Api, Metered, Progress, Unread};

/// Reads an answer in pieces of `size`. Also how many bytes were read when content came first.
fn read_by(api: Api, headers: &HeaderMap, answer: &[u8], size: usize) -> (Metered, Option<usize>) {
    let mut meter = AnswerMeter::new(api, headers);
    let (mut content, mut read) = (None, 0);
    for piece in answer.chunks(size) {
        read += piece.len();
        if meter.read(piece) == Progress::FirstContent {
            assert_eq!(content.replace(read), None, "reported once");
        }
    }
    (meter.finish(), content)
}

/// In pieces of every length up to 300 bytes, and at once.
fn read(api: Api, answer: &str) -> Metered {
    let headers = HeaderMap::new();
    let (metered, _) = read_by(api, &headers, answer.as_bytes(), usize::MAX);
    for size in 1..answer.len().min(300) {
        assert_eq!(read_by(api, &headers, answer.as_bytes(), size).0, metered, "in pieces of {size}");
    }
    metered
}

/// Where the first content stands in an answer: the byte that completes it.
fn content_at(api: Api, answer: &str) -> Option<usize> {
    read_by(api, &HeaderMap::new(), answer.as_bytes(), 1).1
}

fn events(events: &[&str]) -> String {
    events.iter().fold(String::new(), |stream, event| stream + "data: " + event + "\n\n")
}

fn metered(id: &str, model: &str, tokens: [u64; 6]) -> Metered {
    let [input, output, cache_read, cache_write_5m, cache_write_1h, reasoning] = tokens;
    Metered {
        response_id: Some(id.to_owned()),
        model: Some(model.to_owned()),
        tokens: Some(Tokens { input, output, cache_read, cache_write_5m, cache_write_1h, reasoning }),
        finished: true,
        ..Metered::default()
    }
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-8","content":[],"stop_reason":null,"usage":{"input_tokens":11,"cache_creation_input_tokens":101,"cache_read_input_tokens":1001,"cache_creation":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":41},"output_tokens":1,"service_tier":"standard","inference_geo":"us"}}}"#;
const BLOCK: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
const DELTA: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#;
const EMPTY_DELTA: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#;
const PING: &str = r#"{"type": "ping"}"#;
const END: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":0,"output_tokens":21,"server_tool_use":{"web_search_requests":3},"output_tokens_details":{"thinking_tokens":7},"iterations":[{"input_tokens":5,"output_tokens":900}]}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

#[test]
fn messages_the_final_usage_wins_and_zeros_of_the_input_do_not() {
    let stream = events(&[START, BLOCK, PING, DELTA, END, STOP]);
    let expected = metered("msg_1", "claude-opus-4-8", [11, 21, 1001, 60, 41, 7]);
    assert_eq!(read(Api::Messages, &stream), expected);
    let named = stream.replace("data: ", "event: x\r\n: note\r\ndata: ").replace("\n\n", "\r\n\r\n");
    assert_eq!(read(Api::Messages, &named), expected);
    assert_eq!(read(Api::Messages, &format!("\u{feff}{stream}")), expected);
    // Without the last line end.
    assert_eq!(read(Api::Messages, stream.trim_end()), expected);
}

#[test]
fn further_content_is_passed_over_by_its_type() {
    let broken = r#"{"type":"content_block_delta","index":0,"delta":{oops"#;
    let spaced = r#"{"type": "content_block_delta","index":0,"delta":{oops"#;
    let expected = metered("msg_1", "claude-opus-4-8", [11, 21, 1001, 60, 41, 7]);
    let misread = Metered { unread: Some(Unread::Form), ..expected.clone() };
    for (deltas, expected) in [
        ([DELTA, broken], &expected),
        ([broken, DELTA], &misread),
        ([DELTA, spaced], &misread),
        ([EMPTY_DELTA, broken], &misread),
    ] {
        let stream = events(&[&[START, BLOCK], &deltas[..], &[END, STOP]].concat());
        assert_eq!(&read(Api::Messages, &stream), expected, "{stream}");
    }
    let created = r#"{"type":"response.created","response":{"id":"resp_1","model":"m"}}"#;
    let delta = r#"{"type":"response.output_text.delta","delta":"Hi"}"#;
    let broken = r#"{"type":"response.reasoning_summary_text.delta","delta":oops"#;
    let end = r#"{"type":"response.completed","response":{"usage":{"input_tokens":10,"output_tokens":3}}}"#;
    assert_eq!(
        read(Api::Responses, &events(&[created, delta, broken, end])),
        metered("resp_1", "m", [10, 3, 0, 0, 0, 0])
    );
}

#[test]
fn messages_later_input_replaces_earlier() {
    let end = r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":12,"cache_read_input_tokens":2000,"cache_creation_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"output_tokens":5,"speed":"fast"}}"#;
    let expected =
        Metered { tier: Tier::Fast, ..metered("msg_1", "claude-opus-4-8", [12, 5, 2000, 100, 200, 0]) };
    assert_eq!(read(Api::Messages, &events(&[START, end, STOP])), expected);
}

#[test]
fn messages_an_aborted_stream_keeps_the_last_known_numbers() {
    let whole = events(&[START, DELTA, END, STOP]);
    let after_start = events(&[START]).len();
    for length in 0..whole.len() {
        let (metered, _) = read_by(Api::Messages, &HeaderMap::new(), &whole.as_bytes()[..length], 7);
        assert_eq!(metered.unread, None, "a cut is no fault of form: {length}");
        // Only line ends follow the closed document of the last event.
        assert_eq!(metered.finished, length >= whole.len() - 2, "{length}");
        let output = metered.tokens.map(|tokens| tokens.output);
        let expected = if length < after_start - 2 {
            None
        } else if length < events(&[START, DELTA, END]).len() - 2 {
            Some(1)
        } else {
            Some(21)
        };
        assert_eq!(output, expected, "{length}");
    }
}

#[test]
fn messages_errors_end_an_answer_only_where_they_are_all_of_it() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let alone = Metered { error: Some("overloaded_error".to_owned()), finished: true, ..Metered::default() };
    assert_eq!(read(Api::Messages, error), alone, "a document");
    assert_eq!(read(Api::Messages, &events(&[error])), alone, "the first event");
    let middle = read(Api::Messages, &events(&[START, DELTA, error]));
    assert_eq!((middle.error.as_deref(), middle.finished), (Some("overloaded_error"), false));
    assert_eq!(middle.tokens.unwrap().cache_read, 1001);
}

#[test]
fn messages_a_document_is_read_like_a_stream() {
    let document = r#"{"id":"msg_2","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"\"usage\":{\"input_tokens\":9}"},{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"usage":{"input_tokens":8},"id":"x"}}],"stop_reason":"end_turn","usage":{"input_tokens":1,"cache_creation_input_tokens":7,"output_tokens":2}}"#;
    assert_eq!(read(Api::Messages, document), metered("msg_2", "claude-haiku-4-5", [1, 2, 0, 7, 0, 0]));
    let cut = read(Api::Messages, &document[..document.len() - 1]);
    assert_eq!((cut.finished, cut.response_id.as_deref(), cut.tokens), (false, Some("msg_2"), None));
}

#[test]
fn responses_are_read_from_their_last_event() {
    let created = r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","model":"gpt-5.5","status":"in_progress","service_tier":"auto","usage":null,"error":null,"instructions":"…"}}"#;
    let delta = r#"{"type":"response.output_text.delta","item_id":"msg_1","delta":"Hi"}"#;
    for (last, finished) in [
        ("response.completed", true),
        ("response.incomplete", true),
        ("response.failed", true),
        ("response.queued", false),
    ] {
        let end = format!(
            r#"{{"response":{{"id":"resp_1","model":"gpt-5.5-2026","service_tier":"priority","output":[{{"id":"msg_1","usage":{{"input_tokens":9}}}}],"usage":{{"input_tokens":2010,"input_tokens_details":{{"cached_tokens":501,"cache_write_tokens":51}},"output_tokens":101,"output_tokens_details":{{"reasoning_tokens":11}},"total_tokens":2111}}}},"type":"{last}"}}"#
        );
        let expected = Metered {
            tier: Tier::Fast,
            finished,
            ..metered("resp_1", "gpt-5.5-2026", [1458, 101, 501, 51, 0, 11])
        };
        assert_eq!(read(Api::Responses, &events(&[created, delta, &end])), expected);
    }
}

#[test]
fn responses_errors_are_named_by_their_code() {
    let failed = r#"{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"…"},"usage":null}}"#;
    let metered = read(Api::Responses, &events(&[failed]));
    assert_eq!((metered.error.as_deref(), metered.finished), (Some("rate_limit_exceeded"), true));
    for (error, kind) in [
        (
            r#"{"error":{"message":"…","type":"invalid_request_error","param":null,"code":null}}"#,
            "invalid_request_error",
        ),
        (r#"{"error":{"code":"usage_limit_reached","type":"usage_error"}}"#, "usage_limit_reached"),
    ] {
        let expected = Metered { error: Some(kind.to_owned()), finished: true, ..Metered::default() };
        assert_eq!(read(Api::Responses, error), expected);
    }
    let event = r#"{"type":"error","code":"server_error","message":"…"}"#;
    assert_eq!(read(Api::Responses, &events(&[event])).error.as_deref(), Some("server_error"));
    let program = r#"{"type":"response.code_interpreter_call_code.done","code":"print(1)"}"#;
    assert_eq!(read(Api::Responses, &events(&[program])).error, None);
}

#[test]
fn responses_a_document_and_other_events_between() {
    let document = r#"{"id":"resp_2","object":"response.compaction","output":[{"type":"compaction","encrypted_content":"AAAA"}],"usage":{"input_tokens":10,"output_tokens":3}}"#;
    let metered = read(Api::Responses, document);
    assert_eq!((metered.response_id.as_deref(), metered.finished), (Some("resp_2"), true));
    assert_eq!(metered.tokens, Some(Tokens { input: 10, output: 3, ..Tokens::default() }));
    let foreign = r#"{"type":"codex.rate_limits","id":"x","model":"y","rate_limits":{}}"#;
    assert_eq!(read(Api::Responses, &events(&[foreign])), Metered::default());
}

#[test]
fn chat_completions_are_read_from_the_chunk_with_usage() {
    let chunk = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-x","service_tier":"default","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}],"usage":null}"#;
    let last =
        r#"{"id":"chatcmpl-1","model":"gpt-x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let usage = r#"{"id":"chatcmpl-1","model":"gpt-x","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}"#;
    let expected = metered("chatcmpl-1", "gpt-x", [30, 20, 60, 10, 0, 5]);
    assert_eq!(read(Api::ChatCompletions, &events(&[chunk, last, usage, "[DONE]"])), expected);
    assert_eq!(read(Api::ChatCompletions, &events(&[chunk, usage, "[DONE]"])), expected);
    assert_eq!(read(Api::ChatCompletions, events(&[chunk, usage, "[DONE]"]).trim_end()), expected);
    assert!(!read(Api::ChatCompletions, &events(&[chunk, usage])).finished);
    let document =
        usage.replace(r#""choices":[]"#, r#""choices":[{"message":{"role":"assistant","content":"Hi"}}]"#);
    assert_eq!(read(Api::ChatCompletions, &document), expected);
}

#[test]
fn gemini_is_read_from_events_from_an_array_and_wrapped() {
    let first = r#"{"candidates":[{"content":{"parts":[{"text":"Hi","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":1010,"candidatesTokenCount":1,"cachedContentTokenCount":501,"totalTokenCount":1011},"modelVersion":"gemini-2.5-pro","responseId":"r1"}"#;
    let last = r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1010,"candidatesTokenCount":101,"cachedContentTokenCount":501,"thoughtsTokenCount":11,"toolUsePromptTokenCount":2,"promptTokensDetails":[{"modality":"TEXT","tokenCount":1010}]},"modelVersion":"gemini-2.5-pro","responseId":"r1"}"#;
    let expected = metered("r1", "gemini-2.5-pro", [511, 112, 501, 0, 0, 11]);
    assert_eq!(read(Api::Gemini, &events(&[first, last])), expected);
    assert_eq!(read(Api::Gemini, &format!("[{first}\n,\r\n{last}]")), expected);
    assert_eq!(read(Api::Gemini, last), expected);
    let wrapped: Vec<String> =
        [first, last].map(|chunk| format!(r#"{{"response":{chunk},"traceId":"t"}}"#)).into();
    assert_eq!(read(Api::Gemini, &events(&[&wrapped[0], &wrapped[1]])), expected);
    let aborted = read(Api::Gemini, &events(&[first]));
    assert_eq!((aborted.finished, aborted.tokens.unwrap().output), (false, 1));
    let error = r#"[{"error":{"code":429,"message":"…","status":"RESOURCE_EXHAUSTED"}}]"#;
    assert_eq!(read(Api::Gemini, error).error.as_deref(), Some("RESOURCE_EXHAUSTED"));
}

#[test]
fn an_array_that_is_cut_after_a_chunk_is_not_finished() {
    let chunk =
        r#"[{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}],"usageMetadata":{"promptTokenCount":10}}"#;
    let metered = read(Api::Gemini, chunk);
    assert_eq!((metered.finished, metered.tokens.map(|tokens| tokens.input)), (false, Some(10)));
}

#[test]
fn content_is_reported_with_the_first_byte_that_a_model_wrote() {
    let within = |stream: &str, mark: &str| {
        let begin = stream.find(mark).unwrap();
        begin..=begin + mark.len()
    };
    let stream = events(&[START, BLOCK, EMPTY_DELTA, PING, DELTA, END, STOP]);
    assert!(within(&stream, DELTA).contains(&content_at(Api::Messages, &stream).unwrap()));
    for delta in [
        r#"{"type":"thinking_delta","thinking":"Hm"}"#,
        r#"{"type":"input_json_delta","partial_json":"{\"a\""}"#,
        r#"{"type":"signature_delta","signature":"x"}"#,
    ] {
        // The type of the event may stand behind its data.
        let delta = format!(r#"{{"index":0,"delta":{delta},"type":"content_block_delta"}}"#);
        let stream = events(&[START, &delta]);
        assert!(within(&stream, &delta).contains(&content_at(Api::Messages, &stream).unwrap()), "{delta}");
    }
    assert_eq!(content_at(Api::Messages, &events(&[START, BLOCK, EMPTY_DELTA, END, STOP])), None);

    let added = r#"{"type":"response.output_item.added","item":{"type":"message","id":"m","role":"assistant","content":[]}}"#;
    let created = r#"{"type":"response.created","response":{"id":"r","instructions":"long"}}"#;
    for content in [
        r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","delta":"x"}"#,
        r#"{"type":"response.output_item.done","item":{"type":"reasoning","encrypted_content":"AA"}}"#,
    ] {
        let stream = events(&[created, added, content]);
        assert!(
            within(&stream, content).contains(&content_at(Api::Responses, &stream).unwrap()),
            "{content}"
        );
    }
    assert_eq!(content_at(Api::Responses, &events(&[created, added])), None);

    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    let tool = r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#;
    let stream = events(&[role, tool]);
    assert!(within(&stream, tool).contains(&content_at(Api::ChatCompletions, &stream).unwrap()));

    let thought = r#"{"candidates":[{"content":{"parts":[{"thought":true,"text":"Hm"}]}}]}"#;
    assert!(content_at(Api::Gemini, &events(&[r#"{"responseId":"r"}"#, thought])).is_some());
}

#[test]
fn bodies_that_are_no_answers_are_said_to_be_unread() {
    for (body, unread) in [
        ("", None),
        ("  \r\n ", None),
        ("<html>Bad gateway</html>", None),
        ("{\"id\":nonsense}", Some(Unread::Form)),
        ("data: <html>\n\n", Some(Unread::Form)),
        ("data: {\"type\":\n\n", Some(Unread::Form)),
        ("data:\n\n", None),
    ] {
        assert_eq!(read(Api::Messages, body), Metered { unread, ..Metered::default() }, "{body}");
    }
    let stream = events(&["{broken", START, STOP]);
    let metered = read(Api::Messages, &stream);
    assert_eq!((metered.unread, metered.tokens.unwrap().input), (Some(Unread::Form), 11), "others are read");
}

#[test]
fn an_unknown_encoding_is_not_read() {
    for encoding in ["compress", "gzip, br", "dcb"] {
        let headers = [(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap())].into_iter().collect();
        let (metered, _) = read_by(Api::Messages, &headers, events(&[START, STOP]).as_bytes(), 10);
        assert_eq!(metered, Metered { unread: Some(Unread::Encoding), ..Metered::default() });
    }
}

#[test]
fn an_event_of_many_megabytes_is_read_without_being_kept() {
    let text = "x".repeat(2 << 20);
    let end = format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","model":"m","output":[{{"text":"{text}"}}],"usage":{{"input_tokens":10,"output_tokens":3}}}}}}"#
    );
    let (metered, _) = read_by(Api::Responses, &HeaderMap::new(), events(&[&end]).as_bytes(), 65536);
    assert_eq!(metered.tokens, Some(Tokens { input: 10, output: 3, ..Tokens::default() }));
    assert!(metered.finished);
}

#[test]
fn numbers_that_are_none_leave_the_others_and_a_mark() {
    for (number, output, unread) in [
        ("100", 100, None),
        ("100.0", 100, None),
        ("1e2", 100, None),
        ("null", 0, None),
        ("100.5", 0, Some(Unread::Number)),
        ("-1", 0, Some(Unread::Number)),
        ("9223372036854775808", 0, Some(Unread::Number)),
        ("1e308", 0, Some(Unread::Number)),
        ("\"100\"", 0, Some(Unread::Number)),
    ] {
        let answers = [
            (Api::Messages, r#"{"id":"a","model":"m","usage":{"input_tokens":7,"output_tokens":N}}"#),
            (Api::Responses, r#"{"id":"a","model":"m","usage":{"input_tokens":7,"output_tokens":N}}"#),
            (
                Api::ChatCompletions,
                r#"{"id":"a","model":"m","usage":{"prompt_tokens":7,"completion_tokens":N}}"#,
            ),
            (
                Api::Gemini,
                r#"{"responseId":"a","modelVersion":"m","usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":N}}"#,
            ),
        ];
        for (api, answer) in answers {
            let expected = Metered { unread, ..metered("a", "m", [7, output, 0, 0, 0, 0]) };
            assert_eq!(read(api, &answer.replace('N', number)), expected, "{api:?} {number}");
        }
    }
}

#[test]
fn an_answer_that_breaks_off_behind_its_usage_keeps_it() {
    let whole = r#"{"id":"a","model":"m","usage":{"input_tokens":500,"output_tokens":9},"content":[{"type":"text","text":"Hi"#;
    let expected = Metered { finished: false, ..metered("a", "m", [500, 9, 0, 0, 0, 0]) };
    assert_eq!(read(Api::Messages, whole), expected);
    let within = &whole[..whole.find(",\"output_tokens").unwrap()];
    assert_eq!(
        read(Api::Messages, within),
        Metered { tokens: None, ..expected.clone() },
        "its neighbours are missing"
    );
    let chat = r#"{"id":"a","model":"m","usage":{"prompt_tokens":500,"completion_tokens":9},"choices":[{"finish_reason":"stop","message":{"content":"Hi"#;
    assert_eq!(read(Api::ChatCompletions, chat), expected, "what it says of its end is not believed");
    let event = format!("data: {{\"type\":\"response.completed\",\"response\":{whole}");
    assert_eq!(read(Api::Responses, &event), expected);
}
