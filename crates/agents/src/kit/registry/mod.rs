//! Agents that keep a registry of their processes: a file per process, named by its pid, which names the conversation it is in.
//! Each conversation is a file of lines, named by its id, in a folder of the project that was worked in.
//!
//! An agent of this kind is a [`RegistryFormat`]: data, and functions for what its lines alone decide. It implements
//! [`RegistryAgent`], from which its [`ConversationFiles`] and [`Observe`] follow.

pub mod files;
mod head;
pub(crate) mod line;
mod observer;
mod writers;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

pub use files::{Layout, RegistryFiles, session_id};
pub use head::{HEAD_BYTES, Head};
pub use observer::RegistryObserver;
pub(crate) use writers::writers;

use super::neighbours::Program;
use crate::correlate::{Beginning, HistoryEntry, RegistryEntry};
use crate::meter::line::Lines;
use crate::{
    Agent, ConversationFiles, FileOwner, Observe, Observer, SessionFile, SessionFiles, UnwrappedConversation,
    Var, transcript,
};
use os::file::{entries, read_at_most};
use types::{AgentSessionId, Pid, StartTime, Timestamp};

/// More than any entry of the registry.
pub(crate) const MAX_ENTRY: u64 = 64 * 1024;

/// How an agent of this kind writes.
#[derive(Debug)]
pub struct RegistryFormat {
    /// Recognises its processes.
    pub(crate) program: &'static Program,
    pub(crate) layout: &'static Layout,
    /// The field of a registry entry that holds the agent's version.
    pub(crate) version_field: &'static str,
    /// Whether a process of this version keeps its entry up to date when its conversation changes.
    pub(crate) keeps_entry: fn(&str) -> bool,
    /// How a conversation begins, if this line of its file decides it.
    pub(crate) beginning: fn(&line::Line<'_>) -> Option<Beginning>,
    /// A reader of session files, and one of answered calls alone. Only tool calls stay open from one line to the next, so the
    /// latter needs no state.
    pub(crate) lines: fn(Option<&str>) -> Box<dyn Lines + Send>,
    pub(crate) usage_lines: fn() -> Box<dyn Lines + Send>,
    pub(crate) reader: transcript::Reader,
    pub(crate) history: Option<History>,
    pub(crate) background: Option<BackgroundService>,
}

/// A log of all typed prompts, in the agent's own folder.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) file: &'static str,
    /// `None` for a line without a conversation, or a broken one.
    pub(crate) entry: fn(&[u8]) -> Option<HistoryEntry>,
}

/// A service of the agent's own that goes on with conversations when their terminals are gone.
#[derive(Debug)]
pub(crate) struct BackgroundService {
    /// The folder of its jobs, each in a folder of its own, below the agent's.
    pub(crate) jobs: &'static str,
    /// `None` for a job that is half written.
    pub(crate) job: fn(&[u8]) -> Option<Job>,
    /// Whether a line of the history gives its conversation to the service.
    pub(crate) given: fn(&[u8]) -> bool,
}

/// A job of the background service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub session: AgentSessionId,
    pub cwd: String,
    pub created: Timestamp,
    /// The service has done with it: it is started again only by hand.
    pub over: bool,
}

/// A registry entry could not be read: the agent rewrites it in place, so a reader may find it empty or half written. A
/// second look a moment later succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the registry entry is being rewritten; read it again")]
pub struct Torn;

impl BackgroundService {
    /// The jobs in their wanted folders.
    fn jobs_in(&self, files: &RegistryFiles, wanted: impl Fn(&Path) -> bool) -> impl Iterator<Item = Job> {
        let jobs = entries(&files.root().join(self.jobs)).unwrap_or_default().into_iter();
        let jobs = jobs.filter(move |job| wanted(job));
        let states = jobs.filter_map(|job| read_at_most(&job.join("state.json"), MAX_ENTRY).ok());
        states.filter_map(|state| (self.job)(&state))
    }
}

