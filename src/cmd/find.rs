//! SESSION on a command line, looked up; and what the exit codes of a failed look-up are.

use crate::agent;
use crate::session::lookup::{self, Foreign, Found, LookupError, Scan};
use crate::store::{SessionRow, View};

use super::Failure;

const NO_SUCH_SESSION: u8 = 3;
const AMBIGUOUS: u8 = 4;

/// The session files of all agents on this machine.
struct AgentFiles;

impl Scan for AgentFiles {
    fn find(&self, wanted: &str) -> Vec<Foreign> {
        let var = |name: &str| std::env::var_os(name);
        agent::ALL.iter().flat_map(|agent| agent.conversations(&var, wanted)).collect()
    }
}

/// A session, or a conversation that codemie never wrapped.
pub(super) fn find(view: &View<'_>, wanted: &str) -> anyhow::Result<Found> {
    lookup::find(view, wanted, &AgentFiles).map_err(|error| match error {
        LookupError::Unknown(_) => Failure { code: NO_SUCH_SESSION, message: error.to_string() }.into(),
        LookupError::Several { .. } => Failure { code: AMBIGUOUS, message: error.to_string() }.into(),
        LookupError::Store(error) => error.into(),
    })
}

/// A session of ours.
pub(super) fn session(view: &View<'_>, wanted: &str) -> anyhow::Result<SessionRow> {
    match find(view, wanted)? {
        Found::Session(row) => Ok(*row),
        Found::Foreign(foreign) => Err(no_such_session(format!(
            "{} is a conversation of {} that never ran through codemie; `codemie resume {0}` adopts it",
            foreign.agent_session, foreign.agent
        ))),
    }
}

pub(super) fn no_such_session(message: String) -> anyhow::Error {
    Failure { code: NO_SUCH_SESSION, message }.into()
}
