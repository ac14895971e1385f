//! Invented and damaged answers: no panic, and the same result however the bytes are cut into pieces.
//!
//! Every case follows from its number, which a failure names. `CODEMIE_TEST_FULL=1` plays many more.

use std::io::Write;

use fastrand::Rng;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::{CONTENT_ENCODING, SEC_WEBSOCKET_EXTENSIONS};
use http::{HeaderMap, HeaderValue};
use types::{Timestamp, Tokens};

use super::frames::tests::{Deflate, frame};
use super::{AnswerMeter, Api, Metered, Moment, SocketMeter};

const APIS: [Api; 4] = [Api::Messages, Api::Responses, Api::ChatCompletions, Api::Gemini];

fn cases(few: u64) -> impl Iterator<Item = (u64, Rng)> {
    let full = std::env::var_os("CODEMIE_TEST_FULL").is_some();
    (0..if full { few * 20 } else { few }).map(|case| (case, Rng::with_seed(case)))
}

/// Cuts bytes into pieces: often tiny ones.
fn pieces(rng: &mut Rng, mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let most = *rng.choice(&[1, 2, 5, 40, 1000, 100_000]).unwrap();
        let (piece, rest) = bytes.split_at(rng.usize(1..=most).min(bytes.len()));
        pieces.push(piece.to_vec());
        bytes = rest;
    }
    pieces
}

/// What an API could send, with numbers of its own and other fields around them.
struct Invented {
    text: String,
    tokens: Tokens,
    id: String,
}

fn invent(rng: &mut Rng, api: Api) -> Invented {
    let mut count = || rng.u64(0..100_000);
    let (input, output, read, written, long, reasoning) =
        (count(), count(), count(), count(), count(), count());
    let id = format!("id_{}", rng.u32(..));
    let noise = noise(rng, 3);
    let space = *rng.choice(&["", " ", "\t "]).unwrap();
    let (usage, wrap, last, tokens) = match api {
        Api::Messages => (
            format!(
                r#""usage":{{"input_tokens":{input},"x":{noise},"cache_read_input_tokens":{read},"cache_creation_input_tokens":{},"cache_creation":{{"ephemeral_1h_input_tokens":{long},"ephemeral_5m_input_tokens":{written}}},"output_tokens":{output},"output_tokens_details":{{"thinking_tokens":{reasoning}}}}}"#,
                written + long
            ),
            ("{\"type\":\"message_start\",\"message\":{", "}}"),
            r#"{"type":"message_stop"}"#,
            Tokens {
                input,
                output,
                cache_read: read,
                cache_write_5m: written,
                cache_write_1h: long,
                reasoning,
            },
        ),
        Api::Responses => (
            format!(
                r#""usage":{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{read},"cache_write_tokens":{written}}},"x":{noise},"output_tokens":{output},"output_tokens_details":{{"reasoning_tokens":{reasoning}}}}}"#,
                input + read + written
            ),
            ("{\"response\":{", "},\"type\":\"response.completed\"}"),
            r#"{"type":"keepalive"}"#,
            Tokens { input, output, cache_read: read, cache_write_5m: written, cache_write_1h: 0, reasoning },
        ),
        Api::ChatCompletions => (
            format!(
                r#""usage":{{"prompt_tokens":{},"prompt_tokens_details":{{"cached_tokens":{read}}},"completion_tokens":{output},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}},"x":{noise}}}"#,
                input + read
            ),
            ("{", "}"),
            "[DONE]",
            Tokens { input, output, cache_read: read, cache_write_5m: 0, cache_write_1h: 0, reasoning },
        ),
        Api::Gemini => (
            format!(
                r#""usageMetadata":{{"promptTokenCount":{},"x":{noise},"cachedContentTokenCount":{read},"candidatesTokenCount":{output},"thoughtsTokenCount":{reasoning},"toolUsePromptTokenCount":{written}}}"#,
                input + read
            ),
            ("{", "}"),
            r#"{"candidates":[{"finishReason":"STOP"}]}"#,
            Tokens {
                input: input + written,
                output: output + reasoning,
                cache_read: read,
                cache_write_5m: 0,
                cache_write_1h: 0,
                reasoning,
            },
        ),
    };
    let named = if api == Api::Gemini { "responseId" } else { "id" };
    let fields =
        [format!(r#""{named}":"{id}""#), usage, format!(r#""noise":{noise}"#)].join(&format!(",{space}"));
    let (before, behind) = wrap;
    let end = *rng.choice(&["\n", "\r\n", "\r"]).unwrap();
    let event = format!("{before}{space}{fields}{behind}");
    let text = format!(": hello{end}{end}event: x{end}data:{space}{event}{end}{end}data: {last}{end}{end}");
    Invented { text, tokens, id }
}

/// Any JSON. Its names are those that are looked for, one level deeper.
fn noise(rng: &mut Rng, depth: u32) -> String {
    match rng.u32(..if depth == 0 { 4 } else { 6 }) {
        0 => rng.i64(..).to_string(),
        1 => "null".to_owned(),
        2 => r#""text with \"quotes\", {braces}, [brackets] and \\ \u00e9""#.to_owned(),
        3 => format!("\"{}\"", "long ".repeat(rng.usize(..200))),
        4 => format!("[{},{}]", noise(rng, depth - 1), noise(rng, depth - 1)),
        _ => format!(
            r#"{{"usage":{},"id":{},"input_tokens":{},"response":{}}}"#,
            noise(rng, depth - 1),
            noise(rng, depth - 1),
            rng.u32(..),
            noise(rng, depth - 1)
        ),
    }
}

fn pack(rng: &mut Rng, bytes: &[u8]) -> (&'static str, Vec<u8>) {
    match rng.u32(..4) {
        0 => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).unwrap();
            ("gzip", encoder.finish().unwrap())
        }
        1 => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).unwrap();
            ("deflate", encoder.finish().unwrap())
        }
        2 => ("zstd", zstd::stream::encode_all(bytes, 1).unwrap()),
        _ => ("identity", bytes.to_vec()),
    }
}

