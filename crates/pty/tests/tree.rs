//! Daemons below a process that adopts orphans. One test to a process: every orphan of this one becomes its child.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use std::time::{Duration, Instant};

use pty::process::tree::{self, Tree, adopt_orphans, reap_adopted};
use pty::process::{Processes, SystemProcesses};
use types::Pid;

#[test]
fn daemons_are_found_ended_and_reaped_by_the_process_that_adopts_them() {
    assert!(adopt_orphans());
    let own = Pid(i32::try_from(std::process::id()).unwrap());
    // Each forks twice in a session of its own; the shell between is gone at once. One of them ignores TERM.
    let daemons = "setsid sh -c '(sleep 600; :) &' ; setsid sh -c '(trap \"\" TERM; sleep 601; :) &' ; true";
    assert!(Command::new("sh").args(["-c", daemons]).status().unwrap().success());
    let root = SystemProcesses.identify(own).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut all = Tree::of(root, &SystemProcesses);
    while all.living(&SystemProcesses).len() < 4 {
        assert!(Instant::now() < deadline, "{all:?}");
        std::thread::sleep(Duration::from_millis(10));
        all = Tree::of(root, &SystemProcesses);
    }
    assert!(all.living(&SystemProcesses).iter().all(|member| SystemProcesses.descends(member.pid, own)));
    let survivors = tree::end(&mut all, &SystemProcesses, &|_| false, Duration::from_millis(300));
    assert_eq!(survivors, []);
    assert_eq!(SystemProcesses.children(own), [], "not even a zombie is left");

    // One that ends by itself is reaped when the adopter looks after its children.
    assert!(Command::new("sh").args(["-c", "(sleep 0.05 &) ; true"]).status().unwrap().success());
    while !SystemProcesses.children(own).is_empty() {
        assert!(Instant::now() < deadline);
        reap_adopted(&SystemProcesses, &[]);
        std::thread::sleep(Duration::from_millis(10));
    }
}
