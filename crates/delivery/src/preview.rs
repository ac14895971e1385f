//! The requests that would be sent, as text for a person: complete except for credentials. Nothing is sent.

use std::fmt::Write;

use super::http::{Encoding, Request};
use super::plan;
use super::sink::{Sink, Triage};
use store::{Error, Fate, Outgoing, View};
use types::Timestamp;

/// The next requests to a sink, and how many events they describe. Deferred events are included, due or not.
pub fn preview(view: &View<'_>, sink: &dyn Sink, limit: usize) -> Result<(String, usize), Error> {
    let Some(row) = view.sink(sink.name())? else { return Ok((String::new(), 0)) };
    let mut events: Vec<Outgoing> = view
        .letters(sink.name(), Fate::Deferred, i64::MAX, limit)?
        .into_iter()
        .map(|letter| letter.event)
        .collect();
    for event in view.outgoing(row.since, row.cursor, i64::MAX, limit)? {
        if sink.triage(view, &event)? != Triage::Skip {
            events.retain(|known| known.n != event.n);
            events.push(event);
        }
    }
    show(view, sink, events)
}

/// The requests that a sink has taken already of events of this time or later, as they would be made today: which events were
/// sent together is not kept, and of an event that was revised the latest revision is shown.
pub fn delivered(
    view: &View<'_>,
    sink: &dyn Sink,
    since: Timestamp,
    limit: usize,
) -> Result<(String, usize), Error> {
    let Some(row) = view.sink(sink.name())? else { return Ok((String::new(), 0)) };
    let mut events = Vec::new();
    for event in view.delivered(&row, since, limit)? {
        if sink.triage(view, &event)? != Triage::Skip {
            events.push(event);
        }
    }
    show(view, sink, events)
}

/// The same for given events, sent before or not.
pub fn show(view: &View<'_>, sink: &dyn Sink, mut events: Vec<Outgoing>) -> Result<(String, usize), Error> {
    let mut text = String::new();
    let count = events.len();
    while !events.is_empty() {
        let beyond = events.split_off(events.len().min(sink.max_batch()).min(plan::MAX_EVENTS));
        let mut part = events;
        let mut over = part.split_off(plan::fits(&part));
        for request in sink.requests(view, &part)? {
            text += &format_request(sink, &request);
        }
        over.extend(beyond);
        events = over;
    }
    Ok((text, count))
}

fn format_request(sink: &dyn Sink, request: &Request) -> String {
    let mut text = format!("POST {}\ncontent-type: {}\n", request.url, request.content_type);
    if let Some(encoding) = request.encoding {
        let name = match encoding {
            Encoding::Zstd => "zstd",
            Encoding::Gzip => "gzip",
        };
        _ = writeln!(text, "content-encoding: {name} (shown unpacked)");
    }
    for (name, value) in &request.headers {
        _ = writeln!(text, "{name}: {value}");
    }
    for (name, _) in &request.credentials {
        _ = writeln!(text, "{name}: (hidden)");
    }
    _ = writeln!(text, "\n{}", sink.readable(request).trim_end());
    text.push('\n');
    text
}
