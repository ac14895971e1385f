//! One call of a model's API, as the proxy saw it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method};
use types::{Billing, Pid, Timestamp};

use crate::meter::{Api, Metered};
use crate::peer;

/// What a request is, without anything that authenticates it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Counts the requests of one listener.
    pub number: u64,
    /// Which of the listener's routes it took ([`crate::Route::name`]).
    pub route: String,
    pub peer: Peer,
    pub at: Timestamp,
    pub method: Method,
    /// Without the secret and without the query.
    pub path: String,
    /// Without credentials: authorization, API keys and cookies are left out.
    pub headers: HeaderMap,
    pub api: Option<Api>,
    /// By the kind of the agent's credential; `None` also where the route has a credential of its own.
    pub billing: Option<Billing>,
    /// The body, unpacked, where it is one document of bounded size; it never leaves the process.
    pub body: Option<Bytes>,
}

/// Who is on the other end of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its address and the proxy's.
    ends: Option<(SocketAddr, SocketAddr)>,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, own: SocketAddr) -> Self {
        Self { ends: Some((address, own)) }
    }

    /// Whether a process still has the connection open; `None` where the system does not say.
    pub(crate) fn is_there(&self) -> Option<bool> {
        let (address, own) = self.ends?;
        let socket = peer::socket(address, own).ok()?;
        Some(socket.is_some_and(|socket| socket.inode != 0))
    }

    /// The process that has the connection open, where the system shows it; `None` once it is closed. This walks through all of the
    /// user's processes: it is for evidence, not for the way of a request.
    pub fn process(&self) -> Option<Pid> {
        let (address, own) = self.ends?;
        peer::socket(address, own).ok().flatten().and_then(peer::process)
    }
}

/// One call that is over. A connection by WebSocket carries many, a request by HTTP one.
#[derive(Clone, Debug)]
pub struct Call {
    pub request: Request,
    pub transport: Transport,
    /// Of the answer; `None` where none came.
    pub status: Option<u16>,
    pub end: CallEnd,
    /// From the request's first byte to the answer's last.
    pub latency_ms: u64,
    /// To the first byte of the answer's content that a model wrote.
    pub ttft_ms: Option<u64>,
    /// The vendor's id of the request (`request-id`, `x-request-id`).
    pub request_id: Option<String>,
    pub metered: Metered,
    pub quotas: Vec<Quota>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http,
    WebSocket,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    Complete,
    /// The agent gave it up.
    ClientGone,
    /// The API's connection broke in the middle.
    UpstreamGone,
    /// No connection to the API: nothing was sent.
    NotConnected,
    /// The gate refused it: nothing was sent.
    Refused,
}

/// A limit that the API reported with an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Whose limit (`anthropic`, `openai`).
    pub provider: &'static str,
    /// The API's own name of the window: `5h`, `7d`, `primary`.
    pub window: String,
    /// The used part, 0 to 1.
    pub utilization: f64,
    pub resets_at: Option<Timestamp>,
}
