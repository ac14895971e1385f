//! Who may stop a request before it is sent.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::Request;

/// Asked once for each request that spends tokens, before its first byte goes upstream.
pub trait Gate: Send + Sync + 'static {
    /// Whether anything could be refused now. Then the gate sees the whole body of a request (up to
    /// [`crate::Settings::body_limit`]), which is read before the first byte goes upstream; and the agent is asked to use plain
    /// requests instead of a WebSocket, where a call could only be refused by closing. Else a request is passed on as it comes,
    /// and the gate is asked with its head.
    fn is_limiting(&self) -> bool {
        false
    }

    /// It may take its time: nothing but this request waits for it. Dropped, it is given up: the agent has gone.
    fn admit<'a>(&'a self, request: &'a Request) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    Refuse(Refusal),
}

/// Answered in the API's own form of an error, with status 429.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which rule, and how to go on: the agent shows it to its user.
    pub message: String,
    pub retry_after: Option<Duration>,
}
