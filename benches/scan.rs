//! What a scan costs, side by side with other tools in one run on one machine: `cargo bench --bench scan`.
//!
//! A tree of Claude session files is made (1 GB, or `--bytes N`), read once so that it is in memory, and then codemie, ccusage,
//! ccstat and `cat` take turns. Bare times mean nothing elsewhere; the ratios do. What each tool counts is compared with what
//! the tree is known to hold. The others are used where `target/peers` has them:
//!
//! ```text
//! npm i --prefix target/peers ccusage@20.0.24
//! cargo install ccstat --root target/peers
//! ```

#![allow(unsafe_code)] // wait4, for what a child used
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../tests/trees.rs"]
mod trees;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use trees::{Counts, Plan, Truth};

const ROUNDS: usize = 7;

/// What one run of a program took.
#[derive(Clone, Debug)]
struct Run {
    wall: Duration,
    cpu: Duration,
    /// KiB, at most at any time.
    memory: i64,
    output: String,
}

/// A program, ready to be run over the tree.
struct Peer {
    name: &'static str,
    /// Before each run.
    prepare: Box<dyn Fn()>,
    command: Box<dyn Fn() -> Command>,
    /// What its output says.
    counts: fn(&Value) -> Option<Counts>,
    runs: Vec<Run>,
}

/// The build that is measured; `CODEMIE_BENCH_BINARY` names another one.
fn codemie() -> std::ffi::OsString {
    std::env::var_os("CODEMIE_BENCH_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_codemie").into())
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let bytes =
        args.iter().position(|arg| arg == "--bytes").map_or(1 << 30, |at| args[at + 1].parse().unwrap());
    let rounds =
        args.iter().position(|arg| arg == "--rounds").map_or(ROUNDS, |at| args[at + 1].parse().unwrap());
    let plan = Plan { seed: 1, bytes, session_bytes: 600_000 };
    if let Some(at) = args.iter().position(|arg| arg == "--make") {
        // Only the tree, for a look with other tools.
        trees::make(Path::new(&args[at + 1]), plan).unwrap();
        return;
    }
    let stage = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = stage.path().join("home");
    let root = home.join(".claude");
    let begun = Instant::now();
    let truth = trees::make(&root, plan).unwrap();
    println!(
        "{} files, {:.2} GB, {} calls in {} lines with usage (made in {:.1} s)",
        truth.files,
        giga(truth.bytes),
        truth.total.calls,
        truth.usage_lines,
        begun.elapsed().as_secs_f64()
    );
    let mut peers = peers(&home, &root);
    for round in 0..=rounds {
        for peer in &mut peers {
            (peer.prepare)();
            let run = run((peer.command)());
            // The first round is for the page cache.
            if round > 0 {
                peer.runs.push(run);
            }
        }
    }
    report(&mut peers, &truth);
}

fn peers(home: &Path, root: &Path) -> Vec<Peer> {
    let codemie_home = home.join(".codemie");
    let command = {
        let home = home.to_owned();
        move |program: &Path, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args).env_clear().env("HOME", &home).env("TZ", "UTC");
            command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
            command
        }
    };
    let boxed = |program: PathBuf, args: &'static [&'static str]| -> Box<dyn Fn() -> Command> {
        let command = command.clone();
        Box::new(move || command(&program, args))
    };
    let codemie = || boxed(codemie().into(), &["usage", "--scan", "--json"]);
    let nothing = || -> Box<dyn Fn()> { Box::new(|| {}) };
    let forget = codemie_home.clone();
    let mut peers = vec![
        Peer {
            name: "codemie",
            prepare: Box::new(move || drop(std::fs::remove_dir_all(&forget))),
            command: codemie(),
            counts: of_codemie,
            runs: Vec::new(),
        },
        Peer {
            name: "codemie again",
            prepare: nothing(),
            command: codemie(),
            counts: of_codemie,
            runs: Vec::new(),
        },
    ];
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers");
    let others: [(_, _, &[&str], fn(&Value) -> Option<Counts>); 2] = [
        ("ccusage", "node_modules/.bin/ccusage", &["claude", "daily", "--offline", "--json"], of_ccusage),
        ("ccstat", "bin/ccstat", &["daily", "--json"], of_ccstat),
    ];
    for (name, path, args, counts) in others {
        let program = installed.join(path);
        if program.exists() {
            peers.push(Peer {
                name,
                prepare: nothing(),
                command: boxed(program, args),
                counts,
                runs: Vec::new(),
            });
        } else {
            println!("{name} is not installed: left out");
        }
    }
    let files = trees::files(root);
    peers.push(Peer {
        name: "cat",
        prepare: nothing(),
        command: Box::new(move || {
            let mut command = Command::new("cat");
            command.args(&files);
            command
        }),
        counts: |_| None,
        runs: Vec::new(),
    });
    peers
}

