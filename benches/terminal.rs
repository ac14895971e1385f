//! What the wrapper costs, side by side with its peers in one run on one machine: `cargo bench --bench terminal`.
//!
//! direct, codemie, script(1) and tmux take turns, so that whatever else the machine does hits all of them. Bare times mean
//! nothing elsewhere; the ratios do. tmux renders a screen of its own, so what depends on throughput is not comparable and left
//! out. `CODEMIE_BENCH_BINARY` names another build of codemie to measure, `CODEMIE_BENCH_BESIDE` one to measure beside it, so that
//! a step of one commit is seen in one run.

#![allow(unsafe_code)] // pre_exec, to give each child a terminal of its own; getrusage
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Terminal, quantile};

/// Names another build of codemie.
const BESIDE: &str = "CODEMIE_BENCH_BESIDE";
const STARTS: usize = 300;
const KEYS: usize = 3000;
const THROUGHPUT_MIB: usize = 64;
/// Keys typed into a flood, in this many rounds.
const FLOOD_KEYS: usize = 150;
const FLOOD_ROUNDS: usize = 6;
/// A terminal of 50 kB/s.
const SLOW_CHUNK: usize = 500;
const SLOW_PAUSE: Duration = Duration::from_millis(10);
const INTERRUPTS: usize = 7;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Direct,
    Codemie,
    Beside,
    Script,
    Tmux,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Codemie => "codemie",
            Self::Beside => "beside",
            Self::Script => "script",
            Self::Tmux => "tmux",
        }
    }

    fn command(self, line: &str) -> Command {
        let mut command;
        match self {
            Self::Direct => {
                command = Command::new("sh");
                command.args(["-c", line]);
            }
            Self::Codemie => {
                let binary = std::env::var_os("CODEMIE_BENCH_BINARY");
                command = wrapped(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_codemie").into()), line);
            }
            Self::Beside => {
                command = wrapped(std::env::var_os(BESIDE).unwrap(), line);
                // A home of its own: an older build refuses a newer database.
                let home = PathBuf::from(std::env::var_os("CODEMIE_HOME").unwrap()).join("beside");
                command.env("CODEMIE_HOME", home);
            }
            Self::Script => {
                command = Command::new("script");
                command.args(["-qec", line, "/dev/null"]).env("SHELL", "/bin/sh");
            }
            Self::Tmux => {
                command = Command::new("tmux");
                command.args(["-L", "codemie-bench", "-f", "/dev/null", "new-session", line]);
            }
        }
        command
    }
}

fn wrapped(binary: OsString, line: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(["run", "--quiet", "--", "sh", "-c", line]);
    command
}

fn main() {
    // cargo passes --bench; a filter chooses one measurement.
    let filter: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |name: &str| filter.is_empty() || filter.iter().any(|word| name.contains(word.as_str()));
    let home = tempfile::tempdir().unwrap();
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("CODEMIE_HOME", home.path()) };
    let present = |peer: Peer| {
        let tool = match peer {
            Peer::Script => "script",
            Peer::Tmux => "tmux",
            Peer::Beside => return std::env::var_os(BESIDE).is_some(),
            Peer::Direct | Peer::Codemie => return true,
        };
        Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let mut peers = vec![Peer::Direct, Peer::Codemie];
    peers.extend(Some(Peer::Beside).filter(|beside| present(*beside)));
    for peer in [Peer::Script, Peer::Tmux] {
        if present(peer) {
            peers.push(peer);
        } else {
            println!("{} is not installed: left out", peer.name());
        }
    }
    // Keeps the server alive, so that tmux is measured warm.
    let keeper = peers.contains(&Peer::Tmux).then(|| Terminal::open(Peer::Tmux.command("sleep 600")));
    if wanted("start") {
        starts(&peers);
    }
    if wanted("echo") {
        echoes(&peers);
    }
    if wanted("flood") {
        keys_in_a_flood(&peers);
    }
    if wanted("interrupt") {
        interrupts(&peers);
    }
    if wanted("throughput") {
        throughput(&peers);
    }
    if wanted("memory") {
        memory(&peers);
    }
    if let Some(keeper) = keeper {
        let _ = Command::new("tmux").args(["-L", "codemie-bench", "kill-server"]).status();
        keeper.end();
    }
}

