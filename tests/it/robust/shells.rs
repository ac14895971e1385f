//! What a shell makes of a program under codemie: each scenario is played bare and wrapped in every shell of this machine, and
//! the same words must appear the same number of times.
//!
//! What is typed is the same both ways: `run`, a script in the test's home folder, starts the rest of its line bare or wrapped.
use crate::sandbox::present;
use crate::support::mailbox::Mailbox;
use crate::support::processes;
use crate::support::pty::{Exit, Start, Terminal};
use crate::support::wrapper::{Bench, Wrapper};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// As one starts them without settings of their own.
const SHELLS: [&[&str]; 6] = [
    &["bash", "--norc", "--noprofile", "-i"],
    &["dash", "-i"],
    &["zsh", "-f", "-i"],
    &["fish", "--no-config", "-i"],
    &["mksh", "-i"],
    &["tcsh", "-f", "-i"],
];

/// One shell on a terminal, bare or wrapped.
struct Play {
    bench: Bench,
    shell: &'static str,
    terminal: Terminal,
}

impl Play {
    fn begin(wrapper: Wrapper, shell: &'static [&'static str]) -> Self {
        let bench = Bench::new(wrapper);
        let front = bench.line::<&str>(&[]).into_string().unwrap();
        let play = |name: &str, body: &str| {
            let path = bench.home().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        };
        play("run", &format!("exec {front} \"$@\""));
        play("up", "echo u''p; exec sleep 60");
        play("heedful", "trap 'echo he''eded; exit 3' INT; echo u''p; while :; do sleep 1; done");
        play(
            "literal",
            "stty raw -echo; printf 'up\\r\\n'; dd bs=1 count=1 2>/dev/null | od -An -tx1; stty sane",
        );
        let start = bench.shell().argv(shell.iter().map(Into::into).collect());
        let terminal = Self::equip(start).cwd(bench.home()).spawn();
        terminal.type_line("echo sta''rted");
        terminal.wait_after(0, "started");
        Self { bench, shell: shell[0], terminal }
    }

    fn equip(start: Start) -> Start {
        start.env("LANG", "C").env("TERM", "dumb")
    }

    fn script(&self, body: &str) -> PathBuf {
        let path = self.bench.home().join("script");
        std::fs::write(&path, format!("{body}\n")).unwrap();
        path
    }

    /// Types a line, waits until its command is up, presses a key, and waits until the job is over.
    fn press(&self, line: &str, key: &[u8]) -> usize {
        let mark = self.terminal.type_line(line);
        let mark = self.terminal.wait_after(mark, "up\r\n");
        let job = processes::family(self.terminal.foreground());
        self.terminal.send(key);
        for process in job.into_iter().filter(|pid| *pid != self.terminal.pid()) {
            assert!(processes::wait_dead(process, self.bench.timeout()), "{line} goes on after the key");
        }
        mark
    }

    /// How often each word stands behind the mark, once the shell is ready again; and the last command's status.
    fn count(&self, mark: usize, words: &[&'static str]) -> Vec<(&'static str, usize)> {
        let status = if matches!(self.shell, "fish" | "tcsh") { "$status" } else { "$?" };
        self.terminal.type_line(format!("echo 'the status' {status}."));
        let at = self.terminal.wait_after(mark, "the status ");
        self.terminal.wait_after(at, ".");
        let text = self.terminal.bytes()[mark..].to_vec();
        let often = |word: &str| memchr::memmem::find_iter(&text, word).count();
        let statuses = ["status 0.", "status 3.", "status 130.", "status 131.", "status 139."];
        words.iter().copied().chain(statuses).map(|word| (word, often(word))).collect()
    }
}

