//! Delivery: events leave the outbox and arrive once, whatever happens on the way.
//!
//! One loop ([`drain`]) per receiver sends the events that its cursor has not passed and records the answers. Any number of
//! processes may run it: a lease lets one send at a time, and receivers that know every event's id do not mind if two do.
//!
//! Modules use only those to the left or above:
//!
//! ```text
//! answer                                   pure: what an answer means, what follows for a batch, how long to wait
//! http  identity                           one request, one answer; who we are
//! sink                                     what receivers differ in (the trait)
//! native  otlp  codemie_v1                 the receivers
//! direct  foreign  preview                 without an outbox: post, foreign conversations, print
//! configured                               the receivers that the settings name, and how the store learns of them
//! plan  lease                              what the next step does, how much fits; who may send
//! drain                                    the loop
//! detached                                 the process that sends what a run could not wait for
//! sender                                   the thread of a run, or of any process that lives long
//! ```
//!
//! Promises: nothing here writes to the terminal or keeps an agent waiting. Without a configured receiver there is no thread,
//! no connection and no file. A receiver that lies, hangs or floods costs bounded memory and time and loses nothing. No secret
//! is logged or shown.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

mod answer;
mod codemie_v1;
mod configured;
mod detached;
mod direct;
mod drain;
pub mod foreign;
pub mod http;
pub mod identity;
mod lease;
mod native;
mod otlp;
mod plan;
mod preview;
mod sender;
mod sink;

pub use codemie_v1::CODEMIE_V1;
pub use configured::{Sinks, Target, address_setting};
pub use configured::{reconfigure, register};
pub use detached::{COMMAND, deliver_pending, needs_delivery, spawn_delivery};
pub use direct::post;
pub use drain::Drain;
pub use http::{ask, ask_all};
pub use identity::Identity;
pub use native::{Credential, NATIVE, Native, local_token};
pub use preview::{delivered, preview, show};
pub use sender::{DeliveryCount, Idle, Pace, Progress};
pub use sender::{Hint, Sender};
pub use sink::Sink;
