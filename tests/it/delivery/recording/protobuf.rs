//! OTLP messages as text, straight from their bytes: fields in the order they are in, by the names of `opentelemetry/proto`.
//! A field that the table does not know is shown by its number, so nothing that is sent stays unseen.

use std::fmt::Write;

#[derive(Clone, Copy)]
enum Kind {
    Message(&'static [(u32, &'static str, Kind)]),
    Text,
    /// An attribute: shown as `key = value`.
    Pair,
    Value,
    Number,
    Double,
    /// Signed, of eight bytes.
    Fixed,
    /// Several of them in one field.
    Fixeds,
    Doubles,
}

use Kind::{Double, Doubles, Fixed, Fixeds, Message, Number, Pair, Text, Value};

const RESOURCE: Kind = Message(&[(1, "attribute", Pair)]);
const SCOPE: Kind = Message(&[(1, "name", Text), (2, "version", Text)]);
const POINT: Kind = Message(&[
    (2, "start_time_unix_nano", Fixed),
    (3, "time_unix_nano", Fixed),
    (4, "as_double", Double),
    (6, "as_int", Fixed),
    (7, "attribute", Pair),
]);
const SUM: Kind =
    Message(&[(1, "data_point", POINT), (2, "aggregation_temporality", Number), (3, "is_monotonic", Number)]);
const HISTOGRAM_POINT: Kind = Message(&[
    (2, "start_time_unix_nano", Fixed),
    (3, "time_unix_nano", Fixed),
    (4, "count", Fixed),
    (5, "sum", Double),
    (6, "bucket_counts", Fixeds),
    (7, "explicit_bounds", Doubles),
    (9, "attribute", Pair),
]);
const HISTOGRAM: Kind =
    Message(&[(1, "data_point", HISTOGRAM_POINT), (2, "aggregation_temporality", Number)]);
const METRIC: Kind = Message(&[
    (1, "name", Text),
    (2, "description", Text),
    (3, "unit", Text),
    (7, "sum", SUM),
    (9, "histogram", HISTOGRAM),
]);
const METRICS: Kind = Message(&[(
    1,
    "resource_metrics",
    Message(&[
        (1, "resource", RESOURCE),
        (2, "scope_metrics", Message(&[(1, "scope", SCOPE), (2, "metric", METRIC)])),
    ]),
)]);
const RECORD: Kind = Message(&[
    (1, "time_unix_nano", Fixed),
    (2, "severity_number", Number),
    (5, "body", Value),
    (6, "attribute", Pair),
    (11, "observed_time_unix_nano", Fixed),
    (12, "event_name", Text),
]);
const LOGS: Kind = Message(&[(
    1,
    "resource_logs",
    Message(&[
        (1, "resource", RESOURCE),
        (2, "scope_logs", Message(&[(1, "scope", SCOPE), (2, "log_record", RECORD)])),
    ]),
)]);

/// The request's body as text; `path` says which of the two messages it is.
pub(super) fn text(path: &str, body: &[u8]) -> String {
    let mut out = String::new();
    let Message(fields) = (if path.ends_with("/v1/metrics") { METRICS } else { LOGS }) else { return out };
    message(body, fields, 0, &mut out);
    out
}

/// One field as it is on the wire.
enum Raw<'a> {
    Varint(u64),
    Eight([u8; 8]),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

fn fields(mut bytes: &[u8]) -> Vec<(u32, Raw<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let raw = match tag & 7 {
            0 => Raw::Varint(varint(&mut bytes)),
            1 => {
                let (eight, rest) = bytes.split_first_chunk().unwrap();
                bytes = rest;
                Raw::Eight(*eight)
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Raw::Bytes(inner)
            }
            other => panic!("wire type {other} is used by no message of OTLP"),
        };
        fields.push((u32::try_from(tag >> 3).unwrap(), raw));
    }
    fields
}

