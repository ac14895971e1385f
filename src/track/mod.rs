//! The tracker of a run: a thread beside the pump that sees which conversation the agent is in, meters it and commits what
//! happened.
//!
//! Promises: it never touches the terminal; whatever breaks here, the agent runs on, and `finish` says what broke in one
//! line. It is started after the monitor was forked, so no thread exists when a process splits.

mod begin;
mod exit_note;
mod follow;
mod left;
mod receivers;
mod recover;
mod run;
mod step;
pub mod version;
mod watch;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::agent::Trail;
use crate::forward::{Sender, Sinks};
use crate::home::Home;
use crate::session::lifecycle::Conversation;
use crate::store::{Evidence, Surroundings};
use terminal::ProgramEnd;
use terminal::tap::Tap;
use wire::PicoDollars;
use wire::Pid;
use wire::SessionRecord;
use wire::Timestamp;
use wire::{AgentSessionId, RunId, SessionId};

pub use follow::Follower;
pub use recover::recover;
#[cfg(test)]
pub(crate) use watch::Watch;

/// Wake-ups that wait for a tracker that is busy. More would tell it nothing new: each means "look".
const QUEUE: usize = 64;

/// What is known of a run before it begins.
#[expect(missing_debug_implementations, reason = "a trail has nothing to show")]
pub struct Plan {
    pub home: Home,
    pub begun_at: Timestamp,
    /// Both are told to the agent in its environment, so they are chosen before the store is open.
    pub run: RunId,
    pub session: SessionId,
    pub agent: String,
    /// What it does stays on this machine: the demonstration.
    pub local_only: bool,
    /// How to follow it; `None` for a program that is no agent: a session with its lifecycle and no meter.
    pub trail: Option<Box<dyn Trail>>,
    pub version: Option<String>,
    /// For noting the version, once the agent has told it.
    pub binary: Option<version::Identity>,
    pub conversation: Conversation,
    /// The id of the agent's session that stands in its arguments: codemie chose it, or the user.
    pub assigned: Option<AgentSessionId>,
    pub folder: PathBuf,
    /// What the environment said when `trail` was made, for whoever has to recover this run.
    pub surroundings: Surroundings,
    pub name: Option<String>,
    pub tags: Vec<String>,
    pub group: Option<String>,
    /// The run this one was started inside of.
    pub parent: Option<RunId>,
    /// What was added to the agent's arguments and environment or taken away, for `explain`.
    pub notes: Vec<Evidence>,
    /// Somebody wants to hear in the end what the session was.
    pub summary: bool,
    /// `CODEMIE_LOG` or the configured level.
    pub log_level: Option<String>,
    /// Where events are sent; `None`: nowhere.
    pub sinks: Option<Sinks>,
    /// Where they are to be sent by now: asked when the store has come to know of other receivers.
    pub sinks_now: fn(&Home) -> Option<Sinks>,
}

/// Why the tracker wakes up.
#[derive(Debug)]
enum Wake {
    /// The user pressed Enter.
    Enter,
    /// Something changed: files, or the end has come.
    Look,
    /// Another run changed something.
    Others,
}

/// Whether the START is in the store, so that a recovery can make up for a missing END.
type Begun = Arc<AtomicBool>;

/// How the agent ended, and when. Told beside the queue, because a full queue must not keep it from arriving.
type End = Arc<OnceLock<(ProgramEnd, Timestamp)>>;

/// What is left to say when all is over.
#[derive(Debug, Default)]
pub struct Summary {
    /// The session the run ended in.
    pub session: Option<SessionRecord>,
    /// `None`: that was its only one.
    pub together: Option<Together>,
    /// What of codemie's own is broken.
    pub problem: Option<String>,
    /// Everything is committed; not everything may have been sent.
    pub sender: Option<Sender>,
}

/// All sessions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    pub sessions: usize,
    pub cost: PicoDollars,
}

/// The wrapper's end of the tracker.
#[derive(Debug)]
pub struct Tracker {
    wake: SyncSender<Wake>,
    agent: Arc<OnceLock<Pid>>,
    end: End,
    begun: Begun,
    summary: Receiver<Summary>,
    home: Home,
    run: RunId,
}

impl Tracker {
    /// Starts the thread, which opens the store and waits to hear of the agent. Without a thread there is no tracking, and
    /// `finish` says so.
    pub fn prepare(plan: Plan) -> Self {
        let (wake, woken) = sync_channel(QUEUE);
        let (tell, summary) = sync_channel(1);
        let end = End::default();
        let begun = Begun::default();
        let agent = Arc::<OnceLock<Pid>>::default();
        let (home, run) = (plan.home.clone(), plan.run);
        let (changed, ended, stored) = (wake.clone(), Arc::clone(&end), Arc::clone(&begun));
        let started = Arc::clone(&agent);
        let thread = terminal::without_signals(|| {
            std::thread::Builder::new().name("tracker".into()).spawn(move || {
                let _ = tell.send(run::track(plan, &started, &woken, changed, &ended, &stored));
            })
        });
        if let Err(error) = thread {
            tracing::error!("no thread for the tracker: {error}");
        }
        Self { wake, agent, end, begun, summary, home, run }
    }

    /// The agent runs: the session begins.
    pub fn begin(&self, agent: Pid) {
        let _ = self.agent.set(agent);
        let _ = self.wake.try_send(Wake::Look);
    }

    /// What the pump offers to the tracker.
    pub fn tap(&self) -> Tap {
        let wake = self.wake.clone();
        Tap::new(move || {
            let _ = wake.try_send(Wake::Enter); // a full queue is a tracker that is about to look anyway
        })
    }

    /// The agent has ended. Waits for the END to be committed, but not longer than `patience`: what is not done by then is
    /// done by the recovery of the next codemie command, from the note of how it ended. That note is written before anything is
    /// waited for, so that the exit status survives this process, too.
    pub fn finish(self, ended: ProgramEnd, at: Timestamp, patience: Duration) -> Summary {
        exit_note::leave(&self.home, self.run, run::ending(ended), at);
        let _ = self.end.set((ended, at));
        let _ = self.wake.try_send(Wake::Look);
        let problem = match self.summary.recv_timeout(patience) {
            Ok(summary) => return summary,
            Err(RecvTimeoutError::Timeout) if self.begun.load(Ordering::Relaxed) => {
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
