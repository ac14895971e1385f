//! The agent's end of a connection, and what its end of file means.
//!
//! A program that closes its connection and one that only says "I have no more to ask" send the same packet. The first has gone
//! away, and its request is to be cancelled at once; the second waits for its answer. hyper treats both alike. On Linux the list of
//! sockets shows the difference: the second's socket still belongs to a process. Elsewhere both have gone away.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::body::Upload;
use crate::call::Peer;

/// What a connection is doing, known to its stream and to its requests.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    doing: Mutex<Doing>,
    /// Whether a piece of an answer that was handed to hyper waits to be written.
    is_unwritten: AtomicBool,
    /// Whether the answer's body asks to be polled once that is written.
    wants_poll: AtomicBool,
}

#[derive(Debug, Default)]
struct Doing {
    is_answering: bool,
    /// Of the request that is being answered.
    upload: Option<Arc<Upload>>,
    /// Whoever reads the end of file when the answer is over.
    reader: Option<Waker>,
}

impl Conversation {
    /// A request has come. It is answered when what this gives is dropped.
    pub fn begin(self: &Arc<Self>) -> Turn {
        self.lock().is_answering = true;
        Turn(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request and its answer.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Conversation>);

impl Turn {
    pub fn sends(&self, upload: &Arc<Upload>) {
        self.0.lock().upload = Some(upload.clone());
    }

    /// A piece of the answer was handed to hyper, and it is not the last.
    pub fn handed_on(&self) {
        self.0.is_unwritten.store(true, Ordering::Relaxed);
    }

    /// The body is to be polled again when what was handed to hyper is written.
    pub fn poll_when_written(&self) {
        self.0.wants_poll.store(true, Ordering::Relaxed);
    }

    /// Whether what was handed to hyper is still to be written.
    pub fn is_unwritten(&self) -> bool {
        self.0.is_unwritten.load(Ordering::Relaxed)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut doing = self.0.lock();
        doing.is_answering = false;
        doing.upload = None;
        if let Some(reader) = doing.reader.take() {
            reader.wake();
        }
    }
}

/// The agent's connection.
#[derive(Debug)]
pub(crate) struct AgentStream {
    stream: TcpStream,
    conversation: Arc<Conversation>,
    peer: Peer,
    end: End,
}

#[derive(Debug)]
enum End {
    Open,
    /// It asks nothing more, and waits.
    HalfClosed(HalfClosed),
    Gone,
}

#[derive(Debug)]
struct HalfClosed {
    /// Its request must be whole, which may be known a moment later.
    whole_by: Pin<Box<Sleep>>,
    /// When the list of sockets is looked at again, and how long after that the next time.
    next_look: Pin<Box<Sleep>>,
    pause: Duration,
}

impl HalfClosed {
    fn new() -> Self {
        let whole_by = Box::pin(sleep(HANDING_ON));
        Self { whole_by, next_look: Box::pin(sleep(FIRST_LOOK)), pause: FIRST_LOOK }
    }

    /// Whether it is time to look again; asks to be woken for the next time.
    fn looks(&mut self, cx: &mut Context<'_>) -> bool {
        if self.next_look.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        self.next_look = Box::pin(sleep(self.pause));
        // A new timer wakes nobody before it is polled.
        let _ = self.next_look.as_mut().poll(cx);
        true
    }
}

/// A program that closes its connection is listed with it for a moment: the kernel sends the end of file first, and takes the socket
/// from the process after that. Of Codex's interrupted answers on two cores one in five was read in between. So the list is looked
/// at again, soon and then more seldom: hardly anybody really waits with half a connection.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// For a request that has come, but is still being handed on. One that broke off is given up after it.
const HANDING_ON: Duration = Duration::from_secs(1);

impl AgentStream {
    pub fn new(stream: TcpStream, conversation: Arc<Conversation>, peer: Peer) -> Self {
        Self { stream, conversation, peer, end: End::Open }
    }

    fn is_held_open(&self) -> bool {
        self.peer.is_there().unwrap_or(false)
    }
}

impl AsyncRead for AgentStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if matches!(self.end, End::Open) {
            let before = into.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
            if into.filled().len() > before || into.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let waits = self.conversation.lock().is_answering && self.is_held_open();
            self.end = if waits { End::HalfClosed(HalfClosed::new()) } else { End::Gone };
        }
        if let End::HalfClosed(half) = &mut self.end
            && half.looks(cx)
            && !self.is_held_open()
        {
            self.end = End::Gone;
        }
        let Self { conversation, end, .. } = &mut *self;
        if let End::HalfClosed(half) = end {
            let mut doing = conversation.lock();
            let is_whole = doing.upload.as_ref().is_some_and(|upload| upload.is_done());
            if doing.is_answering && (is_whole || half.whole_by.as_mut().poll(cx).is_pending()) {
                doing.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AgentStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written all it had.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.conversation.is_unwritten.swap(false, Ordering::Relaxed)
            && self.conversation.wants_poll.swap(false, Ordering::Relaxed)
        {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How often an agent is looked for whose request the upstream does not take.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// `None`: the agent went away before its request was whole. hyper reads nothing from an agent while the upstream takes nothing, so it
/// does not see the end of the agent's connection, either. A request that is sent at once is not looked after.
pub(crate) async fn while_the_agent_is_there<T>(
    peer: Peer,
    upload: &Upload,
    sending: impl Future<Output = T>,
) -> Option<T> {
    let mut sending = pin!(sending);
    let mut next_look: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if let Poll::Ready(sent) = sending.as_mut().poll(cx) {
            return Poll::Ready(Some(sent));
        }
        while !upload.is_done() {
            let look = next_look.get_or_insert_with(|| Box::pin(sleep(NEXT_LOOK)));
            ready!(look.as_mut().poll(cx));
            if peer.is_there() == Some(false) {
                return Poll::Ready(None);
            }
            next_look = None;
        }
        Poll::Pending
    })
    .await
}
