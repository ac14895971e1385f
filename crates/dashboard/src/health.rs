//! The state of delivery: events that have not arrived, machines that have sent nothing lately, the outbox of this machine.

use maud::{Markup, html};

use super::controls;
use super::frame::{Deployment, Frame, Section, empty};
use super::local_facts::Outbox;
use super::panel::{figure, figures, panel};
use super::session::{holes, machine};
use super::sessions::link;
use super::sort::Sort;
use super::table::{PageOrder, Table, TableOrder, cell, heading};
use super::text::grouped;
use reader::{Health, Origin};

/// Sessions with gaps that are shown.
pub const GAPS: usize = 50;

/// `sort`: the order of one of its tables.
pub fn page(frame: &Frame, health: &Health, outbox: Option<&[Outbox]>, sort: Option<Sort>) -> Markup {
    let here = |sort: Sort| sort.address("/health");
    let order = PageOrder { asked: sort, address: &here };
    let backend = frame.deployment == Deployment::Backend;
    let content = html! {
        h1 { "Delivery health" }
        p.lead { "Whether everything that happened has arrived." }
        (totals(frame, health))
        @if let Some(outbox) = outbox { (panel("Outbox of this machine", sinks(frame, outbox, &order.of("outbox", ("name", false))))) }
        (panel("Sessions with missing events", gaps(frame, health, &order.of("gaps", ("received", true)))))
        @if backend { (panel("Machines", machines(frame, &health.origins, &order.of("machines", ("last", true))))) }
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

fn sinks(frame: &Frame, outbox: &[Outbox], order: &TableOrder<'_>) -> Markup {
    if outbox.is_empty() {
        let next = html! {
            "Everything is kept here. To send it to a backend, run "
            code { "codemie config set backend.url URL" } " and " code { "codemie config set backend.token TOKEN" } "."
        };
        return empty("No receiver is configured", &next);
    }
    let table = Table::default()
        .column(heading("", "Receiver").by("name"), outbox, |sink| {
            cell("name", html! { (sink.sink) span.sub.narrow { (state(frame, sink)) } }).value(&*sink.sink)
        })
        .column(heading("n", "Waiting").by("waiting"), outbox, |sink| {
            cell("n", grouped(sink.pending)).value(sink.pending)
        })
        .column(heading("n", "Refused").by("refused"), outbox, |sink| {
            cell("n", grouped(sink.dead)).value(sink.dead)
        })
        .column(heading("n wide", "Held back").by("heldBack"), outbox, |sink| {
            cell("n wide", grouped(sink.deferred)).value(sink.deferred)
        })
        .column(heading("wide", "Last delivered").by("delivered"), outbox, |sink| {
            cell("wide", last_delivered(frame, sink)).value_if(sink.last_delivered)
        })
        .column(heading("wide", "State").by("state"), outbox, |sink| {
            let state = state(frame, sink);
            cell("wide", &state).value(&*state.0)
        })
        .ordered(order);
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

fn gaps(frame: &Frame, health: &Health, order: &TableOrder<'_>) -> Markup {
    let rows = &health.gaps;
    if rows.is_empty() {
        return html! { p.muted { "None. Of every session that has ended, each event is here." } };
    }
    let received = frame.deployment == Deployment::Backend;
    let table = Table::default()
        .column(heading("", "Session").by("name"), rows, |session| {
            cell("name", link(session)).value(session.name())
        })
        .column(heading("wide", "Agent").by("agent"), rows, |session| {
            cell("wide", controls::agent(frame.agents, &session.life.agent)).value(&*session.life.agent)
        })
        .column(heading("wide", "User").by("user"), rows, |session| {
            let user = session.life.user.as_deref();
            cell("wide", user.unwrap_or("")).value_if(user)
        })
        .column(heading("", "Missing").by("missing"), rows, |session| {
            cell("", holes(&session.missing_seq())).value(session.missing_count())
        })
        .column_if(received, heading("", "Last received").by("received"), rows, |session| {
            cell("nowrap", frame.now.ago(session.received_at)).value(session.received_at)
        })
        .ordered(order);
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

fn machines(frame: &Frame, origins: &[Origin], order: &TableOrder<'_>) -> Markup {
    if origins.is_empty() {
        return empty("Nothing has arrived yet", &controls::how_to_begin(frame.deployment));
    }
    Table::default()
        .column(heading("", "Machine").by("name"), origins, |origin| {
            let unknown = || html! { span.muted { "unknown" } };
            let name = origin.machine.as_deref();
            cell("", name.map_or_else(unknown, machine)).value_if(name)
        })
        .column(heading("", "User").by("user"), origins, |origin| {
            let user = origin.user.as_deref();
            cell("", user.unwrap_or("")).value_if(user)
        })
        .column(heading("n", "Events").by("events"), origins, |origin| {
            cell("n", grouped(origin.events)).value(origin.events)
        })
        .column(heading("wide", "First received").by("first"), origins, |origin| {
            cell("wide nowrap", frame.now.ago(origin.first_received_at)).value(origin.first_received_at)
        })
        .column(heading("", "Last received").by("last"), origins, |origin| {
            cell("nowrap", frame.now.ago(origin.last_received_at)).value(origin.last_received_at)
        })
        .ordered(order)
        .scrolling()
}
