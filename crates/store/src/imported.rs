//! Which entries of old stores and exports have been imported, and what an imported session keeps of its origin.

use std::path::Path;

use rusqlite::params;

use super::{Error, Tx, View};
use types::AgentSessionId;
use types::Timestamp;

impl View<'_> {
    pub fn was_imported(&self, source: &str, entry: &str) -> Result<bool, Error> {
        let found =
            self.maybe("SELECT 1 FROM imported WHERE source = ?1 AND entry = ?2", [source, entry], |_| {
                Ok(())
            })?;
        Ok(found.is_some())
    }

    /// Whether an entry of this very file has that id.
    pub fn imported_under(&self, source: &str, id: &str) -> Result<bool, Error> {
        let found = self.maybe(
            "SELECT 1 FROM imported WHERE source = ?1 AND session = ?2",
            [source, id],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }
}

impl Tx<'_> {
    pub fn note_imported(
        &self,
        source: &str,
        entry: &str,
        session: &str,
        at: Timestamp,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT OR REPLACE INTO imported VALUES (?1, ?2, ?3, ?4)",
            params![source, entry, session, at],
        )
        .map(drop)
    }

    pub fn set_imported(&self, session: i64, source: &str, former_id: Option<&str>) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET imported_from = ?2, former_id = ?3 WHERE n = ?1",
            params![session, source, former_id],
        )
        .map(drop)
    }

    /// Binds a session as the imported file says, without evidence of our own.
    pub fn set_imported_binding(
        &self,
        session: i64,
        agent_session: &AgentSessionId,
        file: Option<&Path>,
    ) -> Result<(), Error> {
        self.execute(
            "UPDATE session SET agent_session = ?2, agent_session_file = ?3 WHERE n = ?1",
            params![session, agent_session, file.map(Path::to_string_lossy)],
        )
        .map(drop)
    }
}
