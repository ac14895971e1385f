//! Integration tests, one binary: real processes in real PTYs.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of this crate is tests; clippy knows only #[test] functions as such"
)]

mod driver;
mod real_terminal;
mod support;
