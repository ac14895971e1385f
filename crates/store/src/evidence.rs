//! What codemie saw and decided (`explain`), what went wrong with the store (`doctor`), settings of its own.

use rusqlite::params;

use super::row::{insert, read_keyed, read_row, read_value};
use super::{Error, Tx, View};
use os::truncate::{NAME, SENTENCE, short};
use types::row::RowColumns;
use types::{Evidence, RunId, SessionId, Timestamp, row};

row! {
    #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
    pub struct Incident {
        pub at: Timestamp,
        pub kind: String,
        pub detail: String,
    }
}

impl View<'_> {
    pub fn evidence(&self, session: i64) -> Result<Vec<Evidence>, Error> {
        self.all(&Evidence::select("FROM evidence WHERE session = ?1 ORDER BY n"), [session], read_row)
    }

    /// Each with the run it was seen in; `None` for imported evidence and that of old versions.
    pub fn evidence_by_run(&self, session: i64) -> Result<Vec<(Option<i64>, Evidence)>, Error> {
        self.all(
            &format!("SELECT run, {} FROM evidence WHERE session = ?1 ORDER BY n", Evidence::COLUMNS),
            [session],
            read_keyed,
        )
    }

    /// Of all sessions of the run.
    pub fn evidence_of_run(&self, run: i64) -> Result<Vec<Evidence>, Error> {
        self.all(&Evidence::select("FROM evidence WHERE run = ?1 ORDER BY n"), [run], read_row)
    }

    pub fn incidents(&self) -> Result<Vec<Incident>, Error> {
        self.all(&Incident::select("FROM incident ORDER BY n"), [], read_row)
    }

    /// A value that the store keeps for another crate (`machine.salt`, …).
    pub fn setting(&self, key: &str) -> Result<Option<String>, Error> {
        self.maybe("SELECT value FROM setting WHERE key = ?1", [key], read_value)
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
        insert!(self, "incident": { at, kind, detail }).map(drop)
    }

    pub fn set_setting(&self, key: &str, value: &str) -> Result<(), Error> {
        self.execute("INSERT OR REPLACE INTO setting VALUES (?1, ?2)", [key, value]).map(drop)
    }
}
