//! What codemie saw and decided (`explain`), what went wrong with the store (`doctor`), settings of its own.

use rusqlite::{Row, params};

use super::{Error, Tx, View};
use os::truncate::{NAME, SENTENCE, short};
use types::Evidence;
use types::Timestamp;
use types::{RunId, SessionId};

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Incident {
    pub at: Timestamp,
    pub kind: String,
    pub detail: String,
}

const COLUMNS: &str = "at, source, verdict, agent_session, detail";

fn read(row: &Row<'_>) -> rusqlite::Result<Evidence> {
    Ok(Evidence {
        at: row.get(0)?,
        source: row.get(1)?,
        verdict: row.get(2)?,
        agent_session_id: row.get(3)?,
        detail: row.get(4)?,
    })
}

impl View<'_> {
    pub fn evidence(&self, session: i64) -> Result<Vec<Evidence>, Error> {
        self.all(&format!("SELECT {COLUMNS} FROM evidence WHERE session = ?1 ORDER BY n"), [session], read)
    }

    /// Each with the run it was seen in; `None` for imported evidence and that of old versions.
    pub fn evidence_by_run(&self, session: i64) -> Result<Vec<(Option<i64>, Evidence)>, Error> {
        self.all(
            &format!("SELECT {COLUMNS}, run FROM evidence WHERE session = ?1 ORDER BY n"),
            [session],
            |row| Ok((row.get(5)?, read(row)?)),
        )
    }

    /// Of all sessions of the run.
    pub fn evidence_of_run(&self, run: i64) -> Result<Vec<Evidence>, Error> {
        self.all(&format!("SELECT {COLUMNS} FROM evidence WHERE run = ?1 ORDER BY n"), [run], read)
    }

    pub fn incidents(&self) -> Result<Vec<Incident>, Error> {
        self.all("SELECT at, kind, detail FROM incident ORDER BY n", [], |row| {
            Ok(Incident { at: row.get(0)?, kind: row.get(1)?, detail: row.get(2)? })
        })
    }

    /// A value this room keeps for another room (`machine.salt`, …).
    pub fn setting(&self, key: &str) -> Result<Option<String>, Error> {
        self.maybe("SELECT value FROM setting WHERE key = ?1", [key], |row| row.get(0))
    }
}

impl Tx<'_> {
    pub fn note_evidence(&self, session: SessionId, run: RunId, evidence: &Evidence) -> Result<(), Error> {
        let Some(row) = self.session(session)? else { return Ok(()) };
        self.insert_evidence(row.n, Some(run), evidence)
    }

    /// Without a run, it was seen elsewhere.
    pub fn insert_evidence(
        &self,
        session: i64,
        run: Option<RunId>,
        evidence: &Evidence,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT INTO evidence (session, run, at, source, verdict, agent_session, detail)
             VALUES (?1, (SELECT n FROM run WHERE id = ?2), ?3, ?4, ?5, ?6, ?7)",
            params![
                session,
                run,
                evidence.at,
                short(&evidence.source, NAME),
                evidence.verdict,
                evidence.agent_session_id,
                short(&evidence.detail, SENTENCE)
            ],
        )
        .map(drop)
    }

    pub fn note_incident(&self, at: Timestamp, kind: &str, detail: &str) -> Result<(), Error> {
        self.execute("INSERT INTO incident (at, kind, detail) VALUES (?1, ?2, ?3)", params![at, kind, detail])
            .map(drop)
    }

    pub fn set_setting(&self, key: &str, value: &str) -> Result<(), Error> {
        self.execute("INSERT OR REPLACE INTO setting VALUES (?1, ?2)", [key, value]).map(drop)
    }
}
