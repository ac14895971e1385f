use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;

use super::*;
use crate::meter::{AnswerMeter, Api, Progress, Unread};

const ANSWER: &str = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":11}}}\n\n\
    data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hi\"}}\n\n\
    data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":21}}\n\ndata: {\"type\":\"message_stop\"}\n\n";

fn headers(encoding: &str) -> HeaderMap {
    [(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap())].into_iter().collect()
}

/// Each event is flushed on its own, as a server that streams does.
fn packed(encoding: &str, text: &str) -> Vec<u8> {
    fn all<W: Write>(mut encoder: W, text: &str) -> W {
        for event in text.split_inclusive("\n\n") {
            encoder.write_all(event.as_bytes()).unwrap();
            encoder.flush().unwrap();
        }
        encoder
    }
    let level = Compression::default();
    match encoding {
        "gzip" => all(GzEncoder::new(Vec::new(), level), text).finish().unwrap(),
        "deflate" => all(ZlibEncoder::new(Vec::new(), level), text).finish().unwrap(),
        "bare" => all(DeflateEncoder::new(Vec::new(), level), text).finish().unwrap(),
        "zstd" => all(zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap(), text).finish().unwrap(),
        _ => text.as_bytes().to_vec(),
    }
}

/// [`ANSWER`] as the reference program compressed it.
const BROTLI: &[u8] = include_bytes!("answer.br");

fn each() -> Vec<(&'static str, Vec<u8>)> {
    let mut each: Vec<_> =
        ["identity", "gzip", "deflate", "zstd"].map(|name| (name, packed(name, ANSWER))).into();
    each.push(("deflate", packed("bare", ANSWER)));
    each.push(("br", BROTLI.to_vec()));
    // Two members and two frames are one body.
    let (one, two) = ANSWER.split_at(100);
    each.push(("x-gzip", [packed("gzip", one), packed("gzip", two)].concat()));
    each.push(("ZSTD", [packed("zstd", one), packed("zstd", two)].concat()));
    each
}

#[test]
fn every_compression_is_read_in_pieces_of_every_length() {
    for (encoding, bytes) in each() {
        for size in 1..=bytes.len() {
            let mut meter = AnswerMeter::new(Api::Messages, &headers(encoding));
            let contents =
                bytes.chunks(size).filter(|piece| meter.read(piece) == Progress::FirstContent).count();
            let metered = meter.finish();
            let tokens = metered.tokens.unwrap_or_default();
            assert_eq!((contents, tokens.input, tokens.output), (1, 11, 21), "{encoding} by {size}");
            assert_eq!((metered.finished, metered.unread), (true, None), "{encoding} by {size}");
        }
        assert_eq!(
            unpacked(&headers(encoding), &bytes, 1000).as_deref(),
            Some(ANSWER.as_bytes()),
            "{encoding}"
        );
        assert_eq!(unpacked(&headers(encoding), &bytes, ANSWER.len() - 1), None, "{encoding}");
    }
}

/// What was flushed is known at once: an answer is metered while it streams, not at its end.
#[test]
fn flushed_events_are_known_at_once() {
    for encoding in ["gzip", "deflate", "zstd", "bare"] {
        let bytes = packed(encoding, ANSWER);
        let named = if encoding == "bare" { "deflate" } else { encoding };
        let mut meter = AnswerMeter::new(Api::Messages, &headers(named));
        let mut known = Vec::new();
        for byte in &bytes {
            let _ = meter.read(&[*byte]);
            known.push(meter.metered().response_id.is_some());
        }
        let first = known.iter().position(|known| *known).unwrap();
        assert!(first < bytes.len() / 2 + 10, "{encoding}: at {first} of {}", bytes.len());
    }
}

#[test]
fn broken_compression_stops_the_metering_and_is_reported() {
    for (encoding, bytes) in each() {
        if encoding == "identity" {
            continue;
        }
        let mut broken = bytes.clone();
        let middle = broken.len() / 2;
        broken[middle..].fill(0xff);
        broken.extend([0xff; 64]);
        let mut meter = AnswerMeter::new(Api::Messages, &headers(encoding));
        for piece in broken.chunks(5) {
            let _ = meter.read(piece);
        }
        let metered = meter.finish();
        let reported = metered.unread.is_some() || !metered.finished;
        assert!(reported, "{encoding}: {metered:?}");
    }
    let mut meter = AnswerMeter::new(Api::Messages, &headers("gzip"));
    let _ = meter.read(ANSWER.as_bytes());
    assert_eq!(meter.finish().unread, Some(Unread::Compression), "it is not compressed at all");
}

#[test]
fn an_answer_that_grows_without_end_stops_the_metering() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let blanks = vec![b' '; 1 << 20];
    for _ in 0..5 {
        encoder.write_all(&blanks).unwrap();
    }
    let bytes = encoder.finish().unwrap();
    let mut meter = AnswerMeter::new(Api::Messages, &headers("gzip"));
    let _ = meter.read(&bytes);
    assert_eq!(meter.finish().unread, Some(Unread::TooLong));
    assert_eq!(unpacked(&headers("gzip"), &bytes, 1 << 20), None);
}

#[test]
fn a_window_beyond_what_http_allows_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.write_all(ANSWER.as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    let mut meter = AnswerMeter::new(Api::Messages, &headers("zstd"));
    let _ = meter.read(&bytes);
    assert_eq!(meter.finish().unread, Some(Unread::Compression));
}