fn run(mut command: Command) -> Run {
    let output = tempfile::NamedTempFile::new().unwrap();
    let to: Stdio = if command.get_program() == "cat" {
        File::create("/dev/null").unwrap().into()
    } else {
        output.reopen().unwrap().into()
    };
    command.stdin(Stdio::null()).stdout(to).stderr(Stdio::null());
    let begun = Instant::now();
    #[expect(clippy::zombie_processes, reason = "wait4 below waits for it")]
    let child = command.spawn().expect("the program starts");
    // SAFETY: plain old data, filled in by the call.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: both point to what they must.
    unsafe { libc::wait4(libc::pid_t::try_from(child.id()).unwrap(), &raw mut status, 0, &raw mut used) };
    let wall = begun.elapsed();
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Run {
        wall,
        cpu: time(used.ru_utime) + time(used.ru_stime),
        memory: used.ru_maxrss,
        output: std::fs::read_to_string(output.path()).unwrap_or_default(),
    }
}

fn report(peers: &mut [Peer], truth: &Truth) {
    println!(
        "\n  {:14} {:>9} {:>9} {:>9} {:>12}  error against the truth",
        "", "min ms", "p50 ms", "CPU ms", "memory MiB"
    );
    for peer in peers {
        peer.runs.sort_by_key(|run| run.wall);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (min, p50) = (&peer.runs[0], &peer.runs[peer.runs.len() / 2]);
        let cpu = peer.runs.iter().map(|run| run.cpu).min().unwrap();
        #[expect(clippy::cast_precision_loss, reason = "for showing")]
        let memory = peer.runs.iter().map(|run| run.memory).max().unwrap() as f64 / 1024.0;
        // Some write their warnings to standard output, too.
        let json = min.output.find("{\n").map_or("", |start| &min.output[start..]);
        let error = serde_json::from_str(json).ok().and_then(|value| (peer.counts)(&value));
        let error = error.map_or_else(String::new, |counts| errors(&counts, &truth.total));
        println!(
            "  {:14} {:9.1} {:9.1} {:9.1} {memory:12.1}  {error}",
            peer.name,
            ms(min.wall),
            ms(p50.wall),
            ms(cpu)
        );
    }
}

fn errors(counted: &Counts, truth: &Counts) -> String {
    let rows = [
        ("input", counted.input, truth.input),
        ("output", counted.output, truth.output),
        ("cache read", counted.cache_read, truth.cache_read),
        ("cache write", counted.cache_write, truth.cache_write),
        ("cost", counted.cost, truth.cost),
    ];
    let wrong: Vec<String> = rows
        .iter()
        // A sum of floats is as exact as floats are.
        .filter(|(_, counted, truth)| counted.abs_diff(*truth) > truth / 1_000_000_000)
        .map(|(name, counted, truth)| {
            #[expect(clippy::cast_precision_loss, reason = "for showing")]
            let off = (*counted as f64 - *truth as f64) / *truth as f64 * 100.0;
            format!("{name} {off:+.3} %")
        })
        .collect();
    if wrong.is_empty() { "exact".into() } else { wrong.join(", ") }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "dollars to whole pico-dollars")]
fn pico(dollars: &Value) -> Option<u64> {
    Some((dollars.as_f64()? * 1e12).round() as u64)
}

fn of_codemie(value: &Value) -> Option<Counts> {
    let total = &value["total"];
    Some(Counts {
        calls: total["apiCalls"].as_u64()?,
        input: total["inputTokens"].as_u64()?,
        output: total["outputTokens"].as_u64()?,
        cache_read: total["cacheReadTokens"].as_u64()?,
        cache_write: total["cacheWriteTokens"].as_u64()?,
        cost: pico(&total["costUsd"])?,
    })
}

fn of_ccusage(value: &Value) -> Option<Counts> {
    let total = &value["totals"];
    Some(Counts {
        calls: 0,
        input: total["inputTokens"].as_u64()?,
        output: total["outputTokens"].as_u64()?,
        cache_read: total["cacheReadTokens"].as_u64()?,
        cache_write: total["cacheCreationTokens"].as_u64()?,
        cost: pico(&total["totalCost"])?,
    })
}

fn of_ccstat(value: &Value) -> Option<Counts> {
    let tokens = &value["totals"]["tokens"];
    Some(Counts {
        calls: 0,
        input: tokens["input_tokens"].as_u64()?,
        output: tokens["output_tokens"].as_u64()?,
        cache_read: tokens["cache_read_tokens"].as_u64()?,
        cache_write: tokens["cache_creation_tokens"].as_u64()?,
        cost: pico(&value["totals"]["total_cost"])?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "for showing")]
fn giga(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}
