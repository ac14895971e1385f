//! codemie: a transparent, exact meter in front of coding agents. ARCHITECTURE.md is the map of the house.

pub mod clock;
pub mod home;
pub mod meter;
pub mod process;
pub mod session;
pub mod store;
