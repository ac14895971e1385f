//! Rows of either database by name: a struct whose fields are the columns it is read from ([`row!`](crate::row)), and an INSERT
//! whose values stand beside their columns ([`insert_sql!`](crate::insert_sql)).
//!
//! The list of columns is put together when the program is compiled, and a row is read from left to right in that same order: no
//! column is numbered by hand, and none is looked up by its name while rows are read.
//!
//! A database joins in by [`DbRow`] and [`Column`]: SQLite here, others where their rows are known.

/// A row of some database.
pub trait DbRow {
    type Error;
}

/// A value that a row of this database can have in a column.
pub trait Column<T>: DbRow {
    fn column(&self, index: usize) -> Result<T, Self::Error>;
}

/// Hands out the columns of a row from left to right.
#[derive(Debug)]
pub struct RowReader<'r, R> {
    row: &'r R,
    index: usize,
}

impl<'r, R: DbRow> RowReader<'r, R> {
    pub fn new(row: &'r R) -> Self {
        Self { row, index: 0 }
    }

    /// The next column.
    pub fn column<T>(&mut self) -> Result<T, R::Error>
    where
        R: Column<T>,
    {
        let value = self.row.column(self.index);
        self.index += 1;
        value
    }

    /// The next columns, which are a row of their own.
    pub fn row<T: FromRow<R>>(&mut self) -> Result<T, R::Error> {
        T::read(self)
    }
}

/// What is read from some columns that stand side by side.
pub trait FromRow<R: DbRow>: Sized {
    fn read(reader: &mut RowReader<'_, R>) -> Result<Self, R::Error>;

    /// From a row that begins with them.
    fn from_row(row: &R) -> Result<Self, R::Error> {
        Self::read(&mut RowReader::new(row))
    }
}

macro_rules! tuples {
    ($(($($name:ident)+))+) => {$(
        impl<R: DbRow $(+ Column<$name>)+, $($name),+> FromRow<R> for ($($name,)+) {
            fn read(reader: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
                Ok(($(reader.column::<$name>()?,)+))
            }
        }
    )+};
}
tuples!((A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E F));

#[cfg(feature = "sqlite")]
impl DbRow for rusqlite::Row<'_> {
    type Error = rusqlite::Error;
}

#[cfg(feature = "sqlite")]
impl<T: rusqlite::types::FromSql> Column<T> for rusqlite::Row<'_> {
    fn column(&self, index: usize) -> rusqlite::Result<T> {
        self.get(index)
    }
}