/// Flips, cuts, repeats and inserts.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.u32(1..6) {
        let at = rng.usize(..=bytes.len());
        let end = (at + rng.usize(..40)).min(bytes.len());
        match rng.u32(..5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => bytes[at..end].iter_mut().for_each(|byte| *byte = rng.u8(..)),
            _ => {
                let any: Vec<u8> =
                    (0..rng.usize(..20)).map(|_| *rng.choice(b"{}[]\":,\\\n\r0e-. data").unwrap()).collect();
                bytes.splice(at..at, any);
            }
        }
    }
}

fn meter(api: Api, encoding: &'static str, pieces: &[Vec<u8>]) -> (Metered, usize) {
    let headers = [(CONTENT_ENCODING, HeaderValue::from_static(encoding))].into_iter().collect();
    let mut meter = AnswerMeter::new(api, &headers);
    let contents = pieces.iter().filter(|piece| meter.read(piece) == super::Progress::FirstContent).count();
    (meter.finish(), contents)
}

#[test]
fn invented_answers_give_their_exact_numbers() {
    for (case, mut rng) in cases(400) {
        let api = *rng.choice(&APIS).unwrap();
        let Invented { text, tokens, id } = invent(&mut rng, api);
        let (encoding, bytes) = pack(&mut rng, text.as_bytes());
        let (metered, _) = meter(api, encoding, &pieces(&mut rng, &bytes));
        assert_eq!(metered.tokens, Some(tokens), "case {case}: {text}");
        assert_eq!((metered.response_id, metered.finished), (Some(id), true), "case {case}: {text}");
        assert_eq!(metered.unread, None, "case {case}: {text}");
    }
}

#[test]
fn damaged_answers_give_the_same_in_any_pieces() {
    for (case, mut rng) in cases(1500) {
        let api = *rng.choice(&APIS).unwrap();
        let (mut encoding, mut bytes) = {
            let text = invent(&mut rng, api).text;
            pack(&mut rng, text.as_bytes())
        };
        damage(&mut rng, &mut bytes);
        if rng.u32(..10) == 0 {
            encoding = rng.choice(&["br", "gzip", "deflate", "zstd", "other"]).unwrap();
        }
        let (whole, contents) = meter(api, encoding, std::slice::from_ref(&bytes));
        let (pieced, pieced_contents) = meter(api, encoding, &pieces(&mut rng, &bytes));
        // Where bytes cannot be decompressed, it depends on the pieces how many of them came out before.
        if encoding == "identity" || whole.unread.is_none() && pieced.unread.is_none() {
            assert_eq!(pieced, whole, "case {case}: {encoding}");
            assert_eq!(pieced_contents, contents, "case {case}: {encoding}");
        }
    }
}

