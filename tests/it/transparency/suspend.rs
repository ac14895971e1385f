//! Job control: however the command is stopped, the shell gets a sane terminal back, and `fg` goes on where it was.
use crate::support::processes;
use crate::support::pty::Terminal;
use crate::support::wrapper::Bench;
use rustix::process::Signal;

/// Says back each line it gets in other words, so that its answer cannot be mistaken for an echo of the typing.
const COMMAND: &str = "echo pid $$.; while read -r line; do
    case $line in stop*) kill -TSTP 0; continue;; esac
    echo \"got $line.\"; done; exit 9";

/// As Claude Code does it: SIGSTOP to itself alone.
pub(super) fn suspend_by_sigstop(bench: &Bench) {
    suspend_and_continue(bench, |_, child| processes::signal(child, Signal::STOP));
}

/// As Codex does it: SIGTSTP to its own group, which the kernel ignores when nobody is there to continue it.
pub(super) fn suspend_by_sigtstp(bench: &Bench) {
    suspend_and_continue(bench, |terminal, _| {
        terminal.type_line("stop");
    });
}

pub(super) fn suspend_by_control_z(bench: &Bench) {
    suspend_and_continue(bench, |terminal, _| terminal.send(b"\x1a"));
}

fn suspend_and_continue(bench: &Bench, stop: impl Fn(&Terminal, i32)) {
    let script = bench.home().join("command");
    std::fs::write(&script, COMMAND).unwrap();
    let terminal = bench.shell().modes(super::ending::unusual_modes).spawn();
    let mut mark = terminal.wait_prompt(0);
    terminal.type_line(bench.line(&["sh".as_ref(), script.as_os_str()]));
    mark = terminal.wait_after(mark, "pid ");
    let (child, end) = terminal.number_after(mark, ".\r\n");
    mark = end;

    for round in ["first", "second"] {
        stop(&terminal, child);
        mark = terminal.wait_prompt(mark);
        super::ending::assert_modes_as_before(&terminal);
        assert_eq!(terminal.foreground(), terminal.pid());
        terminal.type_line("echo shell is $((40 + 2))");
        mark = terminal.wait_after(mark, "shell is 42\r\n");
        mark = terminal.wait_prompt(mark);
        terminal.type_line("fg");
        terminal.type_line(round);
        mark = terminal.wait_after(mark, format!("got {round}.\r\n"));
    }
    terminal.send(b"\x04");
    mark = terminal.wait_prompt(mark);
    super::ending::assert_modes_as_before(&terminal);
    terminal.type_line("echo status $?.");
    terminal.wait_after(mark, "status 9.\r\n");
}
