//! SQL for both databases, their few differences, and the readers of their rows.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;

use super::intake::StoredEvent;
use crate::slot::QUARTERS;
use reader::Error;
use reader::Seqs;
use reader::token::{Owner, Role, Token, TokenHash};
use reader::{CARRY, Numbers};
use reader::{Day, Quarter, Session};
use types::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// True where `column` contains the text.
    pub fn contains(self, column: &str, parameter: &str) -> String {
        match self {
            Self::Sqlite => format!("instr({column}, {parameter}) > 0"),
            Self::Postgres => format!("strpos({column}, {parameter}) > 0"),
        }
    }

    /// A sum in 64 bits. What is beyond them is the most they hold, where a plain sum would be an error.
    pub fn sum(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("CAST(total({column}) AS INTEGER)"),
            Self::Postgres => format!("least(sum({column}), {})::bigint", i64::MAX),
        }
    }

    /// All money in the rows, in pico-dollars, which needs more than 64 bits.
    pub fn money_sum(self, prefix: &str) -> String {
        match self {
            Self::Sqlite => format!("(total({prefix}cost) + {CARRY}.0 * total({prefix}cost_carried))"),
            Self::Postgres => {
                format!("(sum({prefix}cost) + {CARRY} * sum({prefix}cost_carried))::float8")
            }
        }
    }

    /// An event's id as text.
    pub fn shown_id(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("hex({column})"),
            Self::Postgres => format!("{column}::text"),
        }
    }

    /// An event's id, given as 32 hexadecimal digits.
    pub fn given_id(self, parameter: &str) -> String {
        match self {
            Self::Sqlite => format!("unhex({parameter})"),
            Self::Postgres => format!("{parameter}::text::uuid"),
        }
    }

    /// True where `column` is one of several values. The text does not depend on how many they are.
    pub fn among(self, column: &str, parameter: &str) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT value FROM json_each({parameter}))"),
            Self::Postgres => format!("{column} = ANY({parameter})"),
        }
    }

    /// A column that is compared without going by its index. SQLite keeps no statistics, and would take any index whose
    /// column is equal to something for better than one of few rows.
    pub fn not_by(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("+{column}"),
            Self::Postgres => column.to_owned(),
        }
    }

    /// True where a sum is not zero, however large.
    pub fn any_sum(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("total({column}) <> 0"),
            Self::Postgres => format!("sum({column}) <> 0"),
        }
    }

    /// A number in a JSON object.
    pub fn json_number(self, column: &str, field: &str) -> String {
        match self {
            Self::Sqlite => format!("({column} ->> '{field}')"),
            Self::Postgres => format!("({column}::json ->> '{field}')::float8"),
        }
    }

    /// A text up to its first line end.
    pub fn first_line(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("substr({column}, 1, instr({column} || char(10), char(10)) - 1)"),
            Self::Postgres => format!("split_part({column}, chr(10), 1)"),
        }
    }

    /// How long a session was open before its last END, from its stored life.
    pub fn closed_duration(self, life: &str) -> String {
        match self {
            // Without a path: a dollar sign would be taken for a parameter.
            Self::Sqlite => format!("coalesce({life} -> 'end' -> 'said' ->> 'durationMs', 0)"),
            Self::Postgres => format!("coalesce(({life}::json #>> '{{end,said,durationMs}}')::bigint, 0)"),
        }
    }

    /// The sum of columns, within 64 bits.
    pub fn bounded_sum(self, columns: &[&str]) -> String {
        match self {
            Self::Sqlite => format!("min({}, {})", columns.join(" + "), i64::MAX),
            Self::Postgres => {
                let columns: Vec<_> = columns.iter().map(|column| format!("{column}::numeric")).collect();
                format!("least({}, {})::bigint", columns.join(" + "), i64::MAX)
            }
        }
    }

    /// True where a field of a JSON object is `false`.
    pub fn json_false(self, column: &str, field: &str) -> String {
        match self {
            Self::Sqlite => format!("({column} ->> '{field}') = 0"),
            Self::Postgres => format!("{column}::json ->> '{field}' = 'false'"),
        }
    }

    /// Ranges of numbers as a table `r`, with a row (`lo`, `hi`) for each.
    pub fn ranges(self, first: &str, last: &str) -> String {
        match self {
            Self::Sqlite => format!(
                "(SELECT lo.value AS lo, hi.value AS hi FROM json_each({first}) lo CROSS JOIN json_each({last}) hi
                  WHERE hi.key = lo.key) r"
            ),
            Self::Postgres => format!("unnest({first}::bigint[], {last}::bigint[]) AS r (lo, hi)"),
        }
    }

    /// The different values where a condition holds, as a JSON array.
    pub fn distinct(self, column: &str, condition: &str) -> String {
        match self {
            Self::Sqlite => format!("json_group_array(DISTINCT {column}) FILTER (WHERE {condition})"),
            Self::Postgres => format!("json_agg(DISTINCT {column}) FILTER (WHERE {condition})::text"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Text(String),
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

/// A statement with its parameters, `$1` on.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub sql: String,
    pub values: Vec<Value>,
}

impl Query {
    pub fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), values: Vec::new() }
    }

    /// Adds a parameter and gives its name in the text.
    pub fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    pub fn push(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    /// `AND column = value`, if there is one.
    pub fn and_equal(&mut self, column: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            let parameter = self.bind(value);
            self.push(&format!(" AND {column} = {parameter}"));
        }
    }

    pub fn and(&mut self, left: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            let parameter = self.bind(value);
            self.push(&format!(" AND {left} {parameter}"));
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<Timestamp> for Value {
    fn from(value: Timestamp) -> Self {
        Self::Int(value.0)
    }
}

impl From<Day> for Value {
    fn from(value: Day) -> Self {
        Self::Int(i64::from(value.0))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<i64>> for Value {
    fn from(value: Vec<i64>) -> Self {
        Self::Ints(value)
    }
}

impl From<Vec<String>> for Value {
    fn from(value: Vec<String>) -> Self {
        Self::Texts(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// A row of an answer of either database, its columns by name.
pub trait Columns {
    fn int(&self, column: &str) -> Result<Option<i64>, Error>;
    fn text(&self, column: &str) -> Result<Option<String>, Error>;
    fn float(&self, column: &str) -> Result<Option<f64>, Error>;
    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, Error>;
}

pub type Decode<T> = fn(&dyn Columns) -> Result<T, Error>;

pub fn int(row: &dyn Columns, column: &str) -> Result<i64, Error> {
    Ok(row.int(column)?.unwrap_or(0))
}

pub fn text(row: &dyn Columns, column: &str) -> Result<String, Error> {
    Ok(row.text(column)?.unwrap_or_default())
}

pub fn time(row: &dyn Columns, column: &str) -> Result<Timestamp, Error> {
    int(row, column).map(Timestamp)
}

pub fn day(row: &dyn Columns, column: &str) -> Result<Day, Error> {
    int(row, column).map(|day| Day(i32::try_from(day).unwrap_or(i32::MAX)))
}

/// The columns of [`Numbers`].
pub fn numbers(row: &dyn Columns) -> Result<Numbers, Error> {
    let mut values = [0; Numbers::COUNT];
    for (value, column) in values.iter_mut().zip(Numbers::COLUMNS) {
        *value = int(row, column)?;
    }
    Ok(Numbers::from_values(values).carried())
}

/// The columns of [`Numbers`], each by `pattern` (`{}` is its name).
pub fn number_columns(pattern: &str) -> String {
    let columns: Vec<_> = Numbers::COLUMNS.iter().map(|column| pattern.replace("{}", column)).collect();
    columns.join(", ")
}

/// For `ON CONFLICT DO UPDATE`: adds a new row's column to that of the one that is there. The sum stays within 64 bits:
/// neither database adds beyond them, and absurd numbers of one sender must not keep the batches of all others out.
pub fn added(table: &str, column: &str) -> String {
    let (old, new, most) = (format!("{table}.{column}"), format!("excluded.{column}"), i64::MAX);
    format!(
        "{column} = CASE WHEN {new} > 0 AND {old} > {most} - {new} THEN {most}
           WHEN {new} < 0 AND {old} < -{most} - {new} THEN -{most} ELSE {old} + {new} END"
    )
}

/// The same for all columns of [`Numbers`]. Of money, what is beyond its first column is carried over to the second; both
/// rows have it below [`CARRY`] there, and never below zero.
pub fn numbers_added(table: &str) -> String {
    let cost = format!("({table}.cost + excluded.cost)");
    let columns: Vec<_> = Numbers::COLUMNS
        .iter()
        .map(|column| match *column {
            "cost" => format!("cost = {cost} % {CARRY}"),
            "cost_carried" => {
                format!("cost_carried = {table}.cost_carried + excluded.cost_carried + {cost} / {CARRY}")
            }
            column => added(table, column),
        })
        .collect();
    columns.join(", ")
}

/// The columns of [`Numbers`] when the first schema was made.
pub fn first_number_columns(pattern: &str) -> String {
    let first = [
        "sessions",
        "api_calls",
        "unpriced_calls",
        "input",
        "output",
        "cache_read",
        "cache_write",
        "reasoning",
        "cost",
        "prompts",
        "tool_calls",
        "tool_errors",
        "lines_added",
        "lines_removed",
        "api_errors",
    ];
    first.map(|column| pattern.replace("{}", column)).join(", ")
}

/// For a migration: money gets its second column. What had become negative by adding beyond 64 bits is nothing.
pub fn wide_costs(integer: &str) -> String {
    ["session", "session_day", "daily"]
        .map(|table| {
            format!(
                "ALTER TABLE {table} ADD COLUMN cost_carried {integer} NOT NULL DEFAULT 0;
                 UPDATE {table} SET cost = 0 WHERE cost < 0;
                 UPDATE {table} SET cost_carried = cost / {CARRY}, cost = cost % {CARRY} WHERE cost >= {CARRY};"
            )
        })
        .concat()
}

/// For a migration: the sums of each session by quarters of an hour, in place of those by days of UTC, and the rows of quarters
/// among the sums over all sessions. Everything is added up from the events, once.
pub fn quarters(dialect: Dialect) -> String {
    let (integer, text, end) = match dialect {
        Dialect::Sqlite => ("INTEGER", "TEXT", "STRICT, WITHOUT ROWID"),
        Dialect::Postgres => ("bigint", "text COLLATE \"C\"", "WITH (fillfactor = 80)"),
    };
    let number = |field: &str| dialect.json_number("e.attributes", field);
    let of = |kind: &str, value: &str| format!("CASE WHEN e.kind = '{kind}' THEN {value} ELSE 0 END");
    let of_number = |kind: &str, field: &str| of(kind, &format!("coalesce({}, 0)", number(field)));
    let failed = dialect.json_false("e.attributes", "ok");
    let pico = format!("round(coalesce({}, 0) * 1000000000000.0)", number("costUsd"));
    let model = match dialect {
        Dialect::Sqlite => "e.attributes ->> 'model'",
        Dialect::Postgres => "e.attributes::json ->> 'model'",
    };
    let columns = [
        ("sessions", "0".to_owned()),
        ("api_calls", of("usage", "1")),
        (
            "unpriced_calls",
            of("usage", &format!("CASE WHEN {} IS NULL THEN 1 ELSE 0 END", number("costUsd"))),
        ),
        ("input", of_number("usage", "inputTokens")),
        ("output", of_number("usage", "outputTokens")),
        ("cache_read", of_number("usage", "cacheReadTokens")),
        ("cache_write", of_number("usage", "cacheWriteTokens")),
        ("reasoning", of_number("usage", "reasoningTokens")),
        ("cost", of("usage", &pico)),
        ("prompts", of("prompt", "1")),
        ("tool_calls", of("tool", "1")),
        ("tool_errors", of("tool", &format!("CASE WHEN {failed} THEN 1 ELSE 0 END"))),
        ("lines_added", of_number("tool", "linesAdded")),
        ("lines_removed", of_number("tool", "linesRemoved")),
        ("api_errors", of("error", "1")),
    ];
    let each = |form: &dyn Fn(&str, &str) -> String| -> String {
        columns.iter().map(|(name, value)| form(name, value)).collect::<Vec<_>>().join(", ")
    };
    let names = each(&|name, _| name.to_owned());
    let sums = |table: &str| {
        let sum = |name: &str| dialect.sum(&format!("{table}{name}"));
        let carried = format!("{} / {CARRY}", sum("cost"));
        let columns =
            each(&|name, _| if name == "cost" { format!("{} % {CARRY}", sum(name)) } else { sum(name) });
        format!("{columns}, {carried}")
    };
    let from_events = each(&|name, value| format!("{value} AS {name}"));
    let of_sessions = each(&|name, _| if name == "sessions" { "1".to_owned() } else { "0".to_owned() });
    let carried = format!("{} + {}", dialect.sum("d.cost_carried"), 0);
    let all = each(&|name, _| dialect.sum(&format!("d.{name}")));
    format!(
        "CREATE TABLE session_quarter (
           session {integer} NOT NULL, quarter {integer} NOT NULL, model {text} NOT NULL,
           {}, cost_carried {integer} NOT NULL,
           PRIMARY KEY (session, quarter, model)
         ) {end};
         INSERT INTO session_quarter (session, quarter, model, {names}, cost_carried)
           SELECT p.session, p.quarter, p.model, {} FROM (
             SELECT e.session AS session, e.time / 900000 AS quarter,
               CASE WHEN e.kind = 'usage' THEN coalesce({model}, '') ELSE '' END AS model, {from_events}
             FROM event e WHERE e.kind IN ('usage', 'tool', 'prompt', 'error')
             UNION ALL SELECT s.n, s.started_at / 900000, '', {of_sessions} FROM session s
           ) p GROUP BY 1, 2, 3;
         INSERT INTO daily (day, agent, model, project, user_name, {names}, cost_carried)
           SELECT {QUARTERS} + d.quarter, s.agent, d.model, coalesce(s.project, ''), coalesce(s.user_name, ''), {all}, {carried}
           FROM session_quarter d JOIN session s ON s.n = d.session GROUP BY 1, 2, 3, 4, 5;
         DROP TABLE session_day;",
        first_number_columns(&format!("{{}} {integer} NOT NULL")),
        sums("p."),
    )
}

/// A column of the table of sessions: its name, and its value of a session.
pub type SessionColumn = (&'static str, Get);

#[derive(Clone, Copy, Debug)]
pub enum Get {
    Int(fn(&Session) -> i64),
    Text(for<'a> fn(&'a Session) -> Option<Cow<'a, str>>),
}

/// The columns that START, bound and END change.
pub const LIFE: [SessionColumn; 11] = [
    ("agent", Get::Text(|session| Some((&*session.life.agent).into()))),
    ("machine", Get::Text(|session| session.life.machine.as_deref().map(Into::into))),
    ("user_name", Get::Text(|session| session.life.user.as_deref().map(Into::into))),
    ("project", Get::Text(|session| session.project().map(Into::into))),
    ("branch", Get::Text(|session| session.branch().map(Into::into))),
    ("agent_session", Get::Text(|session| session.agent_session().map(Into::into))),
    ("parent", Get::Text(|session| session.parent().map(Into::into))),
    ("transitioned_from", Get::Text(|session| session.transitioned_from().map(Into::into))),
    ("status", Get::Text(|session| Some(session.status().as_str().into()))),
    ("started_at", Get::Int(|session| session.started_at().0)),
    ("life", Get::Text(|session| Some(json(&session.life).into()))),
];

/// The columns that sessions are searched and ordered by, in a table of their own: every row is looked at, and these are
/// short.
pub const LISTED: [SessionColumn; 5] = [
    COST,
    ("started_at", Get::Int(|session| session.started_at().0)),
    ("words", Get::Text(|session| Some(session.search_text().into()))),
    ("tags", Get::Text(|session| Some(session.tag_lines().into()))),
    ("grp", Get::Text(|session| Some(session.group().unwrap_or_default().into()))),
];

/// The one of them that every batch changes.
pub const COST: SessionColumn = ("cost", Get::Int(|session| session.numbers.cost));

/// The columns that every batch changes, besides those of [`Numbers`].
pub const COUNTED: [SessionColumn; 6] = [
    ("seqs", Get::Text(|session| Some(session.seqs.to_json().into()))),
    ("missing", Get::Int(Session::missing_count)),
    ("first_at", Get::Int(|session| session.first_at.0)),
    ("last_at", Get::Int(|session| session.last_at.0)),
    ("received_at", Get::Int(|session| session.received_at.0)),
    ("unpriced", Get::Text(|session| Some(json(&session.unpriced).into()))),
];

/// Structs, lists and maps of texts and numbers always have a JSON form.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The columns that [`token`] reads.
pub const TOKEN_COLUMNS: &str = "name, role, hash, created_at, revoked_at, owner";

pub fn token(row: &dyn Columns) -> Result<Token, Error> {
    let (name, role) = (text(row, "name")?, text(row, "role")?);
    let hash = row.bytes("hash")?.unwrap_or_default();
    Ok(Token {
        role: Role::parse(&role).ok_or_else(|| Error::Damaged(format!("the role of token {name}")))?,
        hash: TokenHash(hash.try_into().map_err(|_| Error::Damaged(format!("the hash of token {name}")))?),
        name,
        owner: Owner::stored(text(row, "owner")?),
        created_at: time(row, "created_at")?,
        revoked_at: row.int("revoked_at")?.map(Timestamp),
    })
}

/// The columns that [`stored_event`] reads.
pub const STORED_EVENT_COLUMNS: &str = "session, rev, kind, time, attributes";

/// A stored event, seen from one of the session with this number.
pub fn stored_event(row: &dyn Columns, session: i64) -> Result<StoredEvent, Error> {
    Ok(StoredEvent {
        same_session: int(row, "session")? == session,
        rev: int(row, "rev")?,
        kind: text(row, "kind")?,
        time: time(row, "time")?,
        attributes: text(row, "attributes")?,
    })
}

/// The columns that [`session_quarter`] reads.
pub fn session_quarter_columns() -> String {
    format!("quarter, model, {}", number_columns("{}"))
}

/// The numbers of a session in one quarter of an hour with one model.
pub fn session_quarter(row: &dyn Columns) -> Result<(Quarter, String, Numbers), Error> {
    Ok((Quarter(int(row, "quarter")?), text(row, "model")?, numbers(row)?))
}

/// The columns that [`session`] reads.
pub fn session_columns() -> String {
    let own = ["id", "life", "seqs", "first_at", "last_at", "received_at", "unpriced", "owner"];
    let own = own.map(|column| format!("s.{column} AS {column}")).join(", ");
    format!("{own}, {}", number_columns("s.{} AS {}"))
}

pub fn session(row: &dyn Columns) -> Result<Session, Error> {
    let damaged = |error: serde_json::Error| Error::Damaged(format!("a session: {error}"));
    Ok(Session {
        id: text(row, "id")?,
        life: serde_json::from_str(&text(row, "life")?).map_err(damaged)?,
        seqs: Seqs::from_json(&text(row, "seqs")?).map_err(damaged)?,
        first_at: time(row, "first_at")?,
        last_at: time(row, "last_at")?,
        received_at: time(row, "received_at")?,
        unpriced: serde_json::from_str(&text(row, "unpriced")?).map_err(damaged)?,
        owner: int(row, "owner")?,
        numbers: numbers(row)?,
    })
}

/// The number of a session in a database, and whether it is stored already.
#[derive(Clone, Copy, Debug)]
pub struct SessionKey {
    pub n: i64,
    pub stored: bool,
}

/// The sessions of a batch, by their ids.
pub type SessionKeys = HashMap<String, SessionKey>;
