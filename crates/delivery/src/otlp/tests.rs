//! The requests, decoded by OpenTelemetry's own types.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, metric::Data, number_data_point};
use prost::Message;

use super::*;
use store::session::lifecycle::ConversationStart;
use store::session::testing::{World, usage};

fn otlp() -> Otlp {
    let endpoint = Url::parse("http://h:4318").unwrap();
    let identity = Identity { machine: "m".into(), user: None };
    Otlp { endpoint, headers: Vec::new(), identity }
}

fn sent(world: &mut World) -> (Vec<Request>, usize) {
    let otlp = otlp();
    world
        .store
        .read(|view| {
            let events = view.outgoing(0, 0, i64::MAX, 100)?;
            Ok::<_, Error>((otlp.requests(view, &events)?, events.len()))
        })
        .unwrap()
}

fn attribute(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone());
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Every point as `name type = value`.
fn points(request: &Request) -> Vec<String> {
    let decoded = ExportMetricsServiceRequest::decode(request.body.as_slice()).unwrap();
    let mut points = Vec::new();
    for metric in &decoded.resource_metrics[0].scope_metrics[0].metrics {
        let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        for point in &sum.data_points {
            assert!(point.time_unix_nano > point.start_time_unix_nano);
            let value = match point.value {
                Some(number_data_point::Value::AsInt(value)) => value.to_string(),
                Some(number_data_point::Value::AsDouble(value)) => value.to_string(),
                None => "nothing".to_owned(),
            };
            let kind = point.attributes.iter().any(|pair| pair.key == "gen_ai.token.type");
            let kind = if kind { attribute(&point.attributes, "gen_ai.token.type") } else { String::new() };
            points.push(format!("{} {kind}={value}", metric.name));
        }
    }
    points
}

#[test]
fn sums_are_cumulative_and_equal_when_sent_again() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    let at = world.wait(10);
    world.feed(started.session, 1, &[usage("m1", at, 20)]);
    let (first, events) = sent(&mut world);
    let expected = |calls: i64, output: i64| {
        vec![
            format!("codemie.api.calls ={calls}"),
            format!("codemie.cost ={}", PicoDollarsOf(output)),
            "codemie.sessions =1".to_owned(),
            format!("codemie.token.cache_read ={}", 1000 * calls),
            format!("codemie.token.cache_write ={}", 100 * calls),
            "codemie.token.reasoning =0".to_owned(),
            format!("gen_ai.client.token.usage input={}", 1110 * calls),
            format!("gen_ai.client.token.usage output={output}"),
        ]
    };
    assert_eq!(points(&first[0]), expected(1, 20));
    assert_eq!(sent(&mut world).0, first, "byte for byte");

    let logs = ExportLogsServiceRequest::decode(first[1].body.as_slice()).unwrap();
    let records = &logs.resource_logs[0].scope_logs[0].log_records;
    assert_eq!(records.len(), events);
    assert_eq!(
        records.iter().map(|record| record.event_name.as_str()).collect::<Vec<_>>(),
        ["codemie.session.start", "codemie.session.bound", "codemie.usage"]
    );
    assert_eq!(attribute(&records[2].attributes, "codemie.outputTokens"), "20");
    assert_eq!(attribute(&records[2].attributes, "codemie.key"), "m1");
    assert_eq!(attribute(&records[2].attributes, "session.id"), started.session.to_string());

    let at = world.wait(10);
    world.feed(started.session, 2, &[usage("m2", at, 5)]);
    assert_eq!(points(&sent(&mut world).0[0]), expected(2, 25));
}

/// A millionth of a dollar per token of output, as [`usage`] prices it.
struct PicoDollarsOf(i64);

impl std::fmt::Display for PicoDollarsOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        types::PicoDollars(1_000_000 * self.0).dollars().fmt(f)
    }
}

#[test]
fn only_an_export_response_counts_as_a_receipt() {
    let request = otlp().request("/v1/logs", &ExportLogs::default());
    let partial = ExportAnswer {
        partial_success: Some(message::PartialSuccess { rejected: 1, error_message: "old".into() }),
    };
    let verdict =
        receipt(&request, &Answer { status: 200, body: partial.encode_to_vec(), ..Answer::default() });
    assert_eq!(verdict, Verdict::PartlyAccepted("refused 1 of what /v1/logs got: old".into()));
    let cases: [(&str, Vec<u8>, bool); 8] = [
        (PROTOBUF, Vec::new(), true),
        ("application/json", b"{}".to_vec(), true),
        ("application/json", b"{\"partialSuccess\":{}}".to_vec(), true),
        ("application/json", b"{\"partialSuccess\":{\"rejectedLogRecords\":\"0\"}}".to_vec(), true),
        ("application/json", b"{\"partialSuccess\":{\"rejectedLogRecords\":\"3\"}}".to_vec(), false),
        ("application/json", b"{\"error\":\"please log in\"}".to_vec(), false),
        ("text/html", Vec::new(), false),
        ("text/plain", b"<html>log in</html>".to_vec(), false),
    ];
    for (content_type, body, accepted) in cases {
        let answer = Answer { status: 200, content_type: content_type.into(), body, ..Answer::default() };
        let verdict = receipt(&request, &answer);
        assert_eq!(matches!(verdict, Verdict::Accepted { .. }), accepted, "{answer:?}");
    }
}
