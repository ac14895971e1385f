//! The rows of sessions.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rusqlite::params;

use super::row::{insert, read_row, read_value};
use super::session::names::Name;
use super::{Error, Tx, View};
use agents::meter::title::Title;
use os::truncate::{NAME, short};
use serde::{Deserialize, Serialize};
use types::Timestamp;
use types::row::RowColumns;
use types::{AgentSessionId, RunId, SessionId};
use types::{EndReason, EvidenceKind, Link, StartReason, Status};
use types::{row, spelled};

spelled!(
    /// Whether a session is going on. A provisional one is, but may yet turn out to be another.
    Phase { Provisional = "provisional", Open = "open", Closed = "closed" }
);

/// How the agent's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

row! {
    /// Where a session works: its folder, and the project that the folder belongs to.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Workspace from "s" {
        pub cwd: PathBuf as Option<String> => |cwd| cwd.unwrap_or_default().into(),
        /// The folder's own name, which is all of the path that ever leaves the machine.
        pub project: Option<String>,
        /// `owner/name`
        pub repository: Option<String>,
        pub branch: Option<String>,
    }
}

row! {
    /// A session as the database holds it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SessionRow from "s" {
        pub n: i64,
        pub id: SessionId,
        pub former_id: Option<String>,
        pub name: String,
        pub name_base: String,
        pub name_number: u32,
        /// By the user, not by us.
        pub named: bool,
        pub agent: String,
        /// Nothing of it is ever sent, and `usage` leaves it out.
        pub local_only: bool,
        pub agent_version: Option<String>,
        pub wrapper_version: String,
        pub phase: Phase,
        pub link: Link,
        pub opening: u32,
        pub started_at: Timestamp,
        pub ended_at: Option<Timestamp>,
        pub status: Option<Status>,
        pub end_reason: Option<EndReason>,
        pub exit_code: Option<i32>,
        pub signal: Option<i32>,
        pub transitioned_to: Option<SessionId>,
        pub transitioned_from: Option<SessionId>,
        pub run: Option<i64>,
        pub parent: Option<i64>,
        pub workspace: Workspace [row],
        pub agent_session: Option<AgentSessionId>,
        pub agent_session_file: Option<PathBuf> as Option<String> => |file| file.map(PathBuf::from),
        pub evidence: Option<EvidenceKind>,
        pub bound_at: Option<Timestamp>,
        pub owns_from: Option<Timestamp>,
        pub last_seq: i64,
        pub last_delivered_at: Option<Timestamp>,
        pub group: Option<String> = "s.grp",
        pub archived: bool,
        pub imported_from: Option<String>,
        /// Every run that was in it led its agent through the proxy.
        pub proxied: bool,
        /// What it is about. Words of the conversation: they stay on this machine.
        pub title: Option<String>,
    }
}

impl SessionRow {
    /// One that begins now, with what every session has; the rest is not known or not so. It gets its number when it is inserted.
    pub fn new(
        id: SessionId,
        agent: String,
        name: Name,
        workspace: Workspace,
        started_at: Timestamp,
    ) -> Self {
        Self {
            n: 0,
            id,
            former_id: None,
            name: name.full,
            name_base: name.base,
            name_number: name.number,
            named: false,
            agent,
            local_only: false,
            agent_version: None,
            wrapper_version: env!("CARGO_PKG_VERSION").to_owned(),
            phase: Phase::Open,
            link: Link::Pending,
            opening: 1,
            started_at,
            ended_at: None,
            status: None,
            end_reason: None,
            exit_code: None,
            signal: None,
            transitioned_to: None,
            transitioned_from: None,
            run: None,
            parent: None,
            workspace,
            agent_session: None,
            agent_session_file: None,
            evidence: None,
            bound_at: None,
            owns_from: None,
            last_seq: 0,
            last_delivered_at: None,
            group: None,
            archived: false,
            imported_from: None,
            proxied: false,
            title: None,
        }
    }

    pub fn is_active(&self) -> bool {
        self.phase != Phase::Closed
    }

    /// The id people and scripts see.
    pub fn shown_id(&self) -> String {
        self.former_id.clone().unwrap_or_else(|| self.id.to_string())
    }
}

