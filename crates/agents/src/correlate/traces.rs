//! What an agent leaves in a folder when several of its processes write there and none of them signs: lines of its log of what
//! was typed, files that begin, prompts that stand in a file.

use std::time::Duration;

use types::AgentSessionId;
use types::Timestamp;

/// A process this old has made its first file. Why so long: it may have asked the user something first.
const SETTLED_AGE: Duration = Duration::from_mins(2);

/// Something seen in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A line of the log. `under` is the first conversation of the process it was typed in, whichever it is in now.
    Typed { under: AgentSessionId, at: Timestamp, what: Typed },
    /// The file of a conversation began. `known`: the conversation is an older one, and this is only a sign that some
    /// process goes on with it.
    Begun { id: AgentSessionId, at: Timestamp, known: bool, maker: Maker },
    /// Some process went on with an existing conversation.
    Entered { id: AgentSessionId, maker: Maker },
    /// There is more in the log than is read.
    LogTooLong,
    /// A prompt was written into a conversation's file.
    Prompted { id: AgentSessionId, at: Timestamp, text: TextFingerprint },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    /// A command that begins a new conversation, unless it was typed where commands are only text.
    Clear,
    /// Anything else: a prompt, or a command, which will stand in no file.
    Prompt(TextFingerprint),
}

/// A text that is only ever compared, and that nobody else should read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextFingerprint(u64);

impl TextFingerprint {
    pub fn of(text: &str) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        text.trim().hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// What shows that something was done by our process alone, for `explain`. Nothing in this pid namespace shows the processes of
/// another one that shares the folder.
pub(super) const ALONE: &str =
    "when no other process of the agent was in this folder (processes of other containers cannot be seen)";

/// Who can have made something just now, by the processes that run in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Maker {
    /// Nobody but ours.
    Ours,
    /// Others run here, but none has only just started: a file of theirs can only be after a command.
    Settled,
    /// Anybody: others may be starting, or nobody can tell which processes there are.
    Anybody,
    /// Anybody: not even our own process is recognised as the agent's, so no other would be.
    Unrecognised,
}

impl Maker {
    /// Beside a process or run of that age.
    pub fn beside(age: Duration) -> Self {
        if age < SETTLED_AGE { Self::Anybody } else { Self::Settled }
    }

    /// Why something is not certainly ours, for `explain`.
    pub(super) fn doubt(self) -> &'static str {
        match self {
            Self::Unrecognised => {
                "since our start, but our own process is not recognised as the agent's, so no other would be"
            }
            Self::Ours | Self::Settled | Self::Anybody => {
                "since our start, but another process of the agent may have done it"
            }
        }
    }
}
