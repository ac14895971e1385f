//! The dashboard: what a [`Reader`] knows, as pages. Which store that is, they do not know.
//!
//! ```text
//! routes, stream        addresses: ask the read model, make the page
//! harmless              the page's last step: texts that cannot steer a browser
//! gate, login           who may see it: a token once, then a cookie
//! local_facts           facts that only a user's own machine has, handed in
//! filter, sort, model   the parameters of a page, and the answers it shows
//! overview, sessions, session, live, health    pages: pure, from answers of the read model to HTML
//! trend, heat_map, chain, steps, activity, calls, cost_curve    parts of one page
//! csv                   the same numbers as files
//! panel, table, chart, controls, frame, text, agents, assets    components of all pages
//! turns, span, axis, scale    pure: turns from events, columns from days, the time of a session, round numbers
//! ```
//!
//! Everything is rendered on the server. The one script, which is our own, only puts rows of the live page in their place;
//! every page is whole without it. Nothing is loaded from anywhere else, and the policy in every answer forbids it.

mod activity;
mod agents;
mod assets;
mod axis;
mod calls;
mod chain;
mod chart;
mod controls;
mod cost_curve;
mod csv;
mod filter;
mod frame;
mod gate;
mod harmless;
mod health;
mod heat_map;
mod live;
mod local_facts;
mod login;
mod model;
mod overview;
mod panel;
mod routes;
mod scale;
mod session;
mod sessions;
mod sort;
mod span;
mod steps;
mod stream;
mod table;
mod text;
mod trend;
mod turns;

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use tokio::sync::{Semaphore, watch};

use axum::Router;
use os::clock::{Clock, SystemClock};
use reader::{Reader, Tokens};

pub use agents::KnownAgents;
pub use gate::Gate;
pub use local_facts::{Conversation, History, HistoryState, LocalFacts, Outbox, Titles};
pub use routes::router;

/// Live streams open at once; each costs a task, and a query for every change.
const STREAMS: usize = 500;

/// The pages of one read model, for one audience.
pub struct Dashboard {
    reader: Arc<dyn Reader>,
    gate: Gate,
    agents: KnownAgents,
    clock: Arc<dyn Clock>,
    zone: TimeZone,
    /// As people call it.
    zone_name: String,
    /// On a user's own machine; `None` at a backend.
    local: Option<Arc<dyn LocalFacts>>,
    streams: Arc<Semaphore>,
    /// True once the server is to end: live streams are closed then, or it would wait for them.
    closing: watch::Receiver<bool>,
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("gate", &self.gate).finish_non_exhaustive()
    }
}

/// The pages of a backend: people log in with its tokens. Days and times are those of this zone (as people call it, and
/// itself), unless a view asks for another. What the pages are given becomes true once the server is to end.
pub fn of_backend(
    reader: Arc<dyn Reader>,
    tokens: Arc<dyn Tokens>,
    agents: KnownAgents,
    (zone_name, zone): (String, TimeZone),
) -> impl FnOnce(watch::Receiver<bool>) -> Router {
    move |closing| {
        let clock = Arc::new(SystemClock);
        let new = Dashboard::new(reader, Gate::Tokens(tokens), agents, clock, closing);
        router(Dashboard { zone, zone_name, ..new })
    }
}

impl Dashboard {
    /// The dashboard of this user on their own machine, in its zone.
    pub fn local(
        reader: Arc<dyn Reader>,
        gate: Gate,
        facts: Arc<dyn LocalFacts>,
        clock: Arc<dyn Clock>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        let agents = facts.agents();
        let zone = (os::zone::local(), "this machine's time".to_owned());
        let new = Self::new(reader, gate, agents, clock, closing);
        Self { local: Some(facts), zone: zone.0, zone_name: zone.1, ..new }
    }

    fn new(
        reader: Arc<dyn Reader>,
        gate: Gate,
        agents: KnownAgents,
        clock: Arc<dyn Clock>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self {
            reader,
            gate,
            agents,
            clock,
            zone: TimeZone::UTC,
            zone_name: "UTC".to_owned(),
            local: None,
            streams: Arc::new(Semaphore::new(STREAMS)),
            closing,
        }
    }
}
