//! Sessions: what they are, how they begin and end, which of the agent's conversations each one is.

pub mod correlate;
pub mod id;
