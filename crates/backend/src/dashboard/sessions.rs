//! The table of sessions.

use maud::{Markup, html};

use super::controls;
use super::filter::{Filter, Sort};
use super::frame::{Deployment, Frame, Section, empty};
use super::model::Listing;
use super::text::{self, count, duration, grouped};
use crate::model::{Counted, Facets, Session, SessionPage};
use wire::Status;
use wire::{DEMO, FOREIGN_TAG};

const PATH: &str = "/sessions";

/// Sessions are counted no further: nobody pages through more.
pub const COUNTED: i64 = 10_000;

pub fn page(frame: &Frame, filter: &Filter, view: &Listing) -> Markup {
    let (facets, listing) = (&view.facets, &view.page);
    let states: Vec<String> = Status::ALL.iter().map(|status| status.as_str().to_owned()).collect();
    let own_fields = html! {
        label.grow { "Search" input type="search" name="q" value=[filter.words.as_deref()] placeholder="name, id, project, branch"; }
        @if filter.sort == Sort::Cost { input type="hidden" name="sort" value="cost"; }
        (controls::select("status", "Status", &states, filter.status.map(Status::as_str)))
        label.tag { "Tag" input type="text" name="tag" value=[filter.tag.as_deref()] placeholder="all" spellcheck="false"; }
    };
    let content = html! {
        div.head {
            h1 { "Sessions" " " @if let Some(total) = view.total { span.aside { (counted(total)) } } (controls::utc()) }
            (controls::ranges(filter, PATH))
        }
        (controls::form(filter, facets, PATH, &own_fields))
        @if view.demo_left_out { (controls::demo_left_out(filter, PATH)) }
        div.panel {
            @if listing.sessions.is_empty() {
                (nothing(frame, filter, facets))
            } @else {
                div.scroll { (table(frame, filter, view)) }
            }
            (pages(filter, listing))
        }
    };
    frame.page(Some(Section::Sessions), "Sessions", &content)
}

/// `121 · $34.45`. Of more than are counted nobody knows the cost.
fn counted(total: Counted) -> String {
    match total.sessions {
        COUNTED.. => format!("{} or more", grouped(COUNTED)),
        0 => "0".to_owned(),
        number => {
            format!("{} · {}", grouped(number), text::priced(total.cost_usd, total.unpriced_calls))
        }
    }
}

/// The ids of those whose last opening tells of no transition; apart, those that had another before it.
pub fn unlinked(sessions: &[Session]) -> (Vec<String>, Vec<String>) {
    let unlinked = || sessions.iter().filter(|session| !chained(session));
    let ids = |session: &Session| session.id.clone();
    (unlinked().map(ids).collect(), unlinked().filter(|session| session.life.starts > 1).map(ids).collect())
}

fn nothing(frame: &Frame, filter: &Filter, facets: &Facets) -> Markup {
    if filter.after.is_some() {
        return empty("There are no more", &html! { "These were all." });
    }
    if facets.agents.is_empty() {
        return empty("No sessions yet", &controls::how_to_begin(frame.deployment));
    }
    empty(
        "No sessions match",
        &html! { "Take a filter away, or look at " a href={ (PATH) "?range=all" } { "all sessions" } "." },
    )
}

fn table(frame: &Frame, filter: &Filter, view: &Listing) -> Markup {
    let sessions = &view.page.sessions;
    // On somebody's own machine everything is theirs.
    let users =
        frame.deployment == Deployment::Backend || sessions.iter().any(|session| session.life.user.is_some());
    html! {
        table {
            thead { tr {
                th { "Name" } th { "Agent" } th.wide { "Project" } @if users { th.wide { "User" } }
                (sortable(filter, Sort::Time, "Started", "wide"))
                th.n.wide { "Duration" } th.n.wide { "Tokens" }
                (sortable(filter, Sort::Cost, "Cost", "n"))
                th.wide { "Status" }
            } }
            tbody {
                @for session in sessions {
                    tr {
                        td.name {
                            (link(session))
                            @if chained(session) || view.chained.contains(&session.id) { (chain_mark("chain")) }
                            (marks(session)) (tags(filter, session))
                            span.sub.narrow { (frame.now.ago(session.started_at())) " · " (controls::status(session)) }
                        }
                        td { (controls::agent(frame.agents, &session.life.agent)) }
                        td.wide.place { (line("", session.project().unwrap_or(""))) @if let Some(branch) = session.branch() { (line("sub", branch)) } }
                        @if users { td.wide.place { (line("", session.life.user.as_deref().unwrap_or(""))) } }
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
    text::cost(session.numbers.dollars(), session.numbers.unpriced_calls)
}

/// A conversation that never ran through codemie, told from the agent's file: its calls are known, and nothing else of it.
pub fn foreign(session: &Session) -> bool {
    session.tags().iter().any(|tag| &**tag == FOREIGN_TAG)
        && session.numbers.prompts + session.numbers.tool_calls == 0
}

fn tags(filter: &Filter, session: &Session) -> Markup {
    html! {
        @for tag in session.tags() {
            " " a.pill.tag href=(filter.with(|f| f.tag = Some(tag.to_string())).address(PATH)) title="Only sessions with this tag" { (&**tag) }
        }
    }
}

/// Text that stays on one line; text that does not fit is in its title.
fn line(class: &str, text: &str) -> Markup {
    html! { span class={ "line " (class) } title=[(text.len() > 16).then_some(text)] { (text) } }
}

/// Whether its last opening came of another session or went on in one.
pub fn chained(session: &Session) -> bool {
    session.transitioned_from().is_some() || session.transitioned_to().is_some()
}

pub fn chain_mark(said: &str) -> Markup {
    html! { " " span.pill title="One of several sessions, linked by /clear or a switch" { (said) } }
}

/// What else is to be known of a session before one looks at it.
pub fn marks(session: &Session) -> Markup {
    html! {
        @if session.life.agent == DEMO { " " span.pill.demo { "demo" } }
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
