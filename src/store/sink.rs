//! The sinks: how far each has got, who is sending to it, what it refused; and the events as they are sent.
//!
//! A sink's cursor is the last change it has dealt with. What it passed without delivering stands in `letter`: `dead`
//! (refused for good, until someone says again) or `deferred` (held by the sink's own rules). A lease lets one process
//! send at a time; sending twice is harmless all the same, since the receiver knows every event's id.
//!
//! A sender asks [`Store::make_durable`](super::Store::make_durable) first and sends nothing beyond what it answers.

use rusqlite::{Row, params};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Error, Tx, View};
use crate::clock::Timestamp;
use crate::money::PicoDollars;
use crate::session::state::{EventType, spelled};

spelled!(
    /// What became of an event that the cursor has passed, where that is not plainly "delivered".
    Fate {
        /// Refused for good, until someone says again.
        Dead = "dead",
        /// To be sent outside of the cursor's order: held by the sink's own rules, or once dead.
        Deferred = "deferred",
        /// Delivered to a sink that must not get it again, whatever becomes of it.
        Done = "done",
    }
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    pub name: String,
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
    /// Stands for address and credentials: with others, a pause is over.
    pub target: Option<String>,
}

/// How much is with a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCount {
    /// Not delivered yet, what its own rules hold back included.
    pub pending: i64,
    pub deferred: i64,
    pub dead: i64,
}

/// An event as it is sent, but for `machine` and `user`, which the sender knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    pub n: i64,
    pub id: Uuid,
    pub rev: i64,
    pub kind: EventType,
    pub session: String,
    pub seq: i64,
    pub time: Timestamp,
    pub agent: String,
    pub attributes: Value,
    /// `None` for one kept back until a backfill.
    pub change: Option<i64>,
}

/// One that was not delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    pub event: Outgoing,
    /// The revision it concerns; a later one has been queued anew.
    pub rev: i64,
    pub reason: String,
    pub at: Timestamp,
}

const SINK: &str = "name, cursor, lease_holder, lease_until, failures, retry_at, paused, last_delivered_at, asked_until, \
     trouble, target";

fn read_sink(row: &Row<'_>) -> rusqlite::Result<SinkRow> {
    Ok(SinkRow {
        name: row.get(0)?,
        cursor: row.get(1)?,
        lease_holder: row.get(2)?,
        lease_until: row.get(3)?,
        failures: row.get(4)?,
        retry_at: row.get(5)?,
        paused: row.get(6)?,
        last_delivered_at: row.get(7)?,
        asked_until: row.get(8)?,
        trouble: row.get(9)?,
        target: row.get(10)?,
    })
}

const OUTGOING: &str = "e.n, e.id, e.rev, e.type, ifnull(s.former_id, s.id), e.seq, e.time, s.agent, e.attributes, e.change, \
     r.key, r.model, r.input, r.output, r.cache_read, r.cache_write_5m + r.cache_write_1h, r.reasoning, r.cost, \
     r.subagent IS NOT NULL, r.tool, r.ok, r.tool_kind, r.file, r.lines_added, r.lines_removed, r.error_status, \
     r.error_kind";

const FROM: &str = "event e JOIN session s ON s.n = e.session LEFT JOIN record r ON r.n = e.record";

