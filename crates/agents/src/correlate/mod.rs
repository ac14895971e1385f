//! Which of the agent's conversations a run is in: evidence in, decisions out. Pure; the tracker does the looking.
//!
//! Evidence, strongest first: the id was `assigned`; the agent's `registry` names it for our very process (pid and start
//! time); the agent's `log` shows that our conversation was cleared, and a file that begins with that clear appears. The first
//! that comes decides, the others confirm or are rejected, and every signal is explained.
//!
//! A call through the run's own proxy is such a registry: it names the conversation, and the system the process. It comes late, and
//! calls of a conversation that was left may still be under way, so it decides only where nothing else has.
//!
//! Agents leave different evidence, so there is one method for each kind, and the agent's observer names it ([`Method`]):
//! - [`registry`]: the agent registers its processes, and its log and files make up for what the registry leaves out;
//! - [`held`]: a process keeps the files of its conversations open or locked;
//! - [`folder`]: processes sign nothing, and are followed by the traces they leave in a folder;
//! - [`process_log`]: each process writes a log that names the conversation in front, of the several it may hold.
//!
//! All methods share one core ([`core`]): the conversation the run is in, those it has departed from, and the candidates while
//! the next one is not known. Modules in the order in which they build on each other: `traces`, `signal`, `decision`, `core`;
//! `clear_log`, then `registry`; `held`; `folder`; `process_log`; and this one, which composes them.

mod clear_log;
mod core;
mod decision;
mod folder;
mod held;
mod process_log;
mod registry;
mod signal;
mod traces;

pub use self::core::SETTLE;
pub use decision::{Conclusion, Decision, Fork};
pub use signal::{Beginning, HistoryEntry, NewSessionFile, RegistryEntry, Signal, Thread};
pub use traces::{Maker, TextFingerprint, Trace, Typed};

use self::core::{Context, Resumes, Rules, RunState};
use types::{AgentSessionId, ProcessId, Timestamp};

/// The kind of evidence that an agent leaves of the conversation it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A registry of its processes, by pid and start time.
    Registry,
    /// Files that its process holds open or locked.
    Held,
    /// Traces in a folder that its processes share.
    Folder,
    /// A log that each process writes for itself.
    ProcessLog,
}

/// One run's view.
#[derive(Debug)]
pub struct Correlator {
    run: RunState,
    rules: Box<dyn Rules>,
}

impl Correlator {
    pub fn new(method: Method, agent: ProcessId, spawned_at: Timestamp) -> Self {
        let rules: Box<dyn Rules> = match method {
            Method::Registry => Box::<registry::RegistryRules>::default(),
            Method::Held => Box::<held::HeldRules>::default(),
            Method::Folder => Box::<folder::FolderRules>::default(),
            Method::ProcessLog => Box::<process_log::ProcessLogRules>::default(),
        };
        Self { run: RunState::new(agent, spawned_at), rules }
    }

    /// The arguments continue a conversation without naming it (`--continue`, the picker at the start).
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.run.resumes = Resumes::Unnamed;
        self
    }

    /// The arguments continue a conversation that they name.
    #[must_use]
    pub fn resuming(mut self) -> Self {
        self.run.resumes = Resumes::Named;
        self
    }

    pub fn current(&self) -> Option<&AgentSessionId> {
        self.run.current()
    }

    /// A further process is this run's agent: the launcher was a script, or handed over.
    pub fn adopt(&mut self, process: ProcessId) {
        self.run.adopt(process);
    }

    /// When, after `now`, a [`Signal::Tick`] may change something.
    pub fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.rules.wake_at(&self.run, now)
    }

    pub fn feed(&mut self, now: Timestamp, signal: Signal) -> Conclusion {
        let mut context = Context::new(now, &mut self.run);
        match signal {
            Signal::Assigned(id) => self.rules.assigned(&mut context, id),
            Signal::Called { id, pid } => self.rules.called(&mut context, id, pid),
            Signal::Tick => {}
            signal => self.rules.feed(&mut context, signal),
        }
        self.rules.decide(&mut context);
        context.conclusion
    }
}

#[cfg(test)]
mod tests;
