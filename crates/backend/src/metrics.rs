//! Counters of this node, in the text form that Prometheus reads.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::storage::Ingested;
use reader::{Health, SpendingKey, SpendingRow, UsageSums};

/// Upper ends of the histogram of batches, in seconds.
const BUCKETS: [f64; 9] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

#[derive(Debug, Default)]
pub struct Metrics {
    /// By route and status: how many, and how many microseconds in all.
    requests: Mutex<BTreeMap<(&'static str, u16), (u64, u64)>>,
    accepted: AtomicU64,
    duplicates: AtomicU64,
    rejected: AtomicU64,
    batches: [AtomicU64; BUCKETS.len()],
    batch_count: AtomicU64,
    batch_micros: AtomicU64,
    watchers: AtomicI64,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "shown to far fewer digits than f64 holds")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl Metrics {
    pub fn request(&self, route: &'static str, status: u16, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, time) = requests.entry((route, status)).or_default();
        *count += 1;
        *time += micros(took);
    }

    pub fn ingested(&self, ingested: &Ingested, took: Duration) {
        for (counter, number) in [
            (&self.accepted, ingested.accepted),
            (&self.duplicates, ingested.duplicates),
            (&self.rejected, ingested.rejected.len()),
        ] {
            counter.fetch_add(u64::try_from(number).unwrap_or(0), Ordering::Relaxed);
        }
        let took_seconds = took.as_secs_f64();
        for (bucket, _) in self.batches.iter().zip(BUCKETS).filter(|(_, end)| took_seconds <= *end) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.batch_count.fetch_add(1, Ordering::Relaxed);
        self.batch_micros.fetch_add(micros(took), Ordering::Relaxed);
    }

    /// Counts a watcher until the guard is dropped.
    pub fn watch(self: &std::sync::Arc<Self>) -> Watching {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watching(self.clone())
    }

    /// `health` and `spending` come from the database; without them the text has this node's own numbers alone.
    pub fn text(&self, health: Option<&Health>, spending: &[SpendingRow]) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, String)]| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in lines {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let plain = |value: String| vec![(String::new(), value)];
        family(
            "codemie_up",
            "gauge",
            "1 if the database answers.",
            &plain(u8::from(health.is_some()).to_string()),
        );
        let build = format!(
            "{{version=\"{}\",os=\"{}\",arch=\"{}\"}}",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH
        );
        family("codemie_build_info", "gauge", "Always 1; its labels are the build.", &[(build, "1".into())]);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let labels = |(route, status): &(&str, u16)| format!("{{route=\"{route}\",status=\"{status}\"}}");
        let counts: Vec<_> =
            requests.iter().map(|(key, (count, _))| (labels(key), count.to_string())).collect();
        family("codemie_http_requests_total", "counter", "Requests answered.", &counts);
        let times: Vec<_> =
            requests.iter().map(|(key, (_, time))| (labels(key), seconds(*time).to_string())).collect();
        family("codemie_http_request_seconds_total", "counter", "Time spent on them.", &times);
        let outcomes =
            [("accepted", &self.accepted), ("duplicate", &self.duplicates), ("rejected", &self.rejected)];
        let outcomes: Vec<_> = outcomes
            .iter()
            .map(|(outcome, count)| {
                (format!("{{outcome=\"{outcome}\"}}"), count.load(Ordering::Relaxed).to_string())
            })
            .collect();
        family("codemie_events_total", "counter", "Events received.", &outcomes);
        let count = self.batch_count.load(Ordering::Relaxed).to_string();
        let mut batches: Vec<_> = self
            .batches
            .iter()
            .zip(BUCKETS)
            .map(|(bucket, end)| {
                (format!("_bucket{{le=\"{end}\"}}"), bucket.load(Ordering::Relaxed).to_string())
            })
            .collect();
        batches.push(("_bucket{le=\"+Inf\"}".to_owned(), count.clone()));
        batches.push(("_sum".to_owned(), seconds(self.batch_micros.load(Ordering::Relaxed)).to_string()));
        batches.push(("_count".to_owned(), count));
        family("codemie_batch_seconds", "histogram", "Time from a whole body to its commit.", &batches);
        let watchers = self.watchers.load(Ordering::Relaxed).to_string();
        family("codemie_watchers", "gauge", "Clients of the live feed.", &plain(watchers));
        if let Some(health) = health {
            for (name, help, value) in [
                ("codemie_sessions", "Sessions in the database.", health.sessions),
                ("codemie_sessions_active", "Sessions without an END.", health.active),
                ("codemie_sessions_with_gaps", "Sessions with a missing seq.", health.gap_count),
            ] {
                family(name, "gauge", help, &plain(value.to_string()));
            }
        }
        if !spending.is_empty() {
            spent(spending, &mut family);
        }
        text
    }
}

