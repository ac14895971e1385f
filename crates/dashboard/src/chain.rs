//! The chain of a session: the sessions before and after it, linked by `/clear` or a switch.

use maud::{Markup, html};

use super::frame::Frame;
use super::panel::panel_with;
use super::session::Amounts;
use super::sessions::address;
use super::text::duration;
use reader::Numbers;
use reader::{Session, SessionDetail};
use types::{EndReason, StartReason, Status};

/// Links of a chain that are shown around the session; a longer one is cut on both sides.
const AROUND: usize = 5;

pub fn panel(frame: &Frame, detail: &SessionDetail, amounts: Amounts) -> Markup {
    let mut whole = Numbers::default();
    for session in &detail.chain {
        whole.add(&session.numbers);
    }
    let remark = format!("{} sessions, {} in all", detail.chain.len(), amounts.spent(&whole));
    panel_with("Chain", remark, links(frame, detail, amounts))
}

/// `2 of 3`: which one of its chain it is.
pub fn position(detail: &SessionDetail) -> Option<String> {
    let at = detail.chain.iter().position(|session| session.id == detail.session.id)?;
    (detail.chain.len() > 1).then(|| format!("{} of {}", at + 1, detail.chain.len()))
}

fn links(
    frame: &Frame,
    SessionDetail { session: here, chain, .. }: &SessionDetail,
    amounts: Amounts,
) -> Markup {
    let at = chain.iter().position(|session| session.id == here.id).unwrap_or(0);
    let (from, to) = (at.saturating_sub(AROUND), chain.len().min(at + AROUND + 1));
    html! {
        ol.chain {
            @if from > 0 {
                li {
                    (cut_off(&chain[0], &format!("{from} before"), "to the first"))
                    (transition(&chain[from - 1], &chain[from]))
                }
            }
            @for (n, session) in chain.iter().enumerate().take(to).skip(from) {
                li {
                    (node(frame, session, session.id == here.id, amounts))
                    @if let Some(next) = chain.get(n + 1) { (transition(session, next)) }
                }
            }
            @if to < chain.len() {
                li { (cut_off(&chain[chain.len() - 1], &format!("{} after", chain.len() - to), "to the last")) }
            }
        }
    }
}

/// In place of the sessions that are left out: a link to the one at the end.
fn cut_off(end: &Session, number: &str, text: &str) -> Markup {
    html! { a.node href=(address(&end.id)) { b { (number) } span.muted.small { (text) } } }
}

fn node(frame: &Frame, session: &Session, here: bool, amounts: Amounts) -> Markup {
    let inside = html! {
        b { (session.name()) }
        (frame.title(session, "small"))
        span.muted.small {
            (amounts.spent(&session.numbers)) " · " (duration(session.duration_ms(frame.now.at)))
            @if session.status() == Status::Active { " · running" }
        }
    };
    html! {
        @if here {
            span.node.here aria-current="true" { (inside) }
        } @else {
            a.node href=(address(&session.id)) { (inside) }
        }
    }
}

/// What led from one session to the next. Each describes its last opening only, so either may know it.
fn transition(session: &Session, next: &Session) -> Markup {
    let reason = next.life.start.as_ref().and_then(|start| start.value.reason);
    let word = match (reason, session.ending().and_then(|end| end.value.end_reason)) {
        (Some(StartReason::Clear), _) | (_, Some(EndReason::Clear)) => "/clear",
        (Some(StartReason::Switch), _) | (_, Some(EndReason::Switch)) => "switch",
        _ => "",
    };
    html! {
        span.link {
            i { (word) } span.stem {}
            svg.arrow width="9" height="10" aria-hidden="true" { path d="M2 1L7 5L2 9" {} }
        }
    }
}
