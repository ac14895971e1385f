//! The tracker of a run: a thread beside the pump that sees which conversation the agent is in, meters it and commits what
//! happened.
//!
//! Promises: it never touches the terminal; whatever breaks here, the agent runs on, and `finish` reports what broke in one
//! line. It is started after the monitor was forked, so no thread exists when a process splits.
//!
//! A run has three parts with a state of their own, each testable by itself and with a clock that is handed in:
//! - [`watcher`]: what to look at and when (observer, watches, [`timers`], the polling net);
//! - [`write_queue`]: what is to be written and retried, the store, the sender and its receivers;
//! - [`sessions`]: the session the run is in, the correlator's state, and the sessions it has departed from.
//!
//! [`run_state`] holds the three and lets them change together, and [`run`] is the loop over all.

mod begin;
mod budgets;
mod exit_note;
mod follow;
pub mod notify;
mod plan;
mod recover;
mod run;
mod run_state;
mod sessions;
mod shared;
mod summary;
mod timers;
pub mod version;
mod watcher;
mod write_queue;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use os::home::Home;
use pty::ProgramEnd;
use pty::tap::Tap;
use shared::SharedRun;
use store::session::state::{Ending, Exit};
use timers::Wake;
use types::{Pid, RunId, Timestamp};

pub use follow::Follower;
pub use plan::{Plan, RunNews};
pub use recover::recover;
pub use summary::{RunTotal, Summary};

/// Wake-ups that wait for a tracker that is busy. More would be no news: each means "look".
const QUEUE: usize = 64;

/// The wrapper's end of the tracker.
#[derive(Debug)]
pub struct Tracker {
    wake: SyncSender<Wake>,
    shared: Arc<SharedRun>,
    summary: Receiver<Summary>,
    home: Home,
    run: RunId,
}

/// Notes that a run was stopped, for a wrapper that had to be killed and could not say so: the recovery ends its session as
/// stopped. What the wrapper itself has noted stands.
pub fn note_stopped(home: &Home, run: RunId, at: Timestamp) {
    if exit_note::find(home, run).is_none() {
        exit_note::leave(home, run, Ending::stopped(Exit::Signal(libc::SIGKILL)), at);
    }
}

impl Tracker {
    /// Starts the thread, which opens the store and waits for the agent to run. Without a thread there is no tracking, and
    /// `finish` says so.
    pub fn prepare(plan: Plan) -> Self {
        let (wake, woken) = sync_channel(QUEUE);
        let (report, summary) = sync_channel(1);
        let shared = Arc::<SharedRun>::default();
        let (home, run) = (plan.home.clone(), plan.run);
        let (changed, seen_by_thread) = (wake.clone(), Arc::clone(&shared));
        let thread = pty::without_signals(|| {
            std::thread::Builder::new().name("tracker".into()).spawn(move || {
                let _ = report.send(run::track(plan, &seen_by_thread, &woken, changed));
            })
        });
        if let Err(error) = thread {
            tracing::error!("no thread for the tracker: {error}");
        }
        Self { wake, shared, summary, home, run }
    }

    /// The agent runs: the session begins.
    pub fn begin(&self, agent: Pid) {
        let _ = self.shared.agent.set(agent);
        let _ = self.wake.try_send(Wake::Look);
    }

    /// What the pump offers to the tracker.
    pub fn tap(&self) -> Tap {
        let wake = self.wake.clone();
        Tap::new(move || {
            let _ = wake.try_send(Wake::Enter); // a full queue is a tracker that is about to look anyway
        })
    }

    /// The agent has ended. Waits for the END to be committed, but not longer than `timeout`: what is not done by then is
    /// done by the recovery of the next codemie command, from the note of how it ended. That note is written before anything is
    /// waited for, so that the exit status survives this process, too.
    pub fn finish(self, ended: ProgramEnd, at: Timestamp, timeout: Duration) -> Summary {
        exit_note::leave(&self.home, self.run, run::ending(ended), at);
        let _ = self.shared.end.set((ended, at));
        let _ = self.wake.try_send(Wake::Look);
        let problem = match self.summary.recv_timeout(timeout) {
            Ok(summary) => return summary,
            Err(RecvTimeoutError::Timeout) if self.shared.begun.load(Ordering::Relaxed) => {
                "this session's end was not recorded in time; the next codemie command makes up for it"
            }
            Err(RecvTimeoutError::Timeout) => "this session was not recorded: the database stayed locked",
            Err(RecvTimeoutError::Disconnected) => {
                "this session was not recorded: its tracker broke; see the log"
            }
        };
        Summary { problem: Some(problem.to_owned()), ..Summary::default() }
    }
}
