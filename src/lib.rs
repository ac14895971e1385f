//! codemie: a transparent, exact meter in front of coding agents. ARCHITECTURE.md describes crates, processes and invariants.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod cli;
pub mod cmd;
pub mod demo;
pub mod doctor;
pub mod failure;
mod former_copies;
pub mod fullscreen;
pub mod history;
pub mod progress;
#[cfg(test)]
mod scribe_tests;
