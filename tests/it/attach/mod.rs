//! `codemie attach` in a real terminal, against a host of the tests' own: first paint, keys, sizes, every way to leave.

mod host;

use std::time::Duration;

use pty::modes::Modes;
use runtime::remote::protocol::{Attach, Size, ToHost};
use rustix::process::Signal;

use self::host::Host;
use crate::support::processes;
use crate::support::pty::{Exit, Start, Terminal};

const LEFT: &str = "[detached from agent; codemie attach agent comes back]";

/// What an agent has switched on.
const MODES: &str = "\x1b[?1h\x1b=\x1b[?1000h\x1b[?1002h\x1b[?1006h\x1b[?1004h\x1b[?2004h\x1b[?2031h\x1b[?25l\x1b[?2026h\x1b[6 q\x1b]133;C\x07\x1b[1;31m";
const KITTY: &str = "\x1b[>7u";
const OTHER_KEYS: &str = "\x1b[>4;2m";

/// Everything is off and the terminal is as it was.
fn assert_restored(terminal: &Terminal) {
    assert_eq!(terminal.modes(), terminal.first_modes());
    let mut modes = Modes::default();
    modes.feed(&terminal.bytes());
    let undo = String::from_utf8(modes.undo()).unwrap();
    assert_eq!(undo, "", "left on: {:?}", String::from_utf8_lossy(&terminal.bytes()));
    assert!(terminal.bytes().ends_with(b"\r\n"), "the shell's prompt has a line of its own");
}

#[test]
fn first_paint_keys_sizes_and_the_chord_in_every_encoding() {
    for (modes, chord) in [
        ("", "\x1cd"),
        (KITTY, "\x1b[92;5:1u\x1b[92;5:3u\x1b[100;1:1u"),
        (KITTY, "\x1b[92;5ud"),
        (OTHER_KEYS, "\x1b[27;5;92~d"),
        (OTHER_KEYS, "\x1cd"),
    ] {
        let host = Host::new();
        let terminal = host.terminal(&["agent"]);
        let mut client = host.accept();
        let lines: Vec<String> = (0..40).map(|line| format!("\x1b[32mline {line}\x1b[0m\r\n")).collect();
        let lines = lines.concat();
        let attach = client.attach(&format!("\x1b]0;title\x07{lines}> composer{MODES}{modes}"));
        assert_eq!(attach, Attach { size: Size { rows: 24, cols: 80 }, read_only: false });
        terminal.wait_text("> composer");
        terminal.wait_for("the agent's modes", |view| {
            let screen = view.screen();
            screen.bracketed_paste() && screen.hide_cursor()
        });
        // The lines that are not on the screen have gone through it.
        let painted = terminal.bytes();
        let shown = String::from_utf8_lossy(&painted);
        assert!(shown.contains("line 0\x1b[0m\r\n\x1b[0;32mline 1\x1b[0m\r\n"), "{shown:?}");
        assert!(!terminal.text().contains("line 0\n"), "{}", terminal.text());

        terminal.send("hi\x1a\x03");
        client.expect_keys(b"hi\x1a\x03");
        client.output("\x1b[2J\x1b[Hechoed");
        terminal.wait_text("echoed");
        terminal.resize(30, 100);
        assert_eq!(client.next(), Some(ToHost::Resize(Size { rows: 30, cols: 100 })));
        for piece in ["a\x1c", "x\x1c", "\x1c"] {
            terminal.send(piece);
        }
        client.expect_keys(b"a\x1cx\x1c");

        terminal.send(chord);
        assert_eq!(client.next(), Some(ToHost::Detach), "{chord:?}");
        assert_eq!(client.next(), None);
        assert_eq!(terminal.wait_exit(), Exit::Code(0), "{}", terminal.text());
        assert!(terminal.text().contains(LEFT), "{}", terminal.text());
        assert_restored(&terminal);
    }
}

#[test]
fn a_chord_in_single_bytes_and_an_escape_alone() {
    let host = Host::new();
    let terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach(&format!("ready{OTHER_KEYS}"));
    terminal.wait_text("ready");
    // It may be the beginning of a key, and is one when nothing follows.
    terminal.send("\x1b");
    client.expect_keys(b"\x1b");
    for byte in b"\x1b[27;5;92~" {
        terminal.send([*byte]);
        terminal.wait_sent();
    }
    terminal.send("d");
    assert_eq!(client.next(), Some(ToHost::Detach));
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_restored(&terminal);
}

#[test]
fn the_alternate_screen_is_left_and_the_main_one_shown() {
    let host = Host::new();
    let terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach(&format!("\r\n\r\nmain screen\r\n\x1b[>1u\x1b[?1049halternate screen{MODES}{KITTY}"));
    terminal.wait_text("alternate screen");
    terminal.wait_for("the alternate screen", |view| view.screen().alternate_screen());
    terminal.send("\x1cd");
    assert_eq!(client.next(), Some(ToHost::Detach));
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert!(
        terminal.text().contains("main screen") && !terminal.text().contains("alternate"),
        "{}",
        terminal.text()
    );
    assert_restored(&terminal);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1), (Signal::INT, 2), (Signal::QUIT, 3)] {
        let host = Host::new();
        let terminal = host.terminal(&["agent"]);
        let mut client = host.accept();
        client.attach(&format!("ready{MODES}{KITTY}"));
        terminal.wait_text("ready");
        processes::signal(terminal.pid(), signal);
        assert_eq!(client.next(), Some(ToHost::Detach));
        assert_eq!(terminal.wait_exit(), Exit::Signal(number));
        assert_restored(&terminal);
    }
}

