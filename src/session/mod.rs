//! Sessions: what they are, how they begin and end, which of the agent's conversations each one is.

pub mod id;
