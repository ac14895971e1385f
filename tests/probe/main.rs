//! A program to be wrapped by the tests: it tells what it sees of its surroundings.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a part of the tests"
)]

use rustix::termios::tcgetwinsize;
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

fn main() {
    let args: Vec<OsString> = std::env::args_os().collect();
    match args.get(1).and_then(|verb| verb.to_str()) {
        Some("size") => print_size("size"),
        Some("resizes") => resizes(),
        Some("flood") => flood(&args[2], args[3].to_str().unwrap().parse().unwrap()),
        Some("identity") => identity(&args[2]),
        _ => panic!("probe size | resizes | flood MAILBOX BYTES | identity FILE ARGS…"),
    }
}

fn print_size(label: &str) {
    let size = tcgetwinsize(rustix::stdio::stdin()).unwrap();
    println!("{label} {} {} {} {}.", size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel);
}

/// Tells each SIGWINCH with the size seen at it; at the first line of input, how many there were.
fn resizes() {
    let mut signals = Signals::new([SIGWINCH]).unwrap();
    let handle = signals.handle();
    println!("waiting");
    let count = std::thread::spawn(move || signals.forever().map(|_| print_size("resized")).count());
    std::io::stdin().read_exact(&mut [0]).unwrap();
    handle.close();
    println!("resized {} times", count.join().unwrap());
}

/// Writes that many bytes to standard output after a line of input. Tells the mailbox each time it could write nothing for
/// a second after it had written something, and when all is written.
fn flood(mailbox: &OsStr, total: usize) {
    let mut mailbox = OpenOptions::new().write(true).open(mailbox).unwrap();
    println!("waiting");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let (progress, written) = channel();
    std::thread::spawn(move || {
        let mut stdout = std::io::stdout().lock();
        for _ in 0..total / 1024 {
            stdout.write_all(&[b'x'; 1024]).and_then(|()| stdout.flush()).unwrap();
            progress.send(1024).unwrap();
        }
    });
    let (mut sum, mut told) = (0, 0);
    loop {
        match written.recv_timeout(Duration::from_secs(1)) {
            Ok(count) => sum += count,
            Err(RecvTimeoutError::Timeout) if told < sum => {
                writeln!(mailbox, "blocked {sum}").unwrap();
                told = sum;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    writeln!(mailbox, "done {sum}").unwrap();
}

/// Writes arguments, folder and environment into a file, each ended by a zero byte.
fn identity(file: &OsStr) {
    let mut file = File::create(file).unwrap();
    let mut tell = |label: &str, value: &OsStr| {
        file.write_all(&[label.as_bytes(), value.as_bytes(), b"\0"].concat()).unwrap();
    };
    for arg in std::env::args_os().skip(3) {
        tell("arg ", &arg);
    }
    tell("cwd ", std::env::current_dir().unwrap().as_os_str());
    for (name, value) in std::env::vars_os() {
        tell("env ", &[name, value].join(OsStr::new("=")));
    }
}
