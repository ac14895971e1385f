//! How an agent is launched: what its arguments mean, what codemie may add to them, and which version it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::Var;
use super::invocation::Invocation;
use types::AgentSessionId;

/// The launch part of an [`Agent`](super::Agent). All of it is on the way to exec, so nothing here may take long.
pub trait Launch {
    /// What these arguments, those after the agent's name, ask for.
    fn classify(&self, args: &[OsString]) -> Invocation;

    /// Variables that an enclosing session of the same agent sets for its children, and that would make this one behave
    /// as a part of it.
    fn nesting_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// The version of this very binary, where its installation shows it cheaply. `None`: only the files that the agent
    /// writes while it runs name it.
    fn installed_version(&self, _program: &Path) -> Option<String> {
        None
    }

    /// What to add to the arguments, only when sure that this version takes it.
    fn inject(&self, _start: &LaunchStart<'_>) -> Option<Injection> {
        None
    }

    /// What to add to the arguments so that the conversation runs in the agent's own process and not in a server that all its
    /// terminals share, only when sure that this version takes it.
    fn embed(
        &self,
        _invocation: &Invocation,
        _args: &[OsString],
        _version: Option<&str>,
    ) -> Option<Vec<OsString>> {
        None
    }

    /// Why nothing may name the conversations of a run with these arguments, with all that codemie added to them.
    fn unnamed(
        &self,
        _invocation: &Invocation,
        _args: &[OsString],
        _version: Option<&str>,
    ) -> Option<&'static str> {
        None
    }

    /// A variable and its value by which the agent marks what it writes during this run. It is set only where the user
    /// switched that on, because the vendor sees it. [`Observe::observer`](super::Observe::observer) finds it in its environment.
    fn mark(&self, _run: Uuid) -> Option<(&'static str, String)> {
        None
    }

    /// Whether the agent ended because it restarted itself within the run with the id it was given, whose conversation
    /// existed by then. Without codemie it would run on.
    fn refused_its_id(&self, _code: u8, _id: &AgentSessionId, _var: Var<'_>) -> bool {
        false
    }

    /// The arguments that continue a conversation, or a copy of it; `None`: codemie does not know them.
    fn resume(&self, _conversation: &AgentSessionId, _fork: bool) -> Option<Vec<OsString>> {
        None
    }

    /// What the doctor reports of its set-up. `version`: as a run would know it; `inject`: something may be added to its
    /// arguments; `embedded`: it is to run in its own process; `marks`: the user wants it to mark what it writes.
    fn remarks(
        &self,
        _var: Var<'_>,
        _version: Option<&str>,
        _inject: bool,
        _embedded: bool,
        _marks: bool,
    ) -> Vec<Remark> {
        Vec::new()
    }
}

/// What is known of a start before anything is added.
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
#[derive(Clone, Copy)]
pub struct LaunchStart<'a> {
    pub invocation: &'a Invocation,
    pub args: &'a [OsString],
    pub version: Option<&'a str>,
    /// An unused id.
    pub fresh: Uuid,
    pub var: Var<'a>,
    /// Where the agent is to work.
    pub folder: &'a Path,
}

/// By what codemie knows the conversation that it has an agent begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    Id(AgentSessionId),
    /// The file it is to write; its id stands in there ([`Observer::assign`](super::Observer::assign)).
    File(PathBuf),
}

/// What codemie adds in front of the agent's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub args: Vec<OsString>,
    /// What these arguments give the agent's session, if they give it something.
    pub assigned: Option<Assigned>,
}

/// One finding about an agent's set-up, for `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub what: String,
    /// What to do about it; `None`: all is well.
    pub advice: Option<String>,
}

impl Injection {
    /// The flag by which most agents take the id of a new conversation.
    pub(super) fn session_id(fresh: Uuid) -> Self {
        let id = fresh.to_string();
        let assigned = Some(Assigned::Id(AgentSessionId(id.clone())));
        Self { args: vec!["--session-id".into(), id.into()], assigned }
    }
}

impl Remark {
    pub(super) fn fine(what: impl Into<String>) -> Self {
        Self { what: what.into(), advice: None }
    }

    pub(super) fn advice(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: Some(advice.into()) }
    }
}
