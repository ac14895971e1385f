//! Messages that contain some words, with the sessions they were said in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use agents::registry;
use agents::{Agent, FileOwner, SessionFile};
use os::project::Project;
use runtime::launch::Origin;
use scan::Progress;
use scan::search::{self, Hit, Query};
use store::{self, Store};
use types::Timestamp;

/// A message, as programs get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundMessage {
    /// `None` for a conversation that codemie never wrapped.
    pub session_id: Option<String>,
    pub agent_session_id: Option<String>,
    pub agent: &'static str,
    pub role: &'static str,
    pub time: Option<Timestamp>,
    pub text: String,
    /// A page from here on begins with it; `None` where a helper of the conversation said it, whose words no page shows.
    pub cursor: Option<String>,
    /// The session's name and title, for people.
    #[serde(skip)]
    pub name: Option<String>,
    #[serde(skip)]
    pub title: Option<String>,
}

impl FoundMessage {
    /// By what `codemie view` finds the conversation.
    pub fn conversation(&self) -> Option<&str> {
        self.session_id.as_deref().or(self.agent_session_id.as_deref())
    }
}

#[derive(Debug, Default)]
pub struct FoundMessages {
    /// Newest first.
    pub messages: Vec<FoundMessage>,
    pub more: usize,
    /// There are more than those.
    pub more_unread: bool,
    /// Files and folders that could not be read, and why.
    pub refused: Vec<String>,
}

impl FoundMessages {
    /// How many older ones there are besides, as people read it; `None` where there are none.
    pub fn older(&self) -> Option<String> {
        let count = format::grouped(self.more as u64);
        let count = if self.more_unread { format!("more than {count}") } else { count };
        (self.more > 0 || self.more_unread).then_some(count)
    }
}

/// Where to search, besides everywhere.
#[derive(Clone, Debug, Default)]
pub struct Where {
    pub agent: Option<String>,
    /// A folder's path; or, in any case, a part of its own name, with a slash of `owner/name` of the repository.
    pub project: Option<String>,
}

/// Searches the conversations on this machine. `store` knows the sessions of those that were wrapped.
pub fn search(
    query: &Query,
    place: &Where,
    origin: &Origin,
    store: Option<&mut Store>,
    watch: Option<&dyn Progress>,
) -> Result<FoundMessages, store::Error> {
    let agents: Vec<&'static dyn Agent> = registry::AGENTS
        .iter()
        .copied()
        .filter(|agent| place.agent.as_deref().is_none_or(|wanted| agent.name() == wanted))
        .collect();
    let var = |name: &str| origin.var(name);
    let owner = |agent: usize, file: &SessionFile| agents[agent].owner(&var, file);
    let accept = |agent: usize, file: &SessionFile| {
        let Some(wanted) = &place.project else { return true };
        let folder = owner(agent, file).and_then(|owner| owner.folder);
        folder.is_some_and(|folder| is_in_project(&folder, wanted))
    };
    let mut found = search::search(query, &agents, &var, &accept, watch);
    let mut sessions = Sessions { store, known: HashMap::new() };
    let mut messages = Vec::new();
    for hit in std::mem::take(&mut found.hits) {
        let known = sessions.of(&hit, agents[hit.agent], &owner)?;
        let own = known.owner.as_ref().is_some_and(|owner| !owner.subagent);
        messages.push(FoundMessage {
            session_id: known.session.as_ref().map(|session| session.id.clone()),
            agent_session_id: known.owner.as_ref().map(|owner| owner.conversation.to_string()),
            agent: agents[hit.agent].name(),
            role: hit.role.as_str(),
            time: hit.at,
            text: hit.text,
            cursor: own.then(|| hit.cursor.to_string()),
            name: known.session.as_ref().map(|session| session.name.clone()),
            title: known.session.as_ref().and_then(|session| session.title.clone()),
        });
    }
    let search::Hits { more, more_unread, refused, .. } = found;
    Ok(FoundMessages { messages, more, more_unread, refused })
}

fn is_in_project(folder: &Path, wanted: &str) -> bool {
    if Path::new(wanted).is_absolute() {
        return folder.starts_with(wanted);
    }
    let project = Project::of(folder);
    let name = if wanted.contains('/') { project.repository } else { project.name };
    name.is_some_and(|name| name.to_lowercase().contains(&wanted.to_lowercase()))
}

/// What is known of a file that holds a message.
struct KnownFile {
    owner: Option<FileOwner>,
    session: Option<KnownSession>,
}

#[derive(Clone)]
struct KnownSession {
    id: String,
    name: String,
    title: Option<String>,
}

/// The sessions of files, each looked up once.
struct Sessions<'a> {
    store: Option<&'a mut Store>,
    known: HashMap<PathBuf, KnownFile>,
}

impl Sessions<'_> {
    fn of(
        &mut self,
        hit: &Hit,
        agent: &dyn Agent,
        owner: &dyn Fn(usize, &SessionFile) -> Option<FileOwner>,
    ) -> Result<&KnownFile, store::Error> {
        if !self.known.contains_key(&hit.file.path) {
            let owner = owner(hit.agent, &hit.file);
            let session = match (&mut self.store, &owner) {
                (Some(store), Some(owner)) => {
                    store.read(|view| view.session_by_agent_session(agent.name(), &owner.conversation))?
                }
                _ => None,
            };
            let session =
                session.map(|row| KnownSession { id: row.shown_id(), name: row.name, title: row.title });
            self.known.insert(hit.file.path.clone(), KnownFile { owner, session });
        }
        // It was just put there.
        Ok(self.known.entry(hit.file.path.clone()).or_insert(KnownFile { owner: None, session: None }))
    }
}
