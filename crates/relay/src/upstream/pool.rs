//! Connections to one upstream that are open and can be used again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use system::clock::{Clock, SystemClock};
use tokio::task::AbortHandle;
use wire::Timestamp;

use crate::body::{RequestBody, Upload};
use crate::head::Hop;

/// An open connection.
#[derive(Debug)]
pub(crate) enum Sender {
    /// Carries one request at a time.
    One(http1::SendRequest<RequestBody>, AbortHandle),
    Two(Two),
}

/// Carries many at once. Clones are counted, to know how many it carries now.
#[derive(Clone, Debug)]
pub(crate) struct Two {
    sender: http2::SendRequest<RequestBody>,
    users: Arc<()>,
}

impl Two {
    pub fn new(sender: http2::SendRequest<RequestBody>) -> Self {
        Self { sender, users: Arc::new(()) }
    }
}

impl Sender {
    pub fn hop(&self) -> Hop {
        match self {
            Self::One(..) => Hop::One,
            Self::Two(_) => Hop::Two,
        }
    }
}

/// A server that closes a connection at the moment of our next request takes that request down with it, and nobody may send it
/// twice. So none is used that has been idle for nearly as long as servers commonly wait: nginx 75 s, most balancers 60 s.
const IDLE_LIMIT: Duration = Duration::from_secs(50);

/// Agents have some ten calls under way at once.
const MOST_IDLE: usize = 64;

/// Servers allow 100 requests on a connection or more; those beyond would wait in line.
const MOST_STREAMS: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    /// The last used one is at the end, and used first.
    one: Vec<(Timestamp, http1::SendRequest<RequestBody>, AbortHandle)>,
    two: Vec<(Timestamp, Two)>,
}

impl Pool {
    /// A connection that is open and free, as far as can be known.
    pub fn take(&self) -> Option<Sender> {
        let now = SystemClock.now();
        let mut connections = self.lock();
        connections.two.retain(|(used, two)| {
            let busy = Arc::strong_count(&two.users) > 1;
            !two.sender.is_closed() && (busy || now.since(*used) < IDLE_LIMIT)
        });
        let room = |two: &Two| Arc::strong_count(&two.users) - 1 < MOST_STREAMS;
        if let Some((used, two)) = connections.two.iter_mut().find(|(_, two)| room(two)) {
            *used = now;
            return Some(Sender::Two(two.clone()));
        }
        // The wall clock, because the other one stands still while a laptop sleeps.
        connections.one.retain(|(used, sender, _)| !sender.is_closed() && now.since(*used) < IDLE_LIMIT);
        // Its task may not have seen yet that the last answer is over.
        let free = connections.one.iter().rposition(|(_, sender, _)| sender.is_ready())?;
        let (_, sender, driver) = connections.one.remove(free);
        Some(Sender::One(sender, driver))
    }

    /// Others may use it beside the one who opened it.
    pub fn share(&self, sender: &Sender) {
        if let Sender::Two(two) = sender {
            self.lock().two.push((SystemClock.now(), two.clone()));
        }
    }

    fn put_back(&self, sender: http1::SendRequest<RequestBody>, driver: AbortHandle) {
        let mut connections = self.lock();
        if connections.one.len() == MOST_IDLE {
            connections.one.remove(0);
        }
        connections.one.push((SystemClock.now(), sender, driver));
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection that an exchange uses. Dropped in the middle, it cancels the request.
#[derive(Debug)]
pub(crate) struct Link {
    sender: Sender,
    pool: Arc<Pool>,
    cancel: Cancel,
}

/// Over HTTP/1.1 a request is cancelled by closing its connection. hyper does so, too, when an answer is dropped; it does not where
/// the body of a request waits to be asked for (`Expect`), which nothing but this would end. Over HTTP/2 hyper resets the stream.
#[derive(Debug)]
struct Cancel(Option<AbortHandle>);

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(driver) = &self.0 {
            driver.abort();
        }
    }
}

impl Link {
    pub fn new(sender: Sender, pool: Arc<Pool>) -> Self {
        let cancel = match &sender {
            Sender::One(_, driver) => Some(driver.clone()),
            Sender::Two(_) => None,
        };
        Self { sender, pool, cancel: Cancel(cancel) }
    }

    /// On failure the request comes back where hyper had not begun to write it.
    pub async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match &mut self.sender {
            Sender::One(sender, _) => sender.try_send_request(request).await,
            Sender::Two(two) => two.sender.try_send_request(request).await,
        }
    }

    /// The answer is over. Where it came before the agent was asked for its body, that will not be sent, and the connection has no
    /// further use. Where it came in the middle of the body, the rest is still passed on, and then the connection closes.
    pub fn release(mut self, upload: &Upload) {
        if upload.is_started() || upload.is_done() {
            self.cancel.0 = None;
        }
        if let (true, Sender::One(sender, driver)) = (upload.is_done(), self.sender) {
            self.pool.put_back(sender, driver);
        }
    }

    /// It has become a tunnel, which ends by itself.
    pub fn detach(mut self) {
        self.cancel.0 = None;
    }
}
