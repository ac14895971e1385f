//! Background sessions beside tmux's, in one run on one machine: `cargo bench --bench background`.
//!
//! Both keep a program without a terminal; both are attached to, from a terminal of the same size, in turns. Bare times mean
//! nothing elsewhere; the ratios do. `CODEMIE_BENCH_BINARY` names another build of codemie to measure.

#![allow(unsafe_code)] // pre_exec, to give each child a terminal of its own
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Terminal, quantile};

const ATTACHMENTS: usize = 100;
const KEYS: usize = 2000;

/// Paints a screen as an agent's would be, then echoes.
const PROGRAM: &str = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); printf '\\033[3%dm line %d of a conversation\\033[0m\\n' $((i%8)) $i; done; stty raw -echo; printf PAINTED; exec cat";

#[derive(Clone, Copy)]
enum Peer {
    Codemie,
    Tmux,
}

impl Peer {
    const ALL: [Self; 2] = [Self::Codemie, Self::Tmux];

    fn name(self) -> &'static str {
        match self {
            Self::Codemie => "codemie",
            Self::Tmux => "tmux",
        }
    }

    fn program(self) -> Command {
        match self {
            Self::Codemie => {
                let binary = std::env::var_os("CODEMIE_BENCH_BINARY");
                Command::new(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_codemie").into()))
            }
            Self::Tmux => {
                let mut command = Command::new("tmux");
                command.args(["-L", "codemie-bench-background", "-f", "/dev/null"]);
                command
            }
        }
    }

    fn start(self) {
        let mut command = self.program();
        match self {
            Self::Codemie => command.args(["run", "--detach", "--name", "bench", "--", "sh", "-c", PROGRAM]),
            Self::Tmux => {
                command.args(["new-session", "-d", "-s", "bench", "-x", "120", "-y", "40", PROGRAM])
            }
        };
        assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{} starts", self.name());
    }

    fn attach(self) -> Terminal {
        let mut command = self.program();
        match self {
            Self::Codemie => command.args(["attach", "bench"]),
            Self::Tmux => command.args(["attach", "-t", "bench"]),
        };
        command.env("TERM", "xterm-256color");
        let mut terminal = Terminal::open(command);
        terminal.wait_for(b"PAINTED");
        terminal
    }

    fn stop(self) {
        let mut command = self.program();
        match self {
            Self::Codemie => command.args(["stop", "bench"]),
            Self::Tmux => command.args(["kill-server"]),
        };
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn main() {
    let home = tempfile::tempdir().unwrap();
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("CODEMIE_HOME", home.path()) };
    Peer::ALL.into_iter().for_each(Peer::start);
    first_paints();
    echoes();
    Peer::ALL.into_iter().for_each(Peer::stop);
}

fn first_paints() {
    let mut times = Peer::ALL.map(|_| Vec::new());
    for _ in 0..ATTACHMENTS {
        for (peer, times) in Peer::ALL.into_iter().zip(&mut times) {
            let start = Instant::now();
            let terminal = peer.attach();
            times.push(start.elapsed());
            terminal.end();
        }
    }
    println!("\nattach to first paint, whole process, {ATTACHMENTS} times");
    print(&mut times, 1e3, "ms");
}

fn echoes() {
    let mut terminals = Peer::ALL.map(Peer::attach);
    let mut times = Peer::ALL.map(|_| Vec::new());
    // Letters in turn, so that no echo is taken for the next.
    for letter in (b'a'..=b'z').cycle().take(KEYS) {
        for (terminal, times) in terminals.iter_mut().zip(&mut times) {
            let start = Instant::now();
            terminal.master.write_all(&[letter]).unwrap();
            terminal.wait_for(&[letter]);
            times.push(start.elapsed());
        }
    }
    println!("\nkey to echo while attached, {KEYS} keys");
    print(&mut times, 1e6, "µs");
    terminals.into_iter().for_each(Terminal::end);
}

fn print(times: &mut [Vec<Duration>], unit: f64, name: &str) {
    println!(
        "  {:10} {:>9} {:>9} {:>9}",
        "",
        format!("min {name}"),
        format!("p50 {name}"),
        format!("p99 {name}")
    );
    for (peer, times) in Peer::ALL.into_iter().zip(times) {
        times.sort();
        let [min, p50, p99] = [0.0, 0.5, 0.99].map(|q| quantile(times, q) * unit);
        println!("  {:10} {min:9.2} {p50:9.2} {p99:9.2}", peer.name());
    }
}
