//! Where an agent keeps its conversations, how to list them, and how to read one.
//!
//! A conversation has one or more *session files*: files of their own, or parts of one file that holds many (a
//! database). Either way each is named by a path, and [`Form`] alone knows how a path is opened and read.

use std::path::{Path, PathBuf};

use super::{Var, transcript};
use crate::meter::form::Form;
use crate::meter::line::Lines;
use crate::meter::title::Title;
use types::AgentSessionId;

/// A conversation that codemie never wrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwrappedConversation {
    pub agent: String,
    pub agent_session: AgentSessionId,
    pub file: PathBuf,
    pub cwd: Option<PathBuf>,
}

/// The part of an [`Agent`](super::Agent) that knows its conversations, running or not, wrapped or not.
pub trait ConversationFiles {
    /// Conversations whose id is `wanted` or begins with it.
    fn conversations(&self, _var: Var<'_>, _wanted: &str) -> Vec<UnwrappedConversation> {
        Vec::new()
    }

    /// Every session file on this machine, those of sub-agents and archived ones included.
    fn session_files(&self, _var: Var<'_>) -> SessionFiles {
        SessionFiles::default()
    }

    /// The session files in one of the folders that [`session_files`](Self::session_files) names.
    fn session_files_in(&self, _folder: &Path) -> SessionFiles {
        SessionFiles::default()
    }

    /// The folders that [`session_files`](Self::session_files) searches. A file below one of them that is missing was
    /// deleted; a file elsewhere belongs to another environment.
    fn session_roots(&self, _var: Var<'_>) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Whose a session file is. It may read the file's first lines; `None` where they do not say.
    fn owner(&self, _var: Var<'_>, file: &SessionFile) -> Option<FileOwner> {
        Some(FileOwner { conversation: file.conversation.clone()?, folder: None, subagent: false })
    }

    /// How a session file is written.
    fn form(&self, _file: &Path) -> Form {
        Form::Lines
    }

    /// A reader of answered calls alone, for scanning session files fast; `state` is what an earlier one remembered. It
    /// gives the same records under the same keys as [`Observer::lines`](super::Observer::lines), and the same
    /// [`LineFacts`](crate::meter::line::LineFacts). `None`: codemie cannot read them.
    fn usage_lines(&self, _state: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        None
    }

    /// The title that the agent keeps apart from a conversation's own lines.
    fn title(&self, _var: Var<'_>, _id: &AgentSessionId) -> Option<Title> {
        None
    }

    /// How to read session files as conversations; `None`: codemie cannot.
    fn transcript(&self) -> Option<transcript::Reader> {
        None
    }
}

/// One session file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionFile {
    pub path: PathBuf,
    /// The conversation it belongs to; a sub-agent's file belongs to that of its root. `None`: only its content names it.
    pub conversation: Option<AgentSessionId>,
}

/// The conversation that a session file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOwner {
    pub conversation: AgentSessionId,
    /// The folder that was worked in.
    pub folder: Option<PathBuf>,
    /// A helper of the conversation wrote it: it is no part of what was said there.
    pub subagent: bool,
}

/// The session files of an agent, as far as they could be listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SessionFiles {
    pub files: Vec<SessionFile>,
    /// Folders with further files, to be listed one by one ([`ConversationFiles::session_files_in`]): where there are
    /// many, by several threads at once.
    pub folders: Vec<PathBuf>,
    /// Folders that could not be listed, and why.
    pub refused: Vec<String>,
}

impl SessionFiles {
    /// The entries of a folder; if it could not be listed none, and the reason is noted.
    pub(super) fn entries<T>(&mut self, folder: &Path, entries: std::io::Result<Vec<T>>) -> Vec<T> {
        entries.unwrap_or_else(|error| {
            self.refused.push(format!("{}: {error}", folder.display()));
            Vec::new()
        })
    }
}
