//! The sinks: how far each has got, which process is sending to it, and what keeps it from being sent to.
//!
//! A sink's cursor is the last change it has dealt with. What it passed without delivering stands in a
//! [letter](super::UndeliveredEvent). A lease lets one process send at a time; a receiver that knows every event's id does not mind if two do.
//!
//! A sender asks [`Store::make_durable`](super::Store::make_durable) first and sends nothing beyond what it answers.

use rusqlite::params;

use super::outgoing::began_before;
use super::row::{read_row, read_value};
use super::{Error, Outgoing, Tx, View};
use types::row::RowColumns;
use types::{Timestamp, row};

row! {
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SinkRow {
        pub name: String,
        /// Where its part of the outbox begins: what is not after that is history to it.
        pub since: i64,
        pub cursor: i64,
        pub lease_holder: Option<String>,
        pub lease_until: Option<Timestamp>,
        pub failures: i64,
        pub retry_at: Option<Timestamp>,
        /// Why nothing is sent until someone does something about it (401, 403).
        pub paused: Option<String>,
        pub last_delivered_at: Option<Timestamp>,
        /// Until when the receiver itself asked to be left alone (`Retry-After`).
        pub asked_until: Option<Timestamp>,
        /// What went wrong last; gone with the next delivery.
        pub trouble: Option<String>,
        /// The fingerprint of its address ([`super::Fingerprint`]); `None` if it was never set up.
        pub address: Option<String>,
        /// The fingerprint of the credentials.
        pub credentials: Option<String>,
    }
}

impl SinkRow {
    /// When it is tried again: after our own backoff, or when it asked to be (`Retry-After`).
    pub fn again_at(&self) -> Option<Timestamp> {
        self.retry_at.max(self.asked_until)
    }
}

/// How much is with a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCount {
    /// Not delivered yet, what its own rules hold back included.
    pub pending: i64,
    pub deferred: i64,
    pub dead: i64,
}

impl View<'_> {
    pub fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        self.all(&SinkRow::select("FROM sink ORDER BY name"), [], read_row)
    }

    pub fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        self.maybe(&SinkRow::select("FROM sink WHERE name = ?1"), [name], read_row)
    }

    pub fn sink_count(&self, sink: &SinkRow) -> Result<SinkCount, Error> {
        let ahead: i64 = self.one(
            &format!(
                // Sessions are fewer than events: those that it does not get are found once.
                "SELECT count(*) FROM event e WHERE e.change > ?1
                   AND e.session NOT IN (SELECT s.n FROM session s WHERE s.local_only = 1 OR {})",
                began_before("?2")
            ),
            [sink.cursor, sink.since],
            read_value,
        )?;
        let (deferred, dead): (i64, i64) = self.one(
            "SELECT count(*) FILTER (WHERE l.fate = 'deferred'), count(*) FILTER (WHERE l.fate = 'dead')
             FROM letter l JOIN event e ON e.n = l.event WHERE l.sink = ?1 AND l.fate <> 'done' AND e.change <= ?2",
            params![sink.name, sink.cursor],
            read_row,
        )?;
        Ok(SinkCount { pending: ahead + deferred, deferred, dead })
    }

    /// Whether a sink's cursor is behind, or something was deferred: whether it is worth looking closer.
    pub fn something_waits(&self, sink: &SinkRow) -> Result<bool, Error> {
        self.one(
            "SELECT (SELECT change FROM outbox) > ?2
                 OR EXISTS (SELECT 1 FROM letter INDEXED BY letter_waiting
                     WHERE sink = ?1 AND fate = 'deferred' AND fate <> 'done')",
            params![sink.name, sink.cursor],
            read_value,
        )
    }

    /// Whether something was committed that the sink's cursor has not passed.
    pub fn is_behind(&self, sink: &str) -> Result<bool, Error> {
        self.one(
            "SELECT EXISTS (SELECT 1 FROM sink, outbox WHERE sink.name = ?1 AND outbox.change > sink.cursor)",
            [sink],
            read_value,
        )
    }

    /// How many sessions are from before it was set up, so that it has nothing of them.
    pub fn sessions_before(&self, sink: &str) -> Result<i64, Error> {
        self.one(
            &format!(
                "SELECT count(*) FROM session s WHERE s.local_only = 0 AND {}",
                began_before("(SELECT since FROM sink WHERE name = ?1)")
            ),
            [sink],
            read_value,
        )
    }

    /// The last change given out.
    pub fn last_change(&self) -> Result<i64, Error> {
        self.one("SELECT change FROM outbox", [], read_value)
    }

    /// How much the outbox holds beyond the slowest sink: events, and an estimate of their bytes when sent.
    pub fn backlog(&self) -> Result<(i64, i64), Error> {
        self.one(
            "SELECT count(*), ifnull(sum(ifnull(length(e.attributes), 300) + 250), 0)
             FROM event e JOIN session s ON s.n = e.session
             WHERE e.change > (SELECT min(cursor) FROM sink) AND s.local_only = 0",
            [],
            read_row,
        )
    }
}

