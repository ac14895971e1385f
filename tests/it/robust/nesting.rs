//! A terminal within a terminal.
use crate::support::pty::{Exit, Start};
use crate::support::wrapper::{Bench, Wrapper, example};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Says what it is, takes a line, and leaves its exit code where no multiplexer can lose it.
const COMMAND: &str = "echo up; read line; echo \"got $line.\"; exit 3";

#[test]
fn inside_itself() {
    let bench = Bench::new(Wrapper::Codemie);
    let probe = example("probe");
    let twice = bench.wrap(&bench.wrap(&[probe.as_os_str(), "resizes".as_ref()]));
    let terminal = bench.start::<&str>(&[]).argv(twice).spawn();
    terminal.wait_text("waiting");
    terminal.resize(33, 99);
    terminal.wait_text("resized 33 99 891 594.");
    terminal.type_line("");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert!(terminal.text().contains("resized 1 times"), "{}", terminal.text());
    assert_eq!(terminal.modes(), terminal.first_modes());
}

#[test]
fn inside_itself_suspended() {
    let bench = Bench::new(Wrapper::Codemie);
    let terminal = bench.shell().spawn();
    let mark = terminal.wait_prompt(0);
    let inner = bench.wrap(&["sh", "-c", "echo u''p; read line; echo \"got $line.\""]);
    terminal.type_line(bench.line(&inner));
    let mark = terminal.wait_after(mark, "up\r\n");
    terminal.send(b"\x1a");
    let mark = terminal.wait_prompt(mark);
    assert_eq!(terminal.modes(), terminal.first_modes());
    terminal.type_line("fg");
    terminal.type_line("hello");
    let mark = terminal.wait_after(mark, "got hello.\r\n");
    terminal.wait_prompt(mark);
}

pub(super) fn inside_tmux(bench: &Bench) {
    let socket = bench.home().join("tmux");
    let socket = socket.to_str().unwrap();
    inside(
        bench,
        &["tmux", "-S", socket, "-f", "/dev/null", "new-session"],
        &["tmux", "-S", socket, "kill-server"],
    );
}

/// A window is named after the job in its foreground.
pub(super) fn tmux_names_the_program(bench: &Bench) {
    if !installed("tmux") {
        println!("tmux is not installed: nothing was tested");
        return;
    }
    let socket = bench.home().join("tmux");
    let tmux = ["tmux", "-S", socket.to_str().unwrap(), "-f", "/dev/null"];
    let mut argv: Vec<_> = tmux.iter().chain(&["new-session"]).map(Into::into).collect();
    argv.extend(bench.wrap(&["sh", "-c", COMMAND]));
    let terminal = bench.start::<&str>(&[]).argv(argv).answers().spawn();
    let end = tmux.iter().chain(&["kill-server"]).map(|word| (*word).to_owned()).collect();
    let _server = Server { end, folder: bench.home().join("screens") };
    terminal.wait_text("up");
    // The wrapper hears of the program's start about when its first output comes, and tmux tells only who asks.
    let deadline = Instant::now() + bench.timeout();
    loop {
        let mut ask = Command::new(tmux[0]);
        let result = ask.args(&tmux[1..]).args(["display-message", "-p", "#{pane_current_command}"]).output();
        let name = String::from_utf8(result.unwrap().stdout).unwrap();
        if name.trim() == "sh" {
            break;
        }
        assert!(Instant::now() < deadline, "tmux calls it {name}");
    }
}

pub(super) fn inside_screen(bench: &Bench) {
    let name =
        format!("codemie-test-{}", bench.home().file_name().unwrap().to_str().unwrap().trim_matches('.'));
    inside(bench, &["screen", "-c", "/dev/null", "-S", &name], &["screen", "-S", &name, "-X", "quit"]);
}

fn inside(bench: &Bench, multiplexer: &[&str], end: &[&str]) {
    if !installed(multiplexer[0]) {
        println!("{} is not installed: nothing was tested", multiplexer[0]);
        return;
    }
    let script = "\"$@\"; echo $? >\"$HOME/status\"";
    let mut argv: Vec<_> = multiplexer.iter().map(Into::into).collect();
    argv.extend(["sh".into(), "-c".into(), script.into(), "sh".into()]);
    argv.extend(bench.wrap(&["sh", "-c", COMMAND]));
    let start: Start =
        bench.start::<&str>(&[]).argv(argv).env("SCREENDIR", bench.home().join("screens")).answers();
    let _server = Server {
        end: end.iter().map(|word| (*word).to_owned()).collect(),
        folder: bench.home().join("screens"),
    };
    let terminal = start.spawn();
    terminal.wait_text("up");
    terminal.type_line("hello");
    terminal.wait_exit();
    assert_eq!(std::fs::read_to_string(bench.home().join("status")).unwrap(), "3\n");
    assert_eq!(terminal.modes(), terminal.first_modes());
}

fn installed(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join(program).exists())
}

/// The multiplexer's server leaves the terminal's session, so nobody else would end it after a failure.
struct Server {
    end: Vec<String>,
    folder: std::path::PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut command = Command::new(&self.end[0]);
        command.args(&self.end[1..]).env("SCREENDIR", &self.folder);
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
