//! Who asks, and which sessions that caller may see.
//!
//! The caller is the session that the server runs inside of. It is known by process ancestry: one of the server's ancestors is
//! the wrapper of a live run, by pid and start time. Variables are no evidence, because an agent's own daemon hands down those of
//! whatever session started it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use os::project;
use pty::process::Processes;
use runtime::launch::is_shared_daemon;
use store::session::lineage::Lineage;
use store::{self, BootAndPidNs, SessionRow, View};
use types::{Pid, RunId, SessionId};

// The default is the project: an orchestrator sees its colleagues in the same folder, and an agent with an injected prompt learns
// nothing about other projects.
/// Which sessions a caller may see, start next to, speak to and end
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
pub enum Scope {
    /// The caller's own session, sessions it started, and sessions that those started
    Mine,
    /// Those, and the sessions in the caller's project folder
    #[default]
    Project,
    /// Every session of this user
    All,
}

/// No chain of processes or sessions is longer.
const LONGEST_CHAIN: usize = 64;

/// The caller, and the folder it may work in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The run that the server is inside of; `None`: it was started by a person, or by something that is no session.
    pub run: Option<CallerRun>,
    /// The folder it works in.
    pub folder: PathBuf,
    /// The project that folder belongs to. Looked up once: a `.git` that appears above it later widens nothing.
    pub project: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerRun {
    pub id: RunId,
    pub n: i64,
}

impl Caller {
    /// `folder`: the server's own.
    pub fn find(
        view: &View<'_>,
        processes: &dyn Processes,
        server: Pid,
        folder: &Path,
    ) -> Result<Self, store::Error> {
        // Without variables: an agent could set those of its own server.
        let lineage = Lineage::of(server, None, processes, &is_shared_daemon);
        let live = view.live_runs()?;
        let run =
            lineage.enclosing(&live, &BootAndPidNs::here()).map(|run| CallerRun { id: run.id, n: run.n });
        let session = run.map(|run| view.current(run.id)).transpose()?.flatten();
        let folder = session.map_or_else(|| folder.to_owned(), |session| session.workspace.cwd);
        let folder = resolved(&folder);
        Ok(Self { run, project: project::root(&folder), folder })
    }

    /// The session that the caller is in now.
    pub fn session(&self, view: &View<'_>) -> Result<Option<SessionRow>, store::Error> {
        self.run.map(|run| view.current(run.id)).transpose().map(Option::flatten)
    }

    /// Whether a folder, resolved, lies in the project.
    pub fn may_work_in(&self, folder: &Path) -> bool {
        folder.starts_with(&self.project)
    }
}

/// Without symlinks and `..`, as far as it exists.
pub fn resolved(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// Which sessions are in scope, at one look at the store.
#[derive(Debug)]
pub struct ScopeFilter<'a> {
    view: &'a View<'a>,
    caller: &'a Caller,
    scope: Scope,
    /// The sessions that this server has started.
    started: &'a HashSet<SessionId>,
    own: Option<i64>,
    folders: HashMap<PathBuf, bool>,
}

impl<'a> ScopeFilter<'a> {
    pub fn new(
        view: &'a View<'a>,
        caller: &'a Caller,
        scope: Scope,
        started: &'a HashSet<SessionId>,
    ) -> Result<Self, store::Error> {
        let own = caller.session(view)?.map(|session| session.n);
        Ok(Self { view, caller, scope, started, own, folders: HashMap::new() })
    }

    pub fn allows(&mut self, row: &SessionRow) -> Result<bool, store::Error> {
        if self.scope == Scope::All || self.is_mine(row)? {
            return Ok(true);
        }
        Ok(self.scope == Scope::Project && self.in_project(&row.workspace.cwd))
    }

