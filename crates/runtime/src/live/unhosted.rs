//! A running session without a host, followed: its state, and its moments as they come.

use super::events::EventLog;
use super::files::state_by;
use super::{TurnFeed, UnhostedSession};
use agents::{Agent, Var};
use pty::process::Processes;
use types::{LiveState, Timestamp};

/// Follows a session by what its agent publishes and by the file of its conversation.
#[derive(Debug)]
pub struct UnhostedWatch {
    feed: TurnFeed,
    log: EventLog,
    state: Option<LiveState>,
}

impl UnhostedWatch {
    pub fn of(agent: &'static dyn Agent) -> Self {
        Self { feed: TurnFeed::of(agent), log: EventLog::of_agent(agent.marks_turns()), state: None }
    }

    /// Looks at everything once, and returns the state.
    pub fn look(
        &mut self,
        session: &UnhostedSession<'_>,
        var: Var<'_>,
        processes: &dyn Processes,
        now: Timestamp,
    ) -> &LiveState {
        let Self { feed, log, state } = self;
        let mut last_mark = |file: Option<&std::path::Path>| {
            // A file that cannot be read now is read with the next look.
            let _ = feed.look(file, now, log);
            feed.last().cloned()
        };
        let seen = state_by(session, &mut last_mark, state.as_ref(), var, processes, now);
        log.observe(now, &seen);
        state.insert(seen)
    }

    /// The session has ended.
    pub fn exit(&mut self, now: Timestamp) {
        self.log.exit(now);
    }

    pub fn log(&self) -> &EventLog {
        &self.log
    }

    pub fn state(&self) -> Option<&LiveState> {
        self.state.as_ref()
    }
}
