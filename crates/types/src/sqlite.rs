//! How the types are spelled in columns of SQLite.

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

use super::event::Source;
use super::{
    AgentSessionId, Billing, CallKind, EndReason, EventKind, EventType, EvidenceKind, EvidenceVerdict, Link,
    PicoDollars, Pid, RunId, SessionId, StartReason, StartTime, Status, Timestamp, ToolKind, Utilization,
};

/// The columns of an enum made by [`spelled!`](crate::spelled).
#[macro_export]
macro_rules! as_word {
    ($($name:ty),+) => {$(
        impl $crate::rusqlite::ToSql for $name {
            fn to_sql(&self) -> $crate::rusqlite::Result<$crate::rusqlite::types::ToSqlOutput<'_>> {
                Ok($crate::rusqlite::types::ToSqlOutput::from(self.as_str()))
            }
        }

        impl $crate::rusqlite::types::FromSql for $name {
            fn column_result(
                value: $crate::rusqlite::types::ValueRef<'_>,
            ) -> $crate::rusqlite::types::FromSqlResult<Self> {
                Self::parse(value.as_str()?).ok_or($crate::rusqlite::types::FromSqlError::InvalidType)
            }
        }
    )+};
}
as_word!(
    Link,
    Status,
    EndReason,
    StartReason,
    EvidenceKind,
    EventType,
    EvidenceVerdict,
    ToolKind,
    Billing,
    CallKind,
    Source
);

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

impl FromSql for EventKind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str().map(Self::named)
    }
}

/// In millionths.
impl ToSql for Utilization {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.millionths()))
    }
}

impl FromSql for Utilization {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        u32::column_result(value).map(Self::of_millionths)
    }
}
