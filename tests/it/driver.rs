//! The terminal driver itself: that it sees what is there, and fails when it is not.
use crate::support::processes;
use crate::support::pty::{Exit, Start};
use rustix::termios::LocalModes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn sees_output_and_exit_code() {
    let terminal = Start::new(["sh", "-c", "printf 'one\\ntwo'; exit 7"]).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(7));
    assert_eq!(terminal.bytes(), b"one\r\ntwo");
    assert_eq!(terminal.text(), "one\ntwo");
}

#[test]
fn sees_death_by_signal() {
    let terminal = Start::new(["sh", "-c", "kill -TERM $$"]).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Signal(15));
}

#[test]
fn failed_wait_shows_the_screen() {
    let terminal = Start::new(["sh", "-c", "echo here; read x"]).spawn();
    terminal.wait_text("here");
    let (soon, what) = (Duration::from_millis(300), "\"there\" on the screen");
    let wait = || terminal.wait_within(soon, what, |view| view.text().contains("there"));
    let failure = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
    let message = failure.downcast_ref::<String>().unwrap();
    assert!(message.contains("\"there\" on the screen") && message.contains("--- screen\nhere"), "{message}");
}

#[test]
fn answers_queries_when_told_to() {
    let ask = "stty -icanon -echo min 1; printf '\\033[c'; dd bs=1 count=7 2>/dev/null | od -An -c";
    let terminal = Start::new(["sh", "-c", ask]).answers().spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert!(terminal.text().contains("033   [   ?   6   2   ;   c"), "{}", terminal.text());
}

#[test]
fn shell_has_job_control_and_leaves_modes_alone() {
    let terminal = Start::shell().spawn();
    let at = terminal.wait_prompt(0);
    assert_eq!(terminal.foreground(), terminal.pid());
    terminal.send("sh -c 'stty -echo; echo on; kill -STOP $$; echo back; stty echo'\r");
    let at = terminal.wait_after(at, "on\r\n");
    let at = terminal.wait_prompt(at);
    assert!(!terminal.termios().local_modes.contains(LocalModes::ECHO), "the shell hides modes left behind");
    terminal.type_line("fg");
    let at = terminal.wait_after(at, "back\r\n");
    terminal.wait_prompt(at);
    assert!(terminal.termios().local_modes.contains(LocalModes::ECHO));
}

#[test]
fn drop_kills_the_whole_family() {
    let terminal =
        Start::new(["sh", "-c", "trap '' HUP; setsid sh -c 'sleep 300 & echo up; wait' & wait"]).spawn();
    terminal.wait_text("up");
    let family = processes::family(terminal.pid());
    assert!(family.len() >= 3, "{family:?}");
    drop(terminal);
    assert!(!family.into_iter().any(processes::alive));
}

#[test]
fn stalled_terminal_takes_nothing() {
    let terminal = Start::new(["sh", "-c", "read go; head -c 1000000 /dev/zero"]).spawn();
    terminal.stall();
    terminal.type_line("go");
    terminal.wait_sent();
    let before = terminal.mark();
    assert!(
        !processes::wait_dead(terminal.pid(), Duration::from_millis(300)),
        "a megabyte fitted into a stalled terminal"
    );
    assert_eq!(terminal.mark(), before);
    terminal.unstall();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert!(terminal.bytes().ends_with(&vec![0; 1_000_000]));
}
