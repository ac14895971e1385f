//! Integration tests, one binary: real processes in real PTYs.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this crate is tests; clippy knows only #[test] functions as such"
)]

mod attach;
mod backend;
mod background;
mod commands;
mod dashboard;
mod delivery;
mod demo;
mod doctor;
mod driver;
mod fake_api;
mod found_store;
mod hostile;
mod installer;
mod late_end;
mod mcp;
mod neighbours;
mod proxied;
mod real_api;
mod real_mcp;
mod real_proxy;
mod real_screens;
mod real_sessions;
mod real_terminal;
mod refused_id;
mod robust;
mod sandbox;
mod shims;
mod stopping;
mod support;
mod transparency;
