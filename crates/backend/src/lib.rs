//! The metrics backend: takes events in, once each, and answers what they add up to.
//!
//! ```text
//! event                a batch of events of the wire, each checked
//! admit, seqs, fold    pure: what of a batch may be taken in, and what it changes in a session and in the sums
//! numbers, model       what is added up, and what is read
//! storage              the traits; sqlite and postgres implement them (sql, read: what both have in common)
//! intake               one batch on its way into a storage
//! api                  routes, tokens, limits, the description; unpack, limits, metrics
//! server, seats, patience  connections, who may hold one, and how long a client may take; first, database, log: what a process around it needs
//! dashboard            the same read model as pages
//! ```
//!
//! What decides is in `fold` and the same for every storage: a storage only says which events it had not seen and writes
//! what it is told. Sums are kept by the transaction that takes the events in, so they hold whatever comes twice, late,
//! revised, or to two nodes at once.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod admit;
pub mod api;
pub mod dashboard;
pub mod database;
pub mod event;
pub mod first;
pub mod fold;
pub mod intake;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod model;
pub mod numbers;
pub mod patience;
pub mod postgres;
pub mod read;
pub mod seats;
pub mod seqs;
pub mod server;
pub mod sql;
pub mod sqlite;
pub mod storage;
pub mod token;
pub mod unpack;

pub use api::{Backend, Options};
pub use server::{run, serve};
