//! The state of delivery: which events have not arrived, which machines have sent nothing lately, what waits in the outbox of this machine.

use maud::{Markup, html};

use super::controls;
use super::frame::{Deployment, Frame, Section, empty};
use super::model::Outbox;
use super::session::holes;
use super::sessions::link;
use super::text::{grouped, short};
use crate::model::{Health, Origin, Session};

/// Sessions with gaps that are shown.
pub const GAPS: usize = 50;

pub fn page(frame: &Frame, health: &Health, outbox: Option<&[Outbox]>) -> Markup {
    let events: i64 = health.origins.iter().map(|origin| origin.events).sum();
    let last = health.origins.iter().map(|origin| origin.last_received_at).max();
    let content = html! {
        h1 { "Delivery health" }
        p.lead { "Whether everything that happened has arrived." }
        dl.totals {
            div { dt { "Sessions" } dd { (grouped(health.sessions)) } dd.hint { (grouped(health.active)) " running" } }
            div { dt { "Events" } dd { (grouped(events)) } dd.hint { "taken in, each once" } }
            div { dt { "With gaps" } dd { (grouped(health.gap_count)) } dd.hint { @if health.gap_count == 0 { "nothing is missing" } @else { "sessions" } } }
            @if frame.deployment == Deployment::Backend {
                div { dt { "Last received" } dd { @if let Some(last) = last { (frame.now.ago(last)) } @else { "never" } } dd.hint { "from any machine" } }
            }
        }
        @if let Some(outbox) = outbox { section.panel { h2 { "Outbox of this machine" } (sinks(frame, outbox)) } }
        section.panel { h2 { "Sessions with missing events" } (gaps(frame, health)) }
        @if frame.deployment == Deployment::Backend { section.panel { h2 { "Machines" } (machines(frame, &health.origins)) } }
    };
    frame.page(Some(Section::Health), "Delivery health", &content)
}

fn sinks(frame: &Frame, outbox: &[Outbox]) -> Markup {
    if outbox.is_empty() {
        let next = html! { "Everything is kept here. To send it to a backend, set " code { "CODEMIE_BACKEND_URL" } " and " code { "CODEMIE_BACKEND_TOKEN" } "." };
        return empty("No receiver is configured", &next);
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Receiver" } th.n { "Waiting" } th.n { "Refused" } th.n.wide { "Held back" } th.wide { "Last delivered" } th.wide { "State" } } }
            tbody {
                @for sink in outbox {
                    tr {
                        td.name { (sink.sink) span.sub.narrow { (state(frame, sink)) } }
                        td.n { (grouped(sink.pending)) }
                        td.n { (grouped(sink.dead)) }
                        td.n.wide { (grouped(sink.deferred)) }
                        td.wide { @if let Some(at) = sink.last_delivered { (frame.now.ago(at)) } @else { span.muted { "never" } } }
                        td.wide { (state(frame, sink)) }
                    }
                }
            }
        } }
        @if outbox.iter().any(|sink| sink.dead > 0) {
            p.muted.small { code { "codemie sync --status" } " tells why something was refused, " code { "codemie sync --retry-dead" } " sends it again." }
        }
    }
}

fn state(frame: &Frame, sink: &Outbox) -> Markup {
    html! {
        @if let Some(reason) = &sink.paused {
            span.pill.failed { "paused" } " " span.small { (reason) }
        } @else if let Some(at) = sink.retry_at.filter(|at| *at > frame.now.at) {
            span.pill.warn { "waiting" } " " span.small { "failed " (grouped(sink.failures)) " times, next try at " (frame.now.time_of_day(at)) @if let Some(trouble) = &sink.trouble { ": " (trouble) } }
        } @else if sink.pending > 0 {
            span.pill { "sending" }
        } @else if sink.dead > 0 {
            span.pill.warn { "refused some" }
        } @else if let Some(trouble) = &sink.trouble {
            span.pill.warn { "not all taken" } " " span.small { (trouble) }
        } @else {
            span.pill.active { "up to date" }
        }
    }
}

fn gaps(frame: &Frame, health: &Health) -> Markup {
    if health.gaps.is_empty() {
        return html! { p.muted { "None. Of every session that has ended, each event is here." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Session" } th.wide { "Agent" } th.wide { "User" } th { "Missing" } @if frame.deployment == Deployment::Backend { th { "Last received" } } } }
            tbody { @for session in &health.gaps { (gap(frame, session)) } }
        } }
        @if health.gap_count > i64::try_from(health.gaps.len()).unwrap_or(i64::MAX) {
            p.muted.small { "Those heard of last; " (grouped(health.gap_count)) " in all." }
        }
        p.muted.small { "A gap closes by itself when the sender comes back. One that stays was refused (" code { "codemie sync --status" } " on that machine tells why) or went to another database than this (" code { "codemie sync --backfill" } " there sends everything again)." }
    }
}

fn gap(frame: &Frame, session: &Session) -> Markup {
    html! {
        tr {
            td.name { (link(session)) }
            td.wide { (controls::agent(frame.agents, &session.life.agent)) }
            td.wide { (session.life.user.as_deref().unwrap_or("")) }
            td { (holes(&session.missing_seq())) }
            @if frame.deployment == Deployment::Backend { td.nowrap { (frame.now.ago(session.received_at)) } }
        }
    }
}

fn machines(frame: &Frame, origins: &[Origin]) -> Markup {
    if origins.is_empty() {
        return empty("Nothing has arrived yet", &controls::how_to_begin(frame.deployment));
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Machine" } th { "User" } th.n { "Events" } th.wide { "First received" } th { "Last received" } } }
            tbody {
                @for origin in origins {
                    tr {
                        td { @if let Some(machine) = &origin.machine { span.mono title=(machine) { (short(machine)) } } @else { span.muted { "unknown" } } }
                        td { (origin.user.as_deref().unwrap_or("")) }
                        td.n { (grouped(origin.events)) }
                        td.wide.nowrap { (frame.now.ago(origin.first_received_at)) }
                        td.nowrap { (frame.now.ago(origin.last_received_at)) }
                    }
                }
            }
        } }
    }
}
