//! Facts that only a user's own machine has, for the dashboard there: they are in its store, not in the backend.

use std::collections::HashMap;
use std::sync::Arc;

use super::agents::KnownAgents;
use super::sessions::foreign;
use reader::Reader;
use reader::Session;
use types::Timestamp;

/// The facts that a local dashboard shows beside the read model. Those that not every machine has are nothing by default.
/// Each call may be slow: it runs on a thread of its own.
pub trait LocalFacts: Send + Sync {
    /// The agents that codemie starts by their names.
    fn agents(&self) -> KnownAgents;

    /// The command that prints a new address of this dashboard.
    fn command(&self) -> &'static str;

    /// The state of each receiver; `None` where nothing is sent.
    fn outbox(&self) -> Option<Vec<Outbox>> {
        None
    }

    /// Whether there is a history to ask for.
    fn has_history(&self) -> bool {
        false
    }

    /// Everything on this machine, also what never ran through codemie; `None` where nobody looks for it. To ask is to have
    /// it brought up to date, which may take longer than the answer.
    fn history(&self) -> Option<History> {
        None
    }

    /// The titles of these sessions, as far as they have one.
    fn titles(&self, _sessions: &[Conversation]) -> Titles {
        Titles::default()
    }

    /// The ids of the sessions with this text in their title, in any case; the newest ones, where there are many. `history`: also
    /// those that never ran through codemie.
    fn titled(&self, _text: &str, _history: bool) -> Vec<String> {
        Vec::new()
    }
}

/// The sessions that ran through codemie and all other conversations on this machine, each call once.
#[derive(Clone)]
pub struct History {
    /// `None` until all has been read once.
    pub reader: Option<Arc<dyn Reader>>,
    pub state: HistoryState,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("state", &self.state).finish_non_exhaustive()
    }
}

/// How far the history is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryState {
    /// New conversations, or new calls in known ones, are being read.
    Reading,
    UpToDate,
    /// Why it cannot be read.
    Failed(String),
}

/// A session that a page shows, as far as its title needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub session: String,
    /// It never ran through codemie.
    pub foreign: bool,
}

impl Conversation {
    pub fn of(session: &Session) -> Self {
        Self { session: session.id.clone(), foreign: foreign(session) }
    }
}

/// What conversations are about, by the id of the session. Titles may be words of a conversation, so they are on the user's
/// own machine alone: in no event and in no backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Titles(pub HashMap<String, String>);

impl Titles {
    pub fn of(&self, session: &Session) -> Option<&str> {
        self.0.get(&session.id).map(String::as_str)
    }
}

/// A receiver, and the events of the local store that it has not got yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    pub sink: String,
    pub pending: i64,
    pub dead: i64,
    pub deferred: i64,
    /// Why nothing is sent until a person does something about it.
    pub paused: Option<String>,
    /// The last failure.
    pub trouble: Option<String>,
    pub failures: i64,
    pub retry_at: Option<Timestamp>,
    pub last_delivered: Option<Timestamp>,
}
