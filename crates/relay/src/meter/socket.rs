//! The meter of a WebSocket, which carries many calls one after the other.
//!
//! The agent begins a call with a message of type `response.create`. The API answers with the events that it would stream, one
//! a message, until one of them is the answer's last. Answers come in the order of the requests.

use std::collections::VecDeque;
use std::mem;

use bytes::Bytes;
use http::HeaderMap;
use http::header::SEC_WEBSOCKET_EXTENSIONS;
use types::Timestamp;

use super::api::{Account, Facts, Form, is_last_response_event};
use super::frames::{Compression, Direction, Messages};
use super::json::{Scanner, Value, Values};
use super::quotas::ReportedLimits;
use super::{Api, Metered, Unread};
use crate::Quota;

/// A longer message of the agent is not kept for the one who identifies the call. A conversation that fills its window has
/// two megabytes.
const LARGEST_BODY: usize = 4 << 20;
/// The agent waits for an answer before it asks again. More open calls than this are not its doing.
const MOST_CALLS: usize = 64;

/// Reads both directions of one connection, from the first byte behind the handshake.
#[derive(Debug)]
pub struct SocketMeter {
    api: Api,
    sent: Direction,
    received: Direction,
    request: RequestMessage,
    event: EventMessage,
    /// Begun and not ended, the oldest first.
    calls: VecDeque<OpenCall>,
}

/// What bytes of a WebSocket brought, in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Moment {
    /// The agent asked for an answer. The message, where it is of bounded size: it stands for the body of a request.
    Began { body: Option<Bytes> },
    /// The first byte that a model wrote in the oldest call that has not ended.
    FirstContent,
    /// Limits come as messages here, for want of headers.
    Quotas(Vec<Quota>),
    /// The oldest call that had not ended is over.
    Ended(Metered),
}

#[derive(Debug)]
struct OpenCall {
    account: Account,
    content_reported: bool,
}

impl OpenCall {
    fn new(api: Api) -> Self {
        Self { account: Account::new(api), content_reported: false }
    }
}

impl SocketMeter {
    /// `answer`: the headers of the API's answer to the handshake, which say how messages are compressed.
    pub fn new(api: Api, answer: &HeaderMap) -> Self {
        let (client, server) = compressions(answer);
        Self {
            api,
            sent: Direction::new(client),
            received: Direction::new(server),
            request: RequestMessage::default(),
            event: EventMessage::new(api),
            calls: VecDeque::new(),
        }
    }

    /// The next bytes from the agent.
    pub fn sent(&mut self, bytes: &[u8]) -> Vec<Moment> {
        self.sent.read(bytes, &mut self.request);
        let mut moments = Vec::new();
        for body in self.request.ready.drain(..) {
            if self.calls.len() < MOST_CALLS {
                self.calls.push_back(OpenCall::new(self.api));
                moments.push(Moment::Began { body });
            }
        }
        moments
    }

    /// The next bytes from the API.
    pub fn received(&mut self, bytes: &[u8], now: Timestamp) -> Vec<Moment> {
        let mut into = Receiving { event: &mut self.event, calls: &mut self.calls, now, moments: Vec::new() };
        self.received.read(bytes, &mut into);
        into.look_for_content();
        into.moments
    }

    /// The connection is over: what is known of each call that has not ended, the oldest first.
    pub fn finish(mut self) -> Vec<Metered> {
        if let Some(call) = self.calls.front_mut() {
            call.account.apply_cut(&self.event.facts, Form::Event);
        }
        let broken = self.received.broken();
        let metered = self.calls.into_iter().map(|call| call.account.metered);
        metered.map(|metered| Metered { unread: metered.unread.or(broken), ..metered }).collect()
    }
}

/// How messages of the agent and of the API are compressed.
fn compressions(answer: &HeaderMap) -> (Compression, Compression) {
    let extensions = answer.get_all(SEC_WEBSOCKET_EXTENSIONS).iter().filter_map(|value| value.to_str().ok());
    for extension in extensions.flat_map(|value| value.split(',')) {
        let mut parts = extension.split(';').map(|part| part.trim().to_ascii_lowercase());
        if parts.next().as_deref() == Some("permessage-deflate") {
            let parameters: Vec<String> = parts.collect();
            let of = |name: &str| {
                let alone = parameters.iter().any(|parameter| parameter == name);
                if alone { Compression::EachAlone } else { Compression::Takeover }
            };
            return (of("client_no_context_takeover"), of("server_no_context_takeover"));
        }
    }
    (Compression::None, Compression::None)
}

