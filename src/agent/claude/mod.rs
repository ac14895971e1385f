//! Claude Code: what its arguments mean, where its files are, what its lines say, what evidence it gives.
//!
//! Facts were measured on 2.1.197. Everything here reads; nothing writes.

mod flags;
pub mod invocation;
pub mod lines;
mod loose;
mod shape;
mod tools;

#[cfg(test)]
mod captures_tests;

mod agent;
pub use agent::Claude;
