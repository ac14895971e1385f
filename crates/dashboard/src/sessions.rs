//! The table of sessions.

use maud::{Markup, html};

use super::controls;
use super::filter::PageFilter;
use super::frame::{Deployment, Frame, HistoryView, Section, empty};
use super::model::Listing;
use super::sort::{SESSIONS, Sort};
use super::table::{PageOrder, Table, cell, heading};
use super::text::{self, count, duration, grouped};
use reader::{Counted, Cursor, Facets, Session, SessionPage};
use types::Status;
use types::{DEMO, FOREIGN_TAG};

const PATH: &str = "/sessions";

/// Sessions are counted no further: nobody pages through more.
pub const COUNTED: i64 = 10_000;

pub fn page(frame: &Frame, filter: &PageFilter, view: &Listing) -> Markup {
    let (facets, listing) = (&view.facets, &view.page);
    let content = html! {
        div.head {
            h1 {
                "Sessions" " "
                @if let Some(total) = view.total { span.aside { (counted(total)) } }
                (controls::zone(frame))
            }
            (controls::history(frame, filter, PATH))
            (controls::ranges(filter, PATH))
        }
        (controls::form(filter, facets, PATH, &own_fields(frame, filter)))
        @if view.demo_left_out { (controls::demo_left_out(filter, PATH)) }
        div.panel {
            @if let HistoryView::Awaited(state) = &frame.history {
                (controls::awaited(state))
            } @else if listing.sessions.is_empty() {
                (nothing(frame, filter, facets))
            } @else {
                (table(frame, filter, view).scrolling())
            }
            (pages(filter, listing))
            @if !listing.sessions.is_empty() { p.small { a href=(filter.address("/csv/sessions")) { "All of these as CSV" } } }
        }
    };
    frame.page(Some(Section::Sessions), "Sessions", &content)
}

/// The fields of the form that this page alone has.
fn own_fields(frame: &Frame, filter: &PageFilter) -> Markup {
    let states: Vec<String> = Status::ALL.iter().map(|status| status.as_str().to_owned()).collect();
    let (words, tag) = (filter.search(), filter.chosen.tag.as_deref());
    html! {
        label.grow {
            "Search"
            input type="search" name="q" value=[words] placeholder=(if frame.deployment == Deployment::Local { "title, name, id, project, branch" } else { "name, id, project, branch" });
        }
        (controls::select("status", "Status", &states, filter.chosen.status.map(Status::as_str)))
        label.tag {
            "Tag"
            input type="text" name="tag" value=[tag] placeholder="all" spellcheck="false";
        }
        label.tag {
            "Group"
            input type="text" name="group" value=[filter.chosen.group.as_deref()] placeholder="all" spellcheck="false";
        }
    }
}

/// `121 · $34.45`. Beyond the limit of counting the cost is not known.
fn counted(total: Counted) -> String {
    match total.sessions {
        COUNTED.. => format!("{} or more", grouped(COUNTED)),
        0 => "0".to_owned(),
        number => {
            format!("{} · {}", grouped(number), text::priced(total.cost_usd, total.unpriced_calls))
        }
    }
}

/// The ids of the sessions whose last opening reports no transition, and of those among them that were opened before.
pub fn unlinked(sessions: &[Session]) -> (Vec<String>, Vec<String>) {
    let unlinked = || sessions.iter().filter(|session| !chained(session));
    let ids = |session: &Session| session.id.clone();
    (unlinked().map(ids).collect(), unlinked().filter(|session| session.life.starts > 1).map(ids).collect())
}

