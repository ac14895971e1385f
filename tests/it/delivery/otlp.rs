//! OpenTelemetry through a real collector: rotel, from PyPI, between us and a receiver that decodes with OpenTelemetry's
//! own types.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use delivery::{Idle, Pace};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point};
use prost::Message;
use types::Attributes;

use super::{drain, sinks};
use crate::commands::World;
use crate::support::agents::left_out;
use crate::support::receiver::{Received, Receiver, Reply};

/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The collector at work.
struct Collector {
    child: Child,
    port: u16,
}

impl Collector {
    /// `None`, and a line that says why, where it is not installed.
    fn start(to: &Receiver) -> Option<Self> {
        let Some(program) = program() else {
            left_out("rotel is not installed under target/rotel (tests/run.sh does it)");
            return None;
        };
        // Below those that the kernel gives away, and this process's alone among the tests.
        let port = 10_000 + u16::try_from(std::process::id() % 10_000).unwrap() * 2;
        let other = port + 1;
        let child = Command::new(program)
            .arg("start")
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{port}")])
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{other}")])
            .args(["--exporter", "otlp", "--otlp-exporter-protocol", "http"])
            .args(["--otlp-exporter-endpoint", &to.url()])
            .arg("--disable-batching")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let collector = Self { child, port };
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the collector does not listen");
            std::thread::sleep(Duration::from_millis(20)); // nothing else tells
        }
        Some(collector)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let installed = std::env::var_os("CODEMIE_TEST_ROTEL").map(PathBuf::from);
    let folder = installed.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/rotel"));
    let lib = std::fs::read_dir(folder.join("lib")).ok()?;
    lib.flatten()
        .map(|python| python.path().join("site-packages/rotel/rotel-agent"))
        .find(|file| file.exists())
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone());
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

/// The last value of every series: metric, session, model or tool, token type. A value never falls.
pub(super) fn series(received: &[Received]) -> BTreeMap<String, f64> {
    let mut series = BTreeMap::new();
    let mut starts = BTreeMap::new();
    for one in received.iter().filter(|one| one.path == "/v1/metrics") {
        let request = ExportMetricsServiceRequest::decode(one.body.as_slice()).unwrap();
        let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let Some(Data::Sum(sum)) = metric.data else { panic!("not a sum: {}", metric.name) };
            assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{}", metric.name);
            for point in sum.data_points {
                let about = ["session.id", "gen_ai.request.model", "gen_ai.tool.name", "gen_ai.token.type"];
                let about = about.map(|key| text(&point.attributes, key)).join(" ");
                let key = format!("{} {}", metric.name, about.trim_end());
                let value = match point.value {
                    Some(number_data_point::Value::AsInt(value)) => f64::from(i32::try_from(value).unwrap()),
                    Some(number_data_point::Value::AsDouble(value)) => value,
                    None => panic!("no value: {key}"),
                };
                let start = *starts.entry(key.clone()).or_insert(point.start_time_unix_nano);
                assert_eq!(start, point.start_time_unix_nano, "{key} has a fixed start");
                assert!(series.insert(key.clone(), value).is_none_or(|before| before <= value), "{key} fell");
            }
        }
    }
    series
}

/// Every event id in the logs, with its highest revision.
fn logged(received: &[Received]) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for one in received.iter().filter(|one| one.path == "/v1/logs") {
        let request = ExportLogsServiceRequest::decode(one.body.as_slice()).unwrap();
        let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
        for record in scopes.flat_map(|scope| scope.log_records) {
            ids.insert(text(&record.attributes, "codemie.event.id"));
        }
    }
    ids
}

#[test]
fn collector_exports_the_true_values_also_when_sent_twice() {
    let receiver = Receiver::start(|_| Reply::Bytes(Vec::new(), "application/x-protobuf"));
    let Some(collector) = Collector::start(&receiver) else { return };
    let mut world = World::new();
    let sinks = sinks(&world, &format!("otlp.endpoint = 'http://127.0.0.1:{}'", collector.port));
    world.spoken("a", 3);
    world.spoken("b", 2);
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    let events = world.store.read(|view| view.history(1000)).unwrap();
    let truth = |received: &[Received], calls: [f64; 2]| {
        let series = series(received);
        for (session, calls) in ["a", "b"].into_iter().zip(calls) {
            let named = |attributes: &Attributes| match attributes {
                Attributes::Start(start) => start.name.as_deref() == Some(session),
                _ => false,
            };
            let id = events.iter().find(|event| named(&event.attributes)).unwrap().session.clone();
            let value =
                |metric: &str, about: &str| series.get(format!("{metric} {id} {about}").trim_end()).copied();
            let model = "claude-sonnet-4-5";
            let expected = [
                ("codemie.sessions", "", 1.0),
                ("codemie.api.calls", model, calls),
                ("codemie.token.cache_read", model, 1000.0 * calls),
                ("codemie.token.cache_write", model, 100.0 * calls),
                ("gen_ai.client.token.usage", &format!("{model}  input"), 1110.0 * calls),
                ("gen_ai.client.token.usage", &format!("{model}  output"), 20.0 * calls),
            ];
            for (metric, about, expected) in expected {
                if value(metric, about) != Some(expected) {
                    return None;
                }
            }
            let cost = value("codemie.cost", model)?;
            if (cost - 0.002 * calls).abs() > 1e-12 {
                return None;
            }
        }
        Some(())
    };
    let ids: BTreeSet<String> = events.iter().map(|event| event.id.to_string()).collect();
    let everything = |received: &[Received]| truth(received, [3.0, 2.0]).filter(|()| logged(received) == ids);
    receiver.wait("the truth", everything);
    let before = receiver.received().len();

    // Everything once more: the same values.
    world.store.write(|tx| tx.backfill("otlp")).unwrap();
    assert_eq!(drain(&sinks, Pace::Background), Idle::Empty { due: None });
    receiver.wait("all of it again", |received| (received.len() >= 2 * before).then_some(()));
    assert!(everything(&receiver.received()).is_some());
}
