//! The machine below: its clock, its time zone, and files that others may have put there.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod calendar;
pub mod clock;
pub mod file;
pub mod home;
pub mod log;
pub mod project;
pub mod truncate;
pub mod watch;
pub mod zone;
