//! The listener: who is let in, and how it ends.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::conversation::{AgentStream, Conversation};
use crate::peer::{self, Owner};
use crate::relay::Relay;
use crate::upstream::BUFFER_LIMIT;
use crate::{Activity, Gate, Observer, Peer, Route, Secret};

/// What a listener is told.
#[derive(Clone, Debug)]
pub struct Settings {
    pub secret: Secret,
    pub routes: Vec<Route>,
    /// Authorities that are trusted beside the system's own (PEM).
    pub ca_file: Option<PathBuf>,
    pub proxies: Proxies,
    /// What is open now. Keep a clone to ask.
    pub activity: Activity,
    /// The longest body of a request that is kept for [`crate::Request::body`]. Longer ones pass all the same.
    pub body_limit: usize,
}

impl Settings {
    pub fn new(secret: Secret, routes: Vec<Route>) -> Self {
        Self {
            secret,
            routes,
            ca_file: None,
            proxies: Proxies::default(),
            activity: Activity::default(),
            body_limit: 8 << 20,
        }
    }
}

/// Proxies on the way to the API, as the variables of these names have them. Upstreams on this machine are reached without.
#[derive(Clone, Default)]
pub struct Proxies {
    pub https: Option<String>,
    pub http: Option<String>,
    pub all: Option<String>,
    pub no: Option<String>,
}

impl Proxies {
    /// `var` gives the value of a variable. Both spellings count, the upper one first, as with curl.
    pub fn from_variables(var: impl Fn(&str) -> Option<String>) -> Self {
        let either = |upper: &str| {
            var(upper).or_else(|| var(&upper.to_ascii_lowercase())).filter(|value| !value.trim().is_empty())
        };
        Self {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            all: either("ALL_PROXY"),
            no: either("NO_PROXY"),
        }
    }
}

/// An address may hold a password.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies")
            .field("https", &self.https.is_some())
            .field("http", &self.http.is_some())
            .field("all", &self.all.is_some())
            .field("no", &self.no)
            .finish()
    }
}

/// Serves until `shutdown`, and then until the exchanges that are open are over. Whoever cannot wait drops the future: exchanges in
/// tasks of their own go on until the runtime ends.
///
/// Fails only at the start: where a route's address or header is wrong, or the listener is none.
pub async fn serve(
    listener: std::net::TcpListener,
    settings: Settings,
    gate: Arc<dyn Gate>,
    observer: Arc<dyn Observer>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let own = listener.local_addr()?;
    let activity = settings.activity.clone();
    let relay = Arc::new(Relay::new(settings, gate, observer).map_err(io::Error::other)?);
    relay.clone().prepare();
    // Each connection holds a receiver: it learns of the end there, and the sender of theirs.
    let (stop, stopped) = watch::channel(());
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Too many open files, for one: it passes, and nothing is better than to wait for it.
                    tracing::warn!(%error, "a connection to the proxy was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        let (relay, stopped, open) = (relay.clone(), stopped.clone(), activity.connection());
        tokio::spawn(async move {
            let _open = open;
            if peer::owner(peer, own) == Owner::Another {
                tracing::warn!("a connection of another user to the proxy was refused");
                return;
            }
            let who = Peer::new(peer, own);
            let conversation = Arc::new(Conversation::default());
            let _ = stream.set_nodelay(true);
            let stream = AgentStream::new(stream, conversation.clone(), who);
            converse(stream, relay, who, conversation, stopped).await;
        });
    }
    drop((listener, stopped));
    let _ = stop.send(());
    stop.closed().await;
    activity.until_idle().await;
    Ok(())
}

/// All requests of one connection. At the end of the listener the one under way is still answered.
async fn converse(
    stream: AgentStream,
    relay: Arc<Relay>,
    peer: Peer,
    conversation: Arc<Conversation>,
    mut stopped: watch::Receiver<()>,
) {
    let service = service_fn(move |request| {
        let (relay, turn) = (relay.clone(), conversation.begin());
        async move { relay.answer(request, peer, turn).await }
    });
    let connection = http1::Builder::new()
        .preserve_header_case(true)
        .auto_date_header(false)
        .max_buf_size(BUFFER_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection of the agent ended");
    }
}
