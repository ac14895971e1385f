//! The events, in the order in which they became true or were revised.
//!
//! `seq` counts within a session from 1 without holes. `change` counts over all and rises with every insertion and every
//! revision: a sink that has delivered everything up to a change has one number to remember, and a revised event comes
//! up again by itself. Both are given out inside the one write transaction at a time, so a reader that sees a change sees all
//! before it.

use rusqlite::params;
use uuid::Uuid;

use super::outgoing::began_before;
use super::row::{insert, read_row, read_value};
use super::{Error, Fate, SessionRow, Tx, View};
use types::row::RowColumns;
use types::{EventKind, EventType, Sync, Timestamp, row};

row! {
    /// An event as stored.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EventRow from "e" {
        pub n: i64,
        pub id: Uuid as [u8; 16] => Uuid::from_bytes,
        pub session: i64,
        pub seq: i64,
        pub rev: i64,
        pub kind: EventKind = "e.type",
        pub opening: u32,
        pub time: Timestamp,
        pub record: Option<i64>,
        pub attributes: Option<String>,
        /// `None`: kept back until a backfill.
        pub change: Option<i64>,
    }
}

impl EventRow {
    /// One that is about to be written: its numbers are given then.
    pub fn new(session: i64, id: Uuid, kind: EventType, opening: u32, time: Timestamp) -> Self {
        Self {
            n: 0,
            id,
            session,
            seq: 0,
            rev: 0,
            kind: kind.into(),
            opening,
            time,
            record: None,
            attributes: None,
            change: None,
        }
    }
}

impl View<'_> {
    pub fn events(&self, session: i64) -> Result<Vec<EventRow>, Error> {
        self.all(&EventRow::select("FROM event e WHERE e.session = ?1 ORDER BY e.seq"), [session], read_row)
    }

    /// The START, bound or END of one opening.
    pub fn event_of_opening(
        &self,
        session: i64,
        kind: EventType,
        opening: u32,
    ) -> Result<Option<EventRow>, Error> {
        self.maybe(
            &EventRow::select(
                "FROM event e
                 WHERE e.session = ?1 AND e.type = ?2 AND e.opening = ?3 AND e.record IS NULL",
            ),
            params![session, kind, opening],
            read_row,
        )
    }
}

impl View<'_> {
    /// How far a session's events have got, over all sinks there are. With none, nothing waits and nothing was sent; and
    /// nothing of the demo's ever does.
    pub fn sync(&self, session: &SessionRow) -> Result<Sync, Error> {
        if session.local_only {
            return Ok(Sync::default());
        }
        let slowest: (Option<i64>, Option<i64>) =
            self.one("SELECT min(since), min(cursor) FROM sink", [], read_row)?;
        let (Some(since), Some(cursor)) = slowest else { return Ok(Sync::default()) };
        let history: bool = self.one(
            &format!("SELECT {} FROM session s WHERE s.n = ?1", began_before("?2")),
            [session.n, since],
            read_value,
        )?;
        if history {
            return Ok(Sync { last_delivered_at: session.last_delivered_at, ..Sync::default() });
        }
        let (pending, passed): (i64, i64) = self.one(
            "SELECT count(*) FILTER (WHERE change > ?3), count(*) FILTER (WHERE change > ?2 AND change <= ?3)
             FROM event WHERE session = ?1",
            params![session.n, since, cursor],
            read_row,
        )?;
        let letters = |fate: Fate| {
            self.one(
                "SELECT count(DISTINCT l.event) FROM letter l JOIN event e ON e.n = l.event
                 WHERE e.session = ?1 AND l.fate = ?3 AND e.change <= ?2",
                params![session.n, cursor, fate.as_str()],
                read_value::<i64>,
            )
        };
        let (dead, deferred) = (letters(Fate::Dead)?, letters(Fate::Deferred)?);
        let delivered = (passed - dead - deferred).max(0);
        let pending = pending + deferred;
        Ok(Sync { pending, delivered, dead, last_delivered_at: session.last_delivered_at })
    }
}

impl Tx<'_> {
    /// The number the session's next event will have. True until this transaction writes it.
    pub fn next_seq(&self, session: i64) -> Result<i64, Error> {
        self.one("SELECT last_seq + 1 FROM session WHERE n = ?1", [session], read_value)
    }

    /// The session's next event. Returns its number in there.
    pub fn append_event(&self, mut event: EventRow) -> Result<i64, Error> {
        event.seq = self.one(
            "UPDATE session SET last_seq = last_seq + 1 WHERE n = ?1 RETURNING last_seq",
            [event.session],
            read_value,
        )?;
        event.change = Some(self.next_change()?);
        self.insert_event(&event)?;
        Ok(event.seq)
    }

    /// An event with numbers of its own choosing, for what was lived elsewhere.
    pub fn insert_event(&self, event: &EventRow) -> Result<(), Error> {
        insert!(self, "event": {
            id: event.id.as_bytes(),
            session: event.session,
            seq: event.seq,
            rev: event.rev,
            type: event.kind.as_str(),
            opening: event.opening,
            time: event.time,
            record: event.record,
            attributes: event.attributes,
            change: event.change,
        })
        .map(drop)
    }

    pub fn set_last_seq(&self, session: i64, seq: i64) -> Result<(), Error> {
        self.execute("UPDATE session SET last_seq = ?2 WHERE n = ?1", [session, seq]).map(drop)
    }

    /// A revision of the same event: only `rev` and the attributes differ, and every sink gets it again. One kept back
    /// stays kept back.
    pub fn revise_event(&self, event: i64, attributes: Option<&str>) -> Result<(), Error> {
        let change = self.next_change()?;
        self.execute(
            "UPDATE event SET rev = rev + 1, attributes = ?2, change = CASE WHEN change IS NULL THEN NULL ELSE ?3 END
             WHERE n = ?1",
            params![event, attributes, change],
        )
        .map(drop)
    }

    pub fn revise_event_of_record(&self, record: i64) -> Result<(), Error> {
        let event = self.maybe("SELECT n FROM event WHERE record = ?1", [record], read_value)?;
        event.map_or(Ok(()), |event| self.revise_event(event, None))
    }

    pub(super) fn next_change(&self) -> Result<i64, Error> {
        self.one("UPDATE outbox SET change = change + 1 RETURNING change", [], read_value)
    }
}
