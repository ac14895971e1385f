//! Codex: bound by the locks its process holds, kept in its own process by codemie.

mod clear;
mod ending;
mod exec;
mod resume;
mod switch;
