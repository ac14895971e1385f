//! The log of a server: a JSON object per line on standard error.

use std::fmt;
use std::io;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use os::clock::{Clock, SystemClock};

/// Starts logging, `level` or more severe. Does nothing the second time.
pub fn start(level: &str) {
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .log_internal_errors(false) // it would be printed where nobody reads, which is a panic
        .event_format(Lines)
        .with_writer(io::stderr)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
}

struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line(Map::new());
        line.0.insert("time".to_owned(), json!(SystemClock.now().to_string()));
        line.0.insert("level".to_owned(), json!(event.metadata().level().as_str().to_ascii_lowercase()));
        event.record(&mut line);
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// The fields of one event.
struct Line(Map<String, Value>);

impl Line {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Line {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, json!(format!("{value:?}")));
    }
}
