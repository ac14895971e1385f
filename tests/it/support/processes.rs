//! A look at the processes a test started: who is whose child, who still lives, who holds how much memory.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) session: i32,
}

/// One process by its pid, a zombie included; none when there is no such process.
pub(crate) fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself hold spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, state, parent, session })
}

pub(crate) fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(process).collect()
}

/// Everybody who was started with this folder, of one test alone, in the environment.
pub(crate) fn started_in(folder: &Path) -> Vec<i32> {
    let ours = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        memchr::memmem::find(&environment, folder.as_os_str().as_bytes()).is_some()
    };
    processes().into_iter().map(|process| process.pid).filter(|pid| ours(*pid)).collect()
}

/// Ends all of these. One that is just being forked, or has no environment for the moment of its exec, is missed by a single
/// look, hence several in a row that find nobody.
pub(crate) fn kill_started_in(folder: &Path) {
    let mut quiet = 0;
    while quiet < 3 {
        let found = started_in(folder);
        quiet = if found.is_empty() { quiet + 1 } else { 0 };
        for pid in found {
            signal(pid, Signal::KILL);
            wait_dead(pid, Duration::from_secs(1));
        }
    }
}

/// `root`, everybody in its session, and the descendants of all of these, wherever they have gone; no zombies.
pub(crate) fn family(root: i32) -> Vec<i32> {
    let all = processes();
    let mut family: Vec<i32> =
        all.iter().filter(|p| p.pid == root || p.session == root).map(|p| p.pid).collect();
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        let kin = all.iter().filter(|p| p.parent == member || p.session == member).map(|p| p.pid);
        let new: Vec<i32> = kin.filter(|pid| !family.contains(pid)).collect();
        family.extend(new);
        next += 1;
    }
    family.retain(|pid| all.iter().any(|p| p.pid == *pid && p.state != 'Z'));
    family
}

/// Ends the whole family of `root`, repeating while somebody is left who was forked meanwhile.
pub(crate) fn kill_family(root: i32) {
    for _ in 0..100 {
        let family = family(root);
        if family.is_empty() {
            return;
        }
        for pid in &family {
            signal(*pid, Signal::KILL);
        }
        for pid in family {
            wait_dead(pid, Duration::from_secs(1));
        }
    }
}

/// Sends a signal; a process that is already gone is no error.
pub(crate) fn signal(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

pub(crate) fn alive(pid: i32) -> bool {
    process(pid).is_some_and(|p| p.state != 'Z' && p.state != 'X')
}

/// Waits until the process has ended (a zombie has); false when the time is up.
pub(crate) fn wait_dead(pid: i32, timeout: Duration) -> bool {
    let Ok(pidfd) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) else {
        return !alive(pid);
    };
    let timeout = Timespec::try_from(timeout).unwrap();
    let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout));
    !alive(pid)
}

pub(crate) fn assert_gone(pids: &[i32], timeout: Duration) {
    for pid in pids {
        assert!(wait_dead(*pid, timeout), "process {pid} was left behind");
    }
}

/// Resident memory in KiB, summed over the given processes.
pub(crate) fn resident_kib(pids: &[i32]) -> u64 {
    pids.iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .map(|status| vm_rss(&status))
        .sum()
}

fn vm_rss(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
