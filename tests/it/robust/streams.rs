//! Bytes at awkward moments: before the command is there, while it does not listen, after it has gone.
use crate::support::mailbox::Mailbox;
use crate::support::processes;
use crate::support::pty::{Exit, Start};
use crate::support::wrapper::{Bench, Wrapper, example};
use rustix::process::Signal;
use std::time::Duration;

pub(super) fn type_ahead_is_not_lost(bench: &Bench) {
    let terminal =
        bench.start_in("read go; exec {}", &["sh", "-c", "read a; read b; echo \"got $a, $b.\""]).spawn();
    terminal.send("go\rfirst\rsecond\r");
    terminal.wait_text("got first, second.");
}

pub(super) fn begun_line_is_shown_once(bench: &Bench) {
    let command = ["sh", "-c", "echo up; read line; echo \"got $line.\""];
    let terminal = bench.start_in("read go; exec {}", &command).spawn();
    terminal.send("go\rbegun");
    terminal.wait_after(0, "up\r\n");
    terminal.type_line(" here");
    terminal.wait_after(0, "got begun here.");
    let shown = terminal.bytes();
    assert_eq!(memchr::memmem::find_iter(&shown, "begun").count(), 2, "{}", terminal.text());
}

/// What waits for a slow terminal is dropped by ^C, wherever it waits. The kernel keeps the 4 KiB that the terminal's side
/// of a PTY has already.
pub(super) fn interrupt_drops_waiting_output(bench: &Bench) {
    let (probe, mut mailbox) = (example("probe"), Mailbox::new());
    let path = mailbox.path();
    let command = [probe.as_os_str(), "flood".as_ref(), path.as_os_str(), "1000000000".as_ref()];
    let terminal = bench.start(&command).spawn();
    let mark = terminal.wait_after(0, "waiting\r\n");
    let family = processes::family(terminal.pid());
    let program = *family.last().unwrap();
    terminal.stall();
    terminal.type_line("");
    let told = mailbox.line(bench.timeout());
    assert!(told.starts_with("blocked"), "{told}");
    terminal.send(b"\x03");
    assert!(processes::wait_dead(program, bench.timeout()), "^C waits for a terminal that does not read");
    // What is dropped makes room for the wrapper's last words.
    assert!(processes::wait_dead(terminal.pid(), bench.timeout()), "the wrapper waits for that terminal");
    terminal.unstall();
    assert_eq!(terminal.wait_exit(), Exit::Signal(2));
    let after = terminal.mark() - mark;
    assert!(after <= 3 * 4096, "{after} bytes came after ^C");
}

/// A command that does not read must still be heard, however much was pasted.
pub(super) fn output_flows_while_input_is_stuck(bench: &Bench) {
    let gate = Mailbox::new();
    let command = format!(
        "stty raw -echo; echo ready; read go <'{}'; seq 5000; echo deaf; head -c 300000 | wc -c",
        gate.path().display()
    );
    let terminal = bench.start(&["sh", "-c", &command]).spawn();
    let mark = terminal.wait_after(0, "ready\n");
    terminal.send(vec![b'p'; 300_000]);
    std::fs::write(gate.path(), "go\n").unwrap();
    let mark = terminal.wait_after(mark, "deaf\n");
    terminal.wait_after(mark, "300000\n");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
}

/// A server that an agent left running and that logs to the terminal.
pub(super) fn noisy_background_job_does_not_hold_exit(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", "trap '' HUP; yes & echo job $!.; exit 3"]).spawn();
    let start = terminal.wait_after(0, "job ");
    let (job, _) = terminal.number_after(start, ".");
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
    processes::signal(job, Signal::KILL);
    assert_eq!(terminal.modes(), terminal.first_modes());
}

pub(super) fn command_that_lets_go_of_the_terminal(bench: &Bench) {
    let gate = Mailbox::new();
    let command = format!("echo up; exec <'{}' >/dev/null 2>&1; read go; exit 4", gate.path().display());
    let terminal = bench.start(&["sh", "-c", &command]).spawn();
    terminal.wait_text("up");
    std::fs::write(gate.path(), "go\n").unwrap();
    assert_eq!(terminal.wait_exit(), Exit::Code(4));
}

/// Input from one terminal, output to another.
pub(super) fn two_terminals(bench: &Bench) {
    let other = Start::new(["sh", "-c", "tty; read end"]).spawn();
    let end = other.wait_after(0, "\r\n");
    let path = String::from_utf8(other.bytes()[..end - 2].to_vec()).unwrap();
    let command = ["sh", "-c", "echo up; read line; echo \"got $line.\"; exit 3"];
    let terminal = bench.start_in(&format!("exec {{}} >{path}"), &command).spawn();
    other.wait_text("up");
    terminal.type_line("hello");
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
    other.wait_text("got hello.");
    assert_eq!(terminal.modes(), terminal.first_modes());
    assert_eq!(other.modes(), other.first_modes());
}

/// A connection that hangs for a while when the command ends must not cost its last words: the bare command would wait in
/// its last write, for as long as it takes.
#[test]
#[ignore = "takes 12 s; tests/run.sh --full runs it"]
fn last_words_wait_for_the_terminal() {
    for wrapper in [Wrapper::Bare, Wrapper::Codemie] {
        let bench = Bench::new(wrapper);
        let terminal = bench.start(&["sh", "-c", "read go; seq 5000; printf 'the end'"]).spawn();
        terminal.stall();
        terminal.type_line("go");
        assert!(!processes::wait_dead(terminal.pid(), Duration::from_secs(6)), "{wrapper:?} ended unheard");
        terminal.unstall();
        assert_eq!(terminal.wait_exit(), Exit::Code(0));
        assert!(terminal.bytes().ends_with(b"5000\r\nthe end"), "{wrapper:?}: {}", terminal.text());
    }
}

/// What a killed full-screen program left switched on; and nothing is added for one that ended well.
#[test]
fn leftovers_of_a_killed_program_are_switched_off() {
    const ON: &str = "\\033[?1049h\\033[?25l\\033[?2004h\\033[?1003h\\033[?1006h\\033[?1h\\033=";
    let bench = Bench::new(Wrapper::Codemie);
    let terminal = bench.start(&["sh", "-c", &format!("printf '{ON}'; kill -KILL $$")]).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Signal(9));
    terminal.wait_for("a plain screen", |view| {
        let screen = view.screen();
        !screen.alternate_screen()
            && !screen.hide_cursor()
            && !screen.bracketed_paste()
            && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
    });

    let terminal = bench.start(&["sh", "-c", "printf '\\033[?2004h'"]).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(terminal.bytes(), b"\x1b[?2004h");

    // One that failed left a keyboard that no shell understands, which is given back, and more, which is not.
    let terminal = bench.start(&["sh", "-c", "printf '\\033[?2004h\\033[>1u'; exit 3"]).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
    assert_eq!(terminal.bytes(), b"\x1b[?2004h\x1b[>1u\x1b[<1u");
}