fn starts(peers: &[Peer]) {
    let mut times = vec![Vec::new(); peers.len()];
    let mut processor = vec![Duration::ZERO; peers.len()];
    for _ in 0..STARTS {
        for ((peer, times), processor) in peers.iter().zip(&mut times).zip(&mut processor) {
            let before = processor_time_of_children();
            let begun = Instant::now();
            let mut terminal = Terminal::open(peer.command("true"));
            let mut reader = terminal.master.try_clone().unwrap();
            // tmux waits for its client's terminal to be read.
            let drain = std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while reader.read(&mut chunk).is_ok_and(|count| count > 0) {}
            });
            terminal.child.wait().unwrap();
            times.push(begun.elapsed());
            *processor += processor_time_of_children().saturating_sub(before);
            drop(terminal);
            let _ = drain.join();
        }
    }
    for times in &mut times {
        times.sort();
    }
    let base = quantile(&times[0], 0.0);
    println!("\nstart of `true` until the shell has its prompt back ({STARTS} runs, in turns)");
    println!("  {:10} {:>9} {:>9} {:>16} {:>10}", "", "min ms", "p50 ms", "min over direct", "CPU ms");
    for ((peer, times), processor) in peers.iter().zip(&times).zip(&processor) {
        let (min, p50) = (quantile(times, 0.0), quantile(times, 0.5));
        #[allow(clippy::cast_precision_loss)]
        let processor = processor.as_secs_f64() / STARTS as f64;
        println!(
            "  {:10} {:9.2} {:9.2} {:>13.2} ms {:10.2}",
            peer.name(),
            min * 1e3,
            p50 * 1e3,
            (min - base) * 1e3,
            processor * 1e3
        );
    }
}