#[test]
fn a_host_that_vanishes_leaves_the_terminal_as_it_was() {
    let host = Host::new();
    let terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach(&format!("ready{MODES}{KITTY}"));
    terminal.wait_text("ready");
    drop(client);
    assert_eq!(terminal.wait_exit(), Exit::Code(1));
    assert!(terminal.text().contains("`codemie show agent`"), "{}", terminal.text());
    assert_restored(&terminal);
}

#[test]
fn the_end_of_the_agent_ends_the_attachment_after_its_last_output() {
    let host = Host::new();
    let terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach(&format!("ready{MODES}{KITTY}"));
    terminal.wait_text("ready");
    client.output("\x1b[?2026l last words");
    client.end(7);
    drop(client);
    assert_eq!(terminal.wait_exit(), Exit::Code(7));
    assert!(terminal.text().contains("last words"), "{}", terminal.text());
    assert!(terminal.text().contains("[agent ended with exit code 7]"), "{}", terminal.text());
    assert_restored(&terminal);
}

#[test]
fn a_terminal_that_is_closed_detaches() {
    let host = Host::new();
    let mut terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach("ready");
    terminal.wait_text("ready");
    let pid = terminal.pid();
    terminal.hang_up();
    assert_eq!(client.next(), Some(ToHost::Detach));
    assert!(processes::wait_dead(pid, Duration::from_secs(10)));
}

#[test]
fn read_only_types_nothing_and_still_leaves() {
    let host = Host::new();
    let terminal = host.terminal(&["agent", "--read-only"]);
    let mut client = host.accept();
    assert!(client.attach("ready").read_only);
    terminal.wait_text("ready");
    terminal.send("rm -rf\r");
    terminal.send("\x1cd");
    assert_eq!(client.next(), Some(ToHost::Detach));
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
}

#[test]
fn a_terminal_that_takes_nothing_costs_no_memory_and_can_be_left() {
    let host = Host::new();
    let terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach(&format!("ready{MODES}"));
    terminal.wait_text("ready");
    terminal.stall();
    let sent = client.flood(64 << 20);
    assert!(sent < 8 << 20, "{sent} bytes went to a terminal that takes nothing");
    let status = std::fs::read_to_string(format!("/proc/{}/status", terminal.pid())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kilobytes: usize = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 40_000, "{resident}");
    terminal.send("\x1cd");
    // The host learns of it at once; the last line waits for the terminal as any program's would.
    assert_eq!(client.next(), Some(ToHost::Detach));
    terminal.unstall();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(terminal.modes(), terminal.first_modes());
}

#[test]
fn other_detach_keys_are_a_setting() {
    let host = Host::new();
    host.world.out(&["config", "set", "attach.detachKeys", "ctrl-p ctrl-q"]);
    host.world.fails(&["config", "set", "attach.detachKeys", "alt-x"], 2, "ctrl-b d");
    let terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach("ready");
    terminal.wait_text("ready");
    terminal.send("\x1cd");
    client.expect_keys(b"\x1cd");
    terminal.send("\x10\x11");
    assert_eq!(client.next(), Some(ToHost::Detach));
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
}

#[test]
fn a_session_that_its_run_has_left_leads_to_the_one_it_is_in() {
    let mut host = Host::new();
    let run = host.run;
    host.run = host.world.clear(run, "11111111-2222-4333-8444-555555555555");
    let terminal = host.terminal(&["agent"]);
    let mut client = host.accept();
    client.attach("ready");
    terminal.wait_text("ready");
    terminal.send("\x1cd");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    let bytes = terminal.bytes();
    let shown = String::from_utf8_lossy(&bytes);
    assert!(shown.contains("codemie: agent has gone on as agent.2"), "{shown}");
    assert!(shown.contains("[detached from agent.2;"), "{shown}");
}

#[test]
fn sessions_that_cannot_be_attached_to_are_refused_with_a_reason() {
    let mut host = Host::new();
    let foreground = host.world.start("foreground");
    let ended = host.world.start("ended");
    host.world.end(ended, 0);
    let pid = std::process::id();
    for (name, code, reason) in [
        ("foreground", 1, format!("process {pid}")),
        ("ended", 1, "codemie resume ended".to_owned()),
        ("nobody", 3, "no session".to_owned()),
    ] {
        let terminal = host.terminal(&[name]);
        assert_eq!(terminal.wait_exit(), Exit::Code(code), "{}", terminal.text());
        let text = terminal.text().replace('\n', "");
        assert!(text.contains(&reason), "{text}");
        assert_eq!(terminal.modes(), terminal.first_modes());
    }
    host.world.fails(&["attach", "agent"], 1, "needs a terminal");
    host.world.end(foreground, 0);
}

#[test]
fn lines_of_the_shell_are_still_above_what_is_shown() {
    let host = Host::new();
    let codemie = crate::sandbox::CODEMIE;
    let shell = host.equip(Start::shell()).spawn();
    let mark = shell.wait_prompt(0);
    shell.type_line("echo shell''line");
    let mark = shell.wait_prompt(shell.wait_after(mark, "shellline\r\n"));
    shell.type_line(format!("{codemie} attach agent"));
    let mut client = host.accept();
    client.attach("ready");
    let mark = shell.wait_after(mark, "ready");
    assert!(!shell.text().contains("shellline"), "{}", shell.text());
    shell.send("\x1cd");
    let mark = shell.wait_after(mark, LEFT);
    shell.wait_prompt(mark);
    // vt100 keeps no scrollback here: the line was scrolled off rather than erased if line feeds came first.
    let bytes = shell.bytes();
    let painted = memchr::memmem::find(&bytes, b"\x1b[H\x1b[J").unwrap();
    assert!(bytes[..painted].ends_with(&[b'\n'; 23]), "{:?}", String::from_utf8_lossy(&bytes[..painted]));
    assert_eq!(shell.modes(), shell.first_modes());
}
