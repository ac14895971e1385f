//! Bodies on their way through: each frame is handed on as it came, when it came.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Request, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::conversation::Turn;
use crate::exchange::Exchange;
use crate::upstream::Link;

/// What has become of a request's body, known to whoever reports the call.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    started: AtomicBool,
    done: AtomicBool,
    copy: Mutex<Copy>,
}

#[derive(Debug, Default)]
struct Copy {
    chunks: Vec<Bytes>,
    length: usize,
    /// 0: no copy is wanted, or it has become too long.
    limit: usize,
}

impl Upload {
    /// Keeps a copy of up to `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { copy: Mutex::new(Copy { limit, ..Copy::default() }), ..Self::default() })
    }

    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// The whole body, where all of it was sent and it was not too long.
    pub fn take(&self) -> Option<Bytes> {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if copy.limit == 0 || !self.is_done() {
            return None;
        }
        Some(joined(std::mem::take(&mut copy.chunks)))
    }

    fn add(&self, chunk: &Bytes) {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if copy.limit == 0 {
            return;
        }
        copy.length += chunk.len();
        if copy.length > copy.limit {
            *copy = Copy::default();
        } else {
            copy.chunks.push(kept(chunk));
        }
    }

    fn start(&self) {
        self.started.store(true, Ordering::Release);
    }

    fn finish(&self) {
        self.done.store(true, Ordering::Release);
    }
}

/// A piece of a body to be read later. It is shared, but for a small one: that would keep all of the buffer it was read into.
pub(crate) fn kept(piece: &Bytes) -> Bytes {
    const SMALL: usize = 4 << 10;
    if piece.len() < SMALL { Bytes::copy_from_slice(piece) } else { piece.clone() }
}

/// The body of a request, towards the upstream.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// What was read before the gate was asked.
    held: VecDeque<Frame<Bytes>>,
    /// `None` when this is dropped.
    live: Option<Incoming>,
    upload: Arc<Upload>,
    permission: Option<Permission>,
}

/// `Expect: 100-continue`: the agent sends its body when it is asked to. hyper asks it as soon as the body is read, so it is not
/// read before the upstream has asked.
#[derive(Debug)]
struct Permission {
    granted: mpsc::UnboundedReceiver<()>,
    patience: Pin<Box<Sleep>>,
}

/// An upstream that knows nothing of `Expect` waits for the body, and the agent for the upstream. curl waits as long.
const PATIENCE: Duration = Duration::from_secs(1);

impl RequestBody {
    pub fn new(live: Incoming, upload: Arc<Upload>) -> Self {
        if live.is_end_stream() {
            upload.finish();
        }
        Self { held: VecDeque::new(), live: Some(live), upload, permission: None }
    }

    /// Nothing is read before the answer to the request with these extensions asks for it.
    pub fn wait_for_continue(&mut self, extensions: &mut Extensions) {
        let (grant, granted) = mpsc::unbounded_channel();
        let mut carrier = Request::new(());
        std::mem::swap(carrier.extensions_mut(), extensions);
        hyper::ext::on_informational(&mut carrier, move |response| {
            if response.status() == StatusCode::CONTINUE {
                let _ = grant.send(());
            }
        });
        std::mem::swap(carrier.extensions_mut(), extensions);
        self.permission = Some(Permission { granted, patience: Box::pin(tokio::time::sleep(PATIENCE)) });
    }

    /// HTTP/2 has no such question: its flow control does as well.
    pub fn send_at_once(&mut self) {
        self.permission = None;
    }

    pub fn upload(&self) -> &Arc<Upload> {
        &self.upload
    }

    pub fn is_asked_for(&self) -> bool {
        self.permission.is_none()
    }

    /// Reads up to `limit` bytes ahead and gives the whole body, where it is no longer. An error is the agent's connection's.
    pub async fn read_ahead(&mut self, limit: usize) -> Result<Option<Bytes>, hyper::Error> {
        let mut chunks = Vec::new();
        let mut length = 0;
        while length <= limit {
            let Some(frame) = next_frame(self.live.as_mut()).await else {
                return Ok(Some(joined(chunks)));
            };
            let frame = frame?;
            if let Some(data) = frame.data_ref() {
                length += data.len();
                chunks.push(data.clone());
            }
            self.held.push_back(frame);
        }
        Ok(None)
    }

    /// Reads and forgets a body that is not passed on. A connection that is closed on bytes nobody read is reset, and the agent may
    /// lose the answer that says why.
    pub async fn discard(mut self) {
        if self.is_asked_for() {
            read_and_forget(self.live.take()).await;
        }
    }
}

/// An API that answers before it has the whole request may take no more of it. The agent goes on sending, and hears the answer when it
/// is done, as it would without the proxy.
impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.upload.is_started()
            && !self.upload.is_done()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(read_and_forget(self.live.take()));
        }
    }
}

/// It ends with the body, or with the agent's connection.
async fn read_and_forget(mut body: Option<Incoming>) {
    while let Some(Ok(_)) = next_frame(body.as_mut()).await {}
}

