//! The frame of every page: head, navigation, footer.

use maud::{DOCTYPE, Markup, html};

use super::agents::KnownAgents;
use super::assets::{ICON, SCRIPT, STYLE};
use super::filter::{BadParameter, PageFilter};
use super::local_facts::{HistoryState, Titles};
use super::text::Now;
use reader::Session;

/// Where the dashboard runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// At a team's backend: a person logs in and out.
    Backend,
    /// On this user's own store, for as long as the command runs.
    Local,
}

/// An entry of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Overview,
    Sessions,
    Live,
    Health,
}

const SECTIONS: [(Section, &str, &str); 4] = [
    (Section::Overview, "/", "Overview"),
    (Section::Sessions, "/sessions", "Sessions"),
    (Section::Live, "/live", "Live"),
    (Section::Health, "/health", "Health"),
];

/// When and where a page is shown, the agents it knows, and the titles of its sessions.
#[derive(Clone, Debug)]
pub struct Frame {
    pub now: Now,
    /// As people call the zone.
    pub zone_name: String,
    pub deployment: Deployment,
    pub agents: KnownAgents,
    /// Of the sessions on the page, on a user's own machine.
    pub titles: Titles,
    pub history: HistoryView,
}

/// What a page shows of conversations that never ran through codemie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HistoryView {
    /// Nobody looks for them: at a backend.
    #[default]
    None,
    /// They are left out, and can be asked for.
    Offered,
    /// They are in all numbers of the page.
    Shown(HistoryState),
    /// They were asked for and are not known yet.
    Awaited(HistoryState),
}

impl HistoryView {
    pub fn is_shown(&self) -> bool {
        matches!(self, Self::Shown(_))
    }
}

impl Frame {
    /// Shows days and times in the zone that the filter names, if it names one.
    pub fn enter_zone(&mut self, filter: &PageFilter) -> Result<(), BadParameter> {
        if let Some(name) = &filter.zone {
            self.now.zone = os::zone::of_name(name).ok_or(BadParameter::ZONE)?;
            self.zone_name.clone_from(name);
        }
        Ok(())
    }

    /// What is on these pages and what is not.
    fn promise(&self) -> &'static str {
        match self.deployment {
            Deployment::Backend => "numbers only, no prompts and no code",
            Deployment::Local => "titles stay on this machine; what is sent is numbers",
        }
    }

    /// What a session is about, where that is known, in an element of this class.
    pub fn title(&self, session: &Session, class: &str) -> Markup {
        html! { @if let Some(title) = self.titles.of(session) { " " span class={ "title " (class) } { (title) } } }
    }

    pub fn page(&self, section: Option<Section>, title: &str, content: &Markup) -> Markup {
        let header = html! {
            header.top { div {
                (brand())
                nav.main aria-label="Pages" {
                    @for (other, address, name) in SECTIONS {
                        a href=(address) aria-current=[(section == Some(other)).then_some("page")] { (name) }
                    }
                }
                div.end {
                    @if self.deployment == Deployment::Local {
                        span.pill { "this machine" }
                    } @else {
                        form method="post" action="/logout" { button.quiet type="submit" { "Log out" } }
                    }
                }
            } }
        };
        let footer = html! {
            footer {
                "codemie " (env!("CARGO_PKG_VERSION")) " · " (self.promise()) " · costs are at list price · made "
                (self.now.ago(self.now.at))
            }
        };
        let again = self.history == HistoryView::Awaited(HistoryState::Reading);
        document(title, &header, content, &footer, again)
    }
}

fn brand() -> Markup {
    html! {
        a.brand href="/" {
            svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true" {
                rect.m1 x="2" y="10" width="4" height="8" rx="1.2" {}
                rect.m2 x="8" y="5" width="4" height="13" rx="1.2" {}
                rect.m3 x="14" y="2" width="4" height="16" rx="1.2" {}
            }
            "codemie"
        }
    }
}

/// A page for a person who is not logged in; it reveals nothing of the dashboard.
pub fn outside_page(title: &str, content: &Markup) -> Markup {
    document(title, &html! { header.top { div { (brand()) } } }, content, &html! {}, false)
}

/// `again`: the browser asks once more after a moment.
fn document(title: &str, header: &Markup, content: &Markup, footer: &Markup, again: bool) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if again { meta http-equiv="refresh" content="1"; }
                title { (title) " · codemie" }
                link rel="stylesheet" href=(STYLE.path);
                link rel="icon" type="image/svg+xml" href=(ICON.path);
                script defer src=(SCRIPT.path) {}
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                (header)
                main #content tabindex="-1" { (content) }
                (footer)
            }
        }
    }
}

/// In place of an empty table: what is missing, and what to do about it.
pub fn empty(what: &str, next: &Markup) -> Markup {
    html! { div.empty { strong { (what) } p { (next) } } }
}
