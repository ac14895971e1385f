//! Delivery: events leave the outbox and arrive once, whatever happens on the way.
//!
//! One loop ([`drain`]) per sink takes what its cursor has not passed, sends it and notes what the receiver said. Any
//! number of processes may run it: a lease lets one send, and receivers that know every event's id do not mind if two do.
//! What to do with an answer is decided purely ([`answer`], [`backoff`], [`batch`]); [`http`] is thin.
//!
//! Promises: nothing here touches the terminal or keeps an agent waiting; without a configured receiver there is no
//! thread, no connection and no file; a receiver that lies, hangs or floods costs bounded memory and time and loses
//! nothing; no secret is logged or told.

pub mod answer;
mod ask;
pub mod backoff;
pub mod batch;
mod codemie_v1;
mod drain;
pub mod foreign;
pub mod http;
pub mod identity;
mod lease;
mod native;
mod otlp;
mod plan;
mod preview;
mod rest;
mod sender;
mod sink;

pub use ask::{ask, ask_all};
pub use drain::{DeliveryCount, Drain, Idle, Pace, Progress};
pub use identity::Identity;
pub use native::{Credential, Native, local_token};
pub use preview::{preview, show};
pub use rest::{COMMAND, Leftovers, finish_rest, leave_rest};
pub use sender::{Hint, Sender};
pub use sink::{CODEMIE_V1, NATIVE, Sink, Sinks, Target, reconfigure, settle};
