//! The agents: the only room that knows one from another.
//!
//! A further agent is one file that implements [`Agent`] and one line in [`ALL`].

mod args;
pub mod claude;
pub mod codex;
#[cfg(test)]
mod fourth;
pub mod gemini;
pub mod invocation;
mod looked;
mod loose;
mod others;
mod package;
#[cfg(test)]
mod recordings;
mod trail;
pub mod transcript;

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::meter::form::Form;
use crate::meter::line::Lines;
use crate::session::id::AgentSessionId;
use crate::session::lookup::Foreign;
pub use invocation::{Conversation, Invocation, Kind};
#[cfg(test)]
pub(crate) use trail::Seen;
pub use trail::{Territory, Trail};

/// A look at an environment variable.
pub type Var<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What codemie adds in front of the agent's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub args: Vec<OsString>,
    /// The id the agent's session will have, if that is what the arguments say.
    pub assigned: Option<AgentSessionId>,
}

/// One file of an agent's conversations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionFile {
    pub path: PathBuf,
    /// The conversation it belongs to, a sub-agent's file to that of its root. `None`: only its lines tell.
    pub conversation: Option<AgentSessionId>,
}

/// The files of all conversations of an agent, as far as they could be listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SessionFiles {
    pub files: Vec<SessionFile>,
    /// Folders with more of them, each to be listed by itself ([`Agent::session_files_in`]): where there are many, several at
    /// once.
    pub folders: Vec<PathBuf>,
    /// Folders that could not be looked into, and why.
    pub refused: Vec<String>,
}

impl SessionFiles {
    /// What is in a folder; of one that may not be looked into, that it may not.
    fn taken<T>(&mut self, folder: &Path, inside: std::io::Result<Vec<T>>) -> Vec<T> {
        inside.unwrap_or_else(|error| {
            self.refused.push(format!("{}: {error}", folder.display()));
            Vec::new()
        })
    }
}

/// Something worth knowing of an agent's set-up, for `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub what: String,
    /// What to do about it; `None`: all is well.
    pub advice: Option<String>,
}

impl Remark {
    fn fine(what: impl Into<String>) -> Self {
        Self { what: what.into(), advice: None }
    }

    fn advice(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: Some(advice.into()) }
    }
}

/// One coding agent: how it is launched and what it leaves behind.
pub trait Agent: Debug + Sync {
    /// The name it is called by, on the command line and in records.
    fn name(&self) -> &'static str;

    /// What these arguments, those after the agent's name, ask for.
    fn classify(&self, args: &[OsString]) -> Invocation;

    /// Who serves its models, as OpenTelemetry's conventions spell it (`gen_ai.provider.name`).
    fn provider(&self) -> Option<&'static str> {
        None
    }

    /// Variables that an enclosing session of the same agent sets for its children, and that would make this one behave
    /// as a part of it.
    fn nesting_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// The version of this very binary, where its installation tells it for next to nothing: this is on the way to exec.
    /// `None`: only what the agent writes while it runs tells.
    fn installed_version(&self, _program: &Path) -> Option<String> {
        None
    }

    /// What to add to the arguments, only when sure that this version takes it. `fresh` is an id nobody has used.
    fn inject(
        &self,
        _invocation: &Invocation,
        _args: &[OsString],
        _version: Option<&str>,
        _fresh: Uuid,
        _var: Var<'_>,
    ) -> Option<Injection> {
        None
    }

    /// A variable and its value by which the agent marks what it writes during this run. Set only where the user switched that
    /// on, for the vendor sees it. [`Self::trail`] finds it in the environment it is handed.
    fn mark(&self, _run: Uuid) -> Option<(&'static str, String)> {
        None
    }

    /// Whether it ended because it started itself anew, within the run, with the id it was given, and that conversation was
    /// there already. Without codemie it would run on.
    fn refused_its_id(&self, _code: u8, _id: &AgentSessionId, _var: Var<'_>) -> bool {
        false
    }

    /// The arguments that go on with a conversation, or with a copy of it; `None`: codemie does not know them.
    fn resume(&self, _conversation: &AgentSessionId, _fork: bool) -> Option<Vec<OsString>> {
        None
    }

    /// Conversations in its own files, wrapped or not, whose id is `wanted` or begins with it.
    fn conversations(&self, _var: Var<'_>, _wanted: &str) -> Vec<Foreign> {
        Vec::new()
    }

    /// Every file on this machine that it keeps a conversation in, sub-agents' included, archived ones too.
    fn session_files(&self, _var: Var<'_>) -> SessionFiles {
        SessionFiles::default()
    }

    /// Those in one of the folders that [`session_files`](Agent::session_files) names.
    fn session_files_in(&self, _folder: &Path) -> SessionFiles {
        SessionFiles::default()
    }

    /// The folders that [`session_files`](Agent::session_files) looks in: a file under one of them that is there no more
    /// was deleted, one elsewhere is of another environment.
    fn session_roots(&self, _var: Var<'_>) -> Vec<PathBuf> {
        Vec::new()
    }

    /// How one of those files is written.
    fn form(&self, _file: &Path) -> Form {
        Form::Lines
    }

    /// A reader of answered calls alone, for scanning such files fast, with what an earlier one remembered. Same records
    /// under the same keys as [`Trail::lines`]; [`LineFacts`](crate::meter::line::LineFacts) as well. `None`: codemie cannot
    /// read them.
    fn usage_lines(&self, _state: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        None
    }

    /// How to read its session files as conversations; `None`: codemie cannot.
    fn transcript(&self) -> Option<transcript::Reader> {
        None
    }

    /// What the doctor should say of its set-up. `version`: as a run would know it; `inject`: something may be added to its
    /// arguments; `marks`: it is to mark what it writes.
    fn remarks(&self, _var: Var<'_>, _version: Option<&str>, _inject: bool, _marks: bool) -> Vec<Remark> {
        Vec::new()
    }

    /// How to follow a run in `folder`; `None` where the environment does not say where its files are.
    fn trail(&self, _var: Var<'_>, _folder: &Path) -> Option<Box<dyn Trail>> {
        None
    }
}

/// Every agent that people call by its name, on the command line and through a shim.
pub static ALL: [&dyn Agent; 3] = [&claude::Claude, &codex::Codex, &gemini::Gemini];

/// Those that only codemie itself starts.
static BUILT_IN: &[&dyn Agent] = &[
    &crate::demo::Demo,
    #[cfg(test)]
    &fourth::Scribe,
];

/// The agent that somebody called.
pub fn called(name: &str) -> Option<&'static dyn Agent> {
    ALL.into_iter().find(|agent| agent.name() == name)
}

/// The agent that a record names.
pub fn by_name(name: &str) -> Option<&'static dyn Agent> {
    ALL.iter().chain(BUILT_IN).copied().find(|agent| agent.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_know_agents_that_nobody_can_call() {
        for agent in ALL {
            assert_eq!(called(agent.name()).map(Agent::name), Some(agent.name()));
            assert_eq!(by_name(agent.name()).map(Agent::name), Some(agent.name()));
        }
        assert_eq!(by_name("demo").map(Agent::name), Some("demo"));
        assert!(called("demo").is_none(), "`codemie demo` is a command and no shim's name");
        assert!(by_name("").is_none());
    }
}
