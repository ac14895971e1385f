//! Cumulative sums per session and model, and how long the answers took that a proxy saw, under the names of the GenAI semantic conventions where there are any. By those,
//! input includes tokens read from and written to the cache.

use std::collections::BTreeMap;

use super::message::{
    Any, CUMULATIVE, ExportMetrics, Histogram, HistogramPoint, KeyValue, Metric, Number, Point, Resource,
    ResourceMetrics, ScopeMetrics, Sum, pair, text,
};
use super::{nanos, scope};
use agents::registry;
use store::{Error, ModelSum, Outgoing, SessionRow, ToolSum, View};
use types::Timestamp;
use types::redact;

/// Name, unit, description. `gen_ai.client.token.usage` is the conventions' own name; they have no sum for the rest.
const TOKENS: [&str; 3] = ["gen_ai.client.token.usage", "{token}", "Tokens used, input including cache"];
const CACHE_READ: [&str; 3] = ["codemie.token.cache_read", "{token}", "Input tokens read from the cache"];
const CACHE_WRITE: [&str; 3] = ["codemie.token.cache_write", "{token}", "Input tokens written to the cache"];
const REASONING: [&str; 3] = ["codemie.token.reasoning", "{token}", "Output tokens spent on reasoning"];
const CALLS: [&str; 3] = ["codemie.api.calls", "{call}", "Calls of the model's API"];
const COST: [&str; 3] = ["codemie.cost", "USD", "Cost by list price"];
const SESSIONS: [&str; 3] = ["codemie.sessions", "{session}", "Sessions"];
const TOOLS: [&str; 3] = ["codemie.tool.calls", "{call}", "Tool calls that ended"];

/// The conventions' own name, unit and bounds.
const DURATION: [&str; 3] =
    ["gen_ai.client.operation.duration", "s", "How long calls of the model's API took"];
const SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The sums of every session that one of the events is about.
pub(super) fn of(view: &View<'_>, events: &[Outgoing], resource: Resource) -> Result<ExportMetrics, Error> {
    let mut sums = Sums::default();
    let mut seen = Vec::new();
    for event in events {
        if seen.contains(&&*event.session) {
            continue;
        }
        seen.push(&*event.session);
        let row = view.event(event.n)?.map(|row| view.session_number(row.session)).transpose()?.flatten();
        if let Some(session) = row {
            sums.add_session(view, &session, &event.session)?;
        }
    }
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics: sums.metrics() }];
    Ok(ExportMetrics { resource_metrics: vec![ResourceMetrics { resource: Some(resource), scope_metrics }] })
}

/// Sums under the names that may be sent. Two that are sent under one name are added, because attributes identify a point.
fn by_model(sums: Vec<ModelSum>) -> Vec<ModelSum> {
    let mut named: Vec<ModelSum> = Vec::new();
    for sum in sums {
        let model = redact::model(&sum.model).into_owned();
        match named.iter_mut().find(|known| known.model == model) {
            Some(known) => known.add(&sum),
            None => named.push(ModelSum { model, ..sum }),
        }
    }
    named
}

fn by_tool(sums: Vec<ToolSum>) -> Vec<ToolSum> {
    let mut named: Vec<ToolSum> = Vec::new();
    for sum in sums {
        let tool = redact::name(&sum.tool).into_owned();
        match named.iter_mut().find(|known| known.tool == tool && known.ok == sum.ok) {
            Some(known) => known.add(&sum),
            None => named.push(ToolSum { tool, ..sum }),
        }
    }
    named
}

