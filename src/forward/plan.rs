//! What the next step of a sink's loop is to do, read from the store.

use super::batch::{self, Size};
use super::http::Request;
use super::sink::{Due, Sink, Triage};
use crate::store::{Error, Fate, Outgoing, View};
use wire::Timestamp;

/// What a step has to do.
pub(super) enum Work {
    Nothing {
        due: Option<Timestamp>,
    },
    /// Nothing to send, but the cursor can move.
    Pass {
        past: Span,
        deferred: Vec<(Outgoing, &'static str)>,
    },
    Send(Sending),
}

/// The part of the outbox that a step is about.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) from: i64,
    pub(super) to: i64,
}

pub(super) struct Sending {
    pub(super) events: Vec<Outgoing>,
    /// How far the cursor comes with them; `None` for those it has passed long ago.
    pub(super) past: Option<Span>,
    pub(super) requests: Vec<Request>,
    /// How many of the requests were accepted before, by a receiver that must not get them twice.
    pub(super) told: usize,
}

/// What comes next: letters that are due, then what the cursor has not passed.
pub(super) fn plan(
    view: &View<'_>,
    sink: &dyn Sink,
    size: Size,
    durable: i64,
    now: Timestamp,
) -> Result<Work, Error> {
    let name = sink.name();
    let Some(row) = view.sink(name)? else { return Ok(Work::Nothing { due: None }) };
    let mut due = None;
    let (mut letters, mut told) = (Vec::new(), 0);
    for letter in view.letters(name, Fate::Deferred, durable, batch::MAX_EVENTS)? {
        if letters.len() == size.events() {
            break;
        }
        match sink.due(view, &letter, now)? {
            Due::Now => {
                told = letter.told;
                letters.push(letter.event);
            }
            Due::Unknown => {}
            Due::At(at) => due = Some(due.map_or(at, |due: Timestamp| due.min(at))),
        }
    }
    if !letters.is_empty() {
        let events = fitting(letters);
        let requests = sink.requests(view, &events)?;
        return Ok(Work::Send(Sending { events, past: None, requests, told }));
    }
    // What is only sorted costs no request, so it is taken in one go however little the receiver takes at once.
    let window = if sink.counts_duplicates() { batch::MAX_EVENTS } else { size.events() };
    let events = view.outgoing(row.since, row.cursor, durable, window)?;
    let mut to = events.last().and_then(|event| event.change).unwrap_or(durable);
    if events.len() < window {
        to = to.max(durable);
    }
    if to <= row.cursor {
        return Ok(Work::Nothing { due });
    }
    let (mut sends, mut deferred) = (Vec::new(), Vec::new());
    for event in events {
        match sink.triage(view, &event)? {
            Triage::Send => sends.push(event),
            Triage::Defer(why) => deferred.push((event, why)),
            Triage::Skip => {}
        }
    }
    if sends.is_empty() {
        return Ok(Work::Pass { past: Span { from: row.cursor, to }, deferred });
    }
    let all = sends.len();
    let events = fitting(sends);
    if events.len() < all {
        to = events.last().and_then(|event| event.change).unwrap_or(row.cursor);
    }
    let requests = sink.requests(view, &events)?;
    Ok(Work::Send(Sending { events, past: Some(Span { from: row.cursor, to }), requests, told: 0 }))
}

fn fitting(mut events: Vec<Outgoing>) -> Vec<Outgoing> {
    events.truncate(batch::fits(&events));
    events
}
