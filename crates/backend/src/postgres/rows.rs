//! Many rows in one statement: each column an array, unfolded by the server. The statement's text does not depend on how
//! many rows there are, so it is prepared once.

use std::borrow::Cow;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use reader::Numbers;

#[derive(Debug)]
pub(super) enum Array<'a> {
    Int(Vec<i64>),
    Text(Vec<Option<Cow<'a, str>>>),
    Uuid(Vec<Uuid>),
}

impl Array<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) => "bigint[]",
            Self::Text(_) => "text[]",
            Self::Uuid(_) => "uuid[]",
        }
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(values) => values,
            Self::Text(values) => values,
            Self::Uuid(values) => values,
        }
    }
}

/// Rows by columns.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    names: Vec<&'static str>,
    arrays: Vec<Array<'a>>,
}

impl<'a> Rows<'a> {
    pub(super) fn int(mut self, name: &'static str, values: impl Iterator<Item = i64>) -> Self {
        self.names.push(name);
        self.arrays.push(Array::Int(values.collect()));
        self
    }

    pub(super) fn text<T: Into<Cow<'a, str>>>(
        mut self,
        name: &'static str,
        values: impl Iterator<Item = Option<T>>,
    ) -> Self {
        self.names.push(name);
        self.arrays.push(Array::Text(values.map(|text| text.map(Into::into)).collect()));
        self
    }

    pub(super) fn uuid(mut self, name: &'static str, values: impl Iterator<Item = Uuid>) -> Self {
        self.names.push(name);
        self.arrays.push(Array::Uuid(values.collect()));
        self
    }

    #[expect(clippy::needless_pass_by_value, reason = "an iterator is handed over")]
    pub(super) fn numbers<'n>(mut self, rows: impl Iterator<Item = &'n Numbers> + Clone) -> Self {
        for (at, name) in Numbers::COLUMNS.iter().enumerate() {
            self = self.int(name, rows.clone().map(|numbers| numbers.values()[at]));
        }
        self
    }

    pub(super) fn columns(&self) -> String {
        self.names.join(", ")
    }

    /// `unnest($1::bigint[], …) AS v (n, …)`
    pub(super) fn unfolded(&self) -> String {
        let arrays: Vec<_> =
            (1..).zip(&self.arrays).map(|(at, array)| format!("${at}::{}", array.kind())).collect();
        format!("unnest({}) AS v ({})", arrays.join(", "), self.columns())
    }

    /// Every row, in the order given: locks are taken in it.
    pub(super) fn insert(&self, table: &str) -> String {
        let columns = self.columns();
        format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {}", self.unfolded())
    }

    /// Sets all columns but the first `keys`, which identify the row.
    pub(super) fn update(&self, table: &str, keys: usize) -> String {
        let (keys, set) = self.names.split_at(keys);
        let set: Vec<_> = set.iter().map(|name| format!("{name} = v.{name}")).collect();
        let keys: Vec<_> = keys.iter().map(|key| format!("t.{key} = v.{key}")).collect();
        format!(
            "UPDATE {table} t SET {} FROM {} WHERE {}",
            set.join(", "),
            self.unfolded(),
            keys.join(" AND ")
        )
    }

    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.arrays.iter().map(Array::value).collect()
    }
}