/// A struct that is read from columns. It gets `COLUMNS`, the list for a SELECT, and [`FromRow`] for every database whose rows
/// have values of the fields' types.
///
/// ```text
/// types::row! {
///     /// A session, as the database holds it.
///     #[derive(Debug)]
///     pub struct SessionRow from "s" {            // the table's name or alias in the SELECT
///         pub name: String,                       // s.name
///         pub group: Option<String> = "s.grp",    // another column, or any expression
///         pub cwd: PathBuf as String => PathBuf::from, // read as a String
///         pub billed: u64 = "ifnull(t.billed, 0)" as i64 => |sum| sum.max(0).cast_unsigned(),
///         pub place: Place [row],                 // the columns of another such struct
///     }
/// }
/// ```
#[macro_export]
macro_rules! row {
    ($(#[$meta:meta])* $vis:vis struct $name:ident from $table:literal { $($fields:tt)+ }) => {
        $crate::row!(@ reader $table ($(#[$meta])* $vis) $name {} {} {} {} $($fields)+);
    };
    (@ $reader:ident $table:literal $head:tt $name:ident {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*}
      $(#[$meta:meta])* $vis:vis $column:ident: $type:ty [row], $($rest:tt)*) => {
        $crate::row!(@ $reader $table $head $name {$($field)* $(#[$meta])* $vis $column: $type,}
            {$($sql)* <$type>::COLUMNS,} {$($read)* $column: $reader.row()?,} {$($bound)* $type: $crate::row::FromRow<R>,}
            $($rest)*);
    };
    (@ $reader:ident $table:literal $head:tt $name:ident {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*}
      $(#[$meta:meta])* $vis:vis $column:ident: $type:ty $(= $expression:literal)? as $raw:ty => $convert:expr, $($rest:tt)*) => {
        $crate::row!(@ $reader $table $head $name {$($field)* $(#[$meta])* $vis $column: $type,}
            {$($sql)* $crate::column_sql!($table $column $($expression)?),}
            {$($read)* $column: $crate::row::converted::<$raw, _>($reader.column()?, $convert),}
            {$($bound)* R: $crate::row::Column<$raw>,}
            $($rest)*);
    };
    (@ $reader:ident $table:literal $head:tt $name:ident {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*}
      $(#[$meta:meta])* $vis:vis $column:ident: $type:ty $(= $expression:literal)?, $($rest:tt)*) => {
        $crate::row!(@ $reader $table $head $name {$($field)* $(#[$meta])* $vis $column: $type,}
            {$($sql)* $crate::column_sql!($table $column $($expression)?),}
            {$($read)* $column: $reader.column()?,} {$($bound)* R: $crate::row::Column<$type>,}
            $($rest)*);
    };
    (@ $reader:ident $table:literal ($(#[$meta:meta])* $vis:vis) $name:ident
      {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*}) => {
        $(#[$meta])*
        $vis struct $name { $($field)* }

        impl $name {
            /// The columns it is read from, for a SELECT.
            $vis const COLUMNS: &'static str = {
                const PARTS: &[&str] = &[$($sql)*];
                const TEXT: [u8; $crate::row::joined_length(PARTS)] = $crate::row::joined(PARTS);
                $crate::row::text(&TEXT)
            };
        }

        impl<R: $crate::row::DbRow> $crate::row::FromRow<R> for $name
        where
            $($bound)*
        {
            fn read($reader: &mut $crate::row::RowReader<'_, R>) -> Result<Self, R::Error> {
                Ok(Self { $($read)* })
            }
        }
    };
}

/// What a field is read from, for [`row!`].
#[doc(hidden)]
#[macro_export]
macro_rules! column_sql {
    ($table:literal $column:ident) => {
        concat!($table, ".", stringify!($column))
    };
    ($table:literal $column:ident $expression:literal) => {
        $expression
    };
}

/// `INSERT INTO table (column, …) VALUES ($1, …)`, for a macro that binds the values named with them.
#[macro_export]
macro_rules! insert_sql {
    ($table:literal: $($column:ident),+ $(,)?) => {{
        const PARTS: &[&str] = &[$(stringify!($column)),+];
        const TEXT: [u8; $crate::row::insert_length($table, PARTS)] = $crate::row::insert($table, PARTS);
        $crate::row::text(&TEXT)
    }};
}

#[doc(hidden)]
pub fn converted<A, B>(value: A, convert: impl FnOnce(A) -> B) -> B {
    convert(value)
}

/// A text that is written while the program is compiled; with `N` = 0 it is only measured.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    const fn push(mut self, part: &str) -> Self {
        let part = part.as_bytes();
        let mut index = 0;
        while index < part.len() {
            if N > 0 {
                self.bytes[self.length] = part[index];
            }
            self.length += 1;
            index += 1;
        }
        self
    }

    const fn joined(mut self, parts: &[&str]) -> Self {
        let mut index = 0;
        while index < parts.len() {
            self = self.push(if index > 0 { ", " } else { "" }).push(parts[index]);
            index += 1;
        }
        self
    }

    /// `$1, $2, …`: by number in PostgreSQL, and in SQLite by name, whose numbers follow the order of their first mention.
    const fn parameters(mut self, count: usize) -> Self {
        const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let mut number = 1;
        while number <= count {
            self = self.push(if number > 1 { ", $" } else { "$" });
            if number > 9 {
                self = self.push(DIGITS[number / 10]);
            }
            self = self.push(DIGITS[number % 10]);
            number += 1;
        }
        self
    }

    const fn insert(self, table: &str, columns: &[&str]) -> Self {
        self.push("INSERT INTO ")
            .push(table)
            .push(" (")
            .joined(columns)
            .push(") VALUES (")
            .parameters(columns.len())
            .push(")")
    }

    const NEW: Self = Self { bytes: [0; N], length: 0 };
}

#[doc(hidden)]
pub const fn joined_length(parts: &[&str]) -> usize {
    Text::<0>::NEW.joined(parts).length
}

#[doc(hidden)]
pub const fn joined<const N: usize>(parts: &[&str]) -> [u8; N] {
    Text::NEW.joined(parts).bytes
}

#[doc(hidden)]
pub const fn insert_length(table: &str, columns: &[&str]) -> usize {
    Text::<0>::NEW.insert(table, columns).length
}

#[doc(hidden)]
pub const fn insert<const N: usize>(table: &str, columns: &[&str]) -> [u8; N] {
    Text::NEW.insert(table, columns).bytes
}

#[doc(hidden)]
pub const fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("texts were put together"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    row! {
        #[derive(Debug, PartialEq)]
        struct Place from "s" {
            folder: String as Option<String> => Option::unwrap_or_default,
            branch: Option<String>,
        }
    }

    row! {
        #[derive(Debug, PartialEq)]
        struct Session from "s" {
            n: i64,
            place: Place [row],
            group: Option<String> = "s.grp",
            billed: u64 = "t.input + t.output" as i64 => |sum| sum.max(0).cast_unsigned(),
            last: i64,
        }
    }

    /// A database with texts in all columns.
    struct Texts(Vec<Option<&'static str>>);

    impl DbRow for Texts {
        type Error = String;
    }

    impl Column<Option<String>> for Texts {
        fn column(&self, index: usize) -> Result<Option<String>, String> {
            Ok(self.0[index].map(str::to_owned))
        }
    }

    impl Column<i64> for Texts {
        fn column(&self, index: usize) -> Result<i64, String> {
            self.0[index].unwrap_or_default().parse().map_err(|_| format!("column {index}"))
        }
    }

    #[test]
    fn columns_are_listed_and_read_in_the_order_of_the_fields() {
        assert_eq!(Session::COLUMNS, "s.n, s.folder, s.branch, s.grp, t.input + t.output, s.last");
        let row = Texts(vec![Some("7"), None, Some("main"), None, Some("12"), Some("3")]);
        let place = Place { folder: String::new(), branch: Some("main".to_owned()) };
        assert_eq!(Session::from_row(&row), Ok(Session { n: 7, place, group: None, billed: 12, last: 3 }));
        let wrong = Texts(vec![Some("7"), None, None, None, Some("none"), Some("3")]);
        assert_eq!(Session::from_row(&wrong), Err("column 4".to_owned()));
    }

    #[test]
    fn an_insert_names_its_columns_and_numbers_its_parameters() {
        assert_eq!(insert_sql!("tag": session, tag), "INSERT INTO tag (session, tag) VALUES ($1, $2)");
        let eleven = insert_sql!("t": a, b, c, d, e, f, g, h, i, j, type);
        assert!(
            eleven.ends_with("j, type) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"),
            "{eleven}"
        );
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_writes_and_reads_rows_by_the_same_names() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        database
            .execute_batch("CREATE TABLE s (last, n, folder, branch, grp); CREATE TABLE t (input, output)")
            .unwrap();
        let sql = insert_sql!("s": n, grp, branch, last, folder);
        database.execute(sql, rusqlite::params![1, "g", "b", 4, "/f"]).unwrap();
        database.execute(insert_sql!("t": input, output), [20, 22]).unwrap();
        let read = |sql: String| database.query_row(&sql, [], |row| Session::from_row(row));
        let place = Place { folder: "/f".to_owned(), branch: Some("b".to_owned()) };
        assert_eq!(
            read(format!("SELECT {} FROM s, t", Session::COLUMNS)),
            Ok(Session { n: 1, place, group: Some("g".to_owned()), billed: 42, last: 4 })
        );
        let pair = database.query_row("SELECT n, last FROM s", [], |row| <(i64, i64)>::from_row(row));
        assert_eq!(pair, Ok((1, 4)));
    }
}
