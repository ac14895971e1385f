//! Connections to one upstream that are open and can be used again.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use os::clock::{Clock, SystemClock};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use types::Timestamp;

use super::driver::Driver;
use crate::body::{RequestBody, Upload};
use crate::head::Hop;

/// An open connection.
#[derive(Debug)]
pub(crate) enum Sender {
    Http1(Http1Conn),
    Http2(Http2Conn),
}

/// Carries one request at a time.
#[derive(Debug)]
pub(crate) struct Http1Conn {
    sender: http1::SendRequest<RequestBody>,
    driver: Driver,
}

impl Http1Conn {
    pub fn new(sender: http1::SendRequest<RequestBody>, driver: Driver) -> Self {
        Self { sender, driver }
    }

    /// Between two requests nobody moves it: what has happened since is seen here.
    fn is_open(&mut self) -> bool {
        self.driver.advance(&Context::from_waker(Waker::noop()));
        !self.sender.is_closed()
    }
}

/// Carries many at once. Clones are counted, to know how many it carries now.
#[derive(Clone, Debug)]
pub(crate) struct Http2Conn {
    sender: http2::SendRequest<RequestBody>,
    users: Arc<()>,
}

impl Http2Conn {
    pub fn new(sender: http2::SendRequest<RequestBody>) -> Self {
        Self { sender, users: Arc::new(()) }
    }
}

impl Sender {
    pub fn hop(&self) -> Hop {
        match self {
            Self::Http1(_) => Hop::One,
            Self::Http2(_) => Hop::Two,
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

/// How often idle connections are looked at: those that their server has closed, or that are too old, are closed then.
const SWEEP: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    /// The last used one is at the end, and used first.
    one: Vec<(Timestamp, Http1Conn)>,
    two: Vec<(Timestamp, Http2Conn)>,
    is_swept: bool,
}

impl Pool {
    /// A connection that is open and free, as far as can be known.
    pub fn take(&self) -> Option<Sender> {
        let now = SystemClock.now();
        let mut connections = self.lock();
        connections.two.retain(|(used, two)| {
            let busy = Arc::strong_count(&two.users) > 1;
            !two.sender.is_closed() && (busy || is_fresh(*used, now))
        });
        let room = |two: &Http2Conn| Arc::strong_count(&two.users) - 1 < MOST_STREAMS;
        if let Some((used, two)) = connections.two.iter_mut().find(|(_, two)| room(two)) {
            *used = now;
            return Some(Sender::Http2(two.clone()));
        }
        for index in (0..connections.one.len()).rev() {
            let (used, one) = &mut connections.one[index];
            let is_usable = is_fresh(*used, now) && one.is_open();
            // One with a task of its own may not have seen yet that its last answer is over.
            if is_usable && !one.sender.is_ready() {
                continue;
            }
            let (_, one) = connections.one.remove(index);
            if is_usable {
                return Some(Sender::Http1(one));
            }
        }
        None
    }

    /// Others may use it beside the one who opened it.
    pub fn share(&self, sender: &Sender) {
        if let Sender::Http2(two) = sender {
            self.lock().two.push((SystemClock.now(), two.clone()));
        }
    }

    /// A stream of it is over.
    fn used(&self, two: &Http2Conn) {
        let mut connections = self.lock();
        let is_same = |other: &Http2Conn| Arc::ptr_eq(&other.users, &two.users);
        if let Some((used, _)) = connections.two.iter_mut().find(|(_, other)| is_same(other)) {
            *used = SystemClock.now();
        }
    }

    fn put_back(self: &Arc<Self>, one: Http1Conn) {
        let mut connections = self.lock();
        if connections.one.len() == MOST_IDLE {
            connections.one.remove(0);
        }
        connections.one.push((SystemClock.now(), one));
        if !connections.is_swept
            && let Ok(runtime) = Handle::try_current()
        {
            connections.is_swept = true;
            runtime.spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Whether any idle connection is left.
    fn close_stale(&self) -> bool {
        let now = SystemClock.now();
        let mut connections = self.lock();
        connections.one.retain_mut(|(used, one)| is_fresh(*used, now) && one.is_open());
        connections.is_swept = !connections.one.is_empty();
        connections.is_swept
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By the wall clock, because the other one stands still while a laptop sleeps.
fn is_fresh(used: Timestamp, now: Timestamp) -> bool {
    now.since(used) < IDLE_LIMIT
}

async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        if !pool.upgrade().is_some_and(|pool| pool.close_stale()) {
            return;
        }
    }
}

/// The connection that an exchange uses. Dropped in the middle, it cancels the request: over HTTP/1.1 its connection is closed, over
/// HTTP/2 hyper resets the stream.
#[derive(Debug)]
pub(crate) struct Link {
    sender: Sender,
    pool: Arc<Pool>,
    /// A server that speaks HTTP/1.0 understands no chunks: to it hyper would send a next request without them, and without its body.
    is_old: bool,
}

impl Link {
    pub fn new(sender: Sender, pool: Arc<Pool>) -> Self {
        Self { sender, pool, is_old: false }
    }

    /// On failure the request comes back where hyper had not begun to write it.
    pub async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let Http1Conn { sender, driver } = match &mut self.sender {
            Sender::Http1(one) => one,
            Sender::Http2(two) => return two.sender.try_send_request(request).await,
        };
        let upload = request.body().upload().clone();
        // Unconstrained: where a task has done much in a turn, tokio holds a value back and wakes later whoever asked for it. The
        // driver is asked without a waker.
        let mut answer = pin!(unconstrained(sender.try_send_request(request)));
        let answer = poll_fn(|cx| driver.advance_and_take(cx, |cx| answer.as_mut().poll(cx))).await;
        // An agent may read nothing before it has sent its whole body. If this waited for its reading, both would wait for ever.
        if !upload.is_done() {
            driver.set_apart();
        }
        self.is_old = answer.as_ref().is_ok_and(|response| response.version() == Version::HTTP_10);
        answer
    }

    /// What has come of the answer's body.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut take = |cx: &mut Context<'_>| Pin::new(&mut *body).poll_frame(cx);
        match &mut self.sender {
            Sender::Http1(one) => one.driver.advance_and_take(cx, take),
            Sender::Http2(_) => take(cx),
        }
    }

    /// The answer is over. Where it came before the agent was asked for its body, that will not be sent, and the connection has no
    /// further use. Where it came in the middle of the body, the rest is still passed on, and then the connection closes.
    pub fn release(self, upload: &Upload) {
        let mut one = match self.sender {
            Sender::Http1(one) => one,
            Sender::Http2(two) => return self.pool.used(&two),
        };
        if self.is_old {
            return;
        }
        if upload.is_done() {
            // The answer came early, and the end of the body waits to be written.
            if !one.sender.is_ready() {
                one.driver.set_apart();
            }
            self.pool.put_back(one);
        } else if upload.is_started() {
            one.driver.detach();
        }
    }

    /// It has become a tunnel, which ends by itself.
    pub fn detach(self) {
        if let Sender::Http1(one) = self.sender {
            one.driver.detach();
        }
    }
}
