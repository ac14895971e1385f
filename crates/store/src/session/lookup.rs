//! From what a person types as SESSION to one session: full id, name, the agent's id, a unique prefix of either id or of a
//! name, and last the agents' own files.

use agents::UnwrappedConversation;

use crate::{SessionRow, View};
use format::text::shorten;
use types::AgentSessionId;

/// Shorter prefixes are more likely a slip than a name.
const PREFIX: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Session(Box<SessionRow>),
    Unwrapped(UnwrappedConversation),
}

/// The search in the agents' own session files. It takes a while, so it is asked only when the store knows nothing.
pub trait Scan {
    /// Conversations whose id is `wanted` or begins with it.
    fn find(&self, wanted: &str) -> Vec<UnwrappedConversation>;
}

/// No agents' files.
#[derive(Clone, Copy, Debug)]
pub struct NoScan;

impl Scan for NoScan {
    fn find(&self, _: &str) -> Vec<UnwrappedConversation> {
        Vec::new()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("there is no session {0:?}; `codemie list --all` shows every session")]
    Unknown(String),
    #[error("{wanted:?} could be any of these; give more of it:\n{}", lines(.candidates))]
    Several { wanted: String, candidates: Vec<Candidate> },
    #[error(transparent)]
    Store(#[from] crate::Error),
}

/// One of several sessions that may be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: String,
    pub name: Option<String>,
    pub agent: String,
    pub agent_session: Option<AgentSessionId>,
}

fn lines(candidates: &[Candidate]) -> String {
    let line = |candidate: &Candidate| {
        let name = candidate.name.as_deref().unwrap_or("not wrapped");
        // Ids and names come from the agents' files and from imports.
        shorten(&format!("  {}  {name}  {}", candidate.id, candidate.agent), usize::MAX)
    };
    candidates.iter().map(line).collect::<Vec<_>>().join("\n")
}

