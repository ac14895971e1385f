//! Controls of several pages: the filter as a form, the ranges, a session's status and agent.

use maud::{Markup, html};

use super::agents::KnownAgents;
use super::filter::{PageFilter, RANGES, Range, Stack};
use super::frame::{Deployment, Frame, HistoryView, empty};
use super::local_facts::HistoryState;
use super::sort::Sort;
use reader::{Facets, Session};

pub fn agent(agents: KnownAgents, name: &str) -> Markup {
    let title = Some(name).filter(|name| name.len() > 20);
    html! { span class={ "agent dot" (agents.colour(name)) } title=[title] { (name) } }
}

pub fn status(session: &Session) -> Markup {
    let reason = session.ending().and_then(|end| end.value.end_reason);
    let word = format::status::word(session.status(), reason);
    html! { span class={ "pill " (word) } { (word) } }
}

/// Beside a heading over days: in whose time they begin.
pub fn zone(frame: &Frame) -> Markup {
    html! { " " span.aside { "days in " (frame.zone_name) } }
}

pub fn ranges(filter: &PageFilter, path: &str) -> Markup {
    html! {
        nav.ranges aria-label="Days" {
            @for (range, name) in RANGES {
                @let current = (filter.range == range).then_some("true");
                a href=(filter.with(|f| f.range = range).address(path)) aria-current=[current] { (name) }
            }
        }
    }
}

/// The filter as a form whose address is the page with the filter; `more` are the fields of the page's own.
pub fn form(filter: &PageFilter, choices: &Facets, path: &str, more: &Markup) -> Markup {
    let parts = filter.parts();
    html! {
        input.fold type="checkbox" id="filters" aria-label="Show the filters";
        label.fold for="filters" { "Filters" @if !parts.is_empty() { " (" (parts.len()) ")" } }
        form.filters method="get" action=(path) {
            @if let Some(range) = filter.range_word() { input type="hidden" name="range" value=(range); }
            (more)
            (select("agent", "Agent", &choices.agents, filter.chosen.agent.as_deref()))
            (select("project", "Project", &choices.projects, filter.chosen.project.as_deref()))
            (select("model", "Model", &choices.models, filter.chosen.model.as_deref()))
            @if choices.users.len() > 1 || filter.chosen.user.is_some() {
                (select("user", "User", &choices.users, filter.chosen.user.as_deref()))
            }
            label.tag {
                "Time zone"
                input type="text" name="zone" value=[filter.zone.as_deref()] placeholder="default" spellcheck="false";
            }
            @if filter.stack != Stack::Agent { input type="hidden" name="stack" value=(filter.stack.name()); }
            @if filter.history { input type="hidden" name="history" value="all"; }
            @if filter.without_cache { input type="hidden" name="cache" value="without"; }
            @for (name, value) in Sort::parameters(filter.sort).iter().filter(|(_, value)| !value.is_empty()) {
                input type="hidden" name=(name) value=(value);
            }
            (dates(filter))
        }
        @if !parts.is_empty() { (chips(&parts, path)) }
    }
}

/// The fields for the first and the last day.
fn dates(filter: &PageFilter) -> Markup {
    let (from, to) = match filter.range {
        Range::Between(from, to) => (from, to),
        _ => (None, None),
    };
    html! {
        div.span {
            label { "From" input type="date" name="from" value=[from]; }
            label { "To" input type="date" name="to" value=[to]; }
            button type="submit" { "Apply" }
        }
    }
}

/// The parts of the filter that are set; each leads to the page without it.
fn chips(parts: &[(String, PageFilter)], path: &str) -> Markup {
    html! {
        ul.chips aria-label="Filters" {
            @for (part, without) in parts {
                li { a href=(without.address(path)) title="Take this filter away" { (part) " ×" } }
            }
            @if parts.len() > 1 {
                li { a href=(path) { "clear all" } }
            }
        }
    }
}

pub fn select(name: &str, label: &str, choices: &[String], chosen: Option<&str>) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { "all" }
                @for choice in choices {
                    option value=(choice) selected[chosen == Some(choice)] { (choice) }
                }
                // A value in the address stays chosen, even if no session has it.
                @if let Some(chosen) = chosen.filter(|chosen| !choices.iter().any(|choice| choice == chosen)) {
                    option value=(chosen) selected { (chosen) }
                }
            }
        }
    }
}

/// Where the demonstration's sessions are left out.
pub fn demo_left_out(filter: &PageFilter, path: &str) -> Markup {
    let shown = filter.only_demo().address(path);
    html! {
        p.muted.small { "The demonstration's sessions are left out. " a href=(shown) { "Show them" } }
    }
}

/// The choice between what ran through codemie and everything on this machine, and how far that has been read.
pub fn history(frame: &Frame, filter: &PageFilter, path: &str) -> Markup {
    if frame.history == HistoryView::None {
        return html! {};
    }
    let current = |all: bool| (filter.history == all).then_some("true");
    let choice = |all: bool| filter.with(|f| f.history = all).address(path);
    html! {
        div.history {
            nav.ranges aria-label="Which sessions" {
                a href=(choice(false)) aria-current=[current(false)] title="Sessions that ran through codemie" { "Wrapped" }
                a href=(choice(true)) aria-current=[current(true)] title="Also conversations that never ran through codemie" { "All history" }
            }
            @match &frame.history {
                HistoryView::Shown(HistoryState::Reading) => span.muted.small role="status" { "reading history …" },
                HistoryView::Shown(HistoryState::Failed(why)) | HistoryView::Awaited(HistoryState::Failed(why)) => {
                    span.muted.small role="status" { "history cannot be read: " (why) }
                },
                _ => {},
            }
        }
    }
}

/// In place of a page whose numbers are not known yet.
pub fn awaited(state: &HistoryState) -> Markup {
    match state {
        HistoryState::Failed(why) => empty("The history cannot be read", &html! { (why) }),
        HistoryState::Reading | HistoryState::UpToDate => empty(
            "Reading history …",
            &html! {
                "The agents' conversations on this machine are read for the first time. This page appears by itself when they are."
            },
        ),
    }
}

/// What to do where there is nothing at all.
pub fn how_to_begin(deployment: Deployment) -> Markup {
    match deployment {
        Deployment::Local => html! {
            "Run " code { "codemie demo" } " to see it at work, or start an agent through codemie: "
            code { "codemie claude" } ". Its session appears here at once. What agents did before is under "
            em { "All history" } "."
        },
        Deployment::Backend => html! {
            "On a developer's machine run " code { "codemie config set backend.url" } " with this address and "
            code { "codemie config set backend.token" } " with a token that "
            code { "codemie backend token create --role ingest" }
            " prints. The next session appears here at once."
        },
    }
}
