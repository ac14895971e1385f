//! How the types of the domain are spelled in columns.

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

use super::evidence::Verdict;
use super::record::RecordKind;
use crate::clock::Timestamp;
use crate::meter::record::ToolKind;
use crate::meter::tier::Tier;
use crate::money::PicoDollars;
use crate::process::{Pid, StartTime};
use crate::session::id::{AgentSessionId, RunId, SessionId};
use crate::session::state::{EndReason, EventType, EvidenceKind, Link, Phase, StartReason, Status};

macro_rules! as_word {
    ($($name:ty),+) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::from(self.as_str()))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                Self::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
            }
        }
    )+};
}
as_word!(Phase, Link, Status, EndReason, StartReason, EvidenceKind, EventType, RecordKind, ToolKind, Verdict);

macro_rules! as_text {
    ($($name:ty),+) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::from(self.to_string()))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                value.as_str()?.parse().map_err(FromSqlError::other)
            }
        }
    )+};
}
as_text!(SessionId, RunId);

macro_rules! as_number {
    ($($name:ident),+) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.0.to_sql()
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                FromSql::column_result(value).map(Self)
            }
        }
    )+};
}
as_number!(Timestamp, Pid, PicoDollars);

impl ToSql for AgentSessionId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for AgentSessionId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        String::column_result(value).map(Self)
    }
}

/// SQLite's integers are signed; the bits are what is kept.
impl ToSql for StartTime {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.cast_signed()))
    }
}

impl FromSql for StartTime {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|bits| Self(bits.cast_unsigned()))
    }
}

/// Token counts are unsigned; a count beyond 2^63 is held at the edge rather than made negative.
pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn uncount(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The column is called `fast`: a codemie that knows no other tiers reads every number but zero as fast. It prices nothing by
/// that, the cost is stored beside it.
impl ToSql for Tier {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.number().into())
    }
}

impl FromSql for Tier {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = Option::<i64>::column_result(value)?.unwrap_or(0);
        Ok(u64::try_from(number).map_or(Self::Unknown, Self::numbered))
    }
}