fn message(bytes: &[u8], known: &[(u32, &str, Kind)], depth: usize, out: &mut String) {
    for (number, raw) in fields(bytes) {
        let entry = known.iter().find(|(known, _, _)| *known == number);
        let indent = " ".repeat(depth);
        match (entry, raw) {
            (Some((_, name, Message(inner))), Raw::Bytes(bytes)) => {
                writeln!(out, "{indent}{name}").unwrap();
                message(bytes, inner, depth + 1, out);
            }
            (Some((_, _, Pair)), Raw::Bytes(bytes)) => writeln!(out, "{indent}{}", pair(bytes)).unwrap(),
            (Some((_, name, Value)), Raw::Bytes(bytes)) => {
                writeln!(out, "{indent}{name}: {}", value(bytes)).unwrap();
            }
            (Some((_, name, Text)), Raw::Bytes(bytes)) => {
                writeln!(out, "{indent}{name}: {}", quoted(bytes)).unwrap();
            }
            (Some((_, name, Number)), Raw::Varint(number)) => {
                writeln!(out, "{indent}{name}: {number}").unwrap();
            }
            (Some((_, name, Double)), Raw::Eight(eight)) => {
                writeln!(out, "{indent}{name}: {:?}", f64::from_le_bytes(eight)).unwrap();
            }
            (Some((_, name, Fixed)), Raw::Eight(eight)) => {
                writeln!(out, "{indent}{name}: {}", i64::from_le_bytes(eight)).unwrap();
            }
            (Some((_, name, Fixeds)), Raw::Bytes(bytes)) => {
                writeln!(
                    out,
                    "{indent}{name}: {:?}",
                    eights(bytes).map(i64::from_le_bytes).collect::<Vec<_>>()
                )
                .unwrap();
            }
            (Some((_, name, Doubles)), Raw::Bytes(bytes)) => {
                writeln!(
                    out,
                    "{indent}{name}: {:?}",
                    eights(bytes).map(f64::from_le_bytes).collect::<Vec<_>>()
                )
                .unwrap();
            }
            (_, raw) => writeln!(out, "{indent}field {number}: {}", unknown(&raw)).unwrap(),
        }
    }
}

fn eights(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> + '_ {
    bytes.chunks_exact(8).map(|eight| eight.try_into().unwrap())
}

fn quoted(bytes: &[u8]) -> String {
    serde_json::to_string(std::str::from_utf8(bytes).unwrap()).unwrap()
}

fn unknown(raw: &Raw<'_>) -> String {
    match raw {
        Raw::Varint(number) => format!("varint {number}"),
        Raw::Eight(eight) => format!("eight bytes {eight:?}"),
        Raw::Bytes(bytes) => format!("bytes {}", bytes.escape_ascii()),
    }
}

fn pair(bytes: &[u8]) -> String {
    let parts = fields(bytes).into_iter().map(|(number, raw)| match (number, raw) {
        (1, Raw::Bytes(key)) => std::str::from_utf8(key).unwrap().to_owned(),
        (2, Raw::Bytes(bytes)) => format!("= {}", value(bytes)),
        (number, raw) => format!("field {number}: {}", unknown(&raw)),
    });
    parts.collect::<Vec<_>>().join(" ")
}

fn value(bytes: &[u8]) -> String {
    let parts = fields(bytes).into_iter().map(|(number, raw)| match (number, raw) {
        (1, Raw::Bytes(text)) => quoted(text),
        (2, Raw::Varint(flag)) => format!("bool {flag}"),
        (3, Raw::Varint(number)) => format!("int {}", number.cast_signed()),
        (4, Raw::Eight(eight)) => format!("double {:?}", f64::from_le_bytes(eight)),
        (5, Raw::Bytes(items)) => {
            let items = fields(items).into_iter().map(|(number, raw)| match (number, raw) {
                (1, Raw::Bytes(item)) => value(item),
                (number, raw) => format!("field {number}: {}", unknown(&raw)),
            });
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        (number, raw) => format!("field {number}: {}", unknown(&raw)),
    });
    parts.collect::<Vec<_>>().join(" ")
}
