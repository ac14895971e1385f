//! Claude Code: what its arguments mean, where its files are, what its lines mean, what evidence it gives.
//!
//! Facts were measured on 2.1.197 and, where they differ, on the versions named beside them. Everything here reads; nothing writes.

mod agent;
mod calls;
pub mod evidence;
pub mod files;
mod flags;
pub mod invocation;
pub mod lines;
mod live;
mod proxied;
mod route;
mod screen;
mod shape;
mod tools;
mod version;
pub mod view;

#[cfg(test)]
mod captures_tests;
#[cfg(test)]
mod cost_state_tests;
#[cfg(test)]
mod replay_tests;

pub use agent::{Claude, FORMAT};
