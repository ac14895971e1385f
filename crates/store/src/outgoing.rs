//! The events as they are sent.

use std::ops::Deref;

use rusqlite::{Row, params};

use super::proxied::ProxyColumns;
use super::record::{ErrorColumns, ToolColumns, UsageColumns};
use super::row::read_row;
use super::{Error, EventRow, SinkRow, View};
use types::event::{ApiError, Cost, Dimension, Key, Prompt, Source, Text, Timing, Tool, Usage};
use types::row::{FromRow, RowColumns, RowReader};
use types::{Attributes, Event, EventKind, EventType, Timestamp, redact, row};

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

row! {
    /// An event with its session and the record it is told from.
    pub(super) struct OutgoingRow from "s" {
        event: EventRow [row],
        session: Text = "ifnull(s.former_id, s.id)" as String => Text::cut,
        agent: Dimension as String => Dimension::cut,
        record: RecordColumns [row],
    }
}

row! {
    /// Columns of the record that an event is told from, if it is told from one.
    struct RecordColumns from "r" {
        key: Option<String>,
        in_subagent: bool = "r.subagent IS NOT NULL",
        usage: Option<UsageColumns> [row],
        tool: Option<ToolColumns> [row],
        error: Option<ErrorColumns> [row],
        proxy: Option<ProxyColumns> [row],
        source: Option<Source>,
        branch: Option<String>,
        head: Option<String>,
    }
}

pub(super) const FROM: &str =
    "event e JOIN session s ON s.n = e.session LEFT JOIN record r ON r.n = e.record";

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

impl OutgoingRow {
    /// The number of its session.
    pub(super) fn session_number(&self) -> i64 {
        self.event.session
    }

    /// As it may be sent: names that are no plain ones stay here.
    pub(super) fn publish(self) -> Outgoing {
        let mut outgoing = self.whole();
        let event = &mut outgoing.event;
        redact::publish(&mut event.attributes);
        if event.agent.contains(['/', '\\']) {
            event.agent = Dimension::cut(redact::folder(&event.agent).into_owned());
        }
        outgoing
    }

    /// As it is here.
    fn whole(self) -> Outgoing {
        let row = self.event;
        let attributes = match row.attributes {
            // A newer codemie may write to the same store.
            Some(json) => Attributes::written(row.kind, &json),
            None => self.record.attributes(row.kind),
        };
        let event = Event {
            id: row.id,
            rev: row.rev,
            session: self.session,
            seq: row.seq,
            time: row.time,
            agent: self.agent,
            machine: None,
            user: None,
            attributes,
        };
        Outgoing { n: row.n, change: row.change, event }
    }
}

impl RecordColumns {
    /// Numbers and names of models and tools; of a file its extension, never its name.
    fn attributes(self, kind: EventKind) -> Attributes {
        let key = Key(self.key);
        match (kind, self.usage, self.tool, self.error) {
            (EventKind::Known(EventType::Usage), Some(usage), ..) => {
                let (tokens, proxy) = (usage.tokens, self.proxy.as_ref());
                let count = |count: u64| count.into();
                let timing = |of: fn(&ProxyColumns) -> Option<u64>| {
                    proxy.and_then(of).map_or(Timing::NONE, |ms| Timing::from(super::row::count(ms)))
                };
                Attributes::Usage(Usage {
                    aborted: proxy.is_some_and(|proxy| proxy.aborted).into(),
                    attempt: proxy.map(|proxy| i64::from(proxy.attempt).into()),
                    billing: proxy.and_then(|proxy| proxy.billing),
                    branch: self.branch.map(Text::cut),
                    cache_read_tokens: count(tokens.cache_read),
                    cache_write_tokens: count(tokens.cache_write()),
                    cost_usd: usage.cost.map(Cost),
                    head: self.head.map(Text::cut),
                    input_tokens: count(tokens.input),
                    key,
                    kind: proxy.map(|proxy| proxy.kind),
                    latency_ms: timing(|proxy| Some(proxy.latency_ms)),
                    model: Dimension::cut(usage.model),
                    output_tokens: count(tokens.output),
                    reasoning_tokens: count(tokens.reasoning),
                    source: self.source.or(Some(Source::Transcript)),
                    subagent: self.in_subagent.into(),
                    ttft_ms: timing(|proxy| proxy.ttft_ms),
                })
            }
            (EventKind::Known(EventType::Tool), _, Some(tool), _) => Attributes::Tool(Tool {
                file_extension: tool.file.as_deref().and_then(redact::extension).map(Text::cut),
                key,
                kind: Some(tool.kind),
                lines_added: tool.lines_added.into(),
                lines_removed: tool.lines_removed.into(),
                name: Text::cut(tool.name),
                ok: Some(tool.ok),
            }),
            (EventKind::Known(EventType::Error), _, _, error) => {
                let (status, kind) = error.map(|error| (error.status, error.kind)).unzip();
                Attributes::Error(ApiError {
                    key,
                    kind: kind.map(|kind| Text::cut(redact::category(&kind).into_owned())),
                    status: status.flatten().map(|status| i64::from(status).into()),
                })
            }
            (EventKind::Known(EventType::Prompt), ..) => Attributes::Prompt(Prompt { key }),
            (EventKind::Known(kind), ..) => Attributes::unreadable(kind),
            (other @ EventKind::Other(_), ..) => Attributes::written(other, "{}"),
        }
    }
}

impl RowColumns for Outgoing {
    const COLUMNS: &'static str = OutgoingRow::COLUMNS;
    const WIDTH: usize = OutgoingRow::WIDTH;
}

impl FromRow<Row<'_>> for Outgoing {
    fn read(reader: &mut RowReader<'_, Row<'_>>) -> rusqlite::Result<Self> {
        OutgoingRow::read(reader).map(OutgoingRow::publish)
    }
}

/// What is selected of an event.
const OUTGOING: &str = Outgoing::COLUMNS;

impl View<'_> {
    /// What a sink whose part of the outbox begins after `since` gets of the events changed after one number up to another,
    /// oldest change first. Of a session that began before that, and of the demo, it gets nothing.
    pub fn outgoing(&self, since: i64, after: i64, up_to: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let whole = format!("s.local_only = 0 AND NOT {}", began_before(&since.to_string()));
        self.all(
            &format!(
                "SELECT {OUTGOING} FROM {FROM} WHERE e.change > ?1 AND e.change <= ?2 AND {whole}
                 ORDER BY e.change LIMIT ?3"
            ),
            [after, up_to, limit],
            read_row,
        )
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
            read_row,
        )
    }

    /// A session's events as they are here: for an export, and for what never leaves this machine.
    pub fn outgoing_of(&self, session: i64) -> Result<Vec<Outgoing>, Error> {
        self.all(
            &format!("SELECT {OUTGOING} FROM {FROM} WHERE e.session = ?1 ORDER BY e.seq"),
            [session],
            |row| read_row(row).map(OutgoingRow::whole),
        )
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
            read_row,
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
