use http::HeaderValue;

use super::super::frames::tests::{Deflate, frame};
use super::*;

const NOW: Timestamp = Timestamp(1_000_000);
const MASK: Option<[u8; 4]> = Some([9, 8, 7, 6]);

fn headers(extensions: Option<&'static str>) -> HeaderMap {
    extensions.map(|value| (SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(value))).into_iter().collect()
}

fn created(id: &str) -> String {
    format!(r#"{{"type":"response.created","response":{{"id":"{id}"}}}}"#)
}

const DELTA: &str = r#"{"type":"response.output_text.delta","delta":"Hi"}"#;

fn completed(id: &str, input: u64) -> String {
    format!(
        r#"{{"type":"response.completed","response":{{"id":"{id}","model":"m","usage":{{"input_tokens":{input},"output_tokens":3}}}}}}"#
    )
}

/// A moment in a few letters.
fn short(moment: &Moment) -> String {
    match moment {
        Moment::Began { body } => format!("began {:?}", body.as_ref().map(|body| body.len())),
        Moment::FirstContent => "content".to_owned(),
        Moment::Quotas(quotas) => format!("quotas {}", quotas.len()),
        Moment::Ended(metered) => format!(
            "ended {} {:?} {}",
            metered.response_id.as_deref().unwrap_or("-"),
            metered.tokens.map(|tokens| tokens.input),
            metered.finished
        ),
    }
}

/// One connection: texts from the agent (`>`) and from the API (`<`), in pieces of `size`.
fn play(
    extensions: Option<&'static str>,
    takeover: [bool; 2],
    texts: &[(char, String)],
    size: usize,
) -> Vec<String> {
    let mut meter = SocketMeter::new(Api::Responses, &headers(extensions));
    let mut deflate = takeover.map(Deflate::new);
    let mut moments = Vec::new();
    for (from, text) in texts {
        let to_api = *from == '>';
        let bytes = match extensions {
            Some(_) => {
                frame(0xc1, &deflate[usize::from(!to_api)].message(text.as_bytes()), MASK.filter(|_| to_api))
            }
            None => frame(0x81, text.as_bytes(), MASK.filter(|_| to_api)),
        };
        for piece in bytes.chunks(size) {
            moments.extend(if to_api { meter.sent(piece) } else { meter.received(piece, NOW) });
        }
    }
    let open = meter.finish();
    let open = open.into_iter().map(|metered| format!("open {:?}", metered.response_id));
    moments.iter().map(short).chain(open).collect()
}

#[test]
fn calls_come_one_after_the_other() {
    let request = r#"{"type":"response.create","model":"m","input":[]}"#;
    let texts = [
        ('>', request.to_owned()),
        ('<', r#"{"type":"codex.rate_limits","rate_limits":{"primary":{"used_percent":7}}}"#.to_owned()),
        ('<', created("r1")),
        ('<', DELTA.to_owned()),
        ('<', DELTA.to_owned()),
        ('<', completed("r1", 10)),
        ('>', r#"{"type":"response.processed","id":"r1"}"#.to_owned()),
        ('>', request.to_owned()),
        ('<', created("r2")),
        ('<', completed("r2", 20)),
        ('>', request.to_owned()),
        ('<', r#"{"type":"error","status":429,"error":{"code":"usage_limit_reached"}}"#.to_owned()),
        ('>', request.to_owned()),
        ('<', created("r3")),
    ];
    let began = format!("began Some({})", request.len());
    let expected = [
        &began,
        "quotas 1",
        "content",
        "ended r1 Some(10) true",
        &began,
        "ended r2 Some(20) true",
        &began,
        "ended - None true",
        &began,
        "open Some(\"r3\")",
    ];
    for size in [1, 2, 3, 7, 50, 10_000] {
        for (extensions, takeover) in [
            (None, [false, false]),
            (Some("permessage-deflate"), [true, true]),
            (
                Some("permessage-deflate; server_no_context_takeover; client_max_window_bits=15"),
                [true, false],
            ),
            (Some("x-other, permessage-deflate; client_no_context_takeover"), [false, true]),
        ] {
            assert_eq!(play(extensions, takeover, &texts, size), expected, "{extensions:?} by {size}");
        }
    }
}

#[test]
fn limits_are_read_from_a_message() {
    let mut meter = SocketMeter::new(Api::Responses, &HeaderMap::new());
    let text = r#"{"type":"codex.rate_limits","plan_type":"pro","rate_limits":{"allowed":true,"primary":{"used_percent":7.5,"window_minutes":300,"reset_at":1779398785},"secondary":{"used_percent":29,"reset_after_seconds":60}},"code_review_rate_limits":null}"#;
    let quota = |window: &str, utilization, at| Quota {
        provider: "openai",
        window: window.to_owned(),
        utilization,
        resets_at: Some(Timestamp(at)),
    };
    assert_eq!(
        meter.received(&frame(0x81, text.as_bytes(), None), NOW),
        [Moment::Quotas(vec![
            quota("primary", 0.075, 1_779_398_785_000),
            quota("secondary", 0.29, 1_060_000)
        ])]
    );
}

#[test]
fn an_answer_whose_request_was_not_seen_is_metered() {
    let texts = [('<', created("r1")), ('<', completed("r1", 10)), ('<', DELTA.to_owned())];
    assert_eq!(play(None, [true; 2], &texts, 9), ["began None", "ended r1 Some(10) true"]);
}

#[test]
fn a_request_that_is_too_large_is_not_kept() {
    let large = format!(r#"{{"input":"{}","type":"response.create"}}"#, "x".repeat(LARGEST_BODY));
    let texts = [('>', large), ('<', created("r1")), ('<', completed("r1", 10))];
    assert_eq!(play(None, [true; 2], &texts, 1 << 16), ["began None", "ended r1 Some(10) true"]);
}

#[test]
fn a_connection_that_is_no_websocket_is_said_to_be_unread() {
    let mut meter = SocketMeter::new(Api::Responses, &HeaderMap::new());
    assert_eq!(meter.sent(&frame(0x81, br#"{"type":"response.create"}"#, MASK)).len(), 1);
    assert_eq!(meter.received(b"nonsense", NOW), []);
    let open = meter.finish();
    assert_eq!(open, [Metered { unread: Some(Unread::Form), ..Metered::default() }]);
}
