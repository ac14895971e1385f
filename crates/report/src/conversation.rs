//! The conversation of a session, from the agent's own file, by pages.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::find::{FindError, find};
use super::question::Question;
use agents::meter::form::Form;
use agents::registry;
use agents::transcript::{self, Cursor, Item, ItemKind, Page};
use format::shell;
use os::home::Home;
use runtime::launch::Origin;
use runtime::remote;
use store::View;
use store::session::lookup::Found;
use store::session::record::record;
use types::{Link, RunId, SessionRecord, Timestamp};

/// Where the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// As late as possible: it ends with the conversation.
    Last,
    Start,
    After(Cursor),
    /// As late as possible before it.
    Before(Cursor),
}

/// The conversation of a session, or one that codemie never wrapped.
#[derive(Clone, Debug)]
pub struct ReadableConversation {
    /// `None` for a conversation that codemie never wrapped.
    pub session: Option<String>,
    pub agent_session: Option<String>,
    pub name: String,
    pub agent: String,
    pub file: Option<PathBuf>,
    /// Whether a conversation may yet come.
    pub pending: bool,
    pub ambiguous: bool,
    /// The record of a session that has ended.
    pub ended: Option<Box<SessionRecord>>,
    /// The runs that are in it now.
    pub runs: Vec<RunId>,
}

impl ReadableConversation {
    pub fn of(view: &View<'_>, wanted: &str, origin: &Origin, now: Timestamp) -> Result<Self, FindError> {
        Ok(match find(view, wanted, origin)? {
            Found::Session(row) => {
                let record = record(view, &row, now)?;
                let agent_session = row.agent_session.as_ref().map(ToString::to_string);
                let form = |file: &Path| {
                    registry::by_name(&row.agent).map(|agent| agent.form(file)).unwrap_or_default()
                };
                let file = row.agent_session_file.clone().filter(|file| form(file).exists(file));
                let file = file.or_else(|| moved_to(&row.agent, agent_session.as_deref(), origin));
                Self {
                    session: Some(row.shown_id()),
                    pending: row.is_active() && file.is_none(),
                    ambiguous: row.link == Link::Ambiguous,
                    // A file that is known but gone is an error when it is read: the agent has deleted it.
                    file: file.or(row.agent_session_file),
                    ended: record.end_time.is_some().then(|| Box::new(record)),
                    runs: view.live_runs_in(row.n)?.into_iter().map(|run| run.id).collect(),
                    agent_session,
                    name: row.name,
                    agent: row.agent,
                }
            }
            Found::Unwrapped(foreign) => Self {
                session: None,
                name: foreign.agent_session.to_string(),
                agent_session: Some(foreign.agent_session.0),
                agent: foreign.agent,
                file: Some(foreign.file),
                pending: false,
                ambiguous: false,
                ended: None,
                runs: Vec::new(),
            },
        })
    }

    /// As a program names it: a name may soon be another.
    pub fn id(&self) -> &str {
        self.session.as_ref().or(self.agent_session.as_ref()).unwrap_or(&self.name)
    }

    /// Any other program has a session and writes no conversation.
    pub fn must_be_of_an_agent(&self) -> Result<(), ConversationError> {
        let (name, program) = (self.name.clone(), self.agent.clone());
        registry::by_name(&self.agent).map(drop).ok_or(ConversationError::NoAgent { name, program })
    }

    /// The screen of a background session; `None` where no host keeps one.
    pub fn screen(&self, home: &Home) -> Option<Vec<String>> {
        self.runs.iter().find_map(|run| remote::client::screen(home, *run).ok())
    }

