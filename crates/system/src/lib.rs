//! The machine below: its clock, its time zone, and files that others may have put there.

pub mod clock;
pub mod file;
pub mod zone;
