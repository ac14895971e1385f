//! What would be sent, as it would be sent: the requests themselves, credentials aside.

use std::fmt::Write;

use super::batch;
use super::http::{Encoding, Request};
use super::sink::{Sink, Triage};
use crate::store::{Error, Fate, Outgoing, View};

/// The next requests to a sink, in full; how many events they tell. What waits for something else is not among them.
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

/// The same for given events, whatever has been sent of them.
pub fn show(view: &View<'_>, sink: &dyn Sink, mut events: Vec<Outgoing>) -> Result<(String, usize), Error> {
    let mut text = String::new();
    let count = events.len();
    while !events.is_empty() {
        let rest = events.split_off(events.len().min(sink.max_batch()).min(batch::MAX_EVENTS));
        let mut part = events;
        let mut over = part.split_off(batch::fits(&part));
        for request in sink.requests(view, &part)? {
            text += &shown(sink, &request);
        }
        over.extend(rest);
        events = over;
    }
    Ok((text, count))
}

fn shown(sink: &dyn Sink, request: &Request) -> String {
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