impl View<'_> {
    pub fn session_number(&self, n: i64) -> Result<Option<SessionRow>, Error> {
        self.maybe(&SessionRow::select("FROM session s WHERE s.n = ?1"), [n], read_row)
    }

    /// The sessions with these numbers, in that order. Each process prepares its statements anew, and one that names all forty columns
    /// costs as much as ten others. So lookups find numbers first, and every row is read by the same statement.
    pub(super) fn sessions_numbered(&self, numbers: Vec<i64>) -> Result<Vec<SessionRow>, Error> {
        numbers.into_iter().filter_map(|n| self.session_number(n).transpose()).collect()
    }

    /// By its id, or by one that has become an alias of it.
    pub fn session(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        match self.maybe("SELECT n FROM session WHERE id = ?1", [id], read_value)? {
            Some(n) => self.session_number(n),
            None => self.session_by_alias(&id.to_string()),
        }
    }

    pub fn session_by_alias(&self, id: &str) -> Result<Option<SessionRow>, Error> {
        let n = self.maybe("SELECT session FROM alias WHERE id = ?1", [id], read_value)?;
        n.map_or(Ok(None), |n| self.session_number(n))
    }

    pub fn session_by_agent_session(
        &self,
        agent: &str,
        id: &AgentSessionId,
    ) -> Result<Option<SessionRow>, Error> {
        let sql = "SELECT n FROM session WHERE agent = ?1 AND agent_session = ?2";
        let n = self.maybe(sql, params![agent, id], read_value)?;
        n.map_or(Ok(None), |n| self.session_number(n))
    }

    /// The session a run is in now, or was in when it ended.
    pub fn current(&self, run: RunId) -> Result<Option<SessionRow>, Error> {
        let n = self.maybe("SELECT session FROM run WHERE id = ?1", [run], read_value::<Option<i64>>)?;
        n.flatten().map_or(Ok(None), |n| self.session_number(n))
    }

    /// The sessions whose last run this was, in the order they began in.
    pub fn sessions_of_run(&self, run: i64) -> Result<Vec<SessionRow>, Error> {
        self.all(&SessionRow::select("FROM session s WHERE s.run = ?1 ORDER BY s.n"), [run], read_row)
    }

    pub fn tags(&self, session: i64) -> Result<Vec<String>, Error> {
        self.all("SELECT tag FROM tag WHERE session = ?1 ORDER BY tag", [session], read_value)
    }

    pub fn aliases(&self, session: i64) -> Result<Vec<String>, Error> {
        self.all("SELECT id FROM alias WHERE session = ?1 ORDER BY id", [session], read_value)
    }

    pub fn children(&self, parent: i64) -> Result<Vec<SessionRow>, Error> {
        self.all(&SessionRow::select("FROM session s WHERE s.parent = ?1 ORDER BY s.n"), [parent], read_row)
    }

    /// The sessions that were started from inside one, and from inside those, at any depth.
    pub fn descendants(&self, top: i64) -> Result<Vec<SessionRow>, Error> {
        // What is damaged may lead in a circle.
        let (mut seen, mut pending, mut found) = (HashSet::from([top]), vec![top], Vec::new());
        while let Some(n) = pending.pop() {
            for child in self.children(n)? {
                if seen.insert(child.n) {
                    pending.push(child.n);
                    found.push(child);
                }
            }
        }
        Ok(found)
    }

    pub fn name_taken(&self, name: &str) -> Result<bool, Error> {
        Ok(self.maybe("SELECT 1 FROM session WHERE name = ?1", [name], |_| Ok(()))?.is_some())
    }
}