type Counts = Vec<(&'static str, usize)>;

/// Plays in every shell, bare and wrapped, what `play` returns counts for; `None`: this shell cannot do that.
fn same(play: fn(&Play) -> Option<Counts>) {
    for shell in present(&SHELLS) {
        let [bare, wrapped] = [Wrapper::Bare, Wrapper::Codemie].map(|wrapper| {
            let played = Play::begin(wrapper, shell);
            play(&played).map(|counts| (counts, played.terminal.text()))
        });
        if let (Some((bare, direct)), Some((wrapped, screen))) = (bare, wrapped) {
            assert_eq!(wrapped, bare, "{}, bare:\n{direct}\nwrapped:\n{screen}", shell[0]);
        }
    }
}

#[test]
fn interrupt_stops_a_list() {
    same(|play| {
        let mark = play.press("./run ./up; echo AF''TER", b"\x03");
        Some(play.count(mark, &["AFTER"]))
    });
}

#[test]
fn interrupt_stops_a_loop() {
    same(|play| {
        let line = match play.shell {
            "fish" => "for i in 1 2; ./run ./up; echo AF''TER; end",
            "tcsh" => return None, // its loops take several lines, and nobody types those ahead
            _ => "for i in 1 2; do ./run ./up; echo AF''TER; done",
        };
        let mark = play.press(line, b"\x03");
        Some(play.count(mark, &["AFTER", "up\r\n"]))
    });
}

#[test]
fn interrupt_ends_a_script() {
    same(|play| {
        let script = play.script("./run ./up\necho AFTER");
        let mark = play.press(&format!("{} {}", play.shell, script.display()), b"\x03");
        Some(play.count(mark, &["AFTER"]))
    });
}

/// Where the kernel drops nothing it reports nothing, either.
#[test]
fn interrupt_without_a_flush_ends_a_script() {
    same(|play| {
        let script = play.script("stty noflsh\n./run ./up\necho AFTER");
        let mark = play.press(&format!("{} {}", play.shell, script.display()), b"\x03");
        Some(play.count(mark, &["AFTER"]))
    });
}

/// As agents do: the key is a byte like any other, and nobody gets a signal.
#[test]
fn interrupt_that_is_read_as_a_byte_stops_nothing() {
    same(|play| {
        let script = play.script("./run ./literal\necho AFTER");
        let mark = play.press(&format!("{} {}", play.shell, script.display()), b"\x03");
        Some(play.count(mark, &["AFTER", " 03"]))
    });
}

#[test]
fn quit_ends_a_script() {
    same(|play| {
        let limit = if play.shell == "tcsh" { "limit coredumpsize 0" } else { "ulimit -c 0" };
        let script = play.script(&format!("{limit}\n./run ./up\necho AFTER"));
        let mark = play.press(&format!("{} {}", play.shell, script.display()), b"\x1c");
        Some(play.count(mark, &["AFTER"]))
    });
}

#[test]
fn interrupt_runs_the_trap_of_a_script() {
    same(|play| {
        if matches!(play.shell, "fish" | "tcsh") {
            return None; // they have no trap
        }
        let script = play.script("trap 'echo TRAPPED' INT\n./run ./up\necho AFTER");
        let mark = play.press(&format!("{} {}", play.shell, script.display()), b"\x03");
        Some(play.count(mark, &["AFTER", "TRAPPED"]))
    });
}

/// The program ends by itself, with a status of its own.
#[test]
fn interrupt_that_the_program_handles() {
    same(|play| {
        let mark = play.press("./run ./heedful; echo AF''TER", b"\x03");
        Some(play.count(mark, &["AFTER", "heeded"]))
    });
}

#[test]
fn make_builds_nothing_after_an_interrupt() {
    same(|play| {
        let rules = ".PHONY: all one two\nall: one two\none:\n\t@./run ./up\ntwo:\n\t@echo AF''TER\n";
        std::fs::write(play.bench.home().join("Makefile"), rules).unwrap();
        let mark = play.press("make -k", b"\x03");
        // GNU make's own words and status depend on which of the two it hears of first: its child's end or the signal.
        Some(play.count(mark, &["AFTER"])[..1].to_vec())
    });
}

#[test]
fn death_by_signal_is_reported_as_such() {
    same(|play| {
        let mark = play.terminal.type_line("./run sh -c 'ulimit -c 0; kill -SEGV $$'");
        let words = ["egmentation fault", "SIGSEGV"];
        let mark = play.terminal.wait_after(mark, "$$'");
        play.terminal.wait_for("the shell's report", |view| {
            words.iter().any(|word| memchr::memmem::find(&view.bytes[mark..], word.as_bytes()).is_some())
        });
        Some(play.count(mark, &words))
    });
}

/// A line and an end of file that were typed while the shell was busy with something else.
#[test]
fn line_and_end_of_file_typed_ahead() {
    same(|play| {
        let gate = Mailbox::new();
        let wait =
            format!("sh -c \"echo u''p; read go <{}\"; ./run cat; echo en''ded", gate.path().display());
        let mark = play.terminal.type_line(wait);
        let mark = play.terminal.wait_after(mark, "up\r\n");
        play.terminal.send("ahead\r\x04");
        // Shown by the terminal: then it is in its queue.
        play.terminal.wait_after(mark, "ahead");
        std::fs::write(gate.path(), "go\n").unwrap();
        play.terminal.wait_after(mark, "ended");
        Some(play.count(mark, &["ahead"]))
    });
}

/// A line typed for the shell while a program ran that did not read it.
#[test]
fn input_that_nobody_read_is_given_back() {
    if std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|allowed| allowed.trim() == "0")
    {
        println!("left out: this kernel lets nobody type into a terminal");
        return;
    }
    same(|play| {
        let gate = Mailbox::new();
        let line = format!("./run sh -c \"echo u''p; read go <{}\"", gate.path().display());
        let mark = play.terminal.type_line(line);
        let mark = play.terminal.wait_after(mark, "up\r\n");
        play.terminal.type_line("echo la''ter");
        // Shown by the terminal: then it is in its queue.
        play.terminal.wait_after(mark, "ter\r\n");
        std::fs::write(gate.path(), "go\n").unwrap();
        play.terminal.wait_after(mark, "later\r\n");
        Some(play.count(mark, &["later\r\n"]))
    });
}

