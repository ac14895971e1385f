//! What the wrapper and the tracker's thread know of each other beside the queue of wakes: a full queue must not keep it from
//! arriving.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use pty::ProgramEnd;
use types::{Pid, Timestamp};

#[derive(Debug, Default)]
pub(super) struct SharedRun {
    /// The agent's process, once it runs.
    pub(super) agent: OnceLock<Pid>,
    /// How the agent ended, and when.
    pub(super) end: OnceLock<(ProgramEnd, Timestamp)>,
    /// Whether the START is in the store, so that a recovery can make up for a missing END.
    pub(super) begun: AtomicBool,
}
