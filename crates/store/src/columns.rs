//! Columns by name, read by position: a query lists what an enum names, and a reader asks for a variant.

/// An enum of columns. `LIST` is what a `SELECT` of the table under this name lists; a variant is its place in there.
macro_rules! columns {
    ($name:ident of $table:literal { $first:ident = $first_sql:literal, $($column:ident = $sql:literal),+ $(,)? }) => {
        #[derive(Clone, Copy)]
        enum $name { $first, $($column),+ }

        impl $name {
            const LIST: &str = concat!($table, ".", $first_sql, $(", ", $table, ".", $sql),+);
        }
    };
}
pub(super) use columns;
