//! Connections in, answers out, and an orderly end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::api::{Backend, Options};
use super::dashboard::{self, Dashboard, Gate};
use super::limits;
use super::patience::{Patience, Unread};
use super::storage::Storage;
use crate::clock::SystemClock;

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
    let pages = Dashboard::new(storage.clone(), gate, Arc::new(SystemClock), closing.clone());
    let router = Backend::new(storage, options, closing).router().merge(dashboard::router(pages));
    serve_within(options.patience, listener, router, close, shutdown).await;
}

/// Serves any router in the same way. `close` is set to true when it is time for streams that never end by themselves.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    close: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    serve_within(Patience::default(), listener, router, close, shutdown).await;
}

async fn serve_within(
    patience: Patience,
    listener: TcpListener,
    router: Router,
    close: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    // Over every route, whoever reads its body and however.
    let timed = move |request: Request| async move { request.map(|body| patience.over(body)) };
    let router = router.layer(middleware::map_request(timed));
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(limits::CONNECTIONS));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accept = async {
            // The semaphore is never closed.
            let seat = room.clone().acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((listener.accept().await?.0, seat))
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
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(patience.head)
            .serve_connection(TokioIo::new(Unread::new(stream, patience.silence)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
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
