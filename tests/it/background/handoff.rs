//! Terminals that are handed over to a host: `codemie attach` in a real terminal, against a real host.

use std::time::Duration;

use pty::modes::Modes;
use rustix::process::Signal;

use super::Scene;
use crate::sandbox::CODEMIE;
use crate::support::processes;
use crate::support::pty::{Exit, Start, Terminal};
use crate::support::scripted::await_some;

/// Switches on what an agent does, reports each line it reads.
const AGENT: &str = "printf '\\033[?1000h\\033[?1006h\\033[?2004h\\033[?25l\\033[>1u'; stty -echo; echo ready; while read line; do echo \"got $line\"; stty size; done";

fn attach(scene: &Scene, arguments: &[&str]) -> Terminal {
    let start = Start::new([CODEMIE, "attach"].iter().chain(arguments));
    start.env("HOME", scene.sandbox.home()).env("CODEMIE_HOME", scene.home().path()).spawn()
}

fn host(scene: &Scene, id: &str) -> i32 {
    scene.record(id)["wrapperPid"].as_i64().unwrap().try_into().unwrap()
}

/// The host has the terminal of the viewer open.
fn await_handoff(scene: &Scene, id: &str, viewer: i32) {
    let host = host(scene, id);
    await_some("the terminal is handed over", || {
        let device = std::fs::read_link(format!("/proc/{viewer}/fd/0")).ok()?;
        let open = std::fs::read_dir(format!("/proc/{host}/fd")).ok()?.flatten();
        let mut open = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        open.any(|path| path == device).then_some(())
    });
}

fn assert_restored(terminal: &Terminal) {
    assert_eq!(terminal.modes(), terminal.first_modes());
    let mut modes = Modes::default();
    modes.feed(&terminal.bytes());
    assert_eq!(String::from_utf8(modes.undo()).unwrap(), "");
}

#[test]
fn keys_sizes_and_the_chord_of_a_lent_terminal() {
    let scene = Scene::new();
    let id = scene.start("lent", AGENT);
    let terminal = attach(&scene, &["lent"]);
    terminal.wait_text("ready");
    await_handoff(&scene, &id, terminal.pid());
    terminal.send("one\n");
    terminal.wait_text("got one");
    terminal.resize(30, 100);
    // The size arrives through the viewer, the key without it.
    await_some("the new size", || {
        terminal.send("size\n");
        terminal.wait_sent();
        terminal.text().contains("30 100").then_some(())
    });
    // The chord in kitty's encoding, in pieces, and an Escape alone before it.
    terminal.send("\x1b");
    terminal.send("\x1b[92;5");
    terminal.send("u");
    terminal.send("d");
    assert_eq!(terminal.wait_exit(), Exit::Code(0), "{}", terminal.text());
    assert!(terminal.text().contains("[detached from lent;"), "{}", terminal.text());
    assert_restored(&terminal);
    assert_eq!(scene.record(&id)["status"], "active");
}

#[test]
fn a_lent_terminal_is_given_back_however_it_is_left() {
    for leave in ["signal", "host killed", "agent ends", "read-only chord"] {
        let scene = Scene::new();
        let id = scene.start("left", AGENT);
        let arguments: &[&str] =
            if leave == "read-only chord" { &["left", "--read-only"] } else { &["left"] };
        let terminal = attach(&scene, arguments);
        terminal.wait_text("ready");
        await_handoff(&scene, &id, terminal.pid());
        let expected = match leave {
            "signal" => {
                processes::signal(terminal.pid(), Signal::TERM);
                Exit::Signal(15)
            }
            "host killed" => {
                processes::signal(host(&scene, &id), Signal::KILL);
                Exit::Code(1)
            }
            "agent ends" => {
                terminal.send("last\n\x04");
                Exit::Code(0)
            }
            _ => {
                terminal.send("typed\n\x1cd");
                Exit::Code(0)
            }
        };
        assert_eq!(terminal.wait_exit(), expected, "{leave}: {}", terminal.text());
        if leave == "agent ends" {
            assert!(terminal.text().contains("got last"), "{}", terminal.text());
        }
        if leave == "read-only chord" {
            assert!(!terminal.text().contains("got typed"), "{}", terminal.text());
        }
        assert_restored(&terminal);
    }
}

#[test]
fn a_shell_that_takes_the_terminal_of_a_stopped_viewer_loses_no_key() {
    let scene = Scene::new();
    let id = scene.start("stopped", AGENT);
    let shell = Start::shell().env("HOME", scene.sandbox.home()).env("CODEMIE_HOME", scene.home().path());
    let shell = shell.spawn();
    let mark = shell.wait_prompt(0);
    shell.type_line(format!("{CODEMIE} attach stopped"));
    let mark = shell.wait_after(mark, "ready");
    let is_viewer = |pid: &i32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains("attach\0stopped")
    };
    let viewer =
        await_some("the viewer", || processes::family(shell.pid()).into_iter().find(|pid| is_viewer(pid)));
    await_handoff(&scene, &id, viewer);
    processes::signal(viewer, Signal::STOP);
    let mark = shell.wait_prompt(mark);
    // This shell does not restore the terminal's settings after a job that was stopped: only a line feed ends a line.
    shell.send("echo for-the''-shell\n");
    let mark = shell.wait_after(mark, "for-the-shell");
    let mark = shell.wait_prompt(mark);
    shell.send("fg\n");
    // The screen is painted again, and the program has got none of it.
    let mark = shell.wait_after(mark, "ready");
    assert!(!shell.text().contains("got echo"), "{}", shell.text());
    shell.send("again\n");
    let mark = shell.wait_after(mark, "got again");
    shell.send("\x1cd");
    shell.wait_after(mark, "[detached from stopped;");
}

#[test]
fn a_lent_terminal_that_takes_nothing_is_given_back_and_the_program_goes_on() {
    let scene = Scene::new();
    let flood = "echo ready; read line; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); echo 0123456789012345678901234567890123456789; done; echo flood-over; exec sleep 1000";
    let id = scene.start("flood", flood);
    let terminal = attach(&scene, &["flood"]);
    terminal.wait_text("ready");
    await_handoff(&scene, &id, terminal.pid());
    terminal.send("go\n");
    terminal.stall();
    let mut other = scene.attach(&id, 24, 80);
    other.wait_for("flood-over");
    terminal.unstall();
    assert_eq!(terminal.wait_exit(), Exit::Code(1), "{}", terminal.text());
    assert_restored(&terminal);
}

#[test]
fn two_lent_terminals_share_the_size_of_the_one_that_typed_last() {
    let scene = Scene::new();
    let id = scene.start("two", AGENT);
    let (large, small) = (attach(&scene, &["two"]), attach(&scene, &["two"]));
    for terminal in [&large, &small] {
        terminal.wait_text("ready");
        await_handoff(&scene, &id, terminal.pid());
    }
    small.resize(20, 70);
    await_some("its size", || {
        small.send("\n");
        small.wait_sent();
        large.text().contains("20 70").then_some(())
    });
    large.send("\n");
    small.wait_text("24 80");
    large.send("\x1cd");
    assert_eq!(large.wait_exit(), Exit::Code(0));
    small.send("after\n");
    small.wait_text("got after");
    processes::signal(small.pid(), Signal::HUP);
    assert!(processes::wait_dead(small.pid(), Duration::from_secs(10)));
}
