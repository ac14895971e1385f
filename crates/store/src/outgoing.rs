//! The events as they are sent.

use std::ops::Deref;

use rusqlite::{Row, params};
use uuid::Uuid;

use super::proxied::billing;
use super::{Error, SinkRow, View};
use types::event::{ApiError, Cost, Dimension, Key, Prompt, Source, Text, Timing, Tool, Usage};
use types::{Attributes, CallKind, Event, EventKind, EventType, Timestamp, plain};

/// An event as it is sent, with its place in this store. The sender knows `machine` and `user`.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    pub n: i64,
    /// `None` for one kept back until a backfill.
    pub change: Option<i64>,
    pub event: Event,
}

impl Deref for Outgoing {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

pub(super) const OUTGOING: &str = "e.n, e.id, e.rev, e.type, ifnull(s.former_id, s.id), e.seq, e.time, s.agent, e.attributes, e.change, \
     r.key, r.model, r.input, r.output, r.cache_read, r.cache_write_5m + r.cache_write_1h, r.reasoning, r.cost, \
     r.subagent IS NOT NULL, r.tool, r.ok, r.tool_kind, r.file, r.lines_added, r.lines_removed, r.error_status, \
     r.error_kind, r.source, r.latency_ms, r.ttft_ms, r.call_kind, r.aborted, r.attempt, r.branch, r.head, r.billing";
/// How many columns these are.
pub(super) const OUTGOING_COLUMNS: usize = 36;

pub(super) const FROM: &str =
    "event e JOIN session s ON s.n = e.session LEFT JOIN record r ON r.n = e.record";

/// The same by the index of the few that are kept back.
const KEPT_BACK: &str = "event e INDEXED BY event_kept_back JOIN session s ON s.n = e.session LEFT JOIN record r ON r.n = e.record";

/// Whether something that the session `s` has lived through is from before a sink's part of the outbox begins. What it was
/// bound by is never revised, so that stays where it is whatever comes late; and a session that was never bound has nothing
/// between its START and its END.
pub(super) fn began_before(since: &str) -> String {
    format!(
        // Of the index that holds all of a session's events it would read them all, for each of them.
        "EXISTS (SELECT 1 FROM event life INDEXED BY event_of_life
           WHERE life.session = s.n AND life.record IS NULL AND life.change <= {since})"
    )
}

/// As it may be sent: names that are no plain ones stay here.
pub(super) fn read_outgoing(row: &Row<'_>) -> rusqlite::Result<Outgoing> {
    let mut outgoing = read_whole(row)?;
    let event = &mut outgoing.event;
    plain::publish(&mut event.attributes);
    if event.agent.contains(['/', '\\']) {
        event.agent = Dimension::cut(plain::folder(&event.agent).into_owned());
    }
    Ok(outgoing)
}

/// As it is here.
fn read_whole(row: &Row<'_>) -> rusqlite::Result<Outgoing> {
    let kind = row.get_ref(3)?.as_str()?;
    let written = row.get_ref(8)?.as_str_or_null()?;
    let attributes = match written {
        // A newer codemie may write to the same store.
        Some(json) => Attributes::written(EventKind::named(kind), json),
        None => of_record(EventKind::named(kind), row)?,
    };
    let event = Event {
        id: Uuid::from_bytes(row.get(1)?),
        rev: row.get(2)?,
        session: Text::cut(row.get(4)?),
        seq: row.get(5)?,
        time: row.get(6)?,
        agent: Dimension::cut(row.get(7)?),
        machine: None,
        user: None,
        attributes,
    };
    Ok(Outgoing { n: row.get(0)?, change: row.get(9)?, event })
}

/// Numbers and names of models and tools; of a file its extension, never its name.
fn of_record(kind: EventKind, row: &Row<'_>) -> rusqlite::Result<Attributes> {
    let key = Key(row.get(10)?);
    let number = |index: usize| row.get::<_, Option<i64>>(index);
    let added = |index: usize| number(index).map(Into::into);
    let timing = |index: usize| number(index).map(|time| time.map_or(Timing::NONE, Timing::from));
    let text = |index: usize| row.get::<_, Option<String>>(index);
    Ok(match kind {
        EventKind::Known(EventType::Usage) => {
            let Some(model) = text(11)? else { return Ok(Attributes::unreadable(EventType::Usage)) };
            Attributes::Usage(Usage {
                aborted: row.get::<_, Option<bool>>(31)?.unwrap_or(false).into(),
                attempt: number(32)?.map(Into::into),
                billing: billing(row, 35)?,
                branch: text(33)?.map(Text::cut),
                cache_read_tokens: added(14)?,
                cache_write_tokens: added(15)?,
                cost_usd: row.get::<_, Option<_>>(17)?.map(Cost),
                head: text(34)?.map(Text::cut),
                input_tokens: added(12)?,
                key,
                kind: text(30)?.map(|kind| CallKind::parse(&kind).unwrap_or(CallKind::Other)),
                latency_ms: timing(28)?,
                model: Dimension::cut(model),
                output_tokens: added(13)?,
                reasoning_tokens: added(16)?,
                source: row.get::<_, Option<_>>(27)?.or(Some(Source::Transcript)),
                subagent: row.get::<_, bool>(18)?.into(),
                ttft_ms: timing(29)?,
            })
        }
        EventKind::Known(EventType::Tool) => {
            let Some(name) = text(19)? else { return Ok(Attributes::unreadable(EventType::Tool)) };
            Attributes::Tool(Tool {
                file_extension: text(22)?.as_deref().and_then(plain::extension).map(Text::cut),
                key,
                kind: row.get(21)?,
                lines_added: added(23)?,
                lines_removed: added(24)?,
                name: Text::cut(name),
                ok: row.get(20)?,
            })
        }
        EventKind::Known(EventType::Error) => Attributes::Error(ApiError {
            key,
            kind: text(26)?.map(|kind| Text::cut(plain::category(&kind).into_owned())),
            status: number(25)?.map(Into::into),
        }),
        EventKind::Known(EventType::Prompt) => Attributes::Prompt(Prompt { key }),
        EventKind::Known(kind) => Attributes::unreadable(kind),
        other @ EventKind::Other(_) => Attributes::written(other, "{}"),
    })
}

