//! The proxy between two ends that record every byte: raw sockets, no HTTP library of its own.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this crate is tests; clippy knows only #[test] functions as such"
)]

mod cancel;
mod exact;
mod gate;
mod message;
mod served;
mod tls;
mod traps;
mod websocket;
