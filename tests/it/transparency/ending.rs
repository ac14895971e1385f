//! What is left behind: terminal modes as they were, and no process.
use crate::support::processes;
use crate::support::pty::{Exit, Terminal};
use crate::support::wrapper::Bench;
use rustix::process::Signal;
use rustix::termios::{InputModes, LocalModes, SpecialCodeIndex, Termios};

/// Modes no wrapper would come to by itself, so that restoring them means having remembered them.
pub(super) fn unusual_modes(modes: &mut Termios) {
    modes.input_modes.remove(InputModes::IXON);
    modes.input_modes.insert(InputModes::IUTF8);
    modes.local_modes.remove(LocalModes::ECHOK);
    // Without it the kernel drops pending output after ^Z, and with it, once in a while, the shell's first prompt.
    modes.local_modes.insert(LocalModes::NOFLSH);
    modes.special_codes[SpecialCodeIndex::VERASE] = 8;
    modes.special_codes[SpecialCodeIndex::VINTR] = 7;
}

pub(super) fn assert_modes_as_before(terminal: &Terminal) {
    assert_eq!(terminal.modes(), terminal.first_modes());
}

/// The command changes the modes and puts them back, as a full-screen program does.
pub(super) fn modes_restored_after_exit(bench: &Bench) {
    let command = ["sh", "-c", "saved=$(stty -g); stty raw; stty \"$saved\"; echo done"];
    let terminal = bench.start(&command).modes(unusual_modes).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(terminal.text(), "done");
    assert_modes_as_before(&terminal);
}

pub(super) fn modes_restored_after_sigterm(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", "sleep 60 & echo up; wait"]).modes(unusual_modes).spawn();
    terminal.wait_text("up");
    let family = processes::family(terminal.pid());
    processes::signal(terminal.pid(), Signal::TERM);
    assert_eq!(terminal.wait_exit().shell_code(), 143);
    assert_modes_as_before(&terminal);
    processes::assert_gone(&family, bench.timeout());
}

pub(super) fn child_dies_with_killed_wrapper(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", "echo up; exec sleep 60"]).spawn();
    terminal.wait_text("up");
    let family = processes::family(terminal.pid());
    processes::signal(terminal.pid(), Signal::KILL);
    assert_eq!(terminal.wait_exit(), Exit::Signal(9));
    processes::assert_gone(&family, bench.timeout());
}