    /// Whether a conversation that codemie never wrapped may be read.
    pub fn allows_foreign(&mut self, folder: Option<&Path>) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Project => folder.is_some_and(|folder| self.in_project(folder)),
            Scope::Mine => false,
        }
    }

    /// The caller's own session, or one that it started, at any depth.
    pub fn is_mine(&self, row: &SessionRow) -> Result<bool, store::Error> {
        let mut row = row.clone();
        for _ in 0..LONGEST_CHAIN {
            let of_own_run = self.caller.run.is_some_and(|run| row.run == Some(run.n));
            if of_own_run || self.own == Some(row.n) || self.was_started_here(&row)? {
                return Ok(true);
            }
            let parent = row.parent.map(|parent| self.view.session_number(parent)).transpose()?.flatten();
            let Some(parent) = parent else { return Ok(false) };
            row = parent;
        }
        Ok(false)
    }

    /// By this server, directly or as a successor along `/clear`.
    fn was_started_here(&self, row: &SessionRow) -> Result<bool, store::Error> {
        if self.started.is_empty() {
            return Ok(false);
        }
        if self.started.contains(&row.id) {
            return Ok(true);
        }
        let Some(run) = row.run else { return Ok(false) };
        let siblings = self.view.sessions_of_run(run)?;
        Ok(siblings.iter().any(|sibling| self.started.contains(&sibling.id)))
    }

    fn in_project(&mut self, folder: &Path) -> bool {
        let caller = self.caller;
        if let Some(known) = self.folders.get(folder) {
            return *known;
        }
        let inside = caller.may_work_in(&resolved(folder));
        self.folders.insert(folder.to_owned(), inside);
        inside
    }
}

/// How deep a session is nested: 0 where nobody started it.
pub fn depth(view: &View<'_>, row: &SessionRow) -> Result<(u32, SessionRow), store::Error> {
    let (mut depth, mut top) = (0, row.clone());
    while let Some(parent) = top.parent
        && depth < u32::try_from(LONGEST_CHAIN).unwrap_or(u32::MAX)
        && let Some(parent) = view.session_number(parent)?
    {
        depth += 1;
        top = parent;
    }
    Ok((depth, top))
}

/// How many sessions below one, at any depth, are active.
pub fn active_below(view: &View<'_>, top: i64) -> Result<u32, store::Error> {
    let active = view.descendants(top)?.iter().filter(|row| row.is_active()).count();
    Ok(u32::try_from(active).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::session::lifecycle::ConversationStart;
    use store::session::testing::World;

    #[test]
    fn scopes_hold_what_the_caller_started_what_lies_in_its_project_and_everything() {
        let mut world = World::new();
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().canonicalize().unwrap();
        let start = |world: &mut World, cwd: &Path, parent: Option<RunId>| {
            let mut begin = world.begin(ConversationStart::Fresh);
            begin.workspace.cwd = cwd.to_owned();
            begin.parent = parent;
            let run = begin.run.id;
            (run, world.start_as(&begin).1.session)
        };
        let (own_run, own) = start(&mut world, &project, None);
        let (child_run, child) = start(&mut world, Path::new("/elsewhere"), Some(own_run));
        let (_, grandchild) = start(&mut world, Path::new("/elsewhere"), Some(child_run));
        let (_, neighbour) = start(&mut world, &project.join("sub"), None);
        let (_, stranger) = start(&mut world, Path::new("/elsewhere"), None);
        let sibling = PathBuf::from(format!("{}-too", project.display()));
        let (_, lookalike) = start(&mut world, &sibling, None);
        let all = [own, child, grandchild, neighbour, stranger, lookalike];
        let none = HashSet::new();
        world
            .store
            .read(|view| {
                let n = view.run(own_run)?.unwrap().n;
                let run = Some(CallerRun { id: own_run, n });
                let caller = Caller { run, folder: project.clone(), project: project.clone() };
                for (scope, expected) in [
                    (Scope::Mine, &[own, child, grandchild][..]),
                    (Scope::Project, &[own, child, grandchild, neighbour]),
                    (Scope::All, &all),
                ] {
                    let mut filter = ScopeFilter::new(view, &caller, scope, &none)?;
                    let mut seen = Vec::new();
                    for id in all {
                        if filter.allows(&view.session(id)?.unwrap())? {
                            seen.push(id);
                        }
                    }
                    assert_eq!(seen, expected, "{scope:?}");
                }
                // Without a caller only what this server started is its own.
                let nobody = Caller { run: None, ..caller.clone() };
                let started = HashSet::from([child]);
                let mut filter = ScopeFilter::new(view, &nobody, Scope::Mine, &started)?;
                for (id, mine) in [(own, false), (child, true), (grandchild, true), (neighbour, false)] {
                    assert_eq!(filter.allows(&view.session(id)?.unwrap())?, mine);
                }
                let (deep, top) = depth(view, &view.session(grandchild)?.unwrap())?;
                assert_eq!((deep, top.id, active_below(view, top.n)?), (2, own, 2));
                Ok::<_, store::Error>(())
            })
            .unwrap();
    }
}