/// The message of the agent that is being read.
#[derive(Debug, Default)]
struct RequestMessage {
    scanner: Scanner,
    kind: RequestKind,
    body: Vec<u8>,
    too_large: bool,
    /// Whole messages that begin calls.
    ready: Vec<Option<Bytes>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestKind {
    #[default]
    Unknown,
    Create,
    Other,
}

impl Values for RequestKind {
    fn value(&mut self, path: &str, value: Value<'_>) {
        if path == "type" {
            *self = if value == Value::Text("response.create") { Self::Create } else { Self::Other };
        }
    }

    fn document_ends(&mut self) {}
}

impl Messages for RequestMessage {
    fn payload(&mut self, bytes: &[u8]) {
        self.scanner.read(bytes, &mut self.kind);
        self.too_large |= bytes.len() > LARGEST_BODY - self.body.len();
        if self.too_large || self.kind == RequestKind::Other {
            self.body = Vec::new();
        } else {
            self.body.extend_from_slice(bytes);
        }
    }

    fn message_ends(&mut self) {
        let body = Bytes::from(mem::take(&mut self.body));
        let too_large = mem::take(&mut self.too_large);
        if mem::take(&mut self.kind) == RequestKind::Create && self.ready.len() < MOST_CALLS {
            self.ready.push((!too_large).then_some(body));
        }
        self.scanner.reset();
    }
}

/// The message of the API that is being read.
#[derive(Debug)]
struct EventMessage {
    api: Api,
    scanner: Scanner,
    facts: Facts,
    limits: ReportedLimits,
    /// Knows the paths; what it has of a call is not used.
    paths: Account,
    is_whole: bool,
}

impl EventMessage {
    fn new(api: Api) -> Self {
        Self {
            api,
            scanner: Scanner::default(),
            facts: Facts::default(),
            limits: ReportedLimits::default(),
            paths: Account::new(api),
            is_whole: false,
        }
    }
}

struct EventValues<'a> {
    facts: &'a mut Facts,
    limits: &'a mut ReportedLimits,
    paths: &'a Account,
    is_whole: &'a mut bool,
}

impl Values for EventValues<'_> {
    fn value(&mut self, path: &str, value: Value<'_>) {
        self.paths.note(self.facts, path, value);
        self.limits.note(path, value);
    }

    fn document_ends(&mut self) {
        *self.is_whole = true;
    }
}

struct Receiving<'a> {
    event: &'a mut EventMessage,
    calls: &'a mut VecDeque<OpenCall>,
    now: Timestamp,
    moments: Vec<Moment>,
}

impl Receiving<'_> {
    fn look_for_content(&mut self) {
        let Some(call) = self.calls.front_mut() else { return };
        call.account.look_for_content(&self.event.facts, Form::Event);
        if call.account.has_content && !mem::replace(&mut call.content_reported, true) {
            self.moments.push(Moment::FirstContent);
        }
    }
}

impl Messages for Receiving<'_> {
    fn payload(&mut self, bytes: &[u8]) {
        let EventMessage { scanner, facts, limits, paths, is_whole, .. } = &mut *self.event;
        scanner.read(bytes, &mut EventValues { facts, limits, paths, is_whole });
    }

    fn message_ends(&mut self) {
        let facts = mem::take(&mut self.event.facts);
        let limits = mem::take(&mut self.event.limits);
        let is_whole = mem::take(&mut self.event.is_whole);
        self.event.scanner.reset();
        let kind = facts.kind.clone().unwrap_or_default();
        if kind == "codex.rate_limits" {
            let quotas = limits.quotas(self.now);
            if !quotas.is_empty() {
                self.moments.push(Moment::Quotas(quotas));
            }
            return;
        }
        if self.calls.is_empty() && kind == "response.created" {
            // Its request was not seen.
            self.calls.push_back(OpenCall::new(self.event.api));
            self.moments.push(Moment::Began { body: None });
        }
        let Some(call) = self.calls.front_mut() else { return };
        if is_whole {
            call.account.apply(facts, Form::Event);
        } else {
            call.account.metered.unread.get_or_insert(Unread::Form);
        }
        self.look_for_content();
        if is_whole
            && (is_last_response_event(&kind) || kind == "error")
            && let Some(call) = self.calls.pop_front()
        {
            self.moments.push(Moment::Ended(call.account.metered));
        }
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
