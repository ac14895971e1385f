//! The steps of a session as a list: starts, turns with their calls and tools, ends.

use maud::{Markup, html};

use super::frame::Frame;
use super::model::SessionView;
use super::session::Amounts;
use super::sessions::foreign;
use super::text::{duration, grouped};
use super::turns::{self, TimelineStep, Turn};
use reader::Session;
use types::event::{End, Start};
use types::{EvidenceKind, StartReason, Status, Timestamp};

/// Steps shown at first; the others are one click away.
const STEPS: usize = 60;

pub fn list(frame: &Frame, view: &SessionView) -> Markup {
    let session = &view.detail.session;
    let mut before = None;
    let items: Vec<Markup> = turns::steps(&view.events)
        .iter()
        .map(|(at, step)| {
            let time = frame.now.time_after(*at, before.replace(*at));
            item(&time, *at, step, session)
        })
        .collect();
    let (shown, more) = items.split_at(items.len().min(STEPS));
    html! {
        ol.turns { @for item in shown { (item) } }
        @if !more.is_empty() {
            details {
                summary { (more.len()) " more" }
                ol.turns { @for item in more { (item) } }
            }
        }
        @if view.activity.is_some() { (cut_off(view.events.len())) }
    }
}

fn cut_off(events: usize) -> Markup {
    let events = grouped(i64::try_from(events).unwrap_or(i64::MAX));
    html! {
        p.muted.small {
            "Only the first " (events) " events are shown here; the numbers above count all of them."
        }
    }
}

fn item(time: &Markup, at: Timestamp, step: &TimelineStep<'_>, session: &Session) -> Markup {
    let time = html! { span.muted.small { (time) } };
    match step {
        TimelineStep::Start(start) => start_item(&time, start),
        TimelineStep::Bound(evidence) => bound_item(&time, *evidence),
        TimelineStep::End(end) => end_item(&time, end),
        TimelineStep::Turn(turn) => turn_item(&time, at, turn, session),
    }
}

fn start_item(time: &Markup, start: &Start) -> Markup {
    let what = match start.reason {
        Some(StartReason::Resume) => "Resumed",
        Some(StartReason::Clear) => "Began after /clear",
        Some(StartReason::Switch) => "Switched to",
        _ => "Started",
    };
    html! { li.life.begin { div.turn { b { (what) } (time) } } }
}

fn bound_item(time: &Markup, evidence: Option<EvidenceKind>) -> Markup {
    html! {
        li.life {
            div.turn {
                b { "Conversation known" } (time)
                @if let Some(evidence) = evidence { span.muted.small { "by " (evidence.in_words()) } }
            }
        }
    }
}

fn end_item(time: &Markup, end: &End) -> Markup {
    let word = format::status::word(end.status, end.end_reason);
    html! {
        li.life.failed[word == Status::Failed.as_str()] {
            div.turn {
                b { "Ended" } (time)
                span.muted.small {
                    (word)
                    @if let Some(code) = end.exit_code { ", exit code " (code) }
                }
            }
        }
    }
}

fn turn_item(time: &Markup, at: Timestamp, turn: &Turn<'_>, session: &Session) -> Markup {
    html! {
        li.failed[!turn.errors.is_empty()] {
            div.turn {
                b { (turn_name(turn, session)) }
                (time)
                @if turn.unanswered() {
                    span.muted.small { "no answer" }
                } @else {
                    (turn_numbers(at, turn))
                    span.end {
                        @if turn.sums.api_calls > 0 { (Amounts::of(session).spent(&turn.sums)) }
                    }
                }
            }
            @if !turn.tools.is_empty() || !turn.errors.is_empty() { (turn_tools(turn)) }
        }
    }
}

fn turn_name(turn: &Turn<'_>, session: &Session) -> String {
    match turn.number {
        Some(number) => format!("Prompt {number}"),
        None if foreign(session) => "Calls".to_owned(),
        None => "Without a prompt".to_owned(),
    }
}

fn turn_numbers(at: Timestamp, turn: &Turn<'_>) -> Markup {
    let sums = &turn.sums;
    let calls = format::counted(usize::try_from(sums.api_calls).unwrap_or(0), "call");
    html! {
        span.muted.small {
            (calls)
            @if turn.subagent_calls > 0 { ", " (turn.subagent_calls) " by sub-agents" }
            " · " (duration(turn.until.0 - at.0))
            @if sums.lines_added + sums.lines_removed > 0 {
                " · +" (grouped(sums.lines_added)) " −" (grouped(sums.lines_removed))
            }
        }
    }
}

fn turn_tools(turn: &Turn<'_>) -> Markup {
    html! {
        ul.tools {
            @for (name, tally) in &turn.tools {
                li.bad[tally.errors > 0] {
                    (name)
                    @if tally.calls > 1 { " ×" (tally.calls) }
                    @if tally.errors > 0 { " · " (tally.errors) " failed" }
                }
            }
            @for error in &turn.errors { li.bad { (error) } }
        }
    }
}