impl View<'_> {
    /// What a sink whose part of the outbox begins after `since` gets of the events changed after one number up to another,
    /// oldest change first. Of a session that began before that, and of the demo, it gets nothing.
    pub fn outgoing(&self, since: i64, after: i64, up_to: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let whole = format!("s.local_only = 0 AND NOT {}", began_before(&since.to_string()));
        self.changed_where(&whole, after, up_to, limit)
    }

    /// What a sink has taken of events of this time or later: those that its cursor has passed, but for what it refused or what
    /// waits apart from the others.
    pub fn delivered(&self, sink: &SinkRow, since: Timestamp, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let whole = format!("s.local_only = 0 AND NOT {}", began_before(&sink.since.to_string()));
        self.all(
            &format!(
                "SELECT {OUTGOING} FROM {FROM}
                 WHERE e.change > ?1 AND e.change <= ?2 AND e.time >= ?3 AND {whole} AND NOT EXISTS (
                   SELECT 1 FROM letter l
                   WHERE l.sink = ?4 AND l.event = e.n AND l.fate IN ('deferred', 'dead') AND l.told = 0)
                 ORDER BY e.change LIMIT ?5"
            ),
            params![sink.since, sink.cursor, since, sink.name, limit],
            read_outgoing,
        )
    }

    /// The same without these limits, for the dashboard of this machine.
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

    /// A session's events as they are here: for an export, and for what never leaves this machine.
    pub fn outgoing_of(&self, session: i64) -> Result<Vec<Outgoing>, Error> {
        self.all(
            &format!("SELECT {OUTGOING} FROM {FROM} WHERE e.session = ?1 ORDER BY e.seq"),
            [session],
            read_whole,
        )
    }

    /// The events that are kept back, in the order they were written, after one of them.
    pub fn kept_back(&self, after: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(
            &format!(
                "SELECT {OUTGOING} FROM {KEPT_BACK} WHERE e.n > ?1 AND e.change IS NULL ORDER BY e.n LIMIT ?2"
            ),
            [after, limit],
            read_outgoing,
        )
    }

    /// Those of them that were revised: a revision of one gives it no new place.
    pub fn kept_back_revised(&self) -> Result<Vec<Outgoing>, Error> {
        let imported = "s.imported_from IS NOT NULL AND e.change IS NULL AND e.rev > 0";
        self.all(&format!("SELECT {OUTGOING} FROM {KEPT_BACK} WHERE {imported}"), [], read_outgoing)
    }

    /// How many sessions have at least one event.
    pub fn sessions_with_events(&self) -> Result<i64, Error> {
        self.one("SELECT count(*) FROM session WHERE last_seq > 0", [], |row| row.get(0))
    }

    /// What a backfill would send: everything there is, oldest first.
    pub fn history(&self, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(
            &format!(
                "SELECT {OUTGOING} FROM {FROM} WHERE s.local_only = 0
                 ORDER BY ifnull(e.change, 9223372036854775807), e.session, e.seq LIMIT ?1"
            ),
            [limit],
            read_outgoing,
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::session::lifecycle::ConversationStart;
    use crate::session::testing::{World, usage};

    #[test]
    fn an_event_carries_numbers_and_names_but_no_path() {
        use crate::session::absorb::{Batch, absorb};
        use agents::meter::record::{Fact, Tool};
        use types::ToolKind;
        let mut world = World::new();
        let (_, started) = world.start(ConversationStart::Fresh);
        let session = started.session;
        world.bind(session, "a").unwrap();
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
        let sent = world.store.read(|view| view.outgoing(0, 0, i64::MAX, 100)).unwrap();
        let attributes: Vec<_> =
            sent.into_iter().skip(2).map(|event| serde_json::to_value(&event.attributes).unwrap()).collect();
        assert_eq!(
            attributes,
            [
                json!({"key": "m1", "model": "claude-sonnet-4-5", "inputTokens": 10, "outputTokens": 20,
                    "cacheReadTokens": 1000, "cacheWriteTokens": 100, "reasoningTokens": 0, "costUsd": null,
                    "subagent": true, "source": "transcript"}),
                json!({"key": "t1", "name": "Edit", "ok": true, "kind": "edit", "fileExtension": "rs",
                    "linesAdded": 3, "linesRemoved": 1}),
            ]
        );
    }
}
