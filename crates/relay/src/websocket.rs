//! A WebSocket: bytes both ways, and on a copy of them the calls that it carries.
//!
//! Frames are not touched: masks, fragments, compression and pings are the two ends' own affair.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use os::clock::{Clock, SystemClock};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::activity::Open;
use crate::body::Upload;
use crate::conversation::while_the_agent_is_there;
use crate::exchange::{Upgraded, milliseconds};
use crate::meter::{Metered, Moment, SocketMeter};
use crate::{Call, CallEnd, Gate, Observer, Quota, Request, Transport, Verdict};

pub(crate) struct WebSocket {
    gate: Arc<dyn Gate>,
    calls: Mutex<Calls>,
    _open: Open,
}

/// The calls of one connection, one after the other.
struct Calls {
    observer: Arc<dyn Observer>,
    requests: Arc<AtomicU64>,
    handshake: Request,
    meter: Option<SocketMeter>,
    quotas: Vec<Quota>,
    /// Begun and not ended, the oldest first, as the meter has them.
    open: VecDeque<OpenCall>,
}

struct OpenCall {
    request: Request,
    started: Instant,
    first_content: Option<Instant>,
}

/// As much as is read at once. A frame of an answer has some hundred bytes.
const PIECE: usize = 16 << 10;

/// One end is gone. The other may still have something to say, but not for ever.
const FAREWELL: Duration = Duration::from_secs(5);

impl WebSocket {
    pub fn new(
        gate: Arc<dyn Gate>,
        observer: Arc<dyn Observer>,
        requests: Arc<AtomicU64>,
        handshake: Upgraded,
        meter: Option<SocketMeter>,
    ) -> Self {
        let Upgraded { request, quotas, open } = handshake;
        let calls = Calls { observer, requests, handshake: request, meter, quotas, open: VecDeque::new() };
        Self { gate, calls: Mutex::new(calls), _open: open }
    }

    /// Until both ends are gone.
    pub async fn tunnel(self, agent: OnUpgrade, upstream: OnUpgrade) {
        let (agent, upstream) = match tokio::try_join!(agent, upstream) {
            Ok(ends) => ends,
            Err(error) => {
                tracing::debug!(%error, "a WebSocket did not come about");
                return;
            }
        };
        let (from_agent, to_agent) = tokio::io::split(TokioIo::new(agent));
        let (from_upstream, to_upstream) = tokio::io::split(TokioIo::new(upstream));
        let mut sending = std::pin::pin!(self.pass_sent(from_agent, to_upstream));
        let mut receiving = std::pin::pin!(self.pass_received(from_upstream, to_agent));
        let end = tokio::select! {
            sent = &mut sending => {
                if sent.is_ok() {
                    let _ = tokio::time::timeout(FAREWELL, receiving).await;
                }
                CallEnd::ClientGone
            }
            received = &mut receiving => {
                if received.is_ok() {
                    let _ = tokio::time::timeout(FAREWELL, sending).await;
                }
                CallEnd::UpstreamGone
            }
        };
        self.calls().close(end);
    }

    async fn pass_sent(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return to.shutdown().await;
            }
            // Before they are sent: a call may have to be refused, by a limit that was set after the handshake.
            let begun = self.calls().sent(&piece[..length]);
            for request in begun {
                // Nothing is read from the agent meanwhile, so its end would not be seen.
                let unread = Upload::new(0);
                match while_the_agent_is_there(request.peer, &unread, self.gate.admit(&request)).await {
                    Some(Verdict::Go) => {}
                    Some(Verdict::Refuse(_)) => {
                        self.calls().refuse();
                        // The agent comes again, is answered 426, and hears the reason on a plain request.
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                    None => return Err(io::ErrorKind::BrokenPipe.into()),
                }
            }
            to.write_all(&piece[..length]).await?;
            to.flush().await?;
        }
    }

    async fn pass_received(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return to.shutdown().await;
            }
            to.write_all(&piece[..length]).await?;
            to.flush().await?;
            self.calls().received(&piece[..length]);
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calls {
    /// The requests that began with these bytes.
    fn sent(&mut self, bytes: &[u8]) -> Vec<Request> {
        let moments = self.meter.as_mut().map(|meter| meter.sent(bytes)).unwrap_or_default();
        self.note(moments)
    }

    fn received(&mut self, bytes: &[u8]) {
        let moments =
            self.meter.as_mut().map(|meter| meter.received(bytes, SystemClock.now())).unwrap_or_default();
        self.note(moments);
    }

    fn note(&mut self, moments: Vec<Moment>) -> Vec<Request> {
        let mut begun = Vec::new();
        for moment in moments {
            match moment {
                Moment::Began { body } => {
                    let request = Request {
                        number: self.requests.fetch_add(1, Ordering::Relaxed),
                        at: SystemClock.now(),
                        body,
                        ..self.handshake.clone()
                    };
                    self.observer.began(&request);
                    begun.push(request.clone());
                    self.open.push_back(OpenCall { request, started: Instant::now(), first_content: None });
                }
                Moment::FirstContent => {
                    if let Some(call) = self.open.front_mut() {
                        call.first_content.get_or_insert_with(Instant::now);
                    }
                }
                Moment::Quotas(quotas) => self.quotas.extend(quotas),
                Moment::Ended(metered) => {
                    if let Some(call) = self.open.pop_front() {
                        self.report(call, CallEnd::Complete, metered);
                    }
                }
            }
        }
        begun
    }

    fn report(&mut self, call: OpenCall, end: CallEnd, metered: Metered) {
        self.observer.ended(Call {
            transport: Transport::WebSocket,
            status: Some(http::StatusCode::SWITCHING_PROTOCOLS.as_u16()),
            end,
            latency_ms: milliseconds(call.started, Instant::now()),
            ttft_ms: call.first_content.map(|at| milliseconds(call.started, at)),
            request_id: None,
            metered,
            quotas: std::mem::take(&mut self.quotas),
            request: call.request,
        });
    }

    /// The last request is not passed on.
    fn refuse(&mut self) {
        if let Some(call) = self.open.pop_back() {
            self.report(call, CallEnd::Refused, Metered::default());
        }
    }

    fn close(&mut self, end: CallEnd) {
        let mut metered = self.meter.take().map(SocketMeter::finish).unwrap_or_default().into_iter();
        while let Some(call) = self.open.pop_front() {
            self.report(call, end, metered.next().unwrap_or_default());
        }
    }
}

/// A tunnel that is dropped with its runtime still reports the call under way.
impl Drop for Calls {
    fn drop(&mut self) {
        self.close(CallEnd::ClientGone);
    }
}
