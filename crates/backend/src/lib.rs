//! The metrics backend: takes events in, once each, and answers queries over them.
//!
//! ```text
//! event                a batch of events of the wire, each checked
//! admit, seqs, fold    pure: which events of a batch may be taken in, and what they change in sessions and sums
//! numbers, model       the sums, and the read model
//! storage              the traits; sqlite and postgres implement them (sql, read: shared by both)
//! intake               one batch on its way into a storage
//! api                  the HTTP interface: routes, authentication, description; unpack, limits, metrics, spending
//! server, connections, timeouts  connections, their limits, and how long a client may take
//! token                who may do what: roles and owners
//! bootstrap, database, log  the first start, the choice of a database, the log of a server
//! dashboard            the same read model as pages
//! ```
//!
//! Decisions are made in `admit` and `fold`, the same for every storage: a storage only finds the events that are new and writes the
//! changes. The transaction that takes events in also updates the sums, so they are right however often, late or revised
//! an event comes, and to two nodes at once.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod admit;
pub mod api;
pub mod bootstrap;
pub mod connections;
pub mod dashboard;
pub mod database;
pub mod event;
pub mod fold;
pub mod intake;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod model;
pub mod numbers;
pub mod postgres;
pub mod read;
pub mod seqs;
pub mod server;
mod spending;
pub mod sql;
pub mod sqlite;
pub mod storage;
pub mod timeouts;
pub mod token;
pub mod unpack;

pub use api::{Backend, Options};
pub use server::{run, serve};
