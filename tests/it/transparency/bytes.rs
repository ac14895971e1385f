//! Bytes in both directions: none changed, none lost, none hoarded.
use crate::support::mailbox::Mailbox;
use crate::support::processes::{self, resident_kib};
use crate::support::pty::Exit;
use crate::support::wrapper::{Bench, example};

pub(super) fn all_256_bytes_both_ways(bench: &Bench) {
    let all: Vec<u8> = (0..=255).collect();
    let terminal = bench.start(&["sh", "-c", "stty raw -echo; printf ready; head -c 256"]).spawn();
    let mark = terminal.wait_after(0, "ready");
    terminal.send(&all);
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(terminal.bytes()[mark..], all);
}

/// The command sends back what it gets, so both directions are full at once: a wrapper that finishes its write before it
/// reads again is stuck here.
pub(super) fn paste_of_a_mebibyte(bench: &Bench) {
    let paste: Vec<u8> = (0..1 << 20).map(|n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let terminal = bench.start(&["sh", "-c", "stty raw -echo; printf ready; head -c 1048576"]).spawn();
    let mark = terminal.wait_after(0, "ready");
    terminal.send(&paste);
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert!(terminal.bytes()[mark..] == paste, "{} bytes came back, or other bytes", terminal.mark() - mark);
}

/// While the terminal reads nothing the command must be stopped by a full PTY, not have its output hoarded.
///
/// Memory is compared between two moments at which the flood is held up, with half of it passed on in between: what a wrapper
/// needs once, for whatever it does beside, has been taken by the first.
pub(super) fn slow_terminal_bounds_memory(bench: &Bench) {
    const FLOOD: usize = 16 << 20;
    let (probe, mut mailbox) = (example("probe"), Mailbox::new());
    let (path, count) = (mailbox.path(), FLOOD.to_string());
    let command = [probe.as_os_str(), "flood".as_ref(), path.as_os_str(), count.as_ref()];
    let terminal = bench.start(&command).spawn();
    terminal.wait_after(0, "waiting\r\n");
    let family = processes::family(terminal.pid());

    let mut held_up = || {
        let told = mailbox.line(bench.timeout());
        let written: usize =
            told.strip_prefix("blocked ").unwrap_or_else(|| panic!("not held back: {told}")).parse().unwrap();
        let taken = terminal.mark();
        assert!(written <= taken + (1 << 20), "{written} bytes went into a terminal that took {taken}");
        resident_kib(&family)
    };
    terminal.stall();
    terminal.type_line("");
    let before = held_up();
    terminal.stall_at(FLOOD / 2);
    let grown = held_up().saturating_sub(before);
    assert!(grown <= 4096, "resident memory grew by {grown} KiB");

    terminal.unstall();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(memchr::memchr_iter(b'x', &terminal.bytes()).count(), FLOOD);
}

/// Both while the flood flows and while the terminal holds it up: the key must not queue behind the output.
pub(super) fn interrupt_under_flood(bench: &Bench) {
    let flood = ["sh", "-c", "trap 'exit 4' INT; echo flood $$.; yes"];
    let terminal = bench.start(&flood).spawn();
    terminal.wait_for("a flood", |view| view.bytes.len() > 1 << 20);
    terminal.send(b"\x03");
    assert_eq!(terminal.wait_exit(), Exit::Code(4));

    let terminal = bench.start(&flood).spawn();
    let start = terminal.wait_after(0, "flood ");
    let (child, mark) = terminal.number_after(start, ".");
    terminal.wait_for("a flood", |view| view.bytes.len() > mark + 2);
    terminal.stall();
    terminal.send(b"\x03");
    assert!(processes::wait_dead(child, bench.timeout()), "^C waits for a terminal that does not read");
    terminal.unstall();
    assert_eq!(terminal.wait_exit(), Exit::Code(4));
}

pub(super) fn end_of_file_ends_cat(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", "echo up; exec cat"]).spawn();
    terminal.wait_text("up");
    terminal.type_line("hello");
    terminal.wait_after(0, "hello\r\nhello\r\n");
    terminal.send(b"\x04");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(terminal.bytes(), b"up\r\nhello\r\nhello\r\n");
}

/// In a pipeline started from a terminal: the terminal is there to be found, and must not be.
pub(super) fn piped_stdio_is_untouched(bench: &Bench) {
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let file = |name: &str| bench.home().join(name);
    std::fs::write(file("in"), &bytes).unwrap();
    let command = ["sh", "-c", "cat; tty >&2; exit 5"];
    let terminal = bench.start_in("cat \"$HOME/in\" | {} 2>\"$HOME/err\" >\"$HOME/out\"", &command).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(5));
    assert!(std::fs::read(file("out")).unwrap() == bytes, "other bytes came out than went in");
    assert_eq!(std::fs::read_to_string(file("err")).unwrap(), "not a tty\n");
    assert_eq!(terminal.text(), "", "bytes on a terminal nobody wrote to");
}
