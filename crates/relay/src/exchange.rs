//! One request and its answer, from the first byte to the report of the call.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use os::clock::{Clock, SystemClock};
use types::Timestamp;

use crate::activity::Open;
use crate::body::{Upload, kept};
use crate::meter::{AnswerMeter, Metered, Progress};
use crate::{Api, Call, CallEnd, Observer, Quota, Request, Transport, meter};

/// Reports its call when it goes, in whatever way. An exchange that is dropped before its answer is over was given up by the agent.
pub(crate) struct Exchange {
    observer: Arc<dyn Observer>,
    // `None` after the report.
    state: Option<Box<State>>,
    upload: Arc<Upload>,
    api: Option<Api>,
    transport: Transport,
}

struct State {
    request: Request,
    transport: Transport,
    started: Instant,
    first_content: Option<Instant>,
    status: Option<StatusCode>,
    end: CallEnd,
    request_id: Option<String>,
    quotas: Vec<Quota>,
    /// Of the answer, until it is read, and when it came.
    head: Option<(Timestamp, HeaderMap)>,
    meter: Option<AnswerMeter>,
    unread: Vec<(Instant, Bytes)>,
    unread_length: usize,
    body_limit: usize,
    open: Open,
}

/// What a handshake leaves to its WebSocket.
#[derive(Debug)]
pub(crate) struct Upgraded {
    pub request: Request,
    pub quotas: Vec<Quota>,
    pub open: Open,
}

/// The meter reads after the bytes were written, when nothing else is to be done: at the answer's end, and before it as soon as so
/// much is unread. An event of an answer has some hundred bytes: to have the connection polled for each of them, for the meter
/// alone, would cost more than the reading.
const MUCH_UNREAD: usize = 8 << 10;

/// Where bytes come faster than they are written, it reads beside them from here on, so that what is kept stays bounded.
const UNREAD_LIMIT: usize = 64 << 10;

impl Exchange {
    pub fn new(
        observer: Arc<dyn Observer>,
        request: Request,
        transport: Transport,
        started: Instant,
        body_limit: usize,
        open: Open,
    ) -> Self {
        let upload = Upload::new(if request.api.is_some() { body_limit } else { 0 });
        let api = request.api;
        let state = State {
            request,
            transport,
            started,
            first_content: None,
            status: None,
            end: CallEnd::ClientGone,
            request_id: None,
            quotas: Vec::new(),
            head: None,
            meter: None,
            unread: Vec::new(),
            unread_length: 0,
            body_limit,
            open,
        };
        Self { observer, state: Some(Box::new(state)), upload, api, transport }
    }

    pub fn upload(&self) -> &Arc<Upload> {
        &self.upload
    }

    pub fn api(&self) -> Option<Api> {
        self.api
    }

    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// It has become a WebSocket, whose calls are reported one by one.
    pub fn upgraded(mut self) -> Option<Upgraded> {
        let mut state = self.state.take()?;
        state.read_head();
        Some(Upgraded { request: state.request, quotas: state.quotas, open: state.open })
    }

    pub fn request(&self) -> Option<&Request> {
        self.state.as_ref().map(|state| &state.request)
    }

    /// The body, for the gate: it has arrived before the request is sent.
    pub fn set_body(&mut self, body: Bytes) {
        if let Some(state) = &mut self.state {
            state.request.body = unpacked(&state.request.headers, body, state.body_limit);
        }
    }

    /// The head of the answer has come. It is read when it is on its way to the agent.
    pub fn answered(&mut self, status: StatusCode, headers: HeaderMap) {
        let Some(state) = &mut self.state else { return };
        state.status = Some(status);
        state.head = Some((SystemClock.now(), headers));
    }

    /// What is on its way to the agent.
    pub fn forwarded(&mut self, data: &Bytes) {
        let Some(state) = &mut self.state else { return };
        if state.request.api.is_none() {
            return;
        }
        state.unread.push((Instant::now(), kept(data)));
        state.unread_length += data.len();
        if state.unread_length > UNREAD_LIMIT {
            state.read();
        }
    }

    /// Whether so much was forwarded since the meter last read that it should do so when it disturbs nobody.
    pub fn has_much_unread(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.unread_length > MUCH_UNREAD)
    }

    pub fn meter_forwarded(&mut self) {
        if let Some(state) = &mut self.state {
            state.read();
        }
    }

    pub fn complete(&mut self) {
        self.finish(CallEnd::Complete);
    }

    /// The upstream's connection broke.
    pub fn broke(&mut self) {
        self.finish(CallEnd::UpstreamGone);
    }

    /// Answered by the proxy itself.
    pub fn finish_with(&mut self, end: CallEnd, status: StatusCode) {
        if let Some(state) = &mut self.state {
            state.status = Some(status);
        }
        self.finish(end);
    }

    fn finish(&mut self, end: CallEnd) {
        let Some(mut state) = self.state.take() else { return };
        state.end = end;
        let ended = Instant::now();
        let observer = self.observer.clone();
        let upload = self.upload.clone();
        let report = move || observer.ended(state.into_call(&upload, ended));
        // Beside the way of the bytes: the answer's last ones are not written yet.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async { report() })),
            Err(_) => report(),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.finish(CallEnd::ClientGone);
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl State {
    fn read_head(&mut self) {
        let Some((at, headers)) = self.head.take() else { return };
        self.request_id = ["request-id", "x-request-id", "x-goog-request-id"]
            .iter()
            .find_map(|name| headers.get(*name)?.to_str().ok())
            .map(str::to_owned);
        self.quotas = meter::quotas(&headers, at);
        self.meter = self.request.api.map(|api| AnswerMeter::new(api, &headers));
    }

    fn read(&mut self) {
        self.read_head();
        let Some(meter) = &mut self.meter else { return };
        for (at, data) in self.unread.drain(..) {
            if meter.read(&data) == Progress::FirstContent {
                self.first_content.get_or_insert(at);
            }
        }
        self.unread_length = 0;
    }

    fn into_call(mut self, upload: &Upload, ended: Instant) -> Call {
        self.read();
        if self.request.body.is_none() {
            self.request.body =
                upload.take().and_then(|body| unpacked(&self.request.headers, body, self.body_limit));
        }
        Call {
            transport: self.transport,
            status: self.status.map(|status| status.as_u16()),
            end: self.end,
            latency_ms: milliseconds(self.started, ended),
            ttft_ms: self.first_content.map(|at| milliseconds(self.started, at)),
            request_id: self.request_id,
            metered: self.meter.map_or_else(Metered::default, AnswerMeter::finish),
            quotas: self.quotas,
            request: self.request,
        }
    }
}

/// A request's body as a reader wants it.
fn unpacked(headers: &HeaderMap, body: Bytes, limit: usize) -> Option<Bytes> {
    if headers.contains_key(http::header::CONTENT_ENCODING) {
        return meter::unpacked(headers, &body, limit);
    }
    Some(body)
}

pub(crate) fn milliseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(u64::MAX)
}