#[test]
fn further_descriptors_are_the_same_terminal() {
    same(|play| {
        if play.shell == "tcsh" {
            return None; // it redirects no other descriptors
        }
        let command = "./run sh -c 'echo u\"\"p; read line <&3; echo \"got $line.\" >&4; tty; tty <&3' 3<&0 4>&1; echo en''ded";
        let mark = play.terminal.type_line(command);
        let start = play.terminal.wait_after(mark, "up\r\n");
        play.terminal.type_line("hello");
        let mark = play.terminal.wait_after(start, "got hello.");
        let mark = play.terminal.wait_after(mark, "/dev/pts/");
        let (name, mark) = play.terminal.number_after(mark, "\r\n");
        play.terminal.wait_after(mark, format!("/dev/pts/{name}\r\n"));
        play.terminal.wait_after(mark, "ended");
        Some(play.count(start, &["got hello.\r\n"]))
    });
}

/// A mode that the program left on is the program's affair; only of a killed one is anything undone.
#[test]
fn failed_program_leaves_its_modes() {
    same(|play| {
        let line = "./run sh -c 'printf \"\\033[?1049h\\033[?25l\\033[?1000h\"; exit 3'; echo en''ded";
        let mark = play.terminal.type_line(line);
        let mark = play.terminal.wait_after(mark, "\x1b[?1000h");
        play.terminal.wait_after(mark, "ended");
        Some(play.count(mark, &["\x1b[?1000l", "\x1b[?1049l", "\x1b[?25h"]))
    });
}

/// As waitpid tells it to a program that is no shell.
#[test]
fn wrapper_dies_of_the_programs_signal() {
    for (name, signal) in [("INT", 2), ("QUIT", 3), ("KILL", 9), ("SEGV", 11), ("TERM", 15), ("34", 34)] {
        for pipe in ["", " </dev/null >/dev/null"] {
            let command = ["sh", "-c", &format!("ulimit -c 0; kill -{name} $$")];
            let bench = Bench::new(Wrapper::Codemie);
            let terminal = bench.start_in(&format!("exec {{}}{pipe}"), &command).spawn();
            assert_eq!(terminal.wait_exit(), Exit::Signal(signal), "{name}{pipe}");
        }
    }
}
