//! Signals to the process one can see, meant for the command one cannot.
use crate::support::processes;
use crate::support::pty::{Exit, Terminal};
use crate::support::wrapper::{Bench, Wrapper};
use rustix::process::Signal;

const COMMAND: &str = "for s in HUP INT QUIT USR1 USR2 TERM PIPE URG WINCH PWR XFSZ BUS SYS; do trap \"echo got $s. >&2\" $s; done
    trap 'exit 3' TERM; echo up >&2; while :; do sleep 1; done";

const SIGNALS: [(Signal, &str); 12] = [
    (Signal::USR1, "got USR1."),
    (Signal::USR2, "got USR2."),
    (Signal::INT, "got INT."),
    (Signal::QUIT, "got QUIT."),
    (Signal::HUP, "got HUP."),
    // No change of size comes with it.
    (Signal::WINCH, "got WINCH."),
    (Signal::PIPE, "got PIPE."),
    (Signal::URG, "got URG."),
    (Signal::POWER, "got PWR."),
    (Signal::XFSZ, "got XFSZ."),
    (Signal::BUS, "got BUS."),
    (Signal::SYS, "got SYS."),
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

/// Whoever knows the pid means this process, and none that it has started.
pub(super) fn term_by_pid_is_for_the_command_alone(bench: &Bench) {
    let command = "sh -c 'trap \"echo child got TERM.\" TERM; while :; do sleep 1; done' & child=$!
        trap 'kill $child; echo parent got TERM.; exit 3' TERM; echo up $$.; while :; do sleep 1; done";
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    let script = bench.home().join("command");
    std::fs::write(&script, command).unwrap();
    terminal.type_line(bench.line(&["sh".as_ref(), script.as_os_str()]));
    let mark = terminal.wait_after(mark, "up ");
    terminal.wait_after(mark, ".");
    // The job that the shell knows: bare the command itself, wrapped codemie. This test is not its parent.
    processes::signal(terminal.foreground(), Signal::TERM);
    let end = terminal.wait_after(mark, "parent got TERM.");
    let text = String::from_utf8_lossy(&terminal.bytes()[mark..end]).into_owned();
    assert!(!text.contains("child got"), "{text}");
}

/// A handler that takes its time, a shell that does not care: a bare program may outlive TERM and a closed window.
#[test]
#[ignore = "takes 24 s; tests/run.sh --full runs it"]
fn nobody_is_killed_for_being_slow_to_end() {
    for wrapper in [Wrapper::Bare, Wrapper::Codemie] {
        let bench = Bench::new(wrapper);
        let command = "trap 'sleep 12; exit 3' TERM; echo up; while :; do sleep 1; done";
        let terminal = bench.start(&["sh", "-c", command]).spawn();
        terminal.wait_text("up");
        processes::signal(terminal.pid(), Signal::TERM);
        assert_eq!(terminal.wait_exit(), Exit::Code(3), "{wrapper:?}");

        let told = bench.home().join("told");
        let mut terminal = bench
            .start_in("trap '' HUP; exec {}", &["sh", "-c", "echo up; sleep 12; echo done >\"$HOME/told\""])
            .spawn();
        terminal.wait_text("up");
        terminal.hang_up();
        assert!(processes::wait_dead(terminal.pid(), bench.timeout()), "{wrapper:?}");
        assert!(told.exists(), "{wrapper:?}: ended with the window");
    }
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
