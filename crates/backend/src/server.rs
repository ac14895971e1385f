//! Connections in, answers out, and an orderly end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::api::{Backend, Options};
use super::connections::{ConnectionSlots, Peer};
use super::dashboard::{self, Dashboard};
use super::limits;
use super::storage::Storage;
use super::timeouts::{Timeouts, WriteTimeout};
use os::clock::SystemClock;

/// The pause after a failed accept: out of descriptors or memory, other connections must end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves a storage until `shutdown`: requests under way are finished, then this returns.
pub async fn run(
    listener: TcpListener,
    storage: Arc<dyn Storage>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) {
    let (close, closing) = watch::channel(false);
    let clock = Arc::new(SystemClock);
    let (name, zone) = options.zone.clone();
    let pages =
        Dashboard::of_backend(storage.clone(), options.agents, clock, closing.clone()).in_zone(name, zone);
    let router = Backend::new(storage, &options, closing).router().merge(dashboard::router(pages));
    let slots = ConnectionSlots::new(&options.proxies);
    serve_with(options.timeouts, slots, listener, router, close, shutdown).await;
}

/// Serves any router in the same way. `close` becomes true at shutdown: streams that never end by themselves end then.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    close: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    serve_with(Timeouts::default(), ConnectionSlots::new(&[]), listener, router, close, shutdown).await;
}

/// Adds the connection to each of its requests, so that a good token marks it.
struct WithPeer<S> {
    peer: Peer,
    inner: S,
}

impl<S: Service<hyper::Request<Incoming>>> Service<hyper::Request<Incoming>> for WithPeer<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: hyper::Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.inner.call(request)
    }
}

async fn serve_with(
    timeouts: Timeouts,
    slots: Arc<ConnectionSlots>,
    listener: TcpListener,
    router: Router,
    close: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    // Around every route, however it reads its body.
    let limited = move |request: Request| async move { request.map(|body| timeouts.limit(body)) };
    let router = router.layer(middleware::map_request(limited));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accept = async {
            let (stream, peer) = listener.accept().await?;
            Ok::<_, io::Error>((stream, slots.take(peer.ip()).await))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = &mut shutdown => break,
        };
        let (stream, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let service = WithPeer { peer: slot.peer(), inner: TowerToHyperService::new(router.clone()) };
        let head = if slots.scarce() { timeouts.head.min(limits::HEAD_WHEN_SCARCE) } else { timeouts.head };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .serve_connection(TokioIo::new(WriteTimeout::new(stream, timeouts.silence)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                }
                () = slot.closed() => tracing::debug!("a connection without a token made room for another"),
            }
            drop(slot);
        });
    }
    drop(listener);
    // No stream may be left to receive this.
    let _ = close.send(true);
    if tokio::time::timeout(limits::DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}
