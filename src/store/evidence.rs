//! What codemie saw and decided (`explain`), what went wrong with the store (`doctor`), which binary is which version.

use rusqlite::params;

use super::{Error, Tx, View};
use crate::clock::Timestamp;
use crate::session::id::{AgentSessionId, SessionId};
use crate::session::state::spelled;

spelled!(
    /// What became of a piece of evidence.
    Verdict {
        Accepted = "accepted",
        Rejected = "rejected",
        /// Neither: an addition to the agent's arguments, a hint, a run that joined.
        Noted = "noted",
    }
);

/// One line of `explain`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    pub at: Timestamp,
    /// Where it came from: `assigned`, `registry`, `log`, `arguments`, …
    pub source: String,
    pub verdict: Verdict,
    pub agent_session_id: Option<AgentSessionId>,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Incident {
    pub at: Timestamp,
    pub kind: String,
    pub detail: String,
}

impl View<'_> {
    pub fn evidence(&self, session: i64) -> Result<Vec<Evidence>, Error> {
        self.all(
            "SELECT at, source, verdict, agent_session, detail FROM evidence WHERE session = ?1 ORDER BY n",
            [session],
            |row| {
                Ok(Evidence {
                    at: row.get(0)?,
                    source: row.get(1)?,
                    verdict: row.get(2)?,
                    agent_session_id: row.get(3)?,
                    detail: row.get(4)?,
                })
            },
        )
    }

    pub fn incidents(&self) -> Result<Vec<Incident>, Error> {
        self.all("SELECT at, kind, detail FROM incident ORDER BY n", [], |row| {
            Ok(Incident { at: row.get(0)?, kind: row.get(1)?, detail: row.get(2)? })
        })
    }

    pub fn agent_version(&self, identity: &str) -> Result<Option<String>, Error> {
        self.maybe("SELECT version FROM agent_version WHERE identity = ?1", [identity], |row| row.get(0))
    }

    /// A value this room keeps for others (`machine.salt`, …).
    pub fn setting(&self, key: &str) -> Result<Option<String>, Error> {
        self.maybe("SELECT value FROM setting WHERE key = ?1", [key], |row| row.get(0))
    }
}

impl Tx<'_> {
    pub fn note_evidence(&self, session: SessionId, evidence: &Evidence) -> Result<(), Error> {
        let Some(row) = self.session(session)? else { return Ok(()) };
        self.insert_evidence(row.n, evidence)
    }

    pub(crate) fn insert_evidence(&self, session: i64, evidence: &Evidence) -> Result<(), Error> {
        self.run(
            "INSERT INTO evidence (session, at, source, verdict, agent_session, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                session,
                evidence.at,
                evidence.source,
                evidence.verdict,
                evidence.agent_session_id,
                evidence.detail
            ],
        )
        .map(drop)
    }

    pub fn note_incident(&self, at: Timestamp, kind: &str, detail: &str) -> Result<(), Error> {
        self.run("INSERT INTO incident (at, kind, detail) VALUES (?1, ?2, ?3)", params![at, kind, detail])
            .map(drop)
    }

    /// `identity` names the binary beyond its path (device, inode, size, time of change), so an update is noticed.
    pub fn remember_agent_version(&self, identity: &str, version: &str, at: Timestamp) -> Result<(), Error> {
        self.run("INSERT OR REPLACE INTO agent_version VALUES (?1, ?2, ?3)", params![identity, version, at])
            .map(drop)
    }

    pub fn set_setting(&self, key: &str, value: &str) -> Result<(), Error> {
        self.run("INSERT OR REPLACE INTO setting VALUES (?1, ?2)", [key, value]).map(drop)
    }
}