impl RegistryFormat {
    /// Parses an entry of the registry.
    pub fn entry(&self, bytes: &[u8]) -> Result<RegistryEntry, Torn> {
        fn text(raw: &RawValue) -> Option<String> {
            serde_json::from_str::<Cow<'_, str>>(raw.get()).ok().map(Cow::into_owned)
        }
        let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(bytes).map_err(|_| Torn)?;
        let number = |name: &str| fields.get(name).and_then(|raw| raw.get().parse::<i64>().ok());
        let field = |name: &str| fields.get(name).and_then(|raw| text(raw));
        let pid = number("pid").and_then(|pid| i32::try_from(pid).ok()).ok_or(Torn)?;
        // Some write the boot's id in front of it.
        let ticks = field("procStart").and_then(|start| start.rsplit(':').next()?.parse().ok());
        Ok(RegistryEntry {
            pid: Pid(pid),
            start: ticks.map(StartTime),
            started_at: number("startedAt").map(Timestamp),
            session: AgentSessionId(field("sessionId").ok_or(Torn)?),
            cwd: field("cwd"),
            version: field(self.version_field),
            background: field("kind").as_deref() == Some("bg"),
        })
    }
}

/// An agent of this kind.
pub trait RegistryAgent: Agent {
    const FORMAT: &'static RegistryFormat;
}

impl<A: RegistryAgent> Observe for A {
    fn observer(&self, var: Var<'_>, folder: &Path) -> Option<Box<dyn Observer>> {
        let files = RegistryFiles::from_env(A::FORMAT.layout, var)?;
        Some(Box::new(RegistryObserver::new(A::FORMAT, files, folder)))
    }
}

impl<A: RegistryAgent> ConversationFiles for A {
    fn conversations(&self, var: Var<'_>, wanted: &str) -> Vec<UnwrappedConversation> {
        let files = RegistryFiles::from_env(A::FORMAT.layout, var);
        let found = files.map(|files| files.session_files()).unwrap_or_default();
        let mut conversations: Vec<UnwrappedConversation> = found
            .files
            .into_iter()
            .filter_map(|file| Some((session_id(&file.path)?, file.path)))
            .filter(|(id, _)| id.0.starts_with(wanted))
            .map(|(agent_session, file)| UnwrappedConversation {
                agent: self.name().to_owned(),
                agent_session,
                cwd: line::folder(A::FORMAT.layout, &file),
                file,
            })
            .collect();
        // Two projects can hold copies of one conversation.
        conversations.sort_by(|a, b| (&a.agent_session, &a.file).cmp(&(&b.agent_session, &b.file)));
        conversations.dedup_by(|a, b| a.agent_session == b.agent_session);
        conversations
    }

    fn session_files(&self, var: Var<'_>) -> SessionFiles {
        RegistryFiles::from_env(A::FORMAT.layout, var)
            .map(|files| files.project_folders())
            .unwrap_or_default()
    }

    fn session_files_in(&self, folder: &Path) -> SessionFiles {
        files::files_of_project(A::FORMAT.layout, folder)
    }

    fn session_roots(&self, var: Var<'_>) -> Vec<PathBuf> {
        RegistryFiles::from_env(A::FORMAT.layout, var).map(|files| files.projects()).into_iter().collect()
    }

    fn owner(&self, _: Var<'_>, file: &SessionFile) -> Option<FileOwner> {
        let own = session_id(&file.path);
        let subagent = own.is_none() || own != file.conversation;
        let named = || line::conversation(&file.path);
        let conversation = file.conversation.clone().or_else(named)?;
        Some(FileOwner { conversation, folder: line::folder(A::FORMAT.layout, &file.path), subagent })
    }

    fn usage_lines(&self, _state: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        Some((A::FORMAT.usage_lines)())
    }

    fn transcript(&self) -> Option<transcript::Reader> {
        Some(A::FORMAT.reader)
    }
}
