//! The metrics backend: takes events in, once each, and answers what they add up to.
//!
//! ```text
//! event, attributes    one event of the wire, checked
//! seqs, fold           pure: what a batch changes in a session and in the sums
//! numbers, model       what is added up, and what is read
//! storage              the traits; sqlite and postgres implement them
//! dashboard            the same read model as pages
//! copy                 a local store as a backend of its own, for the same pages
//! ```
//!
//! What decides is in `fold` and the same for every storage: a storage only says which events it had not seen and writes
//! what it is told. Sums are kept by the transaction that takes the events in, so they hold whatever comes twice, late,
//! revised, or to two nodes at once.

pub mod attributes;
pub mod copy;
pub mod dashboard;
pub mod event;
pub mod fold;
pub mod intake;
pub mod model;
pub mod numbers;
pub mod read;
pub mod seqs;
pub mod sql;
pub mod sqlite;
pub mod storage;
pub mod token;
