//! The host process of a background session.

pub mod send;
pub mod sends;
pub mod waits;
