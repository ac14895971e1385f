//! SQL that both databases understand, and the little in which they differ.

use super::model::{Day, Session};
use super::numbers::Numbers;
use super::seqs::Seqs;
use super::storage::Error;
use crate::clock::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// True where `column` contains the text.
    pub fn contains(self, column: &str, parameter: &str) -> String {
        format!("{} > 0", self.position(column, parameter))
    }

    /// Where the one begins in the other, counted from 1; 0 if it is not there.
    pub fn position(self, column: &str, parameter: &str) -> String {
        match self {
            Self::Sqlite => format!("instr({column}, {parameter})"),
            Self::Postgres => format!("strpos({column}, {parameter})"),
        }
    }

    /// A sum that fits 64 bits.
    pub fn sum(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("sum({column})"),
            Self::Postgres => format!("sum({column})::bigint"),
        }
    }

    /// A sum that may not.
    pub fn float_sum(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("total({column})"),
            Self::Postgres => format!("sum({column})::float8"),
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

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// A row of an answer, whichever database gave it.
pub trait Columns {
    fn int(&self, at: usize) -> Result<Option<i64>, Error>;
    fn text(&self, at: usize) -> Result<Option<String>, Error>;
    fn float(&self, at: usize) -> Result<Option<f64>, Error>;
}

pub type Decode<T> = fn(&dyn Columns) -> Result<T, Error>;

pub fn int(row: &dyn Columns, at: usize) -> Result<i64, Error> {
    Ok(row.int(at)?.unwrap_or(0))
}

pub fn text(row: &dyn Columns, at: usize) -> Result<String, Error> {
    Ok(row.text(at)?.unwrap_or_default())
}

pub fn time(row: &dyn Columns, at: usize) -> Result<Timestamp, Error> {
    int(row, at).map(Timestamp)
}

pub fn day(row: &dyn Columns, at: usize) -> Result<Day, Error> {
    int(row, at).map(|day| Day(i32::try_from(day).unwrap_or(i32::MAX)))
}

/// The columns of [`Numbers`] from `at` on.
pub fn numbers(row: &dyn Columns, at: usize) -> Result<Numbers, Error> {
    let mut values = [0; Numbers::COUNT];
    for (offset, value) in values.iter_mut().enumerate() {
        *value = int(row, at + offset)?;
    }
    Ok(Numbers::from_values(values))
}

/// The columns of [`Numbers`], each as `pattern` says (`{}` is its name).
pub fn number_columns(pattern: &str) -> String {
    let columns: Vec<_> = Numbers::COLUMNS.iter().map(|column| pattern.replace("{}", column)).collect();
    columns.join(", ")
}

/// What [`session`] reads.
pub fn session_columns() -> String {
    format!(
        "s.id, s.life, s.seqs, s.first_at, s.last_at, s.received_at, s.unpriced, {}",
        number_columns("s.{}")
    )
}

pub const SESSION_COLUMNS: usize = 7 + Numbers::COUNT;

pub fn session(row: &dyn Columns) -> Result<Session, Error> {
    let damaged = |error: serde_json::Error| Error::Damaged(format!("a session: {error}"));
    Ok(Session {
        id: text(row, 0)?,
        life: serde_json::from_str(&text(row, 1)?).map_err(damaged)?,
        seqs: Seqs::from_json(&text(row, 2)?).map_err(damaged)?,
        first_at: time(row, 3)?,
        last_at: time(row, 4)?,
        received_at: time(row, 5)?,
        unpriced: serde_json::from_str(&text(row, 6)?).map_err(damaged)?,
        numbers: numbers(row, 7)?,
    })
}
