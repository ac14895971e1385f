//! The agents: the only room that knows one from another.

pub mod claude;
