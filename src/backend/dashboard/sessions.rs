//! The table of sessions.

use maud::{Markup, html};

use super::controls;
use super::filter::{Filter, Sort};
use super::frame::{Frame, Room, empty};
use super::text::{self, count, duration, grouped};
use crate::agent::Agent;
use crate::backend::model::{Facets, Session, SessionPage};
use crate::demo::Demo;
use crate::forward::foreign::TAG;
use crate::money::PicoDollars;
use crate::session::state::Status;

const PATH: &str = "/sessions";

/// Sessions are counted no further: nobody pages through more.
pub const COUNTED: i64 = 10_000;

/// `total` is left out where counting would take longer than the page itself.
pub fn page(
    frame: &Frame,
    filter: &Filter,
    facets: &Facets,
    listing: &SessionPage,
    total: Option<i64>,
) -> Markup {
    let total = total.map(|total| match total {
        COUNTED.. => format!("{} or more", grouped(COUNTED)),
        _ => grouped(total),
    });
    let states: Vec<String> = Status::ALL.iter().map(|status| status.as_str().to_owned()).collect();
    let own_fields = html! {
        label.grow { "Search" input type="search" name="q" value=[filter.words.as_deref()] placeholder="name, id, project, branch"; }
        @if filter.sort == Sort::Cost { input type="hidden" name="sort" value="cost"; }
        (controls::select("status", "Status", &states, filter.status.map(Status::as_str)))
        label.tag { "Tag" input type="text" name="tag" value=[filter.tag.as_deref()] placeholder="all" spellcheck="false"; }
    };
    let content = html! {
        div.head {
            h1 { "Sessions" " " @if let Some(total) = total { span.aside { (total) } } (controls::utc()) }
            (controls::ranges(filter, PATH))
        }
        (controls::form(filter, facets, PATH, &own_fields))
        div.panel {
            @if listing.sessions.is_empty() {
                (nothing(frame, filter, facets))
            } @else {
                div.scroll { (table(frame, filter, &listing.sessions)) }
            }
            (pages(filter, listing))
        }
    };
    frame.page(Some(Room::Sessions), "Sessions", &content)
}

fn nothing(frame: &Frame, filter: &Filter, facets: &Facets) -> Markup {
    if filter.after.is_some() {
        return empty("There are no more", &html! { "These were all." });
    }
    if facets.agents.is_empty() {
        return empty("No sessions yet", &controls::how_to_begin(frame.place));
    }
    empty(
        "No sessions match",
        &html! { "Take a filter away, or look at " a href={ (PATH) "?range=all" } { "all sessions" } "." },
    )
}

fn table(frame: &Frame, filter: &Filter, sessions: &[Session]) -> Markup {
    html! {
        table {
            thead { tr {
                th { "Name" } th { "Agent" } th.wide { "Project" } th.wide { "User" }
                (sortable(filter, Sort::Time, "Started", "wide"))
                th.n.wide { "Duration" } th.n.wide { "Tokens" }
                (sortable(filter, Sort::Cost, "Cost", "n"))
                th.wide { "Status" }
            } }
            tbody {
                @for session in sessions {
                    tr {
                        td.name {
                            (link(session)) (marks(session)) (tags(filter, session))
                            span.sub.narrow { (frame.now.ago(session.started_at())) " · " (controls::status(session)) }
                        }
                        td { (controls::agent(&session.life.agent)) }
                        td.wide { span.clamp { (session.project().unwrap_or("")) } @if let Some(branch) = session.branch() { span.sub.clamp { (branch) } } }
                        td.wide { span.clamp { (session.life.user.as_deref().unwrap_or("")) } }
                        td.wide.nowrap { (frame.now.ago(session.started_at())) }
                        td.n.wide { (duration(session.duration_ms(frame.now.at))) }
                        td.n.wide { (count(session.numbers.tokens())) }
                        td.n { (cost(session)) }
                        td.wide { (controls::status(session)) }
                    }
                }
            }
        }
    }
}

pub fn link(session: &Session) -> Markup {
    html! { a href=(address(&session.id)) { (session.name()) } }
}

pub fn address(id: &str) -> String {
    format!("{PATH}/{}", super::filter::encoded(id))
}

/// The cost, with a mark where calls without a price are not in it.
pub fn cost(session: &Session) -> Markup {
    text::cost(PicoDollars(session.numbers.cost).dollars(), session.numbers.unpriced_calls)
}

/// A conversation that never ran through codemie, told from the agent's file: its calls are known, and nothing else of it.
pub fn foreign(session: &Session) -> bool {
    session.tags().iter().any(|tag| &**tag == TAG)
        && session.numbers.prompts + session.numbers.tool_calls == 0
}

fn tags(filter: &Filter, session: &Session) -> Markup {
    html! {
        @for tag in session.tags() {
            " " a.pill.tag href=(filter.with(|f| f.tag = Some(tag.to_string())).address(PATH)) title="Only sessions with this tag" { (&**tag) }
        }
    }
}

/// What else is to be known of a session before one looks at it.
pub fn marks(session: &Session) -> Markup {
    let chained = session.transitioned_from().is_some() || session.transitioned_to().is_some();
    html! {
        @if chained { " " span.pill title="One of several sessions, linked by /clear or a switch" { "chain" } }
        @if session.life.agent == Demo.name() { " " span.pill.demo { "demo" } }
        @if session.missing_count() > 0 { " " span.pill.warn title="Not all of its events have arrived" { "incomplete" } }
    }
}

fn sortable(filter: &Filter, sort: Sort, name: &str, class: &str) -> Markup {
    let here = filter.sort == sort;
    html! {
        th class=(class) aria-sort=[here.then_some("descending")] {
            a href=(filter.with(|f| f.sort = sort).address(PATH)) { (name) @if here { " ↓" } }
        }
    }
}

fn pages(filter: &Filter, listing: &SessionPage) -> Markup {
    html! {
        @if filter.after.is_some() || listing.next.is_some() {
            nav.pages aria-label="Pages" {
                @if filter.after.is_some() {
                    a href=(filter.with(|_| ()).address(PATH)) rel="first" { "← First page" }
                } @else {
                    span {}
                }
                @if let Some(next) = &listing.next {
                    a href=(filter.with(|f| f.after = Some(next.to_string())).address(PATH)) rel="next" { "Next page →" }
                }
            }
        }
    }
}
