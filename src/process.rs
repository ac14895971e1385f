//! Who a process is: its pid *and* its start time, because pids are reused.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a process started, in the kernel's own unit (Linux: clock ticks since boot, `/proc/PID/stat` field 22).
/// Only ever compared for equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StartTime(pub u64);

/// One process, told apart from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    pub pid: Pid,
    pub start: StartTime,
}

/// Looking processes up; tests hand in a table of their own to reuse a pid.
pub trait Processes: Send + Sync {
    /// The start time of a running process; `None` when there is none, or only a zombie.
    fn start_time(&self, pid: Pid) -> Option<StartTime>;

    /// Who started it, or has taken it over since; `None` as above.
    fn parent(&self, pid: Pid) -> Option<Pid>;

    /// Whether `pid` is a descendant of `ancestor`, as far as the chain still stands.
    fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        // Pids can be reused while we climb; no real chain is this long.
        let mut at = pid;
        for _ in 0..64 {
            match self.parent(at) {
                Some(parent) if parent == ancestor => return true,
                Some(parent) if parent.0 > 1 => at = parent,
                _ => return false,
            }
        }
        false
    }

    fn alive(&self, process: ProcessId) -> bool {
        self.start_time(process.pid) == Some(process.start)
    }

    fn identify(&self, pid: Pid) -> Option<ProcessId> {
        self.start_time(pid).map(|start| ProcessId { pid, start })
    }
}

/// The processes of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemProcesses;

impl Processes for SystemProcesses {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        platform::look(pid).map(|seen| seen.start)
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        platform::look(pid).map(|seen| seen.parent)
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use super::{Pid, StartTime};

    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Seen {
        pub(super) parent: Pid,
        pub(super) start: StartTime,
    }

    pub(super) fn look(pid: Pid) -> Option<Seen> {
        parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The command name (field 2) may hold spaces, parentheses and any byte, so fields are counted from the last `)`.
    pub(super) fn parse_stat(stat: &[u8]) -> Option<Seen> {
        let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
        let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?; // field 3
        if matches!(state, "Z" | "X" | "x") {
            return None;
        }
        let parent = fields.next()?.parse().ok().map(Pid)?;
        let start = fields.nth(17)?.parse().ok().map(StartTime)?; // field 22
        Some(Seen { parent, start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_start_time_past_a_hostile_command_name() {
        let stat = b"42 (a) Z (b \xff) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 290970 20";
        let expected = platform::Seen { parent: Pid(1), start: StartTime(290_970) };
        assert_eq!(platform::parse_stat(stat), Some(expected));
    }

    #[test]
    fn a_zombie_is_gone() {
        let stat = b"42 (sh) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 290970 20";
        assert_eq!(platform::parse_stat(stat), None);
    }

    #[test]
    fn this_process_is_alive_and_an_earlier_one_with_its_pid_is_not() {
        let me = Pid(i32::try_from(std::process::id()).unwrap());
        let id = SystemProcesses.identify(me).unwrap();
        assert!(SystemProcesses.alive(id));
        assert!(!SystemProcesses.alive(ProcessId { start: StartTime(id.start.0 + 1), ..id }));
        let parent = SystemProcesses.parent(me).unwrap();
        assert!(SystemProcesses.descends(me, parent));
        assert!(!SystemProcesses.descends(parent, me));
    }
}