/// Of all that have ended and been waited for. tmux's work is its server's, which lives on.
fn processor_time_of_children() -> Duration {
    // SAFETY: all of the struct is numbers, for which zeroes are valid, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    let time = |part: libc::timeval| {
        Duration::new(part.tv_sec.try_into().unwrap(), u32::try_from(part.tv_usec).unwrap() * 1000)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn echoes(peers: &[Peer]) {
    let mut terminals: Vec<_> = peers
        .iter()
        .map(|peer| {
            let mut terminal = Terminal::open(peer.command("stty raw -echo; echo ready; exec cat"));
            terminal.wait_for(b"ready");
            std::thread::sleep(Duration::from_millis(300));
            drain(&mut terminal.master);
            terminal
        })
        .collect();
    let mut times = vec![Vec::new(); peers.len()];
    for key in 0..KEYS {
        for (terminal, times) in terminals.iter_mut().zip(&mut times) {
            let mut answer = [0; 64];
            let begun = Instant::now();
            terminal.master.write_all(&[b'a' + u8::try_from(key % 26).unwrap()]).unwrap();
            assert!(terminal.master.read(&mut answer).unwrap() > 0);
            times.push(begun.elapsed());
            std::thread::sleep(Duration::from_micros(300));
            drain(&mut terminal.master); // tmux moves the cursor in a second write
        }
    }
    println!("\nkey to echo through `stty raw -echo; cat` ({KEYS} keys, in turns)");
    println!("  {:10} {:>9} {:>9} {:>9}", "", "min µs", "p50 µs", "p99 µs");
    for (peer, times) in peers.iter().zip(&mut times) {
        times.sort();
        let [min, p50, p99] = [0.0, 0.5, 0.99].map(|q| quantile(times, q) * 1e6);
        println!("  {:10} {min:9.1} {p50:9.1} {p99:9.1}", peer.name());
    }
    terminals.into_iter().for_each(Terminal::end);
}

/// The terminal itself shows the key, so that the program's own pace does not count.
fn keys_in_a_flood(peers: &[Peer]) {
    const KEY: u8 = b'K';
    let peers: Vec<_> = peers.iter().filter(|peer| **peer != Peer::Tmux).collect();
    let mut times = vec![Vec::new(); peers.len()];
    let mut bytes = vec![(0, Duration::ZERO); peers.len()];
    for _ in 0..FLOOD_ROUNDS {
        for ((peer, times), bytes) in peers.iter().zip(&mut times).zip(&mut bytes) {
            let mut terminal = Terminal::open(peer.command("stty raw echo; echo ready; exec yes flood"));
            terminal.wait_for(b"ready");
            let begun = Instant::now();
            let (mut typed, mut next, mut keys) = (None, begun + Duration::from_millis(200), 0);
            let mut chunk = vec![0; 64 * 1024];
            while keys < FLOOD_KEYS {
                if typed.is_none() && Instant::now() >= next {
                    typed = Some(Instant::now());
                    terminal.master.write_all(&[KEY]).unwrap();
                }
                let count = terminal.master.read(&mut chunk).expect("the program speaks");
                bytes.0 += count;
                if let Some(at) = typed
                    && chunk[..count].contains(&KEY)
                {
                    times.push(at.elapsed());
                    (typed, next, keys) = (None, Instant::now() + Duration::from_millis(2), keys + 1);
                }
            }
            bytes.1 += begun.elapsed();
            terminal.end();
        }
    }
    println!("\nkey to echo while `yes` floods the terminal ({} keys, in turns)", FLOOD_KEYS * FLOOD_ROUNDS);
    println!("  {:10} {:>9} {:>9} {:>9} {:>9}", "", "min µs", "p50 µs", "p99 µs", "MB/s");
    for ((peer, times), (bytes, time)) in peers.iter().zip(&mut times).zip(&bytes) {
        times.sort();
        let [min, p50, p99] = [0.0, 0.5, 0.99].map(|q| quantile(times, q) * 1e6);
        #[allow(clippy::cast_precision_loss)]
        let rate = *bytes as f64 / time.as_secs_f64() / 1e6;
        println!("  {:10} {min:9.1} {p50:9.1} {p99:9.1} {rate:9.1}", peer.name());
    }
}

/// A flood on a slow terminal, ^C, and how long it goes on.
fn interrupts(peers: &[Peer]) {
    let peers: Vec<_> = peers.iter().filter(|peer| **peer != Peer::Tmux).collect();
    let mut times = vec![Vec::new(); peers.len()];
    for _ in 0..INTERRUPTS {
        for (peer, times) in peers.iter().zip(&mut times) {
            let mut terminal = Terminal::open(peer.command("stty sane; echo ready; exec yes flood"));
            terminal.wait_for(b"ready");
            let mut chunk = [0; SLOW_CHUNK];
            // Long enough for every queue on the way to be full.
            for _ in 0..60 {
                assert!(terminal.master.read(&mut chunk).expect("the program speaks") > 0);
                std::thread::sleep(SLOW_PAUSE);
            }
            let typed = Instant::now();
            let mut last = typed;
            terminal.master.write_all(b"\x03").unwrap();
            while terminal.master.read(&mut chunk).is_ok_and(|count| count > 0) {
                last = Instant::now();
                std::thread::sleep(SLOW_PAUSE);
            }
            times.push(last - typed);
            terminal.end();
        }
    }
    for times in &mut times {
        times.sort();
    }
    let base = quantile(&times[0], 0.5);
    println!("\n^C to silence on a terminal of 50 kB/s ({INTERRUPTS} floods, in turns)");
    println!("  {:10} {:>9} {:>9} {:>9} {:>14}", "", "min ms", "p50 ms", "max ms", "p50 of direct");
    for (peer, times) in peers.iter().zip(&times) {
        let [min, p50, max] = [0.0, 0.5, 1.0].map(|q| quantile(times, q) * 1e3);
        println!("  {:10} {min:9.1} {p50:9.1} {max:9.1} {:13.2}×", peer.name(), p50 / (base * 1e3));
    }
}

/// Takes what is there, without waiting.
fn drain(master: &mut File) {
    rustix::io::ioctl_fionbio(&*master, true).unwrap();
    let mut chunk = [0; 4096];
    while master.read(&mut chunk).is_ok_and(|count| count > 0) {}
    rustix::io::ioctl_fionbio(&*master, false).unwrap();
}

fn throughput(peers: &[Peer]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let content = coloured_log(THROUGHPUT_MIB * 1024 * 1024);
    std::fs::write(file.path(), &content).unwrap();
    let line = format!("exec cat {}", file.path().display());
    println!(
        "\nthroughput of `cat` ({THROUGHPUT_MIB} MiB of coloured log, best of 3 in turns, byte-compared)"
    );
    println!("  {:10} {:>9} {:>12} {:>7}", "", "MiB/s", "of direct", "intact");
    let peers: Vec<_> = peers.iter().filter(|peer| **peer != Peer::Tmux).collect();
    let mut best = vec![(0.0_f64, true); peers.len()];
    for _ in 0..3 {
        for (peer, best) in peers.iter().zip(&mut best) {
            let begun = Instant::now();
            let mut terminal = Terminal::open(peer.command(&line));
            let mut got = Vec::with_capacity(content.len() + 4096);
            let mut chunk = vec![0; 64 * 1024];
            loop {
                match terminal.master.read(&mut chunk) {
                    Ok(count) if count > 0 => got.extend_from_slice(&chunk[..count]),
                    _ => break,
                }
            }
            #[allow(clippy::cast_precision_loss)]
            let rate = THROUGHPUT_MIB as f64 / begun.elapsed().as_secs_f64();
            terminal.child.wait().unwrap();
            *best = (best.0.max(rate), best.1 && got == content);
        }
    }
    for (peer, (rate, intact)) in peers.iter().zip(&best) {
        let share = rate / best[0].0;
        println!("  {:10} {rate:9.1} {share:11.2}× {:>7}", peer.name(), if *intact { "yes" } else { "NO" });
    }
}

fn coloured_log(bytes: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(bytes + 256);
    let mut line = 0_u64;
    while content.len() < bytes {
        let colour = 31 + line % 6;
        let word = ["lädt", "fertig", "構築中", "ok ✓"][usize::try_from(line % 4).unwrap()];
        writeln!(
            content,
            "\x1b[{colour}m{line:08}\x1b[0m {word} src/terminal/wrapped.rs: {}",
            line * 7919 % 9973
        )
        .unwrap();
        line += 1;
    }
    content.truncate(bytes);
    content
}

fn memory(peers: &[Peer]) {
    println!("\nmemory of the wrapper's own processes (PSS), and wake-ups while idle");
    println!("  {:10} {:>10} {:>14} {:>12}", "", "idle KiB", "stalled KiB", "wake-ups/s");
    for peer in peers.iter().filter(|peer| matches!(peer, Peer::Codemie | Peer::Beside | Peer::Script)) {
        let mut terminal = Terminal::open(peer.command("echo ready; exec cat"));
        terminal.wait_for(b"ready");
        std::thread::sleep(Duration::from_millis(500));
        let idle = pss(&terminal);
        let before = switches(&terminal);
        std::thread::sleep(Duration::from_secs(5));
        #[allow(clippy::cast_precision_loss)]
        let wakeups = (switches(&terminal) - before) as f64 / 5.0;
        terminal.end();
        let mut terminal = Terminal::open(peer.command("echo ready; exec yes flood"));
        terminal.wait_for(b"ready");
        std::thread::sleep(Duration::from_millis(2500));
        let stalled = pss(&terminal);
        terminal.end();
        println!("  {:10} {idle:10} {stalled:14} {wakeups:12.1}", peer.name());
    }
}

/// The wrapper and those of its descendants that run the same program.
fn own_processes(terminal: &Terminal) -> Vec<u32> {
    let exe = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let wrapper = terminal.child.id();
    let mut found = vec![wrapper];
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        if parent == Some(wrapper) && exe(pid) == exe(wrapper) {
            found.push(pid);
        }
    }
    found
}

fn pss(terminal: &Terminal) -> u64 {
    own_processes(terminal).into_iter().map(|pid| field(pid, "smaps_rollup", "Pss:")).sum()
}

fn switches(terminal: &Terminal) -> u64 {
    own_processes(terminal)
        .into_iter()
        .flat_map(|pid| {
            std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().map(move |task| {
                let task = task.file_name();
                field(pid, &format!("task/{}/status", task.display()), "voluntary_ctxt_switches:")
            })
        })
        .sum()
}

fn field(pid: u32, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
