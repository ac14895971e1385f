//! The dashboard: what the backend knows, as pages.
//!
//! ```text
//! routes, stream        addresses: ask the read model, make the page
//! gate, login           who may see it: a token once, then a cookie
//! overview, sessions, session, live, health    pages: pure, from what was read to HTML
//! turns, span, axis, scale    pure: a story from events, columns from days, the time of a session, round numbers
//! course, chart, controls, frame, text, assets         what pages are made of
//! ```
//!
//! Everything is rendered on the server. The one script, which is our own, only puts rows of the live page in their place;
//! every page is whole without it. Nothing is loaded from anywhere else, and the policy in every answer forbids it.

mod activity;
mod agents;
mod assets;
mod axis;
mod chart;
mod controls;
mod filter;
mod frame;
mod gate;
mod health;
mod live;
mod login;
mod model;
mod overview;
mod routes;
mod scale;
mod session;
mod sessions;
mod span;
mod stream;
mod text;
mod turns;

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use tokio::sync::{Semaphore, watch};

use super::storage::Reader;
use system::clock::Clock;

pub use agents::KnownAgents;
pub use gate::Gate;
pub use model::Outbox;
pub use routes::router;

/// Live streams open at once; each costs a task, and a query for every change.
const STREAMS: usize = 500;

/// How this machine's own outbox is doing. It may take its time: it is asked on a thread that nothing else waits for.
pub type AskOutbox = Arc<dyn Fn() -> Vec<Outbox> + Send + Sync>;

/// What the pages are made from, and for whom.
pub struct Dashboard {
    reader: Arc<dyn Reader>,
    gate: Gate,
    agents: KnownAgents,
    clock: Arc<dyn Clock>,
    zone: TimeZone,
    outbox: Option<AskOutbox>,
    /// The command that a dashboard of this machine is opened by.
    opened_by: &'static str,
    streams: Arc<Semaphore>,
    /// True once the server is to end: live pages are hung up on, or it would wait for them.
    closing: watch::Receiver<bool>,
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Dashboard {
    pub fn new(
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
            zone: system::zone::local(),
            outbox: None,
            opened_by: "codemie dashboard",
            streams: Arc::new(Semaphore::new(STREAMS)),
            closing,
        }
    }

    /// Another command makes a new address.
    #[must_use]
    pub fn opened_by(mut self, command: &'static str) -> Self {
        self.opened_by = command;
        self
    }

    /// Also shows what waits in the outbox of this machine.
    #[must_use]
    pub fn with_outbox(mut self, outbox: AskOutbox) -> Self {
        self.outbox = Some(outbox);
        self
    }
}
