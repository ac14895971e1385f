//! Gemini CLI: what its arguments mean, where its files are, what its lines mean, what evidence it gives.
//!
//! Facts were measured on 0.61.0. Everything here reads; nothing writes.

mod agent;
mod calls;
mod evidence;
pub mod files;
mod invocation;
pub mod lines;
mod live;
pub mod observer;
mod proxied;
mod route;
mod screen;
mod shape;
mod tools;
mod version;
mod view;
mod writers;

#[cfg(test)]
mod captures_tests;

pub use agent::Gemini;