/// Name, type, help and lines of a family of metrics.
type WriteFamily<'a> = dyn FnMut(&str, &str, &str, &[(String, String)]) + 'a;

/// What was spent, by agent, model and project.
fn spent(rows: &[SpendingRow], family: &mut WriteFamily<'_>) {
    let lines = |value: &dyn Fn(&UsageSums) -> String| -> Vec<_> {
        rows.iter().map(|row| (format!("{{{}}}", labels(&row.key)), value(&row.sums))).collect()
    };
    let cost = lines(&|sums| sums.cost_usd.to_string());
    family("codemie_cost_usd_total", "counter", "Dollars spent on calls that have a price.", &cost);
    let unpriced = lines(&|sums| sums.counts.unpriced_calls.to_string());
    family("codemie_unpriced_calls_total", "counter", "Calls without a price; not in the cost.", &unpriced);
    let mut tokens = Vec::with_capacity(rows.len() * 4);
    for SpendingRow { key, sums } in rows {
        let (labels, counts) = (labels(key), &sums.counts);
        for (kind, number) in [
            ("input", counts.input),
            ("output", counts.output),
            ("cache_read", counts.cache_read),
            ("cache_write", counts.cache_write),
        ] {
            tokens.push((format!("{{{labels},kind=\"{kind}\"}}"), number.to_string()));
        }
    }
    family("codemie_tokens_total", "counter", "Tokens billed, each in one kind.", &tokens);
}

fn labels(SpendingKey { agent, model, project }: &SpendingKey) -> String {
    format!(
        "agent=\"{}\",model=\"{}\",project=\"{}\"",
        label_value(agent),
        label_value(model),
        label_value(project)
    )
}

/// As the text form wants it: the three characters that would end a value or a line are escaped.
fn label_value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Debug)]
pub struct Watching(std::sync::Arc<Metrics>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reader::Numbers;

    #[test]
    fn the_text_has_every_family_and_buckets_add_up() {
        let metrics = Metrics::default();
        metrics.request("/v1/events", 200, Duration::from_millis(3));
        metrics.request("/v1/events", 200, Duration::from_millis(3));
        let ingested = Ingested { accepted: 5, duplicates: 2, rejected: Vec::new() };
        metrics.ingested(&ingested, Duration::from_millis(3));
        metrics.ingested(&ingested, Duration::from_mins(1));
        let key = SpendingKey { agent: "claude".into(), model: "m\\x".into(), project: "a \"b\"\nc".into() };
        let counts = Numbers { input: 5, cache_read: 900, unpriced_calls: 2, ..Numbers::default() };
        let spending = [SpendingRow { key, sums: UsageSums { counts, cost_usd: 1.25 } }];
        let text = metrics.text(Some(&Health { sessions: 7, ..Health::default() }), &spending);
        for line in [
            "codemie_up 1",
            "codemie_http_requests_total{route=\"/v1/events\",status=\"200\"} 2",
            "codemie_http_request_seconds_total{route=\"/v1/events\",status=\"200\"} 0.006",
            "codemie_events_total{outcome=\"accepted\"} 10",
            "codemie_batch_seconds_bucket{le=\"0.002\"} 0",
            "codemie_batch_seconds_bucket{le=\"0.005\"} 1",
            "codemie_batch_seconds_bucket{le=\"5\"} 1",
            "codemie_batch_seconds_bucket{le=\"+Inf\"} 2",
            "codemie_batch_seconds_count 2",
            "codemie_sessions 7",
            r#"codemie_cost_usd_total{agent="claude",model="m\\x",project="a \"b\"\nc"} 1.25"#,
            r#"codemie_unpriced_calls_total{agent="claude",model="m\\x",project="a \"b\"\nc"} 2"#,
            r#"codemie_tokens_total{agent="claude",model="m\\x",project="a \"b\"\nc",kind="cache_read"} 900"#,
            "# TYPE codemie_cost_usd_total counter",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let version = concat!("codemie_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",");
        assert!(text.lines().any(|line| line.starts_with(version) && line.ends_with("} 1")), "{text}");
        let alone = metrics.text(None, &[]);
        assert!(alone.contains("codemie_up 0") && !alone.contains("codemie_cost"), "{alone}");
    }
}