type Step = fn(&View<'_>, &str) -> Result<Vec<SessionRow>, crate::Error>;

pub fn find(view: &View<'_>, wanted: &str, scan: &dyn Scan) -> Result<Found, LookupError> {
    if let Some(row) = full_id(view, wanted)? {
        return Ok(Found::Session(Box::new(row)));
    }
    let steps: [Step; 3] =
        [|view, name| view.sessions_named(name), |view, id| view.sessions_of_agent_session(id), prefix];
    for step in steps {
        let mut rows = step(view, wanted)?;
        match rows.len() {
            0 => {}
            1 => return Ok(Found::Session(Box::new(rows.remove(0)))),
            _ => return Err(several(wanted, rows.iter().map(candidate).collect())),
        }
    }
    let mut foreign = if wanted.is_empty() { Vec::new() } else { scan.find(wanted) };
    // The id itself is never ambiguous because a longer one begins with it.
    if foreign.iter().any(|one| one.agent_session.0 == wanted) {
        foreign.retain(|one| one.agent_session.0 == wanted);
    } else if wanted.chars().count() < PREFIX {
        foreign.clear();
    }
    match foreign.len() {
        0 => Err(LookupError::Unknown(wanted.to_owned())),
        1 => Ok(Found::Unwrapped(foreign.remove(0))),
        _ => Err(several(wanted, foreign.iter().map(candidate_of_foreign).collect())),
    }
}

fn full_id(view: &View<'_>, wanted: &str) -> Result<Option<SessionRow>, crate::Error> {
    if let Ok(id) = wanted.parse()
        && let Some(row) = view.session(id)?
    {
        return Ok(Some(row));
    }
    view.session_by_alias(wanted)
}

fn prefix(view: &View<'_>, wanted: &str) -> Result<Vec<SessionRow>, crate::Error> {
    if wanted.chars().count() < PREFIX { Ok(Vec::new()) } else { view.sessions_with_prefix(wanted) }
}

fn several(wanted: &str, candidates: Vec<Candidate>) -> LookupError {
    LookupError::Several { wanted: wanted.to_owned(), candidates }
}

fn candidate(row: &SessionRow) -> Candidate {
    Candidate {
        id: row.shown_id(),
        name: Some(row.name.clone()),
        agent: row.agent.clone(),
        agent_session: row.agent_session.clone(),
    }
}

fn candidate_of_foreign(foreign: &UnwrappedConversation) -> Candidate {
    Candidate {
        id: foreign.agent_session.to_string(),
        name: None,
        agent: foreign.agent.clone(),
        agent_session: Some(foreign.agent_session.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lifecycle::ConversationStart;
    use super::super::testing::World;
    use super::*;
    use types::{Ids, SessionId};

    struct Files(Vec<UnwrappedConversation>);

    impl Scan for Files {
        fn find(&self, wanted: &str) -> Vec<UnwrappedConversation> {
            self.0.iter().filter(|foreign| foreign.agent_session.0.starts_with(wanted)).cloned().collect()
        }
    }

    fn foreign(id: &str) -> UnwrappedConversation {
        UnwrappedConversation {
            agent: "codex".into(),
            agent_session: AgentSessionId(id.into()),
            file: format!("/{id}").into(),
            cwd: None,
        }
    }

    /// Hands out the ids a test wants.
    struct Given(&'static str);

    impl Ids for Given {
        fn uuid(&self) -> uuid::Uuid {
            self.0.parse().unwrap()
        }
    }

    fn start(world: &mut World, id: &'static str, name: &str, agent_session: &str) -> SessionId {
        let mut begin = world.begin(ConversationStart::Fresh);
        begin.name = Some(name.into());
        let at = world.wait(1);
        let session = world
            .store
            .write(|tx| super::super::lifecycle::start(tx, at, &Given(id), &begin))
            .unwrap()
            .session;
        world.bind(session, agent_session).unwrap();
        session
    }

    #[test]
    fn the_order_of_the_steps() {
        let mut world = World::new();
        let one = start(&mut world, "aaaa1111-0000-4000-8000-000000000001", "fix", "bbbb1111-agent");
        let two =
            start(&mut world, "aaaa2222-0000-4000-8000-000000000002", "bbbb1111-agent", "cccc2222-agent");
        let three = start(&mut world, "dddd3333-0000-4000-8000-000000000003", "aaaa1", "dddd3333-agent");
        let files = Files(vec![foreign("eeee-1"), foreign("eeee-2"), foreign("eeee"), foreign("ffff-long")]);
        let table: [(&str, Result<SessionId, &str>); 20] = [
            ("aaaa1111-0000-4000-8000-000000000001", Ok(one)),
            ("AAAA1111-0000-4000-8000-000000000001", Ok(one)),
            ("fix", Ok(one)),
            ("bbbb1111-agent", Ok(two)), // a name comes before an agent's id
            ("cccc2222-agent", Ok(two)),
            ("aaaa1", Ok(three)), // a name comes before a prefix
            ("aaaa11", Ok(one)),
            ("bbbb", Err("2")), // one's id and two's name
            ("bbbb1111-agen", Err("2")),
            ("cccc", Ok(two)),
            ("dddd", Ok(three)), // both its ids begin so: still one session
            ("aaaa", Err("3")),  // a name of three's, too
            ("aaa", Err("unknown")),
            ("zzzz", Err("unknown")),
            ("", Err("unknown")),
            ("%", Err("unknown")),
            ("eeee", Err("foreign eeee")),
            ("eeee-", Err("2")),
            ("ffff", Err("foreign ffff-long")),
            ("fff", Err("unknown")),
        ];
        for (wanted, expected) in table {
            let found = world.store.read(|view| find(view, wanted, &files));
            let shown = match &found {
                Ok(Found::Session(row)) => Ok(row.id),
                Ok(Found::Unwrapped(foreign)) => Err(format!("foreign {}", foreign.agent_session)),
                Err(LookupError::Unknown(_)) => Err("unknown".into()),
                Err(LookupError::Several { candidates, .. }) => Err(candidates.len().to_string()),
                Err(LookupError::Store(error)) => panic!("{error}"),
            };
            assert_eq!(shown, expected.map_err(str::to_owned), "{wanted:?}");
        }
    }

    #[test]
    fn an_error_lists_what_was_meant() {
        let mut world = World::new();
        start(&mut world, "aaaa1111-0000-4000-8000-000000000001", "fix", "x");
        start(&mut world, "aaaa2222-0000-4000-8000-000000000002", "other", "y");
        let error = world.store.read(|view| find(view, "aaaa", &NoScan)).unwrap_err().to_string();
        assert!(error.contains("aaaa1111-0000-4000-8000-000000000001  fix"), "{error}");
        assert!(error.contains("other"), "{error}");
    }
}
