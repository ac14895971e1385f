//! Letters: what became of an event that a sink's cursor has passed, where that is not plainly "delivered".

use rusqlite::params;

use super::outgoing::{FROM, Outgoing};
use super::row::{read_row, read_value};
use super::{Error, Tx, View};
use types::row::RowColumns;
use types::{Timestamp, row, spelled};

spelled!(
    /// What became of an event that the cursor has passed, where that is not plainly "delivered".
    Fate {
        /// Refused for good, until someone asks for it to be sent again.
        Dead = "dead",
        /// To be sent outside of the cursor's order: held by the sink's own rules, or once dead.
        Deferred = "deferred",
        /// Delivered to a sink that must not get it again, whatever becomes of it.
        Done = "done",
    }
);

row! {
    /// An event that was not delivered, and why.
    #[derive(Clone, Debug, PartialEq)]
    pub struct UndeliveredEvent from "l" {
        pub event: Outgoing [row],
        pub reason: String,
        pub at: Timestamp,
        /// How many of the requests that carry it were accepted.
        pub accepted: usize = "l.told" as i64 => |told| usize::try_from(told).unwrap_or(0),
    }
}

impl View<'_> {
    /// Letters of one fate, the oldest first, without events that have changed since `up_to`. Not for [`Fate::Done`]: there is
    /// no index of those.
    pub fn letters(
        &self,
        sink: &str,
        fate: Fate,
        up_to: i64,
        limit: usize,
    ) -> Result<Vec<UndeliveredEvent>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(
            &UndeliveredEvent::select(&format!(
                "FROM {FROM} JOIN letter l ON l.event = e.n
                 WHERE l.sink = ?1 AND l.fate = ?2 AND l.fate <> 'done' AND ifnull(e.change, 0) <= ?3 ORDER BY l.at, e.n LIMIT ?4"
            )),
            params![sink, fate.as_str(), up_to, limit],
            read_row,
        )
    }

    pub fn letter(&self, sink: &str, event: i64) -> Result<Option<Fate>, Error> {
        self.maybe(
            "SELECT fate FROM letter WHERE sink = ?1 AND event = ?2",
            params![sink, event],
            read_value::<String>,
        )
        .map(|fate| fate.and_then(|fate| Fate::parse(&fate)))
    }
}

impl Tx<'_> {
    /// The requests accepted before stay accepted.
    pub fn put_letter(
        &self,
        sink: &str,
        event: &Outgoing,
        fate: Fate,
        reason: &str,
        at: Timestamp,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT INTO letter (sink, event, fate, rev, reason, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (sink, event) DO UPDATE SET fate = ?3, rev = ?4, reason = ?5, at = ?6",
            params![sink, event.n, fate.as_str(), event.rev, reason, at],
        )
        .map(drop)
    }

    /// So many of the requests that carry it were accepted.
    pub fn note_accepted(&self, sink: &str, event: &Outgoing, accepted: usize) -> Result<(), Error> {
        let accepted = i64::try_from(accepted).unwrap_or(i64::MAX);
        self.execute(
            "UPDATE letter SET told = ?3 WHERE sink = ?1 AND event = ?2",
            params![sink, event.n, accepted],
        )
        .map(drop)
    }

    /// It has arrived after all.
    pub fn drop_letter(&self, sink: &str, event: &Outgoing) -> Result<(), Error> {
        self.execute("DELETE FROM letter WHERE sink = ?1 AND event = ?2", params![sink, event.n]).map(drop)
    }

    /// Every dead letter is to be sent once more; how many.
    pub fn revive_letters(&self, sink: &str) -> Result<usize, Error> {
        self.execute("UPDATE letter SET fate = 'deferred' WHERE sink = ?1 AND fate = 'dead'", [sink])
    }
}
