//! What a start of an agent is for, as far as its arguments show.

use types::AgentSessionId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub kind: InvocationKind,
    pub session: Conversation,
    /// Our own flags may be put in front of the arguments: every flag the user gave is known, and none names a
    /// session.
    pub injectable: bool,
    /// The agent will write a session file.
    pub persistent: bool,
    /// The arguments hold a first prompt.
    pub prompts: bool,
}

/// By the arguments alone: piped standard streams turn an `Interactive` run into a print run, and only the caller sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationKind {
    Interactive,
    Print,
    /// Help, version, subcommands that manage something: no session.
    NotAConversation,
}

/// Which conversation the arguments name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversation {
    /// A new one, the agent chooses its id.
    Fresh,
    /// A new one under the id the user chose.
    Chosen(AgentSessionId),
    /// An existing one, by id.
    Named(AgentSessionId),
    /// An existing one, the most recent of the folder.
    Continue,
    /// An existing one, found by title or in a picker.
    Picker,
    /// A copy of an existing one.
    Fork { from: Option<AgentSessionId>, to: Option<AgentSessionId> },
    /// Contradictory, refused by the agent, or not known here.
    Unknown,
}

impl Invocation {
    pub fn not_a_conversation() -> Self {
        Self {
            kind: InvocationKind::NotAConversation,
            session: Conversation::Unknown,
            injectable: false,
            persistent: false,
            prompts: false,
        }
    }
}
