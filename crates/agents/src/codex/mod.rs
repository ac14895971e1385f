//! OpenAI Codex: what its arguments mean, where its files are, what its lines mean, what evidence it gives.
//!
//! Facts were measured on 0.166.0. Everything here reads; nothing writes.

mod agent;
mod calls;
mod catalog;
mod copies;
mod fallback;
pub mod files;
mod head;
mod invocation;
mod limits;
pub mod lines;
mod live;
pub mod observer;
mod proxied;
mod route;
mod screen;
mod shape;
mod tools;
mod turns;
mod version;
pub mod view;
mod writers;

#[cfg(test)]
mod captures_tests;

pub use agent::Codex;
