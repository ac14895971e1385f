//! The commands: parse result in, library calls, output.

pub mod run;