#[derive(Default)]
struct Sums {
    points: BTreeMap<[&'static str; 3], Vec<Point>>,
    durations: Vec<HistogramPoint>,
}

/// How long the calls of one model took.
#[derive(Debug, Default, PartialEq)]
struct Durations {
    seconds: f64,
    buckets: [u64; SECONDS.len() + 1],
    last: Timestamp,
}

impl Durations {
    fn add(&mut self, latency_ms: u64, at: Timestamp) {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a call")]
        let seconds = latency_ms as f64 / 1000.0;
        self.seconds += seconds;
        self.buckets[SECONDS.partition_point(|bound| *bound < seconds)] += 1;
        self.last = self.last.max(at);
    }
}

impl Sums {
    fn add_session(&mut self, view: &View<'_>, session: &SessionRow, id: &str) -> Result<(), Error> {
        let start = session.started_at;
        let mut about = vec![
            text("session.id", id),
            text("gen_ai.agent.name", &session.agent),
            text("gen_ai.operation.name", "chat"),
        ];
        let provider = registry::by_name(&session.agent).and_then(|agent| agent.provider());
        about.extend(provider.map(|provider| text("gen_ai.provider.name", provider)));
        // A cumulative value must span some time, also after the clock was set back.
        let spanning = |at: Timestamp| at.max(Timestamp(start.0.saturating_add(1)));
        let mut durations: BTreeMap<String, Durations> = BTreeMap::new();
        for (model, latency, at) in view.call_durations(session.n)? {
            durations.entry(redact::model(&model).into_owned()).or_default().add(latency, at);
        }
        self.durations.extend(durations.into_iter().map(|(model, taken)| HistogramPoint {
            start_time_unix_nano: nanos(start),
            time_unix_nano: nanos(spanning(taken.last)),
            count: taken.buckets.iter().sum(),
            sum: Some(taken.seconds),
            bucket_counts: taken.buckets.to_vec(),
            explicit_bounds: SECONDS.to_vec(),
            attributes: about.iter().cloned().chain([text("gen_ai.request.model", &model)]).collect(),
        }));
        let points = &mut self.points;
        let mut add = |metric, at: Timestamp, value, more: Vec<KeyValue>| {
            let at = spanning(at);
            let attributes = about.iter().cloned().chain(more).collect();
            points.entry(metric).or_default().push(Point {
                start_time_unix_nano: nanos(start),
                time_unix_nano: nanos(at),
                value: Some(value),
                attributes,
            });
        };
        add(SESSIONS, start, Number::Int(1), Vec::new());
        for sum in by_model(view.model_sums(session.n)?) {
            let model = || text("gen_ai.request.model", &sum.model);
            let token = |kind: &str| vec![model(), text("gen_ai.token.type", kind)];
            let calls = sum.calls;
            let input = calls.input + calls.cache_read + calls.cache_write;
            add(TOKENS, sum.last, Number::Int(input), token("input"));
            add(TOKENS, sum.last, Number::Int(calls.output), token("output"));
            add(CACHE_READ, sum.last, Number::Int(calls.cache_read), vec![model()]);
            add(CACHE_WRITE, sum.last, Number::Int(calls.cache_write), vec![model()]);
            add(REASONING, sum.last, Number::Int(calls.reasoning), vec![model()]);
            add(CALLS, sum.last, Number::Int(calls.api_calls), vec![model()]);
            // No price is not the price zero.
            if sum.priced > 0 {
                add(COST, sum.last, Number::Double(calls.cost.dollars()), vec![model()]);
            }
        }
        for sum in by_tool(view.tool_sums(session.n)?) {
            let which = vec![text("gen_ai.tool.name", &sum.tool), pair("codemie.tool.ok", Any::Bool(sum.ok))];
            add(TOOLS, sum.last, Number::Int(sum.calls), which);
        }
        Ok(())
    }

    fn metrics(self) -> Vec<Metric> {
        let metric = |([name, unit, description], data_points): ([&str; 3], Vec<Point>)| Metric {
            name: name.to_owned(),
            description: description.to_owned(),
            unit: unit.to_owned(),
            sum: Some(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true }),
            histogram: None,
        };
        let mut metrics: Vec<Metric> = self.points.into_iter().map(metric).collect();
        if !self.durations.is_empty() {
            let [name, unit, description] = DURATION.map(str::to_owned);
            let histogram =
                Some(Histogram { data_points: self.durations, aggregation_temporality: CUMULATIVE });
            metrics.push(Metric { name, description, unit, sum: None, histogram });
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::CallSums;

    #[test]
    fn a_duration_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let mut taken = Durations::default();
        for latency_ms in [0, 10, 11, 1_280, 81_920, 81_921] {
            taken.add(latency_ms, Timestamp(1));
        }
        let filled: Vec<_> = taken.buckets.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(filled, [(0, &2), (1, &1), (7, &1), (13, &1), (14, &1)]);
    }

    #[test]
    fn sums_sent_under_one_name_are_one_point() {
        let tool = |tool: &str, ok, calls| ToolSum { tool: tool.into(), ok, calls, last: Timestamp(calls) };
        let sums = by_tool(vec![
            tool("Bash", true, 1),
            tool("Bash(ls /home)", true, 2),
            tool("a b", true, 3),
            tool("/c d", true, 4),
            tool("e f", false, 5),
        ]);
        assert_eq!(
            sums,
            [tool("Bash", true, 3), tool("other", true, 7), tool("other", false, 5)].map(|sum| {
                let last = match (sum.tool.as_str(), sum.ok) {
                    ("Bash", _) => 2,
                    (_, true) => 4,
                    (_, false) => 5,
                };
                ToolSum { last: Timestamp(last), ..sum }
            })
        );
        let model = |model: &str, calls| ModelSum {
            model: model.into(),
            calls: CallSums { api_calls: calls, input: 10 * calls, ..CallSums::default() },
            ..ModelSum::default()
        };
        let sums = by_model(vec![model("claude-opus-4-8", 1), model("a b", 2), model("c d", 3)]);
        assert_eq!(sums, [model("claude-opus-4-8", 1), model("other", 5)]);
    }
}
