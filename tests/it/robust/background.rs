//! Started with `&`.
use crate::support::mailbox::Mailbox;
use crate::support::wrapper::Bench;
use std::ffi::OsString;

fn in_background(bench: &Bench, script: &str) -> OsString {
    let mut line = bench.line(&["sh", "-c", script]);
    line.push(" &");
    line
}

pub(super) fn finishes_in_the_background(bench: &Bench) {
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    terminal.type_line(in_background(bench, "echo work''ing; exit 3"));
    let mark = terminal.wait_after(mark, "working\r\n");
    terminal.type_line("wait %1; echo status $?.");
    terminal.wait_after(mark, "status 3.\r\n");
    assert_eq!(terminal.modes(), terminal.first_modes());
}

/// The shell's `wait` returns when the job has stopped, as a job that reads the terminal from the background must.
pub(super) fn reader_is_stopped_until_fg(bench: &Bench) {
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    terminal.type_line(in_background(bench, "echo read''ing; read line; echo \"got $line.\""));
    let mark = terminal.wait_after(mark, "reading\r\n");
    terminal.type_line("wait %1; echo wait''ed");
    let mark = terminal.wait_after(mark, "waited\r\n");
    let mark = terminal.wait_prompt(mark);
    assert_eq!(terminal.modes(), terminal.first_modes());
    terminal.type_line("jobs");
    let mark = terminal.wait_after(mark, "Stopped");
    let mark = terminal.wait_prompt(mark);
    terminal.type_line("fg");
    terminal.type_line("hello");
    let mark = terminal.wait_after(mark, "got hello.\r\n");
    terminal.wait_prompt(mark);
    assert_eq!(terminal.modes(), terminal.first_modes());
}

pub(super) fn comes_to_the_foreground_while_running(bench: &Bench) {
    let gate = Mailbox::new();
    let script = format!("echo u''p; read go <'{}'; read line; echo \"got $line.\"", gate.path().display());
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    terminal.type_line(in_background(bench, &script));
    let mark = terminal.wait_after(mark, "up\r\n");
    terminal.type_line("fg");
    let mark = terminal.wait_after(mark, "fg\r\n");
    std::fs::write(gate.path(), "go\n").unwrap();
    terminal.type_line("hello");
    let mark = terminal.wait_after(mark, "got hello.\r\n");
    terminal.wait_prompt(mark);
    assert_eq!(terminal.modes(), terminal.first_modes());
}
