//! The order of the rows of a table, as an address names it: `sort=cost` is a column of the list of sessions, `sort=model.cost`
//! one of another table, `order=asc` or `desc` turns a column round. Tables and columns that are not in the list here are errors.

use super::filter::BadParameter;

/// One table, one of its columns, and which way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub table: &'static str,
    pub column: &'static str,
    pub descending: bool,
}

/// The table whose columns an address names without it.
pub const SESSIONS: &str = "sessions";

/// Where a column begins that nobody has turned round: texts with A, numbers and times with the largest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Usual {
    Rising,
    Falling,
}

use Usual::{Falling, Rising};

type Columns = &'static [(&'static str, Usual)];

const USAGE: Columns = &[
    ("name", Rising),
    ("sessions", Falling),
    ("calls", Falling),
    ("input", Falling),
    ("cacheRead", Falling),
    ("cacheWrite", Falling),
    ("output", Falling),
    ("share", Falling),
    ("cost", Falling),
];

/// Every table with its columns.
const TABLES: &[(&str, Columns)] = &[
    (
        SESSIONS,
        &[
            ("name", Rising),
            ("agent", Rising),
            ("project", Rising),
            ("user", Rising),
            ("time", Falling),
            ("duration", Falling),
            ("tokens", Falling),
            ("cost", Falling),
            ("status", Rising),
        ],
    ),
    // Of the overview.
    ("day", USAGE),
    ("agent", USAGE),
    ("model", USAGE),
    ("project", USAGE),
    ("user", USAGE),
    // Of one session.
    ("models", USAGE),
    ("tools", &[("name", Rising), ("calls", Falling), ("failed", Falling)]),
    (
        "kinds",
        &[
            ("name", Rising),
            ("calls", Falling),
            ("tokens", Falling),
            ("cost", Falling),
            ("answer", Falling),
            ("firstToken", Falling),
            ("marks", Falling),
        ],
    ),
    ("limits", &[("name", Rising), ("first", Falling), ("last", Falling)]),
    // Of the delivery.
    (
        "outbox",
        &[
            ("name", Rising),
            ("waiting", Falling),
            ("refused", Falling),
            ("heldBack", Falling),
            ("delivered", Falling),
            ("state", Rising),
        ],
    ),
    (
        "gaps",
        &[("name", Rising), ("agent", Rising), ("user", Rising), ("missing", Falling), ("received", Falling)],
    ),
    (
        "machines",
        &[("name", Rising), ("user", Rising), ("events", Falling), ("first", Falling), ("last", Falling)],
    ),
];

impl Sort {
    /// The order of a column that nobody has turned round.
    pub fn usual(table: &str, column: &str) -> Option<Self> {
        let (table, columns) = TABLES.iter().find(|(name, _)| *name == table)?;
        let (column, usual) = columns.iter().find(|(name, _)| *name == column)?;
        Some(Self { table, column, descending: *usual == Falling })
    }

    /// The two parameters of an address; the list of sessions by its newest is what no parameter asks for, too.
    pub fn parse(sort: &str, order: &str) -> Result<Option<Self>, BadParameter> {
        if sort.is_empty() {
            return Ok(None);
        }
        let (table, column) = sort.split_once('.').unwrap_or((SESSIONS, sort));
        let usual = Self::usual(table, column).ok_or(BadParameter::SORT)?;
        let sort = match order {
            "" => usual,
            "asc" => Self { descending: false, ..usual },
            "desc" => Self { descending: true, ..usual },
            _ => return Err(BadParameter::ORDER),
        };
        Ok(Some(sort).filter(|sort| *sort != Self::NEWEST))
    }

    const NEWEST: Self = Self { table: SESSIONS, column: "time", descending: true };

    /// The list of sessions, if it is what is sorted.
    pub fn of_sessions(sort: Option<Self>) -> Self {
        sort.filter(|sort| sort.table == SESSIONS).unwrap_or(Self::NEWEST)
    }

    pub fn turned(self) -> Self {
        Self { descending: !self.descending, ..self }
    }

    /// A page without other parameters in this order.
    pub fn address(self, path: &str) -> String {
        let [(_, sort), (_, order)] = Self::parameters(Some(self));
        let order = if order.is_empty() { order } else { format!("&order={order}") };
        format!("{path}?sort={sort}{order}")
    }

    /// Both parameters as [`Self::parse`] reads them; empty is what an address leaves out.
    pub fn parameters(sort: Option<Self>) -> [(&'static str, String); 2] {
        let Some(sort) = sort.filter(|sort| *sort != Self::NEWEST) else {
            return [("sort", String::new()), ("order", String::new())];
        };
        let Self { table, column, descending } = sort;
        let name = if table == SESSIONS { column.to_owned() } else { format!("{table}.{column}") };
        let turned = Self::usual(table, column) != Some(sort);
        let order = if !turned {
            ""
        } else if descending {
            "desc"
        } else {
            "asc"
        };
        [("sort", name), ("order", order.to_owned())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_column_of_a_known_table() {
        for (sort, order, read) in [
            ("", "", None),
            ("", "asc", None),
            ("time", "", None),
            ("time", "desc", None),
            ("time", "asc", Some(("sessions", "time", false))),
            ("cost", "", Some(("sessions", "cost", true))),
            ("name", "", Some(("sessions", "name", false))),
            ("model.cost", "asc", Some(("model", "cost", false))),
            ("machines.last", "", Some(("machines", "last", true))),
        ] {
            let found = Sort::parse(sort, order).unwrap();
            assert_eq!(found.map(|sort| (sort.table, sort.column, sort.descending)), read, "{sort} {order}");
            let [(_, sort), (_, order)] = Sort::parameters(found);
            assert_eq!(Sort::parse(&sort, &order).unwrap(), found, "and back");
        }
        for (sort, order) in
            [("size", ""), ("model.size", ""), ("x.cost", ""), ("cost", "up"), ("model.", "")]
        {
            assert!(Sort::parse(sort, order).is_err(), "{sort} {order}");
        }
    }
}
