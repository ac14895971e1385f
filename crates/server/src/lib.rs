//! An HTTP server: connections in, answers out, and an orderly end. It knows no route.
//!
//! ```text
//! connections   a fixed number of slots; a client that has shown no token has few, and none that another one waits for
//! timeouts      how long a client may take for its head, its body, and reading the answer
//! limits        the constants of both
//! ```

mod connections;
pub mod limits;
mod timeouts;

use std::io;
use std::net::IpAddr;
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

use connections::ConnectionSlots;
use timeouts::WriteTimeout;

pub use connections::Peer;
pub use timeouts::{Timeouts, TooSlow};

/// What is known of the clients beforehand.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// Proxies in front of this server, whose connections are not limited by address.
    pub proxies: Vec<IpAddr>,
    /// How long a client may take.
    pub timeouts: Timeouts,
}

/// The pause after a failed accept: out of descriptors or memory, other connections must end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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

/// Serves until `shutdown`: requests under way are finished, then this returns. `close` becomes true at shutdown: streams that
/// never end by themselves end then.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    clients: Clients,
    close: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    let (timeouts, slots) = (clients.timeouts, ConnectionSlots::new(&clients.proxies));
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
