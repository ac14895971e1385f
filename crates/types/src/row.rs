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

    fn is_null(&self, index: usize) -> Result<bool, Self::Error>;
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

/// The columns that stand for a value, side by side.
pub trait RowColumns {
    /// For a SELECT.
    const COLUMNS: &'static str;
    /// How many they are.
    const WIDTH: usize;

    /// A SELECT of them; `rest` begins with FROM.
    fn select(rest: &str) -> String {
        format!("SELECT {} {rest}", Self::COLUMNS)
    }
}

impl<T: RowColumns> RowColumns for Option<T> {
    const COLUMNS: &'static str = T::COLUMNS;
    const WIDTH: usize = T::WIDTH;
}

/// What is read from some columns that stand side by side.
pub trait FromRow<R: DbRow>: Sized {
    fn read(reader: &mut RowReader<'_, R>) -> Result<Self, R::Error>;

    /// From a row that begins with them.
    fn from_row(row: &R) -> Result<Self, R::Error> {
        Self::read(&mut RowReader::new(row))
    }
}

/// `None` where all of the columns are null.
impl<R: DbRow, T: RowColumns + FromRow<R>> FromRow<R> for Option<T> {
    fn read(reader: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let end = reader.index + T::WIDTH;
        for index in reader.index..end {
            if !reader.row.is_null(index)? {
                return reader.row().map(Some);
            }
        }
        reader.index = end;
        Ok(None)
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

    fn is_null(&self, index: usize) -> rusqlite::Result<bool> {
        Ok(self.get_ref(index)? == rusqlite::types::ValueRef::Null)
    }
}

#[cfg(feature = "sqlite")]
impl<T: rusqlite::types::FromSql> Column<T> for rusqlite::Row<'_> {
    fn column(&self, index: usize) -> rusqlite::Result<T> {
        self.get(index)
    }
}

/// A struct that is read from columns. It gets [`RowColumns`], and [`FromRow`] for every database whose rows have values
/// of the fields' types.
///
/// ```text
/// types::row! {
///     /// A session, as the database holds it.
///     #[derive(Debug)]
///     pub struct SessionRow from "s" {            // the table's name or alias in the SELECT; without it, bare names
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
    ($(#[$meta:meta])* $vis:vis struct $name:ident $(from $table:literal)? { $($fields:tt)+ }) => {
        $crate::row!(@ reader [$($table)?] ($(#[$meta])* $vis) $name {} {} {} {} {0} $($fields)+);
    };
    (@ $reader:ident $table:tt $head:tt $name:ident {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*} {$($width:tt)*}
      $(#[$meta:meta])* $vis:vis $column:ident: $type:ty $(= $expression:literal)? [row], $($rest:tt)*) => {
        $crate::row!(@ $reader $table $head $name {$($field)* $(#[$meta])* $vis $column: $type,}
            {$($sql)* $crate::column_sql!(row $type $(, $expression)?),}
            {$($read)* $column: $reader.row()?,}
            {$($bound)* $type: $crate::row::FromRow<R>,}
            {$($width)* + <$type as $crate::row::RowColumns>::WIDTH}
            $($rest)*);
    };
    (@ $reader:ident $table:tt $head:tt $name:ident {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*} {$($width:tt)*}
      $(#[$meta:meta])* $vis:vis $column:ident: $type:ty $(= $expression:literal)? as $raw:ty => $convert:expr, $($rest:tt)*) => {
        $crate::row!(@ $reader $table $head $name {$($field)* $(#[$meta])* $vis $column: $type,}
            {$($sql)* $crate::column_sql!($table $column $($expression)?),}
            {$($read)* $column: $crate::row::converted::<$raw, _>($reader.column()?, $convert),}
            {$($bound)* R: $crate::row::Column<$raw>,}
            {$($width)* + 1}
            $($rest)*);
    };
    (@ $reader:ident $table:tt $head:tt $name:ident {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*} {$($width:tt)*}
      $(#[$meta:meta])* $vis:vis $column:ident: $type:ty $(= $expression:literal)?, $($rest:tt)*) => {
        $crate::row!(@ $reader $table $head $name {$($field)* $(#[$meta])* $vis $column: $type,}
            {$($sql)* $crate::column_sql!($table $column $($expression)?),}
            {$($read)* $column: $reader.column()?,}
            {$($bound)* R: $crate::row::Column<$type>,}
            {$($width)* + 1}
            $($rest)*);
    };
    (@ $reader:ident $table:tt ($(#[$meta:meta])* $vis:vis) $name:ident
      {$($field:tt)*} {$($sql:tt)*} {$($read:tt)*} {$($bound:tt)*} {$($width:tt)*}) => {
        $(#[$meta])*
        $vis struct $name { $($field)* }

        impl $crate::row::RowColumns for $name {
            const COLUMNS: &'static str = {
                const PARTS: &[&str] = &[$($sql)*];
                const TEXT: [u8; $crate::row::joined_length(PARTS)] = $crate::row::joined(PARTS);
                $crate::row::text(&TEXT)
            };
            const WIDTH: usize = $($width)*;
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
    (row $type:ty) => {
        <$type as $crate::row::RowColumns>::COLUMNS
    };
    (row $type:ty, $expressions:literal) => {
        $expressions
    };
    ([$table:literal] $column:ident) => {
        concat!($table, ".", stringify!($column))
    };
    ([] $column:ident) => {
        stringify!($column)
    };
    ($table:tt $column:ident $expression:literal) => {
        $expression
    };
}

/// `INSERT INTO table (column, …) VALUES ($1, …)`, for a macro that binds the values named with them. Another verb stands before
/// `into`: `insert_sql!("INSERT OR IGNORE" into "tag": session, tag)`.
#[macro_export]
macro_rules! insert_sql {
    ($table:literal: $($column:ident),+ $(,)?) => {
        $crate::insert_sql!("INSERT" into $table: $($column),+)
    };
    ($verb:literal into $table:literal: $($column:ident),+ $(,)?) => {{
        const BEGIN: &str = concat!($verb, " INTO ", $table, " (");
        const PARTS: &[&str] = &[$(stringify!($column)),+];
        const TEXT: [u8; $crate::row::insert_length(BEGIN, PARTS)] = $crate::row::insert(BEGIN, PARTS);
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

    const fn insert(self, begin: &str, columns: &[&str]) -> Self {
        self.push(begin).joined(columns).push(") VALUES (").parameters(columns.len()).push(")")
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
pub const fn insert_length(begin: &str, columns: &[&str]) -> usize {
    Text::<0>::NEW.insert(begin, columns).length
}

#[doc(hidden)]
pub const fn insert<const N: usize>(begin: &str, columns: &[&str]) -> [u8; N] {
    Text::NEW.insert(begin, columns).bytes
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
        struct Place {
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
            other: Option<Place> = "o.folder, o.branch" [row],
            billed: u64 = "t.input + t.output" as i64 => |sum| sum.max(0).cast_unsigned(),
            last: i64,
        }
    }

    /// A database with texts in all columns.
    struct Texts(Vec<Option<&'static str>>);

    impl DbRow for Texts {
        type Error = String;

        fn is_null(&self, index: usize) -> Result<bool, String> {
            Ok(self.0[index].is_none())
        }
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
        assert_eq!(
            Session::COLUMNS,
            "s.n, folder, branch, s.grp, o.folder, o.branch, t.input + t.output, s.last"
        );
        assert_eq!(Session::WIDTH, 8);
        let main = |folder: &str| Place { folder: folder.to_owned(), branch: Some("main".to_owned()) };
        let row = Texts(vec![Some("7"), None, Some("main"), None, None, None, Some("12"), Some("3")]);
        let mut session = Session { n: 7, place: main(""), group: None, other: None, billed: 12, last: 3 };
        assert_eq!(Session::from_row(&row).as_ref(), Ok(&session));
        let row =
            Texts(vec![Some("7"), None, Some("main"), None, Some("/f"), Some("main"), Some("12"), Some("3")]);
        session.other = Some(main("/f"));
        assert_eq!(Session::from_row(&row), Ok(session));
        let wrong = Texts(vec![Some("7"), None, None, None, None, None, Some("none"), Some("3")]);
        assert_eq!(Session::from_row(&wrong), Err("column 6".to_owned()));
    }

    #[test]
    fn an_insert_names_its_columns_and_numbers_its_parameters() {
        assert_eq!(insert_sql!("tag": session, tag), "INSERT INTO tag (session, tag) VALUES ($1, $2)");
        let other = insert_sql!("INSERT OR IGNORE" into "tag": tag);
        assert_eq!(other, "INSERT OR IGNORE INTO tag (tag) VALUES ($1)");
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
        let place = Place { folder: "/f".to_owned(), branch: Some("b".to_owned()) };
        let sql = format!(
            "WITH o (folder, branch) AS (SELECT NULL, NULL) SELECT {} FROM s, t, o",
            Session::COLUMNS.replace("folder, branch, s.grp", "s.folder, s.branch, s.grp")
        );
        assert_eq!(
            database.query_row(&sql, [], |row| Session::from_row(row)),
            Ok(Session { n: 1, place, group: Some("g".to_owned()), other: None, billed: 42, last: 4 })
        );
        let pair = database.query_row("SELECT n, last FROM s", [], |row| <(i64, i64)>::from_row(row));
        assert_eq!(pair, Ok((1, 4)));
    }
}