fn nothing(frame: &Frame, filter: &PageFilter, facets: &Facets) -> Markup {
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

fn table(frame: &Frame, filter: &PageFilter, view: &Listing) -> Table {
    let rows = &view.page.sessions;
    // On a user's own machine everything is theirs.
    let users = frame.deployment == Deployment::Backend || rows.iter().any(|row| row.life.user.is_some());
    let address = |sort: Sort| filter.with(|f| f.sort = Some(sort)).address(PATH);
    let order = PageOrder { asked: filter.sort, address: &address }.of(SESSIONS, ("time", true));
    Table::default()
        .column(heading("", "Name").by("name"), rows, |session| {
            cell("name", name(frame, filter, view, session))
        })
        .column(heading("", "Agent").by("agent"), rows, |session| {
            cell("", controls::agent(frame.agents, &session.life.agent))
        })
        .column(heading("wide", "Project").by("project"), rows, |session| {
            cell("wide place", project(session))
        })
        .column_if(users, heading("wide", "User").by("user"), rows, |session| {
            cell("wide place", line("", session.life.user.as_deref().unwrap_or("")))
        })
        .column(heading("wide", "Started").by("time"), rows, |session| {
            cell("wide nowrap", frame.now.ago(session.started_at()))
        })
        .column(heading("n wide", "Duration").by("duration"), rows, |session| {
            cell("n wide", duration(session.duration_ms(frame.now.at)))
        })
        .column(heading("n wide", "Tokens").by("tokens"), rows, |session| {
            cell("n wide", count(session.numbers.tokens()))
        })
        .column(heading("n", "Cost").by("cost"), rows, |session| cell("n", cost(session)))
        .column(heading("wide", "Status").by("status"), rows, |session| {
            cell("wide", controls::status(session))
        })
        .linked(&order)
}

/// The name with its marks and tags; on a narrow screen also the columns that have no space there.
fn name(frame: &Frame, filter: &PageFilter, view: &Listing, session: &Session) -> Markup {
    html! {
        (link(session))
        @if chained(session) || view.chained.contains(&session.id) { (chain_mark("chain")) }
        (marks(session)) (tags(filter, session))
        (frame.title(session, "sub"))
        span.sub.narrow { (frame.now.ago(session.started_at())) " · " (controls::status(session)) }
    }
}

fn project(session: &Session) -> Markup {
    html! {
        (line("", session.project().unwrap_or("")))
        @if let Some(branch) = session.branch() { (line("sub", branch)) }
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

/// A conversation that never ran through codemie, read from the agent's file: its calls are known, and nothing else.
pub fn foreign(session: &Session) -> bool {
    session.tags().iter().any(|tag| &**tag == FOREIGN_TAG)
        && session.numbers.prompts + session.numbers.tool_calls == 0
}

/// A tag as people read it.
pub fn tag_text(tag: &str) -> &str {
    if tag == FOREIGN_TAG { "not wrapped" } else { tag }
}

fn tags(filter: &PageFilter, session: &Session) -> Markup {
    html! {
        @for tag in session.tags() {
            @let only = filter.with(|f| f.chosen.tag = Some(tag.to_string())).address(PATH);
            " " a.pill.tag href=(only) title="Only sessions with this tag" { (tag_text(tag)) }
        }
    }
}

/// Text that stays on one line; text that does not fit is in its title.
fn line(class: &str, text: &str) -> Markup {
    html! { span class={ "line " (class) } title=[(text.len() > 16).then_some(text)] { (text) } }
}

/// Whether its last opening followed another session, or another one followed it.
pub fn chained(session: &Session) -> bool {
    session.transitioned_from().is_some() || session.transitioned_to().is_some()
}

pub fn chain_mark(text: &str) -> Markup {
    html! { " " span.pill title="One of several sessions, linked by /clear or a switch" { (text) } }
}

/// Marks of a session that change how its numbers are read.
pub fn marks(session: &Session) -> Markup {
    html! {
        @if session.life.agent == DEMO { " " span.pill.demo { "demo" } }
        @if session.missing_count() > 0 {
            " " span.pill.warn title="Not all of its events have arrived" { "incomplete" }
        }
    }
}

fn pages(filter: &PageFilter, listing: &SessionPage) -> Markup {
    let first = filter.with(|_| ()).address(PATH);
    let next = |cursor: &Cursor| filter.with(|f| f.after = Some(cursor.to_string())).address(PATH);
    html! {
        @if filter.after.is_some() || listing.next.is_some() {
            nav.pages aria-label="Pages" {
                @if filter.after.is_some() {
                    a href=(first) rel="first" { "← First page" }
                } @else {
                    span {}
                }
                @if let Some(cursor) = &listing.next {
                    a href=(next(cursor)) rel="next" { "Next page →" }
                }
            }
        }
    }
}
