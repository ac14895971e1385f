//! The rows of openings: the spans of time in which a session was open, and where each was come to from.

use rusqlite::params;

use super::row::{insert, read_row, read_value};
use super::{Error, Tx, View};
use types::row::RowColumns;
use types::{SessionId, StartReason, Timestamp, row};

row! {
    /// One span of time in which a session was open.
    #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct OpeningRow {
        pub number: u32,
        pub reason: StartReason,
        pub opened_at: Timestamp,
        pub closed_at: Option<Timestamp>,
        pub transitioned_from: Option<SessionId>,
    }
}

impl View<'_> {
    pub fn openings(&self, session: i64) -> Result<Vec<OpeningRow>, Error> {
        self.all(&OpeningRow::select("FROM opening WHERE session = ?1 ORDER BY number"), [session], read_row)
    }

    /// The session it was last come to from, by a `/clear` or a switch; openings by a new run have none.
    pub fn came_from(&self, session: i64) -> Result<Option<(SessionId, StartReason)>, Error> {
        self.maybe(
            "SELECT transitioned_from, reason FROM opening WHERE session = ?1 AND transitioned_from IS NOT NULL
             ORDER BY number DESC LIMIT 1",
            [session],
            read_row,
        )
    }

    /// The session that it was last left for, by a `/clear` or a switch, though it may have been opened again since.
    pub fn went_to(&self, session: SessionId) -> Result<Option<SessionId>, Error> {
        self.maybe(
            "SELECT s.id FROM opening o JOIN session s ON s.n = o.session WHERE o.transitioned_from = ?1
             ORDER BY o.opened_at DESC, s.n DESC LIMIT 1",
            [session],
            read_value,
        )
    }
}

impl Tx<'_> {
    pub(super) fn insert_opening(
        &self,
        session: i64,
        number: u32,
        reason: StartReason,
        at: Timestamp,
        from: Option<SessionId>,
    ) -> Result<(), Error> {
        insert!(self, "opening": { session, number, reason, opened_at: at, transitioned_from: from })
            .map(drop)
    }

    /// The openings of a session that was lived elsewhere, in place of the first one its row came with.
    pub fn replace_openings(
        &self,
        session: i64,
        openings: &[OpeningRow],
        transitioned_from: Option<SessionId>,
    ) -> Result<(), Error> {
        let Some(last) = openings.last() else { return Ok(()) };
        self.execute("DELETE FROM opening WHERE session = ?1", [session])?;
        for opening in openings {
            insert!(self, "opening": {
                session,
                number: opening.number,
                reason: opening.reason,
                opened_at: opening.opened_at,
                closed_at: opening.closed_at,
                transitioned_from: opening.transitioned_from,
            })?;
        }
        self.execute(
            "UPDATE session SET opening = ?2, transitioned_from = ?3 WHERE n = ?1",
            params![session, last.number, transitioned_from],
        )
        .map(drop)
    }

    pub(super) fn close_opening(&self, session: i64, number: u32, at: Timestamp) -> Result<(), Error> {
        self.execute(
            "UPDATE opening SET closed_at = ?3 WHERE session = ?1 AND number = ?2",
            params![session, number, at],
        )
        .map(drop)
    }
}