fn joined(mut chunks: Vec<Bytes>) -> Bytes {
    if chunks.len() == 1 { chunks.swap_remove(0) } else { chunks.concat().into() }
}

async fn next_frame(body: Option<&mut Incoming>) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    let body = body?;
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(permission) = &mut self.permission {
            match permission.granted.poll_recv(cx) {
                Poll::Ready(Some(())) => {}
                // The answer came without it. The body is not read any more.
                Poll::Ready(None) => return Poll::Pending,
                Poll::Pending => ready!(permission.patience.as_mut().poll(cx)),
            }
            self.permission = None;
        }
        self.upload.start();
        let Self { held, live, .. } = &mut *self;
        let frame = match (held.pop_front(), live) {
            (Some(frame), _) => Some(Ok(frame)),
            (None, Some(live)) => ready!(Pin::new(live).poll_frame(cx)),
            (None, None) => None,
        };
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.upload.add(data);
                }
                // hyper asks for nothing after trailers.
                if frame.is_trailers() || self.is_end_stream() {
                    self.upload.finish();
                }
            }
            Some(Err(_)) => {}
            None => self.upload.finish(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.live.as_ref().is_none_or(Incoming::is_end_stream)
    }

    /// The headers say how long it is, or that nobody knows.
    fn size_hint(&self) -> SizeHint {
        self.live.as_ref().filter(|_| self.held.is_empty()).map(Incoming::size_hint).unwrap_or_default()
    }
}

/// The body of an answer, towards the agent.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    source: Source,
    turn: Option<Turn>,
}

#[derive(Debug)]
enum Source {
    /// Written by the proxy itself.
    Own(Option<Bytes>),
    Passed(Box<Passed>),
}

impl AnswerBody {
    pub fn own(bytes: Option<Bytes>) -> Self {
        Self { source: Source::Own(bytes), turn: None }
    }

    pub fn passed(body: Incoming, exchange: Exchange, link: Link) -> Self {
        let passed = Passed { body, exchange, link: Some(link), has_trailers: false, broken: None };
        Self { source: Source::Passed(Box::new(passed)), turn: None }
    }

    /// The turn is over with it.
    pub fn end_of(self, turn: Turn) -> Self {
        Self { turn: Some(turn), ..self }
    }
}

/// An answer under way, and everything that ends with it.
#[derive(Debug)]
struct Passed {
    body: Incoming,
    exchange: Exchange,
    link: Option<Link>,
    /// Nothing comes after them.
    has_trailers: bool,
    /// hyper gives up a connection together with what it has not written. The agent is to get what came before the break.
    broken: Option<hyper::Error>,
}

impl Passed {
    fn complete(&mut self) {
        self.exchange.complete();
        if let Some(link) = self.link.take() {
            link.release(self.exchange.upload());
        }
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        // hyper asks no further when it has written as many bytes as were announced, or trailers.
        if self.link.is_some() && (self.has_trailers || self.body.is_end_stream()) {
            self.complete();
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { source, turn } = &mut *self;
        let passed = match source {
            Source::Own(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Source::Passed(passed) => passed,
        };
        // Where the copy is to be read, or the connection broke, this is polled once more when all is written.
        let is_unwritten = turn.as_ref().is_some_and(Turn::is_unwritten);
        if !is_unwritten && passed.exchange.has_much_unread() {
            passed.exchange.meter_forwarded();
        }
        if passed.broken.is_some() {
            return if is_unwritten { Poll::Pending } else { Poll::Ready(passed.broken.take().map(Err)) };
        }
        let frame = match &mut passed.link {
            Some(link) => link.poll_frame(cx, &mut passed.body),
            None => Pin::new(&mut passed.body).poll_frame(cx),
        };
        match ready!(frame) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    passed.exchange.forwarded(data);
                }
                passed.has_trailers = frame.is_trailers();
                if let (false, Some(turn)) = (passed.body.is_end_stream(), turn) {
                    turn.handed_on();
                    if passed.exchange.has_much_unread() {
                        turn.poll_when_written();
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                passed.exchange.broke();
                passed.link = None;
                if let (true, Some(turn)) = (is_unwritten, turn) {
                    passed.broken = Some(error);
                    turn.poll_when_written();
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(error)))
            }
            None => {
                passed.complete();
                Poll::Ready(None)
            }
        }
    }

    // An answer without a body is announced as it was: a length of 0 stays where it stood among the headers, and one that belongs
    // to `HEAD` or 304 stays, too. hyper takes the framing from the headers when the body itself claims nothing.
    fn is_end_stream(&self) -> bool {
        matches!(self.source, Source::Own(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Source::Passed(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_piece_does_not_keep_the_buffer_it_is_a_part_of() {
        let buffer = Bytes::from(vec![0; 16 << 10]);
        let (small, large) = (buffer.slice(1..200), buffer.slice(1..8_000));
        assert_ne!(kept(&small).as_ptr(), small.as_ptr());
        assert_eq!(kept(&small), small);
        assert_eq!(kept(&large).as_ptr(), large.as_ptr());
    }
}
