//! The state of delivery: events that have not arrived, machines that have sent nothing lately, the outbox of this machine.

use maud::{Markup, html};

use super::controls;
use super::frame::{Deployment, Frame, Section, empty};
use super::local_facts::Outbox;
use super::panel::{figure, figures, panel};
use super::session::{holes, machine};
use super::sessions::link;
use super::table::{Table, cell, heading};
use super::text::grouped;
use crate::model::{Health, Origin};

/// Sessions with gaps that are shown.
pub const GAPS: usize = 50;

pub fn page(frame: &Frame, health: &Health, outbox: Option<&[Outbox]>) -> Markup {
    let backend = frame.deployment == Deployment::Backend;
    let content = html! {
        h1 { "Delivery health" }
        p.lead { "Whether everything that happened has arrived." }
        (totals(frame, health))
        @if let Some(outbox) = outbox { (panel("Outbox of this machine", sinks(frame, outbox))) }
        (panel("Sessions with missing events", gaps(frame, health)))
        @if backend { (panel("Machines", machines(frame, &health.origins))) }
    };
    frame.page(Some(Section::Health), "Delivery health", &content)
}

fn totals(frame: &Frame, health: &Health) -> Markup {
    let events: i64 = health.origins.iter().map(|origin| origin.events).sum();
    let missing = if health.gap_count == 0 { "nothing is missing" } else { "sessions" };
    let running = format!("{} running", grouped(health.active));
    let mut all = vec![
        figure("Sessions", grouped(health.sessions)).hint(running),
        figure("Events", grouped(events)).hint("taken in, each once"),
        figure("With gaps", grouped(health.gap_count)).hint(missing),
    ];
    if frame.deployment == Deployment::Backend {
        let last = health.origins.iter().map(|origin| origin.last_received_at).max();
        let last = html! { @if let Some(last) = last { (frame.now.ago(last)) } @else { "never" } };
        all.push(figure("Last received", last).hint("from any machine"));
    }
    figures(&all)
}

fn sinks(frame: &Frame, outbox: &[Outbox]) -> Markup {
    if outbox.is_empty() {
        let next = html! {
            "Everything is kept here. To send it to a backend, set " code { "CODEMIE_BACKEND_URL" }
            " and " code { "CODEMIE_BACKEND_TOKEN" } "."
        };
        return empty("No receiver is configured", &next);
    }
    let table = Table::default()
        .column(heading("", "Receiver"), outbox, |sink| {
            cell("name", html! { (sink.sink) span.sub.narrow { (state(frame, sink)) } })
        })
        .column(heading("n", "Waiting"), outbox, |sink| cell("n", grouped(sink.pending)))
        .column(heading("n", "Refused"), outbox, |sink| cell("n", grouped(sink.dead)))
        .column(heading("n wide", "Held back"), outbox, |sink| cell("n wide", grouped(sink.deferred)))
        .column(heading("wide", "Last delivered"), outbox, |sink| cell("wide", last_delivered(frame, sink)))
        .column(heading("wide", "State"), outbox, |sink| cell("wide", state(frame, sink)));
    html! {
        (table.scrolling())
        @if outbox.iter().any(|sink| sink.dead > 0) {
            p.muted.small {
                code { "codemie sync --status" } " tells why something was refused, "
                code { "codemie sync --retry-dead" } " sends it again."
            }
        }
    }
}

fn last_delivered(frame: &Frame, sink: &Outbox) -> Markup {
    html! {
        @if let Some(at) = sink.last_delivered { (frame.now.ago(at)) } @else { span.muted { "never" } }
    }
}

fn state(frame: &Frame, sink: &Outbox) -> Markup {
    html! {
        @if let Some(reason) = &sink.paused {
            span.pill.failed { "paused" } " " span.small { (reason) }
        } @else if let Some(at) = sink.retry_at.filter(|at| *at > frame.now.at) {
            span.pill.warn { "waiting" } " "
            span.small {
                "failed " (grouped(sink.failures)) " times, next try at " (frame.now.time_of_day(at))
                @if let Some(trouble) = &sink.trouble { ": " (trouble) }
            }
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
    let rows = &health.gaps;
    if rows.is_empty() {
        return html! { p.muted { "None. Of every session that has ended, each event is here." } };
    }
    let received = frame.deployment == Deployment::Backend;
    let table = Table::default()
        .column(heading("", "Session"), rows, |session| cell("name", link(session)))
        .column(heading("wide", "Agent"), rows, |session| {
            cell("wide", controls::agent(frame.agents, &session.life.agent))
        })
        .column(heading("wide", "User"), rows, |session| {
            cell("wide", session.life.user.as_deref().unwrap_or(""))
        })
        .column(heading("", "Missing"), rows, |session| cell("", holes(&session.missing_seq())))
        .column_if(received, heading("", "Last received"), rows, |session| {
            cell("nowrap", frame.now.ago(session.received_at))
        });
    html! {
        (table.scrolling())
        @if health.gap_count > i64::try_from(rows.len()).unwrap_or(i64::MAX) {
            p.muted.small { "The last received ones; " (grouped(health.gap_count)) " in all." }
        }
        p.muted.small {
            "A gap closes by itself when the sender comes back. One that stays was refused ("
            code { "codemie sync --status" } " on that machine tells why) or went to another database than this ("
            code { "codemie sync --backfill" } " there sends everything again)."
        }
    }
}

fn machines(frame: &Frame, origins: &[Origin]) -> Markup {
    if origins.is_empty() {
        return empty("Nothing has arrived yet", &controls::how_to_begin(frame.deployment));
    }
    Table::default()
        .column(heading("", "Machine"), origins, |origin| {
            let unknown = || html! { span.muted { "unknown" } };
            cell("", origin.machine.as_deref().map_or_else(unknown, machine))
        })
        .column(heading("", "User"), origins, |origin| cell("", origin.user.as_deref().unwrap_or("")))
        .column(heading("n", "Events"), origins, |origin| cell("n", grouped(origin.events)))
        .column(heading("wide", "First received"), origins, |origin| {
            cell("wide nowrap", frame.now.ago(origin.first_received_at))
        })
        .column(heading("", "Last received"), origins, |origin| {
            cell("nowrap", frame.now.ago(origin.last_received_at))
        })
        .scrolling()
}
