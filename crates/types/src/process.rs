//! Which process: its pid *and* its start time, because pids are reused.

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

crate::row! {
    /// One process, distinguished from a later one with the same pid.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct ProcessId {
        pub pid: Pid,
        pub start: StartTime,
    }
}
