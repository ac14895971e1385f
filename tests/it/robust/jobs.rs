//! Job control beyond the plain stop and `fg`.
use crate::support::processes;
use crate::support::pty::{Exit, Terminal};
use crate::support::wrapper::Bench;
use rustix::process::Signal;

const COMMAND: &str = "echo u''p; while read line; do echo \"got $line.\"; stty size; done";

/// Types the command and stops it; returns the terminal and the mark behind the shell's prompt.
fn stopped(bench: &Bench) -> (Terminal, usize, Vec<i32>) {
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    terminal.type_line(bench.line(&["sh", "-c", COMMAND]));
    let mark = terminal.wait_after(mark, "up\r\n");
    let job = processes::family(terminal.foreground());
    terminal.send(b"\x1a");
    let mark = terminal.wait_prompt(mark);
    (terminal, mark, job)
}

pub(super) fn resized_while_stopped(bench: &Bench) {
    let (terminal, mark, _job) = stopped(bench);
    terminal.resize(33, 99);
    terminal.type_line("fg");
    terminal.type_line("hello");
    terminal.wait_after(mark, "got hello.\r\n33 99\r\n");
}

/// A stopped process takes the signal when it is continued.
pub(super) fn terminated_while_stopped(bench: &Bench) {
    let (terminal, mark, job) = stopped(bench);
    terminal.type_line("kill %1; fg");
    terminal.wait_prompt(mark);
    assert_eq!(terminal.modes(), terminal.first_modes());
    processes::assert_gone(&job, bench.timeout());
}

pub(super) fn killed_while_stopped(bench: &Bench) {
    let (terminal, _, job) = stopped(bench);
    terminal.type_line("kill -KILL %1");
    processes::assert_gone(&job, bench.timeout());
}

/// `kill -TSTP` of the process that the user sees.
pub(super) fn stopped_from_outside(bench: &Bench) {
    stopped_by(bench, Signal::TSTP);
}

/// `kill -TTIN` stops a process wherever it is.
pub(super) fn stopped_by_a_read_signal(bench: &Bench) {
    stopped_by(bench, Signal::TTIN);
}

fn stopped_by(bench: &Bench, signal: Signal) {
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    terminal.type_line(bench.line(&["sh", "-c", COMMAND]));
    let mark = terminal.wait_after(mark, "up\r\n");
    processes::signal(terminal.foreground(), signal);
    let mark = terminal.wait_prompt(mark);
    assert_eq!(terminal.modes(), terminal.first_modes());
    terminal.type_line("fg");
    terminal.type_line("hello");
    terminal.wait_after(mark, "got hello.\r\n");
}

/// As the first process of a terminal there is no shell to go back to: ^Z does nothing, and nothing may hang.
pub(super) fn stop_without_a_shell(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", COMMAND]).spawn();
    terminal.wait_text("up");
    terminal.send(b"\x1a");
    terminal.type_line("hello");
    terminal.wait_text("got hello.");
    terminal.send(b"\x04");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
}

/// Standard output is a pipe: there is no inner terminal, and the job is wrapper, command and `cat` together.
pub(super) fn pipeline_stops_and_goes_on(bench: &Bench) {
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    let mut line = bench.line(&["sh", "-c", "echo u''p; read line; echo \"got $line.\""]);
    line.push(" | cat");
    terminal.type_line(line);
    let mark = terminal.wait_after(mark, "up\r\n");
    terminal.send(b"\x1a");
    let mark = terminal.wait_prompt(mark);
    assert_eq!(terminal.modes(), terminal.first_modes());
    terminal.type_line("fg");
    terminal.type_line("hello");
    let mark = terminal.wait_after(mark, "got hello.\r\n");
    terminal.wait_prompt(mark);
}

pub(super) fn pipeline_is_interrupted(bench: &Bench) {
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    let mut line = bench.line(&["sh", "-c", "echo u''p; exec sleep 60"]);
    line.push(" | cat; echo status $?.");
    terminal.type_line(line);
    let mark = terminal.wait_after(mark, "up\r\n");
    let job: Vec<i32> = processes::family(terminal.foreground());
    terminal.send(b"\x03");
    terminal.wait_prompt(mark);
    processes::assert_gone(&job, bench.timeout());
}
