//! What a running session does at this moment.
//!
//! Several sources show it: what the agent publishes about itself, its session file, the sequences it sends to the terminal, its
//! screen. Each agent reads its own ([`agents::Live`]); here they are weighed. Unknown is the default, and idle needs proof:
//! silence is none, and neither is a composer on the screen.

#[cfg(test)]
mod corpus_tests;
mod decide;
pub mod events;
mod turns;
mod unhosted;

pub use decide::{Sources, decide, is_blank};
pub use turns::TurnFeed;
pub use turns::Turns;
pub use unhosted::UnhostedWatch;
pub use unhosted::{UnhostedSession, state_from_files};
