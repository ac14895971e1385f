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
use super::dashboard::{self, Dashboard, Gate};
use super::limits;
use super::patience::{Patience, Unread};
use super::seats::{Seats, Visitor};
use super::storage::Storage;
use system::clock::SystemClock;

/// Out of descriptors or memory: others must end first.
const BREATH: Duration = Duration::from_millis(50);

/// Serves a storage until `shutdown`: what is under way is finished, then this returns.
pub async fn run(
    listener: TcpListener,
    storage: Arc<dyn Storage>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) {
    let (close, closing) = watch::channel(false);
    let gate = Gate::Tokens(storage.clone());
    let pages = Dashboard::new(storage.clone(), gate, options.agents, Arc::new(SystemClock), closing.clone());
    let router = Backend::new(storage, &options, closing).router().merge(dashboard::router(pages));
    let seats = Seats::new(&options.proxies);
    serve_within(options.patience, seats, listener, router, close, shutdown).await;
}

/// Serves any router in the same way. `close` is set to true when it is time for streams that never end by themselves.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    close: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    serve_within(Patience::default(), Seats::new(&[]), listener, router, close, shutdown).await;
}

/// Every request says who brings it, so that a good token is noted.
struct OfVisitor<S> {
    visitor: Visitor,
    inner: S,
}

impl<S: Service<hyper::Request<Incoming>>> Service<hyper::Request<Incoming>> for OfVisitor<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: hyper::Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.visitor.clone());
        self.inner.call(request)
    }
}

async fn serve_within(
    patience: Patience,
    seats: Arc<Seats>,
    listener: TcpListener,
    router: Router,
    close: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    // Over every route, whoever reads its body and however.
    let timed = move |request: Request| async move { request.map(|body| patience.over(body)) };
    let router = router.layer(middleware::map_request(timed));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accept = async {
            let (stream, peer) = listener.accept().await?;
            Ok::<_, io::Error>((stream, seats.take(peer.ip()).await))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = &mut shutdown => break,
        };
        let (stream, seat) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let service = OfVisitor { visitor: seat.visitor(), inner: TowerToHyperService::new(router.clone()) };
        let head = if seats.scarce() { patience.head.min(limits::HEAD_WHEN_SCARCE) } else { patience.head };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .serve_connection(TokioIo::new(Unread::new(stream, patience.silence)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                }
                () = seat.is_needed() => tracing::debug!("a connection without a token made room for another"),
            }
            drop(seat);
        });
    }
    drop(listener);
    // Nobody may be listening to this any more.
    let _ = close.send(true);
    if tokio::time::timeout(limits::DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}