    /// `None` where there is no conversation yet, or never was.
    pub fn page(&self, at: PageStart, bytes: usize) -> Result<Option<Page>, ConversationError> {
        let Some(path) = self.file.as_deref().filter(|_| !self.pending) else { return Ok(None) };
        let agent = registry::by_name(&self.agent);
        let form = agent.map(|agent| agent.form(path)).unwrap_or_default();
        let reader = agent.and_then(|agent| Some(agent.transcript()?.of_form(form)));
        let reader = reader.ok_or_else(|| ConversationError::NoReader { agent: self.agent.clone() })?;
        let file = form.open(path).map_err(|error| self.not_opened(form, path, error))?;
        let page = match at {
            PageStart::Last => transcript::last(&file, bytes, reader).map_err(transcript::Error::from),
            PageStart::Start => transcript::after(&file, None, bytes, reader),
            PageStart::After(cursor) => transcript::after(&file, Some(cursor), bytes, reader),
            PageStart::Before(cursor) => transcript::before(&file, cursor, bytes, reader),
        };
        page.map(Some).map_err(|error| match error {
            transcript::Error::Io(source) => ConversationError::Broken { path: path.to_owned(), source },
            stale @ transcript::Error::Stale => ConversationError::Transcript(stale),
        })
    }

    fn not_opened(&self, form: Form, path: &Path, source: io::Error) -> ConversationError {
        let exists = form.exists(path);
        let path = path.to_owned();
        if exists {
            return ConversationError::NotReadable { path, source };
        }
        ConversationError::Gone { name: self.name.clone(), agent: self.agent.clone(), path, source }
    }
}

/// Why a conversation cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    #[error("{name} has no conversation: {program} is no agent")]
    NoAgent { name: String, program: String },
    #[error("codemie cannot read the conversations of {agent} yet")]
    NoReader { agent: String },
    #[error(
        "the conversation of {name} is gone: {agent} has deleted {}; `codemie show {}` has what was recorded",
        .path.display(), shell::word(.name)
    )]
    Gone { name: String, agent: String, path: PathBuf, source: io::Error },
    #[error("cannot read {}", .path.display())]
    NotReadable { path: PathBuf, source: io::Error },
    #[error("{}", .path.display())]
    Broken { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Transcript(transcript::Error),
}

/// The file is not where it was: the agent may have moved it.
fn moved_to(agent: &str, conversation: Option<&str>, origin: &Origin) -> Option<PathBuf> {
    let (agent, wanted) = (registry::by_name(agent)?, conversation?);
    let found = agent.conversations(&|name| origin.var(name), wanted);
    found.into_iter().find(|found| found.agent_session.0 == wanted).map(|found| found.file)
}

/// A page as programs get it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageRecord<'a> {
    pub session_id: Option<&'a str>,
    pub agent_session_id: Option<&'a str>,
    pub pending: bool,
    pub items: Vec<ItemRecord<'a>>,
    pub cursor: Option<String>,
    pub truncated: bool,
    /// What the agent asks at this moment.
    #[serde(flatten)]
    pub question: Option<Question>,
}

#[derive(Debug, Serialize)]
pub struct ItemRecord<'a> {
    pub role: &'static str,
    /// Of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// Of a tool that failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    pub text: &'a str,
    pub time: Option<Timestamp>,
}

impl<'a> PageRecord<'a> {
    pub fn of(source: &'a ReadableConversation, page: Option<&'a Page>) -> Self {
        Self {
            session_id: source.session.as_deref(),
            agent_session_id: source.agent_session.as_deref(),
            pending: source.pending,
            items: page.map_or(Vec::new(), |page| page.items.iter().map(ItemRecord::of).collect()),
            cursor: page.map(|page| page.cursor.to_string()),
            truncated: page.is_some_and(|page| page.truncated),
            question: None,
        }
    }
}

impl<'a> ItemRecord<'a> {
    fn of(item: &'a Item) -> Self {
        let (role, text, name) = match &item.kind {
            ItemKind::User(text) => ("user", text.as_str(), None),
            ItemKind::Assistant(text) | ItemKind::Filler(text) => ("assistant", text.as_str(), None),
            ItemKind::Tool { name, about } => ("tool", about.as_str(), Some(name.as_str())),
            ItemKind::ToolFailed(text) => ("tool", text.as_str(), None),
            ItemKind::Note(text) => ("note", *text, None),
        };
        Self { role, name, failed: matches!(item.kind, ItemKind::ToolFailed(_)), text, time: item.at }
    }
}