impl Tx<'_> {
    /// A new sink gets the sessions that are open now, whole, and what comes after; history is sent by
    /// [`Tx::backfill`] only. Nothing happens if it is there already, so a run does this with its START.
    pub fn add_sink(&self, name: &str) -> Result<(), Error> {
        if self.sink(name)?.is_some() {
            return Ok(());
        }
        self.execute("INSERT INTO sink (name, since, cursor) SELECT ?1, change, change FROM outbox", [name])?;
        self.resend_open_sessions()
    }

    /// Moves the events of open sessions behind every cursor, so that all sinks get them. Receivers that have them know them
    /// by their ids.
    fn resend_open_sessions(&self) -> Result<(), Error> {
        self.restamp("change IS NOT NULL AND session IN (SELECT n FROM session WHERE phase <> 'closed')", [])
    }

    /// Removes a sink with everything that is pending for it.
    pub fn forget_sink(&self, name: &str) -> Result<(), Error> {
        self.execute("DELETE FROM sink WHERE name = ?1", [name]).map(drop)
    }

    /// Takes or renews the right to send. False while another holder's lease runs.
    pub fn lease(&self, sink: &str, holder: &str, now: Timestamp, until: Timestamp) -> Result<bool, Error> {
        self.execute(
            "UPDATE sink SET lease_holder = ?2, lease_until = ?4
             WHERE name = ?1 AND (lease_holder IS NULL OR lease_holder = ?2 OR lease_until IS NULL OR lease_until < ?3)",
            params![sink, holder, now, until],
        )
        .map(|taken| taken > 0)
    }

    /// Takes the right to send from a holder that is no more. False if it has changed hands meanwhile.
    pub fn seize(&self, sink: &str, holder: &str, from: &str, until: Timestamp) -> Result<bool, Error> {
        self.execute(
            "UPDATE sink SET lease_holder = ?2, lease_until = ?4 WHERE name = ?1 AND lease_holder = ?3",
            params![sink, holder, from, until],
        )
        .map(|taken| taken > 0)
    }

    pub fn release(&self, sink: &str, holder: &str) -> Result<(), Error> {
        self.execute(
            "UPDATE sink SET lease_holder = NULL, lease_until = NULL WHERE name = ?1 AND lease_holder = ?2",
            [sink, holder],
        )
        .map(drop)
    }

    /// Moves the cursor past the changes of a batch, which are dealt with. A cursor that was put back before `from` meanwhile
    /// stays where it is: events that a backfill sends again were not in the batch.
    pub fn pass(&self, sink: &str, from: i64, to: i64) -> Result<(), Error> {
        self.execute(
            "UPDATE sink SET cursor = max(cursor, ?3) WHERE name = ?1 AND cursor >= ?2",
            params![sink, from, to],
        )
        .map(drop)
    }

    /// The receiver works, and has these.
    pub fn delivered(&self, sink: &str, batch: &[Outgoing], at: Timestamp) -> Result<(), Error> {
        self.execute(
            "UPDATE sink SET failures = 0, retry_at = NULL, paused = NULL, asked_until = NULL, trouble = NULL,
                 last_delivered_at = ?2 WHERE name = ?1",
            params![sink, at],
        )?;
        let mut sessions: Vec<(&str, i64)> = batch.iter().map(|event| (&*event.session, event.n)).collect();
        sessions.sort_unstable();
        sessions.dedup_by_key(|(session, _)| *session);
        for (_, event) in sessions {
            self.execute(
                // The record published for a session that has ended is published again, with this.
                "UPDATE session SET last_delivered_at = ?2, unpublished = CASE phase WHEN 'closed' THEN 1 ELSE unpublished END
                 WHERE n = (SELECT session FROM event WHERE n = ?1)",
                params![event, at],
            )?;
        }
        Ok(())
    }

    /// `asked_until` is the receiver's `Retry-After`; `retry_at` is not earlier.
    pub fn set_backoff(
        &self,
        sink: &str,
        failures: i64,
        retry_at: Timestamp,
        asked_until: Option<Timestamp>,
        trouble: &str,
    ) -> Result<(), Error> {
        self.execute(
            "UPDATE sink SET failures = ?2, retry_at = ?3, asked_until = ?4, trouble = ?5 WHERE name = ?1",
            params![sink, failures, retry_at, asked_until, trouble],
        )
        .map(drop)
    }

    /// The same for an attempt out of turn, which does not count as one of the failures in a row.
    pub fn note_trouble(
        &self,
        sink: &str,
        asked_until: Option<Timestamp>,
        trouble: &str,
    ) -> Result<(), Error> {
        self.execute(
            "UPDATE sink SET asked_until = ?2, trouble = ?3 WHERE name = ?1",
            params![sink, asked_until, trouble],
        )
        .map(drop)
    }

    pub fn pause(&self, sink: &str, reason: Option<&str>) -> Result<(), Error> {
        self.execute("UPDATE sink SET paused = ?2 WHERE name = ?1", params![sink, reason]).map(drop)
    }

    /// Sends a sink the whole history, what was kept back too: imported sessions now count as reported.
    pub fn backfill(&self, sink: &str) -> Result<(), Error> {
        self.restamp("change IS NULL", [])?;
        self.execute("UPDATE sink SET since = 0, cursor = 0 WHERE name = ?1", [sink]).map(drop)
    }

    /// The session was opened again. If some of its events were kept back, or are older than one of the sinks, all of them get
    /// new positions in the outbox, so that every sink gets the whole session.
    pub fn requeue_session(&self, session: i64) -> Result<(), Error> {
        self.restamp("change IS NULL AND session = ?1", [session])?;
        let history = began_before("(SELECT max(since) FROM sink)");
        self.restamp(
            &format!("session = ?1 AND EXISTS (SELECT 1 FROM session s WHERE s.n = ?1 AND {history})"),
            [session],
        )
    }

    /// Gives events the next numbers of change, in their sessions' order.
    pub(super) fn restamp(&self, which: &str, params: impl rusqlite::Params) -> Result<(), Error> {
        let events = self.execute(
            &format!(
                "UPDATE event SET change = (SELECT change FROM outbox) + o.place
                 FROM (SELECT n, row_number() OVER (ORDER BY session, seq) AS place FROM event WHERE {which}) o
                 WHERE event.n = o.n"
            ),
            params,
        )?;
        let events = i64::try_from(events).unwrap_or(i64::MAX);
        self.execute("UPDATE outbox SET change = change + ?1", [events]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fate;
    use super::*;
    use crate::session::lifecycle::{self, ConversationStart};
    use crate::session::state::{Ending, Exit};
    use crate::session::testing::World;

    const NATIVE: &str = "native";

    fn world() -> (World, types::SessionId) {
        let mut world = World::new();
        world.store.write(|tx| tx.add_sink(NATIVE)).unwrap();
        let (_, started) = world.start(ConversationStart::Fresh);
        world.bind(started.session, "a").unwrap();
        (world, started.session)
    }

    fn waiting(world: &mut World) -> Vec<Outgoing> {
        world
            .store
            .read(|view| {
                let cursor = view.sink(NATIVE)?.unwrap().cursor;
                view.outgoing(0, cursor, i64::MAX, 100)
            })
            .unwrap()
    }

    fn arrived(tx: &Tx<'_>, batch: &[Outgoing], at: Timestamp) -> Result<(), Error> {
        let changes = || batch.iter().filter_map(|event| event.change);
        tx.pass(NATIVE, changes().min().unwrap() - 1, changes().max().unwrap())?;
        tx.delivered(NATIVE, batch, at)
    }

    fn sync(world: &mut World, session: types::SessionId) -> (i64, i64, i64) {
        let row = world.session(session);
        let sync = world.store.read(|view| view.sync(&row)).unwrap();
        (sync.pending, sync.delivered, sync.dead)
    }

    #[test]
    fn a_cursor_an_acknowledgement_and_a_revision() {
        let (mut world, session) = world();
        let batch = waiting(&mut world);
        assert_eq!(
            batch.iter().map(|event| event.attributes.type_name()).collect::<Vec<_>>(),
            ["session.start", "session.bound"]
        );
        assert_eq!(sync(&mut world, session), (2, 0, 0));
        // The START is revised while the batch is on its way.
        world.store.write(|tx| lifecycle::learn_version(tx, session, "2.1")).unwrap();
        let now = world.now;
        world.store.write(|tx| arrived(tx, &batch, now)).unwrap();
        let again = waiting(&mut world);
        assert_eq!(again.iter().map(|event| (event.seq, event.rev)).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(sync(&mut world, session), (1, 1, 0));
        world.store.write(|tx| arrived(tx, &again, now)).unwrap();
        assert!(waiting(&mut world).is_empty());
        assert_eq!(sync(&mut world, session), (0, 2, 0));
    }

    #[test]
    fn a_late_acknowledgement_of_an_old_batch_does_not_move_the_cursor_back() {
        let (mut world, _) = world();
        let batch = waiting(&mut world);
        let now = world.now;
        world.store.write(|tx| arrived(tx, &batch, now)).unwrap();
        world.store.write(|tx| arrived(tx, &batch[..1], now)).unwrap();
        assert!(waiting(&mut world).is_empty());
    }

    #[test]
    fn a_batch_that_was_on_its_way_does_not_swallow_a_backfill() {
        let (mut world, session) = world();
        let now = world.now;
        let early = waiting(&mut world);
        world.store.write(|tx| arrived(tx, &early, now)).unwrap();
        world.store.write(|tx| lifecycle::learn_version(tx, session, "2.1")).unwrap();
        let late = waiting(&mut world);
        world.store.write(|tx| tx.backfill(NATIVE)).unwrap();
        world.store.write(|tx| arrived(tx, &late, now)).unwrap();
        assert_eq!(waiting(&mut world).len(), 2, "everything is sent again");
    }

    #[test]
    fn dead_letters_are_seen_and_can_be_sent_again() {
        let (mut world, session) = world();
        let batch = waiting(&mut world);
        let now = world.now;
        world
            .store
            .write(|tx| {
                tx.put_letter(NATIVE, &batch[1], Fate::Dead, "rejected: no such thing", now)?;
                arrived(tx, &batch, now)
            })
            .unwrap();
        assert_eq!(sync(&mut world, session), (0, 1, 1));
        let letters = world.store.read(|view| view.letters(NATIVE, Fate::Dead, i64::MAX, 10)).unwrap();
        assert_eq!((letters.len(), letters[0].reason.as_str()), (1, "rejected: no such thing"));
        assert_eq!(letters[0].event, batch[1]);
        world.store.write(|tx| tx.drop_letter(NATIVE, &letters[0].event)).unwrap();
        assert_eq!(sync(&mut world, session), (0, 2, 0));
    }

    #[test]
    fn one_holder_at_a_time() {
        let (mut world, _) = world();
        let lease = |world: &mut World, holder: &str, now: i64, until: i64| {
            world.store.write(|tx| tx.lease(NATIVE, holder, Timestamp(now), Timestamp(until))).unwrap()
        };
        assert!(lease(&mut world, "a", 0, 100));
        assert!(!lease(&mut world, "b", 50, 150));
        assert!(lease(&mut world, "a", 50, 150), "renewed");
        assert!(lease(&mut world, "b", 151, 200), "run out");
        world.store.write(|tx| tx.release(NATIVE, "a")).unwrap();
        assert!(!lease(&mut world, "a", 152, 200), "only its holder gives it back");
        world.store.write(|tx| tx.release(NATIVE, "b")).unwrap();
        assert!(lease(&mut world, "a", 152, 200));
    }

    #[test]
    fn a_new_sink_gets_what_comes_and_a_backfill_the_rest() {
        let mut world = World::new();
        let (run, ended) = world.start(ConversationStart::Fresh);
        let (_, open) = world.start(ConversationStart::Fresh);
        world.bind(open.session, "a").unwrap();
        let at = world.now;
        world.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
        for _ in 0..2 {
            world.store.write(|tx| tx.add_sink(NATIVE)).unwrap();
        }
        world.check();
        // The open session whole, though part of it was older than the end of the other.
        let sent = waiting(&mut world);
        assert_eq!(sent.iter().map(|event| (event.seq, event.rev)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
        assert!(sent.iter().all(|event| *event.session == *open.session.to_string()));
        assert_eq!(sync(&mut world, ended.session), (0, 0, 0), "neither waiting nor delivered");
        world.store.write(|tx| tx.backfill(NATIVE)).unwrap();
        assert_eq!(sync(&mut world, ended.session), (2, 0, 0));
        assert_eq!(world.store.read(|view| Ok::<_, Error>(view.backlog()?.0)).unwrap(), 4);
    }
}
