//! The metrics backend: takes events in, once each, and answers queries over them.
//!
//! ```text
//! event                a batch of events of the wire, each checked
//! admit, fold          pure: which events of a batch may be taken in, and what they change in sessions and sums
//! slot                 the pieces of time that sums are kept for
//! storage              the trait; sqlite and postgres implement it (sql, read: shared by both)
//! intake               one batch on its way into a storage
//! api                  the HTTP interface: routes, authentication, description; unpack, limits, metrics, spending
//! bootstrap, database, log  the first start, the choice of a database, the log of a server
//! ```
//!
//! The answers, and the trait that asks for them, are the crate `reader`; the pages are `dashboard`, which [`run`] is handed and
//! which knows no database.
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
pub mod database;
pub mod event;
pub mod fold;
pub mod intake;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod postgres;
pub mod read;
pub mod slot;
mod spending;
pub mod sql;
pub mod sqlite;
pub mod storage;
pub mod unpack;

pub use api::{Backend, Options, Record, run};
