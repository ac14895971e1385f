//! The receiver that a sink points to. Its address may change, even back and forth (a variable in one terminal, a setting in
//! the other), so each receiver's position in the outbox is kept while the sink points to another one.

use rusqlite::params;

use super::{Error, SinkRow, Tx};

/// A fingerprint of a receiver's address and of the credentials for it; neither can be read from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    pub address: String,
    pub credentials: String,
}

impl SinkRow {
    /// Whether it points to this receiver, with these credentials.
    pub fn leads_to(&self, target: &Fingerprint) -> bool {
        self.is_at(target) && self.credentials.as_ref() == Some(&target.credentials)
    }

    /// Whether it points to this address, with any credentials: several processes may send there, each with its own.
    pub fn is_at(&self, target: &Fingerprint) -> bool {
        self.address.as_ref() == Some(&target.address)
    }

    /// Whether it was taken out of the configuration: the address is kept, the credentials are not.
    pub fn is_retired(&self) -> bool {
        self.address.is_some() && self.credentials.is_none()
    }
}

impl Tx<'_> {
    /// Points the sink to a receiver. Another address or other credentials end a pause and the backoff, but a receiver that
    /// stays the same is still left alone for as long as it asked (`Retry-After`).
    ///
    /// Another address is another receiver. One that the sink pointed to before goes on at its old position. A new one has
    /// received nothing yet, and gets the sessions that are open now or have pending events, each from its first event on.
    pub fn point_to(&self, sink: &str, target: &Fingerprint) -> Result<(), Error> {
        let Some(before) = self.sink(sink)?.filter(|row| !row.leads_to(target)) else { return Ok(()) };
        self.execute(
            "UPDATE sink SET address = ?2, credentials = ?3, paused = NULL, failures = 0, retry_at = NULL,
                 asked_until = CASE WHEN address IS ?2 THEN asked_until END, trouble = NULL WHERE name = ?1",
            params![sink, target.address, target.credentials],
        )?;
        let Some(former) = before.address.filter(|address| *address != target.address) else { return Ok(()) };
        self.keep_position(sink, &former)?;
        let known = self.execute(
            "UPDATE sink SET since = f.since, cursor = f.cursor, last_delivered_at = f.last_delivered_at
             FROM former_address f WHERE sink.name = ?1 AND f.sink = ?1 AND f.address = ?2",
            [sink, &target.address],
        )?;
        if known > 0 {
            self.execute(
                "DELETE FROM former_address WHERE sink = ?1 AND address = ?2",
                [sink, &target.address],
            )?;
        } else {
            self.execute("UPDATE sink SET since = cursor, last_delivered_at = NULL WHERE name = ?1", [sink])?;
            self.restamp(
                "change IS NOT NULL AND session IN (SELECT n FROM session WHERE phase <> 'closed' UNION
                   SELECT session FROM event WHERE change > (SELECT cursor FROM sink WHERE name = ?1) UNION
                   SELECT e.session FROM letter l JOIN event e ON e.n = l.event WHERE l.sink = ?1 AND l.fate <> 'done')",
                [sink],
            )?;
        }
        // Letters are about what the former receiver got or refused.
        self.execute("DELETE FROM letter WHERE sink = ?1", [sink]).map(drop)
    }

    /// Keeps the position of the receiver at an address. If the sink points to it again, the events that it refused, or that
    /// were deferred, are sent once more: the kept cursor is before the first of them.
    fn keep_position(&self, sink: &str, address: &str) -> Result<(), Error> {
        self.execute(
            "INSERT OR REPLACE INTO former_address (sink, address, since, cursor, last_delivered_at)
             SELECT name, ?2, since, min(cursor, ifnull((SELECT min(e.change) - 1 FROM letter l JOIN event e ON e.n = l.event
                 WHERE l.sink = ?1 AND l.fate <> 'done'), cursor)), last_delivered_at FROM sink WHERE name = ?1",
            [sink, address],
        )
        .map(drop)
    }

    /// It points nowhere ([`SinkRow::is_retired`]) until it is set up again: a sender that still has its credentials sends
    /// nothing more.
    pub fn retire_sink(&self, sink: &str) -> Result<(), Error> {
        self.execute("UPDATE sink SET credentials = NULL WHERE name = ?1", [sink]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fate;
    use super::*;
    use crate::session::lifecycle::{self, ConversationStart};
    use crate::session::state::{Ending, Exit};
    use crate::session::testing::World;
    use types::SessionId;

    const SINK: &str = "backend";

    fn at(address: &str, credentials: &str) -> Fingerprint {
        Fingerprint { address: address.into(), credentials: credentials.into() }
    }

    fn point_to(world: &mut World, address: &str) {
        world.store.write(|tx| tx.point_to(SINK, &at(address, "c"))).unwrap();
    }

    fn row(world: &mut World) -> SinkRow {
        world.store.read(|view| view.sink(SINK)).unwrap().unwrap()
    }

    fn session(world: &mut World) -> SessionId {
        let (run, started) = world.start(ConversationStart::Fresh);
        let now = world.wait(1000);
        world.store.write(|tx| lifecycle::end(tx, now, run, Ending::exited(Exit::Code(0)))).unwrap();
        started.session
    }

    /// The sessions that something is sent of now, and everything is sent.
    fn sent(world: &mut World) -> Vec<String> {
        let SinkRow { since, cursor, .. } = row(world);
        let events = world.store.read(|view| view.outgoing(since, cursor, i64::MAX, 100)).unwrap();
        let last = world.store.read(|view| view.last_change()).unwrap();
        world.store.write(|tx| tx.pass(SINK, cursor, last)).unwrap();
        let mut sessions: Vec<String> = events.into_iter().map(|event| event.session.to_string()).collect();
        sessions.dedup();
        sessions
    }

    #[test]
    fn each_address_goes_on_at_its_own_position() {
        let mut world = World::new();
        world.store.write(|tx| tx.add_sink(SINK)).unwrap();
        point_to(&mut world, "a");
        let first = [session(&mut world).to_string()];
        assert_eq!(sent(&mut world), first);
        point_to(&mut world, "b");
        assert_eq!(sent(&mut world), [""; 0], "history to it");
        let second = [session(&mut world).to_string()];
        assert_eq!(sent(&mut world), second);
        point_to(&mut world, "a");
        assert_eq!(world.store.read(|view| view.sessions_before(SINK)).unwrap(), 0);
        assert_eq!(sent(&mut world), second, "what ended while it was away");
        let third = [session(&mut world).to_string()];
        assert_eq!(sent(&mut world), third);
        point_to(&mut world, "b");
        assert_eq!(world.store.read(|view| view.sessions_before(SINK)).unwrap(), 1, "still history to it");
        assert_eq!(sent(&mut world), third);
    }

    #[test]
    fn events_that_an_address_refused_are_sent_again_when_it_comes_back() {
        let mut world = World::new();
        world.store.write(|tx| tx.add_sink(SINK)).unwrap();
        point_to(&mut world, "a");
        let refused = session(&mut world).to_string();
        let (now, cursor) = (world.now, row(&mut world).cursor);
        let events = world.store.read(|view| view.outgoing(0, cursor, i64::MAX, 100)).unwrap();
        world.store.write(|tx| tx.put_letter(SINK, &events[1], Fate::Dead, "no", now)).unwrap();
        sent(&mut world);
        point_to(&mut world, "b");
        sent(&mut world);
        point_to(&mut world, "a");
        assert_eq!(sent(&mut world), [refused]);
    }

    #[test]
    fn other_credentials_end_a_pause_and_move_nothing() {
        let mut world = World::new();
        world.store.write(|tx| tx.add_sink(SINK)).unwrap();
        point_to(&mut world, "a");
        world.store.write(|tx| tx.pause(SINK, Some("refused"))).unwrap();
        point_to(&mut world, "a");
        assert_eq!(row(&mut world).paused.as_deref(), Some("refused"), "the same");
        session(&mut world);
        let cursor = row(&mut world).cursor;
        world.store.write(|tx| tx.point_to(SINK, &at("a", "d"))).unwrap();
        assert_eq!((row(&mut world).paused, row(&mut world).cursor), (None, cursor));
        world.store.write(|tx| tx.retire_sink(SINK)).unwrap();
        assert!(row(&mut world).is_retired() && !row(&mut world).leads_to(&at("a", "d")));
    }
}
