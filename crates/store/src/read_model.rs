//! What a dashboard's read model is made of: the events of sessions' lives, what each record counts for, and which sessions have
//! changed since the last look.
//!
//! All of a store is read by three queries, each through a table as it lies; one session by indexes.

use std::collections::{BTreeMap, HashMap};

use rusqlite::types::Value;
use rusqlite::{Params, params};

use super::outgoing::{FROM, Outgoing, OutgoingRow};
use super::record::RecordKind;
use super::row::{read_row, read_value};
use super::{Error, View};
use types::row::RowColumns;
use types::{EventKind, PicoDollars, Timestamp, Tokens, ToolKind, row};

row! {
    /// What a record counts for.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RecordNumbers from "r" {
        pub session: i64,
        /// `None` for a kind that a newer codemie has added.
        pub kind: Option<RecordKind> as String => |kind| RecordKind::parse(&kind),
        pub at: Timestamp,
        pub model: Option<String>,
        /// All zero for what is no API call.
        pub tokens: Tokens [row],
        pub cost: Option<PicoDollars>,
        pub ok: Option<bool>,
        pub lines_added: i64 as Option<i64> => Option::unwrap_or_default,
        pub lines_removed: i64 as Option<i64> => Option::unwrap_or_default,
    }
}

row! {
    /// The `seq`s of a session's events. With as many events as numbers between the two, none is missing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SeqSpan {
        pub session: i64,
        pub events: i64 = "count(*)",
        pub first: i64 = "min(seq)",
        pub last: i64 = "max(seq)",
    }
}

row! {
    /// How often a session has called a tool.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ToolCount from "r" {
        pub name: String = "r.tool",
        pub kind: Option<ToolKind> = "r.tool_kind",
        pub calls: i64 = "count(*)",
        pub errors: i64 = "count(*) FILTER (WHERE NOT r.ok)",
        pub lines_added: i64 = "CAST(total(r.lines_added) AS INTEGER)",
        pub lines_removed: i64 = "CAST(total(r.lines_removed) AS INTEGER)",
    }
}

/// Sessions: all, or one by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    All,
    Session(i64),
}

impl Whose {
    /// A condition on the column with the session's number, and its parameter.
    fn condition(self, column: &str) -> (String, Option<i64>) {
        match self {
            Self::All => ("true".to_owned(), None),
            Self::Session(n) => (format!("{column} = ?1"), Some(n)),
        }
    }
}

/// How far a reader has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventMark {
    /// The last change of the outbox.
    pub change: i64,
    /// The last of the events that are kept back, which have no change.
    pub kept_back: i64,
}

impl View<'_> {
    /// Everything up to now.
    pub fn event_mark(&self) -> Result<EventMark, Error> {
        let kept_back = "SELECT ifnull(max(n), 0) FROM event INDEXED BY event_kept_back WHERE change IS NULL";
        Ok(EventMark { change: self.last_change()?, kept_back: self.one(kept_back, [], read_value)? })
    }

    /// The sessions with an event that was added or revised after a mark, each with its latest.
    pub fn changed_sessions(&self, since: EventMark) -> Result<BTreeMap<i64, EventKind>, Error> {
        let changed = "SELECT session, type FROM event WHERE change > ?1 ORDER BY change";
        let changed: Vec<(i64, EventKind)> = self.all(changed, [since.change], read_row)?;
        // A revision of an event that is kept back takes a number of the outbox, and no event has it.
        let last = self.last_change()?;
        let unseen = i64::try_from(changed.len()).unwrap_or(i64::MAX) < last - since.change;
        let kept_back = "SELECT session, type FROM event INDEXED BY event_kept_back
                         WHERE change IS NULL AND (n > ?1 OR (?2 AND rev > 0)) ORDER BY n";
        let kept_back: Vec<(i64, EventKind)> =
            self.all(kept_back, params![since.kept_back, unseen], read_row)?;
        Ok(kept_back.into_iter().chain(changed).collect())
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> Result<i64, Error> {
        self.one("SELECT count(*) FROM session", [], read_value)
    }

    /// The numbers of all sessions that have events.
    pub fn numbers_with_events(&self) -> Result<Vec<i64>, Error> {
        self.all("SELECT n FROM session WHERE last_seq > 0", [], read_value)
    }

    /// Hands out the events that come of no record, in any order, each with the number of its session: START, bound, END and such, and
    /// those of an imported session. The last says that a record here is of the same call, which counts where that record is.
    pub fn each_event_without_record(
        &self,
        whose: Whose,
        mut each: impl FnMut(i64, Outgoing, bool),
    ) -> Result<(), Error> {
        let (condition, session) = whose.condition("e.session");
        let recorded = "CASE WHEN e.type IN ('usage', 'tool', 'prompt', 'error') THEN EXISTS (
            SELECT 1 FROM record known
            WHERE known.agent = s.agent AND known.kind = e.type AND known.key = json_extract(e.attributes, '$.key'))
            ELSE 0 END";
        let columns = OutgoingRow::COLUMNS;
        let sql = format!("SELECT {columns}, {recorded} FROM {FROM} WHERE e.record IS NULL AND {condition}");
        self.each(&sql, optional(session), |row| {
            let recorded: bool = row.get(OutgoingRow::WIDTH)?;
            let row: OutgoingRow = read_row(row)?;
            each(row.session_number(), row.publish(), recorded);
            Ok(())
        })
    }

    /// Hands out what each record counts for.
    pub fn each_record_numbers(
        &self,
        whose: Whose,
        mut each: impl FnMut(RecordNumbers),
    ) -> Result<(), Error> {
        let (condition, session) = whose.condition("r.session");
        let sql = RecordNumbers::select(&format!("FROM record r WHERE {condition}"));
        self.each(&sql, optional(session), |row| {
            each(read_row(row)?);
            Ok(())
        })
    }

    pub fn seq_spans(&self, whose: Whose) -> Result<HashMap<i64, SeqSpan>, Error> {
        let (condition, session) = whose.condition("session");
        let sql = SeqSpan::select(&format!("FROM event WHERE {condition} GROUP BY session"));
        let spans: Vec<SeqSpan> = self.all(&sql, optional(session), read_row)?;
        Ok(spans.into_iter().map(|span| (span.session, span)).collect())
    }

    /// The `seq`s of a session's events, in order.
    pub fn seqs(&self, session: i64) -> Result<Vec<i64>, Error> {
        self.all("SELECT seq FROM event WHERE session = ?1 ORDER BY seq", [session], read_value)
    }

    /// A session's events beyond a `seq`, in order.
    pub fn events_beyond(&self, session: i64, seq: i64, limit: usize) -> Result<Vec<Outgoing>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rest = format!("FROM {FROM} WHERE e.session = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3");
        self.all(&Outgoing::select(&rest), [session, seq, limit], read_row)
    }

    /// The tools that a session has called, in the order of their names.
    pub fn tool_counts(&self, session: i64) -> Result<Vec<ToolCount>, Error> {
        let rest = "FROM record r WHERE r.session = ?1 AND r.kind = 'tool' GROUP BY r.tool, r.tool_kind ORDER BY 1, 2";
        self.all(&ToolCount::select(rest), [session], read_row)
    }
}

/// No parameter, or this one.
fn optional(value: Option<i64>) -> impl Params {
    rusqlite::params_from_iter(value.map(Value::Integer))
}
