//! What a search through all conversations costs, side by side with ripgrep in one run on one machine: `cargo bench --bench search`.
//!
//! A tree of Claude session files is made (1 GB, or `--bytes N`), read once so that it is in memory, and then codemie and ripgrep
//! (Debian's package `ripgrep`) take turns with the same words over the same files. ripgrep only finds lines; codemie also parses
//! them, keeps what somebody said, and sorts it. Bare times mean nothing elsewhere; the ratios do: at most 2.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../tests/trees.rs"]
mod trees;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use trees::Plan;

const ROUNDS: usize = 7;

/// In no message, in few, in a fifth of all lines; digits; a letter that is not ASCII; two words.
const WORDS: [&[&str]; 6] =
    [&["needlexyz"], &["flaky"], &["warning"], &["8723"], &["zähler"], &["warning", "4096"]];

fn codemie() -> std::ffi::OsString {
    std::env::var_os("CODEMIE_BENCH_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_codemie").into())
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |name: &str, otherwise: u64| {
        args.iter().position(|arg| arg == name).map_or(otherwise, |at| args[at + 1].parse().unwrap())
    };
    let stage = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = stage.path().join("home");
    let root = home.join(".claude");
    let plan = Plan { seed: 1, bytes: number("--bytes", 1 << 30), session_bytes: 600_000 };
    let truth = trees::make(&root, plan).unwrap();
    written_when_last_said(&root);
    println!("{} files, {} MB", truth.files, truth.bytes / 1_000_000);
    println!("{:<20} {:>10} {:>10} {:>7} {:>9}", "words", "codemie", "ripgrep", "ratio", "messages");
    for words in WORDS {
        let (mut ours, mut theirs, mut found) = (Duration::MAX, Duration::MAX, 0);
        for round in 0..=number("--rounds", ROUNDS as u64) {
            let (time, output) = timed(&mut search(&home, words));
            let (other, _) = timed(&mut ripgrep(&root, words));
            // The first round is for the page cache.
            if round > 0 {
                (ours, theirs) = (ours.min(time), theirs.min(other));
            }
            found = output.matches("\"role\"").count();
        }
        let millis = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1000.0);
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        println!(
            "{:<20} {:>10} {:>10} {ratio:>7.2} {found:>9}",
            words.join(" "),
            millis(ours),
            millis(theirs)
        );
    }
}

/// Gives each file the time of its last line, as agents leave them: files that are older than what is found are not read.
fn written_when_last_said(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            written_when_last_said(&path);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let Some((_, last)) = text.rsplit_once(r#""timestamp":""#) else { continue };
        let at = types::Timestamp::parse(last.split('"').next().unwrap()).unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at.0.cast_unsigned());
        fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    }
}

fn search(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(codemie());
    command.env_clear().env("HOME", home).arg("search").args(words).args(["--json", "-n", "100"]);
    command
}

/// The first word; the others are looked for in what it finds, as a person would.
fn ripgrep(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("rg");
    command.args(["--ignore-case", "--fixed-strings", "--no-ignore", "--count", "--glob", "*.jsonl"]);
    command.arg(words[0]).arg(root);
    command
}

fn timed(command: &mut Command) -> (Duration, String) {
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().expect("the program starts");
    (begun.elapsed(), String::from_utf8_lossy(&output.stdout).into_owned())
}