impl Tx<'_> {
    /// A session as [`SessionRow::new`] makes it, and its first opening. Returns its number.
    pub fn insert_session(&self, new: &SessionRow, reason: StartReason) -> Result<i64, Error> {
        // Git's files, an agent's and an imported one may say anything.
        let name = |text: &Option<String>| text.as_deref().map(|text| short(text, NAME).into_owned());
        let workspace = &new.workspace;
        insert!(self, "session": {
            id: new.id,
            name: new.name,
            name_base: new.name_base,
            name_number: new.name_number,
            agent: new.agent,
            agent_version: name(&new.agent_version),
            wrapper_version: new.wrapper_version,
            phase: new.phase,
            link: new.link,
            opening: new.opening,
            started_at: new.started_at,
            run: new.run,
            parent: new.parent,
            transitioned_from: new.transitioned_from,
            cwd: workspace.cwd.to_string_lossy(),
            project: name(&workspace.project),
            repository: name(&workspace.repository),
            branch: name(&workspace.branch),
            owns_from: new.owns_from,
            grp: new.group,
            named: new.named,
            local_only: new.local_only,
            proxied: new.proxied,
            unpublished: true,
        })?;
        let n = self.last_inserted();
        self.insert_opening(n, new.opening, reason, new.started_at, new.transitioned_from)?;
        Ok(n)
    }

    pub fn set_phase(&self, session: i64, (phase, link): (Phase, Link)) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET phase = ?2, link = ?3, unpublished = 1 WHERE n = ?1",
            params![session, phase, link],
        )
        .map(drop)
    }

    /// A further opening of a closed session.
    pub fn reopen_session(
        &self,
        row: &SessionRow,
        run: i64,
        reason: StartReason,
        at: Timestamp,
        from: Option<SessionId>,
    ) -> Result<(), Error> {
        let number = row.opening + 1;
        self.execute(
            "UPDATE session SET opening = ?2, run = ?3, transitioned_from = ?4, ended_at = NULL, status = NULL,
               end_reason = NULL, exit_code = NULL, signal = NULL, transitioned_to = NULL, archived = 0, unpublished = 1,
               active_at = ?5
             WHERE n = ?1",
            params![row.n, number, run, from, at],
        )?;
        self.insert_opening(row.n, number, reason, at, from)
    }

    pub fn set_session_run(&self, session: i64, run: i64) -> Result<(), Error> {
        self.execute("UPDATE session SET run = ?2, unpublished = 1 WHERE n = ?1", [session, run]).map(drop)
    }

    /// Writes the closing into the row and its last opening.
    pub fn close_session(
        &self,
        row: &SessionRow,
        at: Timestamp,
        status: Status,
        reason: EndReason,
        exit: Option<Exit>,
        to: Option<SessionId>,
    ) -> Result<(), Error> {
        let (code, signal) = match exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        self.execute(
            "UPDATE session SET ended_at = ?2, status = ?3, end_reason = ?4, exit_code = ?5, signal = ?6,
               transitioned_to = ?7, unpublished = 1
             WHERE n = ?1",
            params![row.n, at, status, reason, code, signal, to],
        )?;
        self.close_opening(row.n, row.opening, at)
    }

    pub fn set_binding(
        &self,
        session: i64,
        agent_session: &AgentSessionId,
        file: Option<&Path>,
        evidence: EvidenceKind,
        at: Timestamp,
    ) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET agent_session = ?2, agent_session_file = ?3, evidence = ?4, bound_at = ?5, unpublished = 1
             WHERE n = ?1",
            params![session, agent_session, file.map(Path::to_string_lossy), evidence, at],
        )
        .map(drop)
    }

    /// The file of a bound session appeared, or was moved by the agent.
    pub fn set_agent_session_file(&self, session: SessionId, file: &Path) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET agent_session_file = ?2, unpublished = 1
             WHERE id = ?1 AND agent_session_file IS NOT ?2",
            params![session, file.to_string_lossy()],
        )
        .map(drop)
    }

    /// The agent took the file of a bound session away: nothing was written in it.
    pub fn forget_agent_session_file(&self, session: SessionId) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET agent_session_file = NULL, unpublished = 1
             WHERE id = ?1 AND agent_session_file IS NOT NULL",
            params![session],
        )
        .map(drop)
    }

    /// The agent works in another folder from here on. What the session is counted for stays what it began as.
    pub fn set_folder(&self, session: SessionId, folder: &Path) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET cwd = ?2, unpublished = 1 WHERE id = ?1 AND cwd IS NOT ?2",
            params![session, folder.to_string_lossy()],
        )
        .map(drop)
    }

    pub fn set_owns_from(&self, session: i64, from: Timestamp) -> Result<(), Error> {
        self.execute("UPDATE session SET owns_from = ?2 WHERE n = ?1", params![session, from]).map(drop)
    }

    pub fn set_version_of_session(&self, session: i64, version: &str) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET agent_version = ?2, unpublished = 1 WHERE n = ?1",
            params![session, short(version, NAME)],
        )
        .map(drop)
    }

    pub fn set_name(&self, session: i64, name: &str, base: &str, number: u32) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET name = ?2, name_base = ?3, name_number = ?4, named = 1, unpublished = 1 WHERE n = ?1",
            params![session, name, base, number],
        )
        .map(drop)
    }

    /// Takes a title over, if it is better than the one that is known ([`Title::replaces`]).
    pub fn set_title(&self, session: SessionId, title: &Title) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET title = ?2, title_rank = ?3, unpublished = 1
             WHERE id = ?1 AND title IS NOT ?2 AND (title IS NULL OR title_rank < ?3 OR (title_rank = ?3 AND ?3 > 0))",
            params![session, title.text, title.source.rank()],
        )
        .map(drop)
    }

    /// There is no title to be found.
    pub fn note_untitled(&self, session: i64) -> Result<(), Error> {
        self.execute("UPDATE session SET title_rank = -1 WHERE n = ?1 AND title IS NULL", [session]).map(drop)
    }

    /// Something happened in it.
    pub fn note_activity(&self, session: i64, at: Timestamp) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET active_at = ?2 WHERE n = ?1 AND ifnull(active_at, 0) < ?2",
            params![session, at],
        )
        .map(drop)
    }

    pub fn set_group(&self, session: i64, group: Option<&str>) -> Result<(), Error> {
        self.execute("UPDATE session SET grp = ?2, unpublished = 1 WHERE n = ?1", params![session, group])
            .map(drop)
    }

    pub fn set_archived(&self, session: i64, archived: bool) -> Result<(), Error> {
        self.execute("UPDATE session SET archived = ?2 WHERE n = ?1", params![session, archived]).map(drop)
    }

    pub fn add_tag(&self, session: i64, tag: &str) -> Result<bool, Error> {
        self.execute("UPDATE session SET unpublished = 1 WHERE n = ?1", [session])?;
        self.execute("INSERT OR IGNORE INTO tag VALUES (?1, ?2)", params![session, tag])
            .map(|added| added > 0)
    }

    pub fn remove_tag(&self, session: i64, tag: &str) -> Result<bool, Error> {
        self.execute("UPDATE session SET unpublished = 1 WHERE n = ?1", [session])?;
        self.execute("DELETE FROM tag WHERE session = ?1 AND tag = ?2", params![session, tag])
            .map(|removed| removed > 0)
    }

    /// `id` names this session, too.
    pub fn add_session_alias(&self, id: SessionId, session: SessionId) -> Result<(), Error> {
        self.execute(
            "INSERT OR IGNORE INTO alias SELECT ?1, n FROM session WHERE id = ?2",
            params![id, session],
        )
        .map(drop)
    }

    pub fn add_alias(&self, id: &str, session: i64) -> Result<(), Error> {
        self.execute("INSERT OR IGNORE INTO alias VALUES (?1, ?2)", params![id, session]).map(drop)
    }

    /// A provisional session turned out to be `into`: everything that referred to it refers to that one now, its id
    /// too. Nothing of it was ever reported, so nothing but its row is lost.
    pub fn merge_session(&self, provisional: &SessionRow, into: i64) -> Result<(), Error> {
        for sql in [
            "UPDATE run SET session = ?2 WHERE session = ?1",
            "UPDATE session SET parent = ?2 WHERE parent = ?1",
            "UPDATE evidence SET session = ?2 WHERE session = ?1",
            "UPDATE alias SET session = ?2 WHERE session = ?1",
            "UPDATE OR IGNORE stay SET session = ?2 WHERE session = ?1",
            "INSERT OR IGNORE INTO tag SELECT ?2, tag FROM tag WHERE session = ?1",
        ] {
            self.execute(sql, [provisional.n, into])?;
        }
        self.execute("DELETE FROM session WHERE n = ?1", [provisional.n])?;
        self.add_alias(&provisional.id.to_string(), into)
    }
}
