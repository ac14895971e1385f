//! Odd surroundings: what codemie must do in them is what the bare command does, so each test runs both ways.
mod background;
mod descriptors;
mod leaks;
mod nesting;
mod signals;
mod surroundings;

macro_rules! both {
    ($($room:ident::$test:ident),+ $(,)?) => {
        mod bare {
            use crate::support::wrapper::{Bench, Wrapper};
            $(#[test] fn $test() { super::$room::$test(&Bench::new(Wrapper::Bare)); })+
        }

        mod codemie {
            use crate::support::wrapper::{Bench, Wrapper};
            $(#[test] fn $test() { super::$room::$test(&Bench::new(Wrapper::Codemie)); })+
        }
    };
}

both! {
    background::finishes_in_the_background,
    background::reader_is_stopped_until_fg,
    background::comes_to_the_foreground_while_running,
    descriptors::closed_descriptors_stay_closed,
    descriptors::redirected_stderr_gets_its_bytes,
    descriptors::redirected_stdout_gets_its_bytes,
    descriptors::few_descriptors,
    descriptors::very_few_descriptors,
    leaks::many_runs_leave_nothing_behind,
    nesting::inside_tmux,
    nesting::inside_screen,
    signals::signals_reach_the_command,
    signals::signals_reach_the_command_in_a_pipeline,
    signals::killed_wrapper_in_a_pipeline_leaves_nobody,
    signals::closed_window_ends_the_command,
    surroundings::no_home,
    surroundings::home_that_is_no_folder,
    surroundings::no_controlling_terminal,
    surroundings::deleted_folder,
    surroundings::command_named_by_odd_bytes,
    surroundings::not_executable,
    surroundings::process_attributes,
}
