//! Whose calls they are: what a budget is matched with.

use std::path::{Path, PathBuf};

use super::{Kind, Only};
use os::project::Project;
use store::{self, SessionRow, View};
use types::SessionId;

/// A session, or an agent of which no session is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub session: Option<KnownSession>,
    pub agent: String,
    pub project: Option<String>,
    pub folder: Option<PathBuf>,
    pub repository: Option<String>,
    pub branch: Option<String>,
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSession {
    pub n: i64,
    pub id: SessionId,
    pub name: String,
}

impl Subject {
    /// `None` for one that is never counted: the demonstration.
    pub fn of(view: &View<'_>, row: &SessionRow) -> Result<Option<Self>, store::Error> {
        if row.local_only {
            return Ok(None);
        }
        Ok(Some(Self {
            session: Some(KnownSession { n: row.n, id: row.id, name: row.name.clone() }),
            agent: row.agent.clone(),
            project: row.workspace.project.clone(),
            folder: Some(row.workspace.cwd.clone()),
            repository: row.workspace.repository.clone(),
            branch: row.workspace.branch.clone(),
            tags: view.tags(row.n)?,
        }))
    }

    /// A call of which nothing else is known.
    pub fn of_agent(agent: &str) -> Self {
        Self { agent: agent.to_owned(), ..Self::default() }
    }

    /// A conversation that is no session, of an agent in a folder.
    pub fn in_folder(agent: &str, folder: &Path) -> Self {
        let Project { name, repository, branch } = Project::of(folder);
        let folder = Some(folder.to_owned());
        Self { project: name, folder, repository, branch, ..Self::of_agent(agent) }
    }

    /// Whether its calls count: by the same comparisons as the store's sums (`store::SpentBy`).
    pub fn counts(&self, only: Option<&Only>) -> bool {
        let Some(Only { kind, name }) = only else { return true };
        let is = |value: &Option<String>| value.as_ref() == Some(name);
        match kind {
            Kind::Agent => self.agent == *name,
            Kind::Project => {
                let folder = self.folder.as_ref().is_some_and(|folder| folder.as_os_str() == name.as_str());
                folder || is(&self.project) || is(&self.repository)
            }
            Kind::Branch => is(&self.branch),
            Kind::Tag => self.tags.contains(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_counts_what_it_is_narrowed_to() {
        let subject = Subject {
            session: None,
            agent: "claude".into(),
            project: Some("widgets".into()),
            folder: Some("/home/dev/widgets".into()),
            repository: Some("acme/widgets".into()),
            branch: Some("main".into()),
            tags: vec!["urgent".into(), "x".into()],
        };
        assert!(subject.counts(None));
        for (kind, name, counts) in [
            (Kind::Agent, "claude", true),
            (Kind::Agent, "codex", false),
            (Kind::Project, "widgets", true),
            (Kind::Project, "/home/dev/widgets", true),
            (Kind::Project, "acme/widgets", true),
            (Kind::Project, "widget", false),
            (Kind::Project, "main", false),
            (Kind::Branch, "main", true),
            (Kind::Branch, "mai", false),
            (Kind::Tag, "x", true),
            (Kind::Tag, "y", false),
        ] {
            assert_eq!(subject.counts(Some(&Only { kind, name: name.into() })), counts, "{kind} {name}");
        }
        let unknown = Subject::of_agent("claude");
        assert!(!unknown.counts(Some(&Only { kind: Kind::Project, name: "widgets".into() })));
    }
}
