//! Odd surroundings: what codemie must do in them is what the bare command does, so each test runs both ways.
mod background;
mod descriptors;
mod jobs;
mod leaks;
mod nesting;
mod shells;
mod signals;
mod streams;
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
    jobs::resized_while_stopped,
    jobs::terminated_while_stopped,
    jobs::killed_while_stopped,
    jobs::stopped_from_outside,
    jobs::stopped_by_a_read_signal,
    jobs::stop_without_a_shell,
    jobs::pipeline_stops_and_goes_on,
    jobs::pipeline_is_interrupted,
    leaks::many_runs_leave_nothing_behind,
    nesting::inside_tmux,
    nesting::tmux_names_the_program,
    nesting::inside_screen,
    signals::signals_reach_the_command,
    signals::signals_reach_the_command_in_a_pipeline,
    signals::term_by_pid_is_for_the_command_alone,
    signals::killed_wrapper_in_a_pipeline_leaves_nobody,
    signals::closed_window_ends_the_command,
    signals::deaf_command_dies_with_killed_wrapper,
    streams::type_ahead_is_not_lost,
    streams::begun_line_is_shown_once,
    streams::interrupt_drops_waiting_output,
    streams::output_flows_while_input_is_stuck,
    streams::noisy_background_job_does_not_hold_exit,
    streams::command_that_lets_go_of_the_terminal,
    streams::two_terminals,
    surroundings::no_home,
    surroundings::home_that_is_no_folder,
    surroundings::no_controlling_terminal,
    surroundings::session_led_from_another_pid_namespace,
    surroundings::deleted_folder,
    surroundings::command_named_by_odd_bytes,
    surroundings::not_executable,
    surroundings::process_attributes,
}
