//! A reverse proxy on loopback between a coding agent and its model's API.
//!
//! It passes bytes on, both ways, unchanged and at once. On a copy of them it reads what each call used ([`meter`]). It knows no
//! agent, no session and no store: whoever runs it hands in where requests go ([`Route`]), who may stop one before it is sent
//! ([`Gate`]), and who is told of each call ([`Observer`]).
//!
//! Constraints: a request is sent once; no answer is made up but refusals before anything was sent; a gate that does not limit delays no
//! byte; the meter works after the bytes were written and keeps nothing of an answer. docs/proxy.md lists what is not byte for byte,
//! docs/design/20-relay.md has decisions and measurements.

mod activity;
mod body;
mod call;
mod conversation;
mod credentials;
mod exchange;
mod head;
pub mod meter;
mod peer;
mod refusal;
mod relay;
mod route;
mod serve;
mod upstream;
mod websocket;

pub use activity::Activity;
pub use call::{Call, CallEnd, Peer, Quota, Request, Transport};
pub use meter::{Api, Metered, Unread};
pub use refusal::{Gate, Refusal, Verdict};
pub use route::{Auth, Route, Secret, Upstream};
pub use serve::{Proxies, Settings, serve};

/// Who is told of calls. Neither method may wait: both are called on the thread that passes bytes on, or beside it.
pub trait Observer: Send + Sync + 'static {
    /// A request has come in and is about to be sent. Its body may not be known yet.
    fn began(&self, _request: &Request) {}

    /// A call is over, answered or not.
    fn ended(&self, call: Call);
}
