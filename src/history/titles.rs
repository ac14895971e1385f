//! Titles of the conversations that never ran through codemie, for the local dashboard: shown and searched.
//!
//! Promises: a conversation's beginning is read once, and again when its file has changed. The thread that reads the history looks
//! through the files, and a page waits for it no longer than for the history itself.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agents::Agent;
use agents::UnwrappedConversation;
use delivery::foreign::id_of;
use os::file::is_settled;
use report::title;
use runtime::launch::Origin;
use scan::{self, ListedFile};
use types::{AgentSessionId, Timestamp};

/// So many files are looked at, the newest. Nobody pages through more.
const MOST: usize = 2000;

/// In so many of them, the newest, a title that the agent keeps outside of the file is looked for each time: Codex keeps all of them in
/// one file, which is read for each. In the others when they have changed.
const MOST_APART: usize = 50;

#[derive(Debug, Default)]
pub struct UnwrappedTitles(Mutex<HashMap<PathBuf, TitledFile>>);

/// What was read of a file.
#[derive(Clone, Debug)]
struct TitledFile {
    /// Its length and time; `None` where a further change might not show.
    stamp: Option<(u64, Timestamp)>,
    /// `None` for one that is no conversation of its own: a sub-agent's.
    conversation: Option<TitledConversation>,
}

#[derive(Clone, Debug)]
struct TitledConversation {
    /// The agent's place in the list of agents.
    agent: usize,
    id: AgentSessionId,
    /// The session's id in the history.
    session: String,
    modified: Timestamp,
    /// From its own lines.
    inside: Option<String>,
    /// What the agent keeps elsewhere, and what counts then.
    apart: Option<String>,
}

impl TitledConversation {
    fn title(&self) -> Option<&str> {
        self.apart.as_deref().or(self.inside.as_deref())
    }
}

impl UnwrappedTitles {
    /// Looks through the files of these agents and reads those that are new or have changed.
    pub fn refresh(&self, agents: &[&'static dyn Agent], origin: &Origin, now: Timestamp) {
        let mut listed = scan::session_files(agents, &|name| origin.var(name)).files;
        listed.sort_by_key(|listed| std::cmp::Reverse(listed.modified));
        listed.truncate(MOST);
        for (place, file) in listed.iter().enumerate() {
            let stamp = (file.bytes, file.modified);
            let known = self.known().get(&file.file.path).filter(|known| known.stamp == Some(stamp)).cloned();
            if known.is_some() && place >= MOST_APART {
                continue;
            }
            let mut titled = known.unwrap_or_else(|| TitledFile {
                stamp: is_settled(file.modified, now).then_some(stamp),
                conversation: read(agents, file, origin),
            });
            if let Some(conversation) = &mut titled.conversation {
                let agent = agents[conversation.agent];
                conversation.apart = title::kept_apart(agent, &conversation.id, origin);
            }
            self.known().insert(file.file.path.clone(), titled);
        }
        let there: HashSet<&PathBuf> = listed.iter().map(|listed| &listed.file.path).collect();
        self.known().retain(|path, _| there.contains(path));
    }

    /// The titles of these sessions, as far as they have one.
    pub fn of(&self, sessions: &HashSet<&str>) -> HashMap<String, String> {
        let known = self.known();
        let wanted = known.values().filter_map(|file| file.conversation.as_ref());
        let wanted = wanted.filter(|conversation| sessions.contains(&*conversation.session));
        wanted.filter_map(|one| Some((one.session.clone(), one.title()?.to_owned()))).collect()
    }

    /// The sessions with this text in their title, in any case; the newest first and no more than `most`.
    pub fn with(&self, text: &str, most: usize) -> Vec<String> {
        let (text, known) = (text.to_lowercase(), self.known());
        let has = |conversation: &&TitledConversation| {
            conversation.title().is_some_and(|title| title.to_lowercase().contains(&text))
        };
        let mut found: Vec<_> =
            known.values().filter_map(|file| file.conversation.as_ref()).filter(has).collect();
        found.sort_by_key(|conversation| std::cmp::Reverse(conversation.modified));
        found.into_iter().map(|conversation| conversation.session.clone()).take(most).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, TitledFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(agents: &[&'static dyn Agent], listed: &ListedFile, origin: &Origin) -> Option<TitledConversation> {
    let agent = agents[listed.agent];
    let owner = agent.owner(&|name| origin.var(name), &listed.file).filter(|owner| !owner.subagent)?;
    let session = id_of(agent.name(), &owner.conversation).to_string();
    let conversation = UnwrappedConversation {
        agent: agent.name().to_owned(),
        agent_session: owner.conversation,
        file: listed.file.path.clone(),
        cwd: owner.folder,
    };
    Some(TitledConversation {
        agent: listed.agent,
        inside: title::of_beginning(&conversation, origin),
        id: conversation.agent_session,
        session,
        modified: listed.modified,
        apart: None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use agents::registry;

    const ID: &str = "02000000-0000-4000-8000-000000000002";

    #[test]
    fn titles_are_found_and_read_again_when_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("projects/-home-dev-project");
        fs::create_dir_all(&project).unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/claude/02-tools/projects/-home-dev-project")
            .join(format!("{ID}.jsonl"));
        let text = fs::read_to_string(fixture).unwrap();
        let file = project.join(format!("{ID}.jsonl"));
        fs::write(&file, &text).unwrap();
        let variable = ("CLAUDE_CONFIG_DIR".into(), folder.path().as_os_str().to_owned());
        let origin = Origin::given([variable], "/".into());
        let session = id_of("claude", &AgentSessionId(ID.into())).to_string();
        let titles = UnwrappedTitles::default();
        let refresh = || titles.refresh(registry::AGENTS, &origin, Timestamp(i64::MAX));
        let shown = || titles.of(&HashSet::from([&*session])).remove(&session);
        assert_eq!((shown(), titles.with("fake", 9)), (None, vec![]), "nothing is known before a look");
        refresh();
        assert_eq!(shown().as_deref(), Some("Fake title 1"));
        assert_eq!(titles.with("FAKE title", 9), [&*session]);
        assert!(titles.with("fake", 0).is_empty() && titles.with("another", 9).is_empty());
        fs::write(&file, text.replace("Fake title 1", "Quite another title")).unwrap();
        refresh();
        assert_eq!(shown().as_deref(), Some("Quite another title"));
        assert_eq!((titles.with("fake", 9), titles.with("another", 9)), (vec![], vec![session.clone()]));
        fs::remove_file(&file).unwrap();
        refresh();
        assert_eq!((shown(), titles.with("another", 9)), (None, vec![]));
    }
}
