//! Signals to the process one can see, meant for the command one cannot.
use crate::support::processes;
use crate::support::pty::{Exit, Terminal};
use crate::support::wrapper::Bench;
use rustix::process::Signal;

const COMMAND: &str = "for s in HUP INT QUIT USR1 USR2 TERM; do trap \"echo got $s. >&2\" $s; done
    trap 'exit 3' TERM; echo up >&2; while :; do sleep 1; done";

const SIGNALS: [(Signal, &str); 5] = [
    (Signal::USR1, "got USR1."),
    (Signal::USR2, "got USR2."),
    (Signal::INT, "got INT."),
    (Signal::QUIT, "got QUIT."),
    (Signal::HUP, "got HUP."),
];

pub(super) fn signals_reach_the_command(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", COMMAND]).spawn();
    signals_reach(&terminal);
}

/// Standard input and output are no terminal, so there is no inner one either.
pub(super) fn signals_reach_the_command_in_a_pipeline(bench: &Bench) {
    let terminal = bench.start_in("exec {} </dev/null >/dev/null", &["sh", "-c", COMMAND]).spawn();
    signals_reach(&terminal);
}

fn signals_reach(terminal: &Terminal) {
    terminal.wait_text("up");
    let mut mark = 0;
    for (signal, answer) in SIGNALS {
        processes::signal(terminal.pid(), signal);
        mark = terminal.wait_after(mark, answer);
    }
    processes::signal(terminal.pid(), Signal::TERM);
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
}

pub(super) fn killed_wrapper_in_a_pipeline_leaves_nobody(bench: &Bench) {
    let command = "echo up >&2; exec sleep 60";
    let terminal = bench.start_in("exec {} </dev/null >/dev/null", &["sh", "-c", command]).spawn();
    terminal.wait_text("up");
    let family = processes::family(terminal.pid());
    processes::signal(terminal.pid(), Signal::KILL);
    assert_eq!(terminal.wait_exit(), Exit::Signal(9));
    processes::assert_gone(&family, bench.timeout());
}

pub(super) fn closed_window_ends_the_command(bench: &Bench) {
    let mut terminal = bench.start(&["sh", "-c", "echo up; exec sleep 60"]).spawn();
    terminal.wait_text("up");
    let family = processes::family(terminal.pid());
    terminal.hang_up();
    assert_eq!(terminal.wait_exit().shell_code(), 129);
    processes::assert_gone(&family, bench.timeout());
}

/// The command ignores whatever can be ignored.
pub(super) fn deaf_command_dies_with_killed_wrapper(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", "trap '' HUP INT QUIT TERM; echo up; exec sleep 60"]).spawn();
    terminal.wait_text("up");
    let family = processes::family(terminal.pid());
    processes::signal(terminal.pid(), Signal::KILL);
    assert_eq!(terminal.wait_exit(), Exit::Signal(9));
    processes::assert_gone(&family, bench.timeout());
}
