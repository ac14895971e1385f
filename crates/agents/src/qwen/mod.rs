//! Qwen Code: what its arguments mean, what its lines mean, what its screen shows. Where its files are and what evidence it
//! gives is the registry kit's, with a format of its own.
//!
//! Facts were measured on 0.24.4. Everything here reads; nothing writes. Known limits:
//! - Calls that the agent writes nowhere are seen only by the proxy: suggestions for the next prompt (about one a turn), the
//!   classifier of the auto mode (one per tool call), and what is under way at `/quit`.
//! - A conversation that was cancelled has no line that says so; the screen shows it.

mod agent;
mod calls;
mod invocation;
mod lines;
mod route;
mod screen;
mod shape;
mod view;

#[cfg(test)]
mod tests;

pub use agent::Qwen;