#[test]
fn bytes_without_any_sense_are_survived() {
    for (_, mut rng) in cases(500) {
        let length = rng.usize(..3000);
        let mut bytes: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
        // Some begin as if they were something.
        let heads: [&[u8]; 7] =
            [b"", b"data: ", b"{\"", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"\x78\x9c", b"\xef\xbb\xbf["];
        bytes.splice(0..0, rng.choice(&heads).unwrap().iter().copied());
        let encoding = rng.choice(&["identity", "gzip", "deflate", "br", "zstd"]).unwrap();
        let pieces = pieces(&mut rng, &bytes);
        let (metered, _) = meter(*rng.choice(&APIS).unwrap(), encoding, &pieces);
        assert_eq!(metered.tokens, None);
        let mut socket = SocketMeter::new(Api::Responses, &extensions(rng.bool()));
        for piece in &pieces {
            socket.sent(piece);
            socket.received(piece, Timestamp(0));
        }
        socket.finish();
    }
}

fn extensions(takeover: bool) -> HeaderMap {
    let value = if takeover {
        "permessage-deflate"
    } else {
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    };
    [(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(value))].into_iter().collect()
}

/// A message as frames: compressed or not, in parts, with control frames between them.
fn frames(rng: &mut Rng, deflate: &mut Deflate, text: &[u8], masked: bool) -> Vec<u8> {
    let compressed = rng.bool();
    let payload = if compressed { deflate.message(text) } else { text.to_vec() };
    let mut bytes = Vec::new();
    let mut parts = pieces(rng, &payload);
    if parts.is_empty() {
        parts.push(Vec::new());
    }
    let last = parts.len() - 1;
    for (at, part) in parts.iter().enumerate() {
        let opcode = u8::from(at == 0);
        let flags = if at == last { 0x80 } else { 0 } | if at == 0 && compressed { 0x40 } else { 0 };
        bytes.extend(frame(flags | opcode, part, masked.then(|| rng.u32(..).to_be_bytes())));
        if rng.u32(..4) == 0 {
            bytes.extend(frame(0x89, b"ping", masked.then(|| rng.u32(..).to_be_bytes())));
        }
    }
    bytes
}

#[test]
fn invented_connections_give_their_exact_numbers() {
    for (case, mut rng) in cases(200) {
        let takeover = rng.bool();
        let mut meter = SocketMeter::new(Api::Responses, &extensions(takeover));
        let mut deflates = [Deflate::new(takeover), Deflate::new(takeover)];
        for _ in 0..rng.u32(1..5) {
            let request = format!(r#"{{"noise":{},"type":"response.create"}}"#, noise(&mut rng, 2));
            let sent = frames(&mut rng, &mut deflates[0], request.as_bytes(), true);
            let began: Vec<Moment> =
                pieces(&mut rng, &sent).iter().flat_map(|piece| meter.sent(piece)).collect();
            assert_eq!(began, [Moment::Began { body: Some(request.into()) }], "case {case}");

            let Invented { text, tokens, id } = invent(&mut rng, Api::Responses);
            let events = text.split(['\n', '\r']).filter_map(|line| line.strip_prefix("data:"));
            let received: Vec<u8> = events
                .flat_map(|event| frames(&mut rng, &mut deflates[1], event.as_bytes(), false))
                .collect();
            let moments = pieces(&mut rng, &received);
            let moments: Vec<Moment> =
                moments.iter().flat_map(|piece| meter.received(piece, Timestamp(0))).collect();
            let [Moment::Ended(metered)] = moments.as_slice() else { panic!("case {case}: {moments:?}") };
            assert_eq!(
                (metered.tokens, metered.response_id.as_deref()),
                (Some(tokens), Some(id.as_str())),
                "case {case}"
            );
        }
        assert_eq!(meter.finish(), []);
    }
}

#[test]
fn damaged_connections_give_the_same_in_any_pieces() {
    for (case, mut rng) in cases(500) {
        let mut deflate = Deflate::new(true);
        let mut bytes = Vec::new();
        for _ in 0..rng.u32(1..4) {
            let text = invent(&mut rng, Api::Responses).text;
            for event in text.split(['\n', '\r']).filter_map(|line| line.strip_prefix("data:")) {
                bytes.extend(frames(&mut rng, &mut deflate, event.as_bytes(), false));
            }
        }
        damage(&mut rng, &mut bytes);
        let play = |pieces: &[Vec<u8>]| {
            let mut meter = SocketMeter::new(Api::Responses, &extensions(true));
            meter.sent(&frame(0x81, br#"{"type":"response.create"}"#, None));
            let moments: Vec<Moment> =
                pieces.iter().flat_map(|piece| meter.received(piece, Timestamp(0))).collect();
            (moments, meter.finish())
        };
        let whole = play(std::slice::from_ref(&bytes));
        let pieced = play(&pieces(&mut rng, &bytes));
        let broken = |open: &[Metered]| open.iter().any(|metered| metered.unread.is_some());
        if !broken(&whole.1) && !broken(&pieced.1) {
            assert_eq!(pieced, whole, "case {case}");
        }
    }
}
