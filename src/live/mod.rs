//! What a running session does at this moment.
//!
//! Several sources show it: what the agent publishes about itself, its session file, the sequences it sends to the terminal, its
//! screen. Each agent reads its own ([`crate::agent::Live`]); here they are weighed. Unknown is the default, and idle needs proof:
//! silence is none, and neither is a composer on the screen.

mod decide;
pub mod events;

pub use decide::{Sources, decide};
