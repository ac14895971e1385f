//! The live page: the running sessions, and a feed of starts and ends.
//!
//! The page is whole without its script. With it, the server sends rows as it would have rendered them, and the script inserts
//! them.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::controls;
use super::frame::{Frame, Section};
use super::sessions::{address, chain_mark, chained, cost, link, marks};
use super::text::count;
use reader::Session;
use types::Timestamp;

use types::{EventType, StartReason, Status};

pub fn page(frame: &Frame, running: &[Session], recent: &[Session]) -> Markup {
    let content = html! {
        div.head {
            h1 { "Live" }
            span #state .state role="status" { "Connecting" }
        }
        noscript {
            p.note {
                "Without JavaScript this page stands still. " a href="/live" { "Load it again" }
                " to see what is new."
            }
        }
        section.panel {
            h2 { "Running now " span.aside #count { (running.len()) } }
            ul.live #running { @for session in running { (running_row(frame, session)) } }
            p.muted #running-none hidden[!running.is_empty()] {
                "No session is running. One that starts appears here by itself."
            }
        }
        section.panel {
            h2 { "What happened" }
            ul.live #feed aria-live="polite" {
                @for session in in_order(recent) { (event_row(frame, session, last_event(session))) }
            }
            p.muted #feed-none hidden[!recent.is_empty()] {
                "Nothing yet. Starts, clears and ends appear here."
            }
        }
    };
    frame.page(Some(Section::Live), "Live", &content)
}

/// A session in the list of running ones.
pub fn running_row(frame: &Frame, session: &Session) -> Markup {
    let prompts = format::counted(usize::try_from(session.numbers.prompts).unwrap_or(0), "prompt");
    html! {
        li id={ "run-" (session.id) } {
            b {
                (link(session)) @if chained(session) { (chain_mark("chain")) } (marks(session))
                (frame.title(session, ""))
            }
            (controls::agent(frame.agents, &session.life.agent))
            (project_and_user(session))
            span.end {
                (prompts) " · " (count(session.numbers.tokens())) " tokens · " (cost(session))
                " · started " (frame.now.ago(session.started_at()))
            }
        }
    }
}

/// Its project and user.
fn project_and_user(session: &Session) -> Markup {
    let words: Vec<&str> = session.project().into_iter().chain(session.life.user.as_deref()).collect();
    let text = words.join(" · ");
    html! { span.muted.where title=[(text.len() > 24).then_some(&text)] { (text) } }
}

/// The last known START or END of a session.
fn last_event(session: &Session) -> EventType {
    if session.ending().is_some() { EventType::End } else { EventType::Start }
}

fn when(session: &Session, what: EventType) -> Timestamp {
    match what {
        EventType::End => session.ending().map_or(session.last_at, |end| end.time),
        _ => session.life.start.as_ref().map_or(session.first_at, |start| start.time),
    }
}

/// The latest first.
fn in_order(recent: &[Session]) -> Vec<&Session> {
    let mut recent: Vec<&Session> = recent.iter().collect();
    recent.sort_by_key(|session| Reverse(when(session, last_event(session))));
    recent
}

/// A START or END in the feed.
pub fn event_row(frame: &Frame, session: &Session, what: EventType) -> Markup {
    let (verb, class) = match what {
        EventType::End => (end_verb(session), end_verb(session)),
        _ => (start_verb(session), Status::Active.as_str()),
    };
    html! {
        li id={ "told-" (what.as_str()) "-" (session.id) } {
            span.verb { span class={ "pill " (class) } { (verb) } }
            b {
                (link(session))
                (neighbour(session, what))
                (frame.title(session, ""))
            }
            (controls::agent(frame.agents, &session.life.agent))
            (project_and_user(session))
            span.end { @if what == EventType::End { (cost(session)) " · " } (frame.now.ago(when(session, what))) }
        }
    }
}

/// By then it may run again.
fn end_verb(session: &Session) -> &'static str {
    session.ending().map_or("ended", |end| format::status::word(end.value.status, end.value.end_reason))
}

fn start_verb(session: &Session) -> &'static str {
    match session.life.start.as_ref().and_then(|start| start.value.reason) {
        Some(StartReason::Resume) => "resumed",
        Some(StartReason::Clear | StartReason::Switch) => "continued",
        _ => "started",
    }
}

/// A link to the session after an END, or before a START.
fn neighbour(session: &Session, what: EventType) -> Markup {
    let (arrow, id, name) = match what {
        EventType::End => (" → ", session.transitioned_to(), "next"),
        _ => (" ← ", session.transitioned_from(), "before"),
    };
    html! { @if let Some(id) = id { span.muted { (arrow) a href=(address(id)) { (name) } } } }
}
