//! The worker: passes calls on and hands each to the ledger. It may die at any moment; its keeper starts the next one.

use std::future::Future;
use std::io;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::ledger::Ledger;
use super::settings::{ProxySettings, RouteSettings};
use super::standalone::counted_under;
use super::{handed_over, keeper};
use crate::budget::{BudgetGate, Caller};
use agents::registry;
use os::log;
use relay::{Call, Observer, Proxies, Request, Route, Secret, Settings, Upstream};
use types::PicoDollars;

/// How long open answers have once the worker is to end. The keeper gives it a little more.
const DRAIN: Duration = Duration::from_secs(8);

/// The whole life of a worker process.
pub fn run() -> io::Result<()> {
    let (control, listener) = handed_over()?;
    let mut control = BufReader::new(control);
    let settings = ProxySettings::receive(&mut control)?;
    let _ = log::start(&settings.home(), settings.log_level.as_deref());
    let successor = (listener.try_clone()?, settings.clone());
    let (over, ended) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("keeper".into()).spawn(move || {
        if await_end(control) == KeeperEnd::Alone {
            let (listener, settings) = successor;
            tracing::warn!("the proxy's keeper has ended; its worker starts another");
            // Its end of the socket is dropped at once: the new one goes by who has the address.
            if let Err(error) = keeper::start(&listener, &settings) {
                tracing::error!("the proxy's keeper cannot be started: {error}");
                // Better alone than not at all.
                std::mem::forget(over);
                return;
            }
        }
        let _ = over.send(());
    })?;
    serve(runtime()?, listener, &settings, async {
        let _ = ended.await;
    })
}

/// One thread passes bytes on. A request goes from the agent's connection to the API's and back: between two threads each step
/// would wake the other one, some ten microseconds before the first byte. The ledger has a thread of its own, and the store is asked
/// on another. What stays here besides bytes: handshakes with the API, compressed bodies of requests, a line in the journal for each
/// call.
pub fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Serves in this very process, to its end.
pub(super) fn serve_here(listener: TcpListener, settings: &ProxySettings) -> io::Result<()> {
    serve(runtime()?, listener, settings, std::future::pending())
}

/// Serves until `over`, then until the answers that are open have ended and their calls are stored.
pub fn serve(
    runtime: Runtime,
    listener: TcpListener,
    settings: &ProxySettings,
    over: impl Future<Output = ()>,
) -> io::Result<()> {
    let ledger = Ledger::open(settings)?;
    let gate = super::worker::of(settings);
    let observer = Arc::new(BudgetObserver { gate: gate.clone(), ledger: Arc::clone(&ledger) });
    let served = runtime.block_on(async {
        let (begun, draining) = tokio::sync::oneshot::channel();
        let over = async {
            over.await;
            let _ = begun.send(());
        };
        let serving = relay::serve(listener, relay_settings(settings)?, Arc::new(gate), observer, over);
        let deadline = async {
            let _ = draining.await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = serving => served,
            () = deadline => Ok(()),
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(500));
    ledger.close();
    served
}

/// How a worker learns that its keeper has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeeperEnd {
    /// It ends in order, or a wrapper will start the next one.
    Finish,
    /// It was killed, and nobody else would start another.
    Alone,
}

fn await_end(control: BufReader<UnixStream>) -> KeeperEnd {
    let mut alone = false;
    for line in control.split(b'\n').map_while(Result::ok) {
        match line.as_slice() {
            b"finish" => return KeeperEnd::Finish,
            b"alone" => alone = true,
            _ => {}
        }
    }
    if alone { KeeperEnd::Alone } else { KeeperEnd::Finish }
}

/// The relay's form of the settings.
fn relay_settings(settings: &ProxySettings) -> io::Result<Settings> {
    let routes = settings.routes.iter().map(relay_route).collect::<io::Result<_>>()?;
    let mut relay = Settings::new(Secret::new(settings.secret.clone()), routes);
    relay.ca_file.clone_from(&settings.ca_file);
    relay.proxies = Proxies::from_variables(|name| std::env::var(name).ok());
    Ok(relay)
}

fn relay_route(route: &RouteSettings) -> io::Result<Route> {
    let base = route.upstream.parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no address", route.upstream))
    })?;
    Ok(Route {
        name: route.name.clone(),
        upstream: Upstream { base },
        api: None,
        auth: route.auth.clone(),
        headers: route.headers.clone(),
    })
}

// Budgets between an agent and its API: the gate before a call, and what the call cost when it is over.

/// The gate of a proxy. Without an enforced budget it looks at nothing but the settings.
pub(super) fn of(settings: &ProxySettings) -> BudgetGate {
    let (routes, beside_run) = (settings.routes.clone(), settings.run.is_some());
    let caller = move |request: &Request| {
        let route = routes.iter().find(|route| route.name == request.route)?;
        let conversation = registry::by_name(&route.agent)?.identify(request).conversation;
        let agent = counted_under(route, beside_run, conversation.as_ref()).to_owned();
        Some(Caller { agent, conversation })
    };
    BudgetGate::new(&settings.home(), settings.run, Box::new(caller))
}

/// Tells the gate of each call that is over, and then the ledger.
pub(super) struct BudgetObserver {
    pub(super) gate: BudgetGate,
    pub(super) ledger: Arc<Ledger>,
}

impl Observer for BudgetObserver {
    fn began(&self, request: &Request) {
        self.ledger.began(request);
    }

    fn ended(&self, call: Call) {
        let number = call.request.number;
        if self.gate.holds(number) {
            self.gate.call_over(number, self.spent(&call));
        }
        self.ledger.ended(call);
    }
}

impl BudgetObserver {
    /// Under which key the ledger stores it, and what it cost; `None` where nothing of it is counted.
    fn spent(&self, call: &Call) -> Option<(String, PicoDollars)> {
        let metered = &call.metered;
        let key = metered.response_id.clone().or_else(|| call.request_id.clone())?;
        let cost =
            self.gate.prices().cost(metered.model.as_deref()?, metered.tokens.as_ref()?, metered.tier)?;
        Some((key, cost.amount))
    }
}
