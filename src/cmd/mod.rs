//! The commands: parse result in, library calls, output.

pub mod completions;
pub mod config;
pub mod doctor;
pub mod init;
pub mod run;
pub mod shim;
