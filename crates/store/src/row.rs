//! How rows are read and written here, by name: [`types::row!`] on SQLite. And how the types of this crate are spelled in columns;
//! those of the wire spell themselves (`types::sqlite`).

use rusqlite::Row;
use rusqlite::types::FromSql;
use types::as_word;
use types::row::{Column, FromRow, RowReader};

use super::proxied::Seen;
use super::record::RecordKind;
use super::session_row::Phase;

as_word!(Phase, RecordKind, Seen);

/// A row of one column.
pub(super) fn read_value<T: FromSql>(row: &Row<'_>) -> rusqlite::Result<T> {
    row.column(0)
}

/// A row that was declared by [`types::row!`], or a few columns in the order of a tuple.
pub(super) fn read_row<T: for<'r> FromRow<Row<'r>>>(row: &Row<'_>) -> rusqlite::Result<T> {
    T::from_row(row)
}

/// A column, and such a row behind it.
pub(super) fn read_keyed<K: FromSql, T: for<'r> FromRow<Row<'r>>>(row: &Row<'_>) -> rusqlite::Result<(K, T)> {
    let mut reader = RowReader::new(row);
    Ok((reader.column()?, reader.row()?))
}

/// Inserts a row, each value beside its column: `insert!(tx, "tag": { session, tag: name })`, and with another verb
/// `insert!(tx, "INSERT OR IGNORE" into "tag": …)`.
macro_rules! insert {
    ($tx:ident, $table:literal $(into $into:literal)?: { $($column:ident $(: $value:expr)?),+ $(,)? }) => {
        $tx.execute(
            types::insert_sql!($table $(into $into)?: $($column),+),
            rusqlite::params![$(crate::row::insert!(@ $column $($value)?)),+],
        )
    };
    (@ $column:ident) => { $column };
    (@ $column:ident $value:expr) => { $value };
}
pub(super) use insert;

/// Token counts are unsigned; a count beyond 2^63 is held at the edge rather than made negative.
pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn uncount(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
