//! The HTTP interface: one table of routes, from which both the router and `/openapi.json` are made.
//!
//! Every route but `/healthz` asks for a token; without one nothing else is revealed, not even which routes take a body.

mod answer;
mod auth;
mod health;
mod ingest;
mod live;
mod openapi;
mod read;
mod record;
mod routes;
mod schemas;

use std::sync::Arc;

use axum::Router;
use jiff::tz::TimeZone;
use tokio::sync::{Semaphore, watch};

use super::limits::{self, Rates, Watchers};
use super::metrics::Metrics;
use super::spending::Spending;
use super::storage::Storage;
use auth::Authenticator;
use health::ReadinessCheck;
use os::clock::{Clock, SystemClock};
use server::Clients;
use tokio::net::TcpListener;

pub use record::Record;

/// The options of an operator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests per second and token.
    pub rate: u32,
    pub clients: Clients,
    /// Of the days of usage, where a request names none.
    pub zone: TimeZone,
}

impl Default for Options {
    fn default() -> Self {
        Self { rate: limits::RATE, clients: Clients::default(), zone: TimeZone::UTC }
    }
}

/// A node: the storage behind it, and its own counters and limits.
pub struct Backend {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    tokens: Authenticator,
    health: ReadinessCheck,
    spending: Spending,
    rates: Rates,
    /// Room for bodies, in KiB.
    bodies: Arc<Semaphore>,
    watchers: Arc<Watchers>,
    /// Of the days of usage, where a request names none.
    zone: TimeZone,
    /// True once the server is to end: live feeds end then.
    closing: watch::Receiver<bool>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend").finish_non_exhaustive()
    }
}

impl Backend {
    pub fn new(storage: Arc<dyn Storage>, options: &Options, closing: watch::Receiver<bool>) -> Self {
        Self {
            tokens: Authenticator::new(storage.clone()),
            storage,
            clock: Arc::new(SystemClock),
            metrics: Arc::default(),
            health: ReadinessCheck::default(),
            spending: Spending::default(),
            rates: Rates::new(options.rate),
            bodies: Arc::new(Semaphore::new(limits::ALL_BODIES >> 10)),
            watchers: Arc::default(),
            zone: options.zone.clone(),
            closing,
        }
    }

    /// The API of this node.
    pub fn router(self) -> Router {
        routes::router(Arc::new(self))
    }
}

/// Serves a node until `shutdown`: its API, and the pages that `pages` makes. What is given to it becomes true when streams must end.
pub async fn run(
    listener: TcpListener,
    storage: Arc<dyn Storage>,
    options: Options,
    pages: impl FnOnce(watch::Receiver<bool>) -> Router,
    shutdown: impl Future<Output = ()>,
) {
    let (close, closing) = watch::channel(false);
    let pages = pages(closing.clone());
    let router = Backend::new(storage, &options, closing).router().merge(pages);
    server::serve(listener, router, options.clients, close, shutdown).await;
}

/// The description of the API, as `/openapi.json` gives it.
pub fn description() -> serde_json::Value {
    openapi::document()
}