fn read_outgoing(row: &Row<'_>) -> rusqlite::Result<Outgoing> {
    let kind: EventType = row.get(3)?;
    let written: Option<String> = row.get(8)?;
    let attributes = match written {
        Some(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
        None => told_from_record(kind, row)?,
    };
    Ok(Outgoing {
        n: row.get(0)?,
        id: Uuid::from_bytes(row.get(1)?),
        rev: row.get(2)?,
        kind,
        session: row.get(4)?,
        seq: row.get(5)?,
        time: row.get(6)?,
        agent: row.get(7)?,
        attributes,
        change: row.get(9)?,
    })
}

/// Numbers and names of models and tools; of a file its extension, never its name.
fn told_from_record(kind: EventType, row: &Row<'_>) -> rusqlite::Result<Value> {
    let key: Option<String> = row.get(10)?;
    let number = |index: usize| row.get::<_, Option<i64>>(index);
    let text = |index: usize| row.get::<_, Option<String>>(index);
    Ok(match kind {
        EventType::Usage => json!({
            "key": key,
            "model": text(11)?,
            "inputTokens": number(12)?,
            "outputTokens": number(13)?,
            "cacheReadTokens": number(14)?,
            "cacheWriteTokens": number(15)?,
            "reasoningTokens": number(16)?,
            "costUsd": row.get::<_, Option<PicoDollars>>(17)?.map(PicoDollars::dollars),
            "subagent": row.get::<_, bool>(18)?,
            "source": "transcript",
        }),
        EventType::Tool => json!({
            "key": key,
            "name": text(19)?,
            "ok": row.get::<_, Option<bool>>(20)?,
            "kind": text(21)?,
            "fileExtension": text(22)?.as_deref().and_then(extension),
            "linesAdded": number(23)?,
            "linesRemoved": number(24)?,
        }),
        EventType::Error => json!({"key": key, "status": number(25)?, "kind": text(26)?.map(category)}),
        _ => json!({"key": key}),
    })
}

/// The name of a category, as the agents write it beside their own words; whatever does not look like one is `other`.
fn category(kind: String) -> String {
    let plain = (1..=40).contains(&kind.len()) && kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { kind } else { "other".to_owned() }
}

/// What kind of file it was. Something long or odd after the last dot is part of a name.
fn extension(file: &str) -> Option<String> {
    let name = file.rsplit(['/', '\\']).next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    let plain = !stem.is_empty()
        && (1..=10).contains(&extension.len())
        && extension.chars().all(|c| c.is_ascii_alphanumeric());
    plain.then(|| extension.to_ascii_lowercase())
}

impl View<'_> {
    pub fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        self.all(&format!("SELECT {SINK} FROM sink ORDER BY name"), [], read_sink)
    }

    pub fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        self.maybe(&format!("SELECT {SINK} FROM sink WHERE name = ?1"), [name], read_sink)
    }

    /// The events changed after one number up to another, oldest change first. The demo's are play and never sent.
    pub fn outgoing(&self, after: i64, up_to: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        self.changed_where("s.agent <> 'demo'", after, up_to, limit)
    }

    /// The same with the demo's, for whoever looks at this machine's own store.
    pub fn changed(&self, after: i64, up_to: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        self.changed_where("true", after, up_to, limit)
    }

    fn changed_where(
        &self,
        which: &str,
        after: i64,
        up_to: i64,
        limit: usize,
    ) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(
            &format!(
                "SELECT {OUTGOING} FROM {FROM} WHERE e.change > ?1 AND e.change <= ?2 AND {which}
                 ORDER BY e.change LIMIT ?3"
            ),
            [after, up_to, limit],
            read_outgoing,
        )
    }

    /// A session's events as they are, or would be, sent.
    pub fn outgoing_of(&self, session: i64) -> Result<Vec<Outgoing>, Error> {
        self.all(
            &format!("SELECT {OUTGOING} FROM {FROM} WHERE e.session = ?1 ORDER BY e.seq"),
            [session],
            read_outgoing,
        )
    }

    /// The events that are kept back, in the order they were written, after one of them.
    pub fn kept_back(&self, after: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(
            &format!(
                "SELECT {OUTGOING} FROM {FROM} WHERE e.n > ?1 AND e.change IS NULL ORDER BY e.n LIMIT ?2"
            ),
            [after, limit],
            read_outgoing,
        )
    }

    /// Those of them that were revised: a revision of one gives it no new place.
    pub fn kept_back_revised(&self) -> Result<Vec<Outgoing>, Error> {
        let imported = "s.imported_from IS NOT NULL AND e.change IS NULL AND e.rev > 0";
        self.all(&format!("SELECT {OUTGOING} FROM {FROM} WHERE {imported}"), [], read_outgoing)
    }

    /// How many sessions have told something.
    pub fn told_sessions(&self) -> Result<i64, Error> {
        self.one("SELECT count(*) FROM session WHERE last_seq > 0", [], |row| row.get(0))
    }

    /// The oldest of them first.
    pub fn letters(&self, sink: &str, fate: Fate, limit: usize) -> Result<Vec<Letter>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(
            &format!(
                "SELECT {OUTGOING}, l.rev, l.reason, l.at FROM {FROM} JOIN letter l ON l.event = e.n
                 WHERE l.sink = ?1 AND l.fate = ?2 ORDER BY l.at, e.n LIMIT ?3"
            ),
            params![sink, fate.as_str(), limit],
            |row| {
                Ok(Letter {
                    event: read_outgoing(row)?,
                    rev: row.get(27)?,
                    reason: row.get(28)?,
                    at: row.get(29)?,
                })
            },
        )
    }

    /// What a backfill would send: everything there is, oldest first.
    pub fn history(&self, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(
            &format!(
                "SELECT {OUTGOING} FROM {FROM} WHERE s.agent <> 'demo'
                 ORDER BY ifnull(e.change, 9223372036854775807), e.session, e.seq LIMIT ?1"
            ),
            [limit],
            read_outgoing,
        )
    }

    pub fn letter(&self, sink: &str, event: i64) -> Result<Option<Fate>, Error> {
        self.maybe("SELECT fate FROM letter WHERE sink = ?1 AND event = ?2", params![sink, event], |row| {
            row.get::<_, String>(0)
        })
        .map(|fate| fate.and_then(|fate| Fate::parse(&fate)))
    }

    pub fn sink_count(&self, sink: &SinkRow) -> Result<SinkCount, Error> {
        let ahead: i64 = self.one(
            "SELECT count(*) FROM event e JOIN session s ON s.n = e.session WHERE e.change > ?1 AND s.agent <> 'demo'",
            [sink.cursor],
            |row| row.get(0),
        )?;
        let (deferred, dead): (i64, i64) = self.one(
            "SELECT count(*) FILTER (WHERE l.fate = 'deferred'), count(*) FILTER (WHERE l.fate = 'dead')
             FROM letter l JOIN event e ON e.n = l.event WHERE l.sink = ?1 AND e.change <= ?2",
            params![sink.name, sink.cursor],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(SinkCount { pending: ahead + deferred, deferred, dead })
    }

    /// Whether a sink's cursor is behind, or something was deferred: whether it is worth looking closer.
    pub fn something_waits(&self, sink: &SinkRow) -> Result<bool, Error> {
        self.one(
            "SELECT (SELECT change FROM outbox) > ?2
                 OR EXISTS (SELECT 1 FROM letter WHERE sink = ?1 AND fate = 'deferred')",
            params![sink.name, sink.cursor],
            |row| row.get(0),
        )
    }

    /// The last change given out.
    pub fn last_change(&self) -> Result<i64, Error> {
        self.one("SELECT change FROM outbox", [], |row| row.get(0))
    }

    /// How much the outbox holds beyond the slowest sink: events, and an estimate of their bytes when sent.
    pub fn backlog(&self) -> Result<(i64, i64), Error> {
        self.one(
            "SELECT count(*), ifnull(sum(ifnull(length(e.attributes), 300) + 250), 0)
             FROM event e JOIN session s ON s.n = e.session
             WHERE e.change > (SELECT min(cursor) FROM sink) AND s.agent <> 'demo'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
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
        self.run("INSERT INTO sink (name, since, cursor) SELECT ?1, change, change FROM outbox", [name])?;
        // Moved up behind the new cursor. The other sinks get them once more, which their receivers do not mind.
        self.restamp("change IS NOT NULL AND session IN (SELECT n FROM session WHERE phase <> 'closed')", [])
    }

    pub fn remove_sink(&self, name: &str) -> Result<(), Error> {
        self.run("DELETE FROM sink WHERE name = ?1", [name]).map(drop)
    }

    /// Takes or renews the right to send. False while another holder's lease runs.
    pub fn lease(&self, sink: &str, holder: &str, now: Timestamp, until: Timestamp) -> Result<bool, Error> {
        self.run(
            "UPDATE sink SET lease_holder = ?2, lease_until = ?4
             WHERE name = ?1 AND (lease_holder IS NULL OR lease_holder = ?2 OR lease_until IS NULL OR lease_until < ?3)",
            params![sink, holder, now, until],
        )
        .map(|taken| taken > 0)
    }

    /// Takes the right to send from a holder that is no more. False if it has changed hands meanwhile.
    pub fn seize(&self, sink: &str, holder: &str, from: &str, until: Timestamp) -> Result<bool, Error> {
        self.run(
            "UPDATE sink SET lease_holder = ?2, lease_until = ?4 WHERE name = ?1 AND lease_holder = ?3",
            params![sink, holder, from, until],
        )
        .map(|taken| taken > 0)
    }

    pub fn release(&self, sink: &str, holder: &str) -> Result<(), Error> {
        self.run(
            "UPDATE sink SET lease_holder = NULL, lease_until = NULL WHERE name = ?1 AND lease_holder = ?2",
            [sink, holder],
        )
        .map(drop)
    }

    /// Everything of `batch` has arrived, or stands in a letter; all before it too.
    pub fn advance(&self, sink: &str, batch: &[Outgoing], at: Timestamp) -> Result<(), Error> {
        let Some(last) = batch.iter().filter_map(|event| event.change).max() else { return Ok(()) };
        self.pass(sink, last)?;
        self.delivered(sink, batch, at)
    }

    /// Nothing up to this change is left to be looked at.
    pub fn pass(&self, sink: &str, change: i64) -> Result<(), Error> {
        self.run("UPDATE sink SET cursor = max(cursor, ?2) WHERE name = ?1", params![sink, change]).map(drop)
    }

    /// The receiver works, and has these.
    pub fn delivered(&self, sink: &str, batch: &[Outgoing], at: Timestamp) -> Result<(), Error> {
        self.run(
            "UPDATE sink SET failures = 0, retry_at = NULL, paused = NULL, asked_until = NULL, trouble = NULL,
                 last_delivered_at = ?2 WHERE name = ?1",
            params![sink, at],
        )?;
        let mut sessions: Vec<(&str, i64)> =
            batch.iter().map(|event| (event.session.as_str(), event.n)).collect();
        sessions.sort_unstable();
        sessions.dedup_by_key(|(session, _)| *session);
        for (_, event) in sessions {
            self.run(
                // What was published of a session that has ended is told once more, with this.
                "UPDATE session SET last_delivered_at = ?2, unpublished = CASE phase WHEN 'closed' THEN 1 ELSE unpublished END
                 WHERE n = (SELECT session FROM event WHERE n = ?1)",
                params![event, at],
            )?;
        }
        Ok(())
    }

    pub fn put_letter(
        &self,
        sink: &str,
        event: &Outgoing,
        fate: Fate,
        reason: &str,
        at: Timestamp,
    ) -> Result<(), Error> {
        self.run(
            "INSERT OR REPLACE INTO letter (sink, event, fate, rev, reason, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![sink, event.n, fate.as_str(), event.rev, reason, at],
        )
        .map(drop)
    }

    /// It has arrived after all.
    pub fn drop_letter(&self, sink: &str, event: &Outgoing) -> Result<(), Error> {
        self.run("DELETE FROM letter WHERE sink = ?1 AND event = ?2", params![sink, event.n]).map(drop)
    }

    /// Every dead letter is to be sent once more; how many.
    pub fn revive_letters(&self, sink: &str) -> Result<usize, Error> {
        self.run("UPDATE letter SET fate = 'deferred' WHERE sink = ?1 AND fate = 'dead'", [sink])
    }

    /// `asked_until` is the receiver's own word, `retry_at` at least that.
    pub fn set_backoff(
        &self,
        sink: &str,
        failures: i64,
        retry_at: Timestamp,
        asked_until: Option<Timestamp>,
        trouble: &str,
    ) -> Result<(), Error> {
        self.run(
            "UPDATE sink SET failures = ?2, retry_at = ?3, asked_until = ?4, trouble = ?5 WHERE name = ?1",
            params![sink, failures, retry_at, asked_until, trouble],
        )
        .map(drop)
    }

    pub fn pause(&self, sink: &str, reason: Option<&str>) -> Result<(), Error> {
        self.run("UPDATE sink SET paused = ?2 WHERE name = ?1", params![sink, reason]).map(drop)
    }

    /// Notes where the sink leads. Another address or other credentials are another chance: pause and backoff are over.
    pub fn set_target(&self, sink: &str, target: &str) -> Result<(), Error> {
        self.run(
            "UPDATE sink SET target = ?2, paused = NULL, failures = 0, retry_at = NULL, asked_until = NULL, trouble = NULL
             WHERE name = ?1 AND target IS NOT ?2",
            params![sink, target],
        )
        .map(drop)
    }

    /// Sends a sink the whole history, what was kept back too: imported sessions now count as told.
    pub fn backfill(&self, sink: &str) -> Result<(), Error> {
        self.restamp("change IS NULL", [])?;
        self.run("UPDATE sink SET since = 0, cursor = 0 WHERE name = ?1", [sink]).map(drop)
    }

    /// The events of one session that were kept back take their place in the outbox.
    pub(crate) fn let_go_session(&self, session: i64) -> Result<(), Error> {
        self.restamp("change IS NULL AND session = ?1", [session])
    }

    /// Gives events the next numbers of change, in their sessions' order.
    fn restamp(&self, which: &str, params: impl rusqlite::Params) -> Result<(), Error> {
        let events =
            self.all(&format!("SELECT n FROM event WHERE {which} ORDER BY session, seq"), params, |row| {
                row.get::<_, i64>(0)
            })?;
        for event in events {
            let change = self.next_change()?;
            self.run("UPDATE event SET change = ?2 WHERE n = ?1", [event, change])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::lifecycle::{self, Conversation};
    use crate::session::state::{Ending, Exit};
    use crate::session::tests::{World, usage};

    const NATIVE: &str = "native";

    fn world() -> (World, crate::session::id::SessionId) {
        let mut world = World::new();
        world.store.write(|tx| tx.add_sink(NATIVE)).unwrap();
        let (_, started) = world.start(Conversation::Fresh);
        world.bind(started.session, "a").unwrap();
        (world, started.session)
    }

    fn waiting(world: &mut World) -> Vec<Outgoing> {
        world
            .store
            .read(|view| {
                let cursor = view.sink(NATIVE)?.unwrap().cursor;
                view.outgoing(cursor, i64::MAX, 100)
            })
            .unwrap()
    }

    fn sync(world: &mut World, session: crate::session::id::SessionId) -> (i64, i64, i64) {
        let row = world.session(session);
        let sync = world.store.read(|view| view.sync(&row)).unwrap();
        (sync.pending, sync.delivered, sync.dead)
    }

    #[test]
    fn a_cursor_an_acknowledgement_and_a_revision() {
        let (mut world, session) = world();
        let batch = waiting(&mut world);
        assert_eq!(
            batch.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(),
            ["session.start", "session.bound"]
        );
        assert_eq!(sync(&mut world, session), (2, 0, 0));
        // The START is revised while the batch is on its way.
        world.store.write(|tx| lifecycle::learn_version(tx, session, "2.1")).unwrap();
        let now = world.now;
        world.store.write(|tx| tx.advance(NATIVE, &batch, now)).unwrap();
        let again = waiting(&mut world);
        assert_eq!(again.iter().map(|event| (event.seq, event.rev)).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(sync(&mut world, session), (1, 1, 0));
        world.store.write(|tx| tx.advance(NATIVE, &again, now)).unwrap();
        assert!(waiting(&mut world).is_empty());
        assert_eq!(sync(&mut world, session), (0, 2, 0));
    }

    #[test]
    fn a_late_acknowledgement_of_an_old_batch_does_not_move_the_cursor_back() {
        let (mut world, _) = world();
        let batch = waiting(&mut world);
        let now = world.now;
        world.store.write(|tx| tx.advance(NATIVE, &batch, now)).unwrap();
        world.store.write(|tx| tx.advance(NATIVE, &batch[..1], now)).unwrap();
        assert!(waiting(&mut world).is_empty());
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
                tx.advance(NATIVE, &batch, now)
            })
            .unwrap();
        assert_eq!(sync(&mut world, session), (0, 1, 1));
        let letters = world.store.read(|view| view.letters(NATIVE, Fate::Dead, 10)).unwrap();
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
        let (run, ended) = world.start(Conversation::Fresh);
        let (_, open) = world.start(Conversation::Fresh);
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
        assert!(sent.iter().all(|event| event.session == open.session.to_string()));
        assert_eq!(sync(&mut world, ended.session), (0, 0, 0), "neither waiting nor delivered");
        world.store.write(|tx| tx.backfill(NATIVE)).unwrap();
        assert_eq!(sync(&mut world, ended.session), (2, 0, 0));
        assert_eq!(world.store.read(|view| Ok::<_, Error>(view.backlog()?.0)).unwrap(), 4);
    }

    #[test]
    fn what_is_told_of_a_record() {
        use crate::meter::record::{Fact, Tool, ToolKind};
        use crate::session::absorb::{Batch, absorb};
        let (mut world, session) = world();
        let at = world.now;
        let mut edit = usage("t1", at, 0);
        edit.record.fact = Fact::Tool(Tool {
            name: "Edit".into(),
            ok: true,
            kind: ToolKind::Edit,
            file: Some("/home/dev/secret-plan/canary.RS".into()),
            further: Vec::new(),
            lines_added: 3,
            lines_removed: 1,
        });
        let mut unpriced = usage("m1", at, 20);
        unpriced.cost = None;
        unpriced.record.subagent = Some("reviewer-of-canaries".into());
        let records = [unpriced, edit];
        let batch = Batch {
            file: super::super::FileId { device: 1, inode: 1 },
            path: "/f".as_ref(),
            from: 0,
            restart: false,
            to: 1,
            state: &[],
            unreadable: 0,
            records: &records,
        };
        world.store.write(|tx| absorb(tx, at, session, &batch)).unwrap();
        let told: Vec<_> = waiting(&mut world).into_iter().skip(2).map(|event| event.attributes).collect();
        assert_eq!(
            told,
            [
                json!({"key": "m1", "model": "claude-sonnet-4-5", "inputTokens": 10, "outputTokens": 20,
                    "cacheReadTokens": 1000, "cacheWriteTokens": 100, "reasoningTokens": 0, "costUsd": null,
                    "subagent": true, "source": "transcript"}),
                json!({"key": "t1", "name": "Edit", "ok": true, "kind": "edit", "fileExtension": "rs",
                    "linesAdded": 3, "linesRemoved": 1}),
            ]
        );
    }

    #[test]
    fn of_an_error_only_its_category() {
        for (kind, told) in [
            ("authentication_failed", "authentication_failed"),
            ("unknown", "unknown"),
            ("", "other"),
            ("cannot read /home/dev/plan", "other"),
            ("my-secret", "other"),
        ] {
            assert_eq!(category(kind.to_owned()), told);
        }
    }

    #[test]
    fn of_a_file_only_its_extension() {
        let table = [
            ("/a/b.rs", Some("rs")),
            ("b.TAR", Some("tar")),
            ("/a.b/c", None),
            ("/a/.env", None),
            ("/a/plan.of-the-coup", None),
            ("/a/x.averylongextension", None),
            ("C:\\a\\b.cs", Some("cs")),
            ("x.", None),
            ("", None),
        ];
        for (file, expected) in table {
            assert_eq!(extension(file).as_deref(), expected, "{file}");
        }
    }
}
