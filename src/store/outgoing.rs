//! The events as they are sent.

use rusqlite::Row;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Error, View, plain};
use wire::PicoDollars;
use wire::Timestamp;
use wire::{EventKind, EventType};

/// An event as it is sent, but for `machine` and `user`, which the sender knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    pub n: i64,
    pub id: Uuid,
    pub rev: i64,
    pub kind: EventKind,
    pub session: String,
    pub seq: i64,
    pub time: Timestamp,
    pub agent: String,
    pub attributes: Value,
    /// `None` for one kept back until a backfill.
    pub change: Option<i64>,
}

pub(super) const OUTGOING: &str = "e.n, e.id, e.rev, e.type, ifnull(s.former_id, s.id), e.seq, e.time, s.agent, e.attributes, e.change, \
     r.key, r.model, r.input, r.output, r.cache_read, r.cache_write_5m + r.cache_write_1h, r.reasoning, r.cost, \
     r.subagent IS NOT NULL, r.tool, r.ok, r.tool_kind, r.file, r.lines_added, r.lines_removed, r.error_status, \
     r.error_kind";

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
    let mut event = read_whole(row)?;
    plain::publish(event.kind.known(), &mut event.attributes);
    if event.agent.contains(['/', '\\']) {
        event.agent = plain::folder(&event.agent).into_owned();
    }
    Ok(event)
}

/// As it is here.
fn read_whole(row: &Row<'_>) -> rusqlite::Result<Outgoing> {
    // A newer codemie may write to the same store.
    let kind = EventKind::named(&row.get::<_, String>(3)?);
    let written: Option<String> = row.get(8)?;
    let attributes = match written {
        Some(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
        None => told_from_record(kind.known(), row)?,
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
fn told_from_record(kind: Option<EventType>, row: &Row<'_>) -> rusqlite::Result<Value> {
    let key: Option<String> = row.get(10)?;
    let number = |index: usize| row.get::<_, Option<i64>>(index);
    let text = |index: usize| row.get::<_, Option<String>>(index);
    Ok(match kind {
        Some(EventType::Usage) => json!({
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
        Some(EventType::Tool) => json!({
            "key": key,
            "name": text(19)?,
            "ok": row.get::<_, Option<bool>>(20)?,
            "kind": text(21)?,
            "fileExtension": text(22)?.as_deref().and_then(extension),
            "linesAdded": number(23)?,
            "linesRemoved": number(24)?,
        }),
        Some(EventType::Error) => {
            json!({"key": key, "status": number(25)?, "kind": text(26)?.map(|kind| plain::category(&kind).into_owned())})
        }
        _ => json!({"key": key}),
    })
}

/// What kind of file it was. Something long or odd after the last dot is part of a name.
pub(super) fn extension(file: &str) -> Option<String> {
    let name = file.rsplit(['/', '\\']).next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    let plain = !stem.is_empty()
        && (1..=10).contains(&extension.len())
        && extension.chars().all(|c| c.is_ascii_alphanumeric());
    plain.then(|| extension.to_ascii_lowercase())
}

impl View<'_> {
    /// What a sink whose part of the outbox begins after `since` gets of the events changed after one number up to another,
    /// oldest change first. Of a session that it cannot be told whole it gets nothing, and the demo's are play and never sent.
    pub fn outgoing(&self, since: i64, after: i64, up_to: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let whole = format!("s.local_only = 0 AND NOT {}", began_before(&since.to_string()));
        self.changed_where(&whole, after, up_to, limit)
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

    /// How many sessions have told something.
    pub fn told_sessions(&self) -> Result<i64, Error> {
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
    use super::*;
    use crate::session::lifecycle::Conversation;
    use crate::session::tests::{World, usage};

    #[test]
    fn what_is_told_of_a_record() {
        use crate::meter::record::{Fact, Tool};
        use crate::session::absorb::{Batch, absorb};
        use wire::ToolKind;
        let mut world = World::new();
        let (_, started) = world.start(Conversation::Fresh);
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
        let told: Vec<_> = sent.into_iter().skip(2).map(|event| event.attributes).collect();
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
            assert_eq!(plain::category(kind), told);
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
