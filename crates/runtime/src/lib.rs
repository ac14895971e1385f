//! What happens while agents run: the launch of an agent in a terminal, the tracker that sees its sessions begin and end, the
//! processes that keep background sessions and their clients, what a session does now, budgets, and the proxy's processes.
//!
//! ```text
//! shim      standing in front of an agent under its name, and finding the real one behind us
//! budget    how much of each budget is spent, who is notified, which calls are refused
//! live      what a running session does now, from all that is known of it: a screen, files, control sequences
//! remote    a host's socket: frames, and the client's side
//! track     the tracker: evidence, records, START and END, recovery of runs that vanished
//! proxy     keeper and worker beside a run, the calls that they store, the gate of budgets
//! launch    from arguments and an environment to a started agent; resuming, conflicts, stopping
//! host      a background session's process: front end, server, viewers, texts and answers on their way
//! ```
//!
//! Constraints:
//! - Nothing here keeps an agent from running or waiting. START is written beside the spawn, without an fsync.
//! - What decides (preparation, conflicts, state, texts on their way, budgets) is pure or a state machine without a clock; what does
//!   I/O is thin.
//! - A process is its pid and start time. Signals go through a descriptor of the process.
//! - A host is often older than its clients: frames have defaults for what is missing, and pass over what they do not know.
//! - A write that the store refuses is tried again before any later one and counts as of when it was decided.
//!
//! Decisions and measurements: docs/design/04-background-hosts.md, 06-launch.md, 07-evidence.md, 09-live-state.md, 21-proxy-process.md,
//! 22-budgets.md.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod budget;
pub mod host;
pub mod launch;
pub mod live;
pub mod proxy;
pub mod remote;
pub mod shim;
pub mod track;
