//! Chains of forks below a process that adopts orphans. One test to a process: every orphan of this one becomes its child.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use pty::process::tree::{self, Survivor, Tree, adopt_orphans};
use pty::process::{Processes, SystemProcesses};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use types::Pid;

/// Each link ignores TERM, leaves its session, waits and forks the next one; it says so on its output, which all of them share.
const LINKS: &str = r#"use POSIX; $| = 1; $SIG{TERM} = "IGNORE";
    while (1) { exit if fork; setsid(); print "."; select(undef, undef, undef, $ARGV[0] / 1000) if $ARGV[0]; }"#;

/// Bounds failures only: how long a chain may stay silent before its output is seen to end.
const TIMEOUT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// Whether nobody has the output open any more, after what is in it has been read; false if more comes than was in it.
fn has_ended(output: &mut ChildStdout) -> bool {
    let mut bytes = vec![0; 64 * 1024];
    // A pipe holds 64 KiB: more than four times that were written since.
    for _ in 0..4 {
        let mut events = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        if poll(&mut events, Some(&TIMEOUT)).unwrap() == 0 {
            return false;
        }
        match output.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
        }
    }
    false
}

#[test]
fn a_chain_of_forks_is_ended_or_reported() {
    assert!(adopt_orphans());
    let own = Pid(i32::try_from(std::process::id()).unwrap());
    let root = SystemProcesses.identify(own).unwrap();
    for millis in [0, 1, 5, 20] {
        let mut perl = Command::new("perl");
        let chain = perl.args(["-e", LINKS, &millis.to_string()]).stdout(Stdio::piped()).spawn();
        let mut output = chain.unwrap().stdout.unwrap();
        output.read_exact(&mut [0; 10]).unwrap();
        let mut tree = Tree::of(root, &SystemProcesses);
        let survivors = tree::end(&mut tree, &SystemProcesses, &|_| false, Duration::from_millis(100));
        if survivors.is_empty() {
            assert!(has_ended(&mut output), "{millis} ms: said to be gone, and goes on");
        } else {
            // Nobody promises to catch what lives for no time at all, only to say so.
            assert!(millis == 0 || survivors != [Survivor::Successors], "{millis} ms: {survivors:?}");
        }
        drop(output); // what is left ends with its next line
    }
}
