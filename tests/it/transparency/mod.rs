//! The 22 transparency checks: what a program and a terminal must not be able to tell about a wrapper between them.
//!
//! Each check is a function of a [`Bench`], so that the same check runs bare (the check itself is right), wrapped by codemie
//! (nothing is different) and wrapped naively (the check is able to fail).
mod bytes;
mod ending;
mod exit;
mod identity;
mod naive;
mod size;
mod suspend;

use crate::support::wrapper::{Bench, Wrapper};

type Check = fn(&Bench);

macro_rules! checks {
    ($($room:ident::$check:ident),+ $(,)?) => {
        const CHECKS: [(&str, Check); 22] = [$((stringify!($check), $room::$check)),+];

        mod bare {
            $(#[test] fn $check() { super::$room::$check(&super::Bench::new(super::Wrapper::Bare)); })+
        }

        mod codemie {
            $(#[test] fn $check() { super::$room::$check(&super::Bench::new(super::Wrapper::Codemie)); })+
        }
    };
}

checks! {
    exit::exit_code,
    exit::death_by_signal,
    exit::missing_command,
    size::window_size_with_pixels,
    size::resize_arrives_once,
    exit::last_output_arrives,
    bytes::all_256_bytes_both_ways,
    bytes::paste_of_a_mebibyte,
    bytes::slow_terminal_bounds_memory,
    bytes::interrupt_under_flood,
    bytes::end_of_file_ends_cat,
    identity::arguments_environment_folder,
    identity::inherited_descriptor,
    identity::ignored_hangup_stays_ignored,
    bytes::piped_stdio_is_untouched,
    exit::background_job_does_not_hold_exit,
    ending::modes_restored_after_exit,
    ending::modes_restored_after_sigterm,
    ending::child_dies_with_killed_wrapper,
    suspend::suspend_by_sigstop,
    suspend::suspend_by_sigtstp,
    suspend::suspend_by_control_z,
}
