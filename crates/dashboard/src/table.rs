//! Tables as data: columns with a heading and one cell per row. A page defines each column once, also one
//! that is not always shown, together with the values its rows are ordered by; this file alone turns columns into rows of HTML,
//! puts them in order and makes the links in the headings.

use std::cmp::Ordering;

use maud::{Markup, Render, html};

use super::sort::Sort;
use super::text::float;
use types::Timestamp;

/// A table, built column by column.
#[derive(Debug, Default)]
pub struct Table {
    class: &'static str,
    /// Where a link to a part of the page leads.
    id: Option<&'static str>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    heading: Heading,
    cells: Vec<Cell>,
}

#[derive(Debug)]
pub struct Heading {
    class: &'static str,
    content: Markup,
    /// The name of the column in an address, if rows can be ordered by it.
    column: Option<&'static str>,
    /// The rows are in the order of this column.
    sorted: Option<Direction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ascending,
    Descending,
}

#[derive(Debug)]
pub struct Cell {
    class: &'static str,
    title: Option<String>,
    content: Markup,
    value: Option<SortValue>,
}

/// What a cell is ordered by. One without a value comes last, whichever way round.
#[derive(Clone, Debug, PartialEq)]
pub enum SortValue {
    Number(f64),
    Text(String),
}

/// The order that a page was asked for.
pub struct PageOrder<'a> {
    /// Of one of its tables, or of none.
    pub asked: Option<Sort>,
    /// The address of the same page in another order.
    pub address: &'a dyn Fn(Sort) -> String,
}

impl<'a> PageOrder<'a> {
    /// `given`: the column that the rows are ordered by if nothing is asked for, and whether the largest is first.
    pub fn of(&self, table: &'static str, given: (&'static str, bool)) -> TableOrder<'a> {
        TableOrder { table, asked: self.asked, given, address: self.address, fixed: 0 }
    }
}

/// The same for one of its tables.
pub struct TableOrder<'a> {
    table: &'static str,
    asked: Option<Sort>,
    given: (&'static str, bool),
    address: &'a dyn Fn(Sort) -> String,
    /// Rows at the end that stay there.
    fixed: usize,
}

impl TableOrder<'_> {
    /// So many rows at the end stay there: a row for everything else.
    #[must_use]
    pub fn with_fixed(mut self, rows: usize) -> Self {
        self.fixed = rows;
        self
    }

    /// Whether its rows are in another order than they were given.
    pub fn is_asked_for(&self) -> bool {
        self.asked.is_some_and(|sort| sort.table == self.table)
    }

    fn current(&self) -> Option<Sort> {
        let given =
            || Sort::usual(self.table, self.given.0).map(|sort| Sort { descending: self.given.1, ..sort });
        self.asked.filter(|sort| sort.table == self.table).or_else(given)
    }
}

pub fn heading(class: &'static str, name: &str) -> Heading {
    Heading { class, content: name.render(), column: None, sorted: None }
}

impl Heading {
    /// Rows can be ordered by this column.
    #[must_use]
    pub fn by(mut self, column: &'static str) -> Self {
        self.column = Some(column);
        self
    }

    fn link(&mut self, order: &TableOrder<'_>, current: Option<Sort>) {
        let Some(usual) = self.column.and_then(|column| Sort::usual(order.table, column)) else { return };
        let here = current.filter(|current| current.column == usual.column);
        let next = here.map_or(usual, Sort::turned);
        self.sorted =
            here.map(|here| if here.descending { Direction::Descending } else { Direction::Ascending });
        let arrow = match self.sorted {
            Some(Direction::Descending) => " ↓",
            Some(Direction::Ascending) => " ↑",
            None => "",
        };
        let address = format!("{}#{}", (order.address)(next), order.table);
        self.content = html! { a href=(address) { (self.content) (arrow) } };
    }
}

pub fn cell(class: &'static str, content: impl Render) -> Cell {
    Cell { class, title: None, content: content.render(), value: None }
}

impl Cell {
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// What the row is ordered by in this column.
    #[must_use]
    pub fn value(mut self, value: impl Into<SortValue>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// The same, where it is known.
    #[must_use]
    pub fn value_if(self, value: Option<impl Into<SortValue>>) -> Self {
        match value {
            Some(value) => self.value(value),
            None => self,
        }
    }
}

impl From<i64> for SortValue {
    fn from(value: i64) -> Self {
        Self::Number(float(value))
    }
}

impl From<f64> for SortValue {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<Timestamp> for SortValue {
    fn from(Timestamp(value): Timestamp) -> Self {
        Self::Number(float(value))
    }
}

impl From<&str> for SortValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_lowercase())
    }
}

/// Which of two rows is first.
pub fn first(one: Option<&SortValue>, two: Option<&SortValue>, descending: bool) -> Ordering {
    let (Some(one), Some(two)) = (one, two) else { return two.is_some().cmp(&one.is_some()) };
    let order = match (one, two) {
        (SortValue::Number(one), SortValue::Number(two)) => one.total_cmp(two),
        (SortValue::Text(one), SortValue::Text(two)) => one.cmp(two),
        (SortValue::Number(_), SortValue::Text(_)) => Ordering::Less,
        (SortValue::Text(_), SortValue::Number(_)) => Ordering::Greater,
    };
    if descending { order.reverse() } else { order }
}

impl Table {
    /// A table of numbers, with little space between its rows.
    pub fn plain() -> Self {
        Self { class: "plain", ..Self::default() }
    }

    /// A table whose rows are bars.
    pub fn bars() -> Self {
        Self { class: "bars", ..Self::default() }
    }

    #[must_use]
    pub fn column<R>(mut self, heading: Heading, rows: &[R], cell: impl Fn(&R) -> Cell) -> Self {
        self.columns.push(Column { heading, cells: cells(rows, &cell) });
        self
    }

    /// A column that is left out unless there is something to show in it.
    #[must_use]
    pub fn column_if<R>(self, shown: bool, heading: Heading, rows: &[R], cell: impl Fn(&R) -> Cell) -> Self {
        if shown { self.column(heading, rows, cell) } else { self }
    }

    /// Links in the headings; the rows are in the order that was asked for.
    #[must_use]
    pub fn linked(mut self, order: &TableOrder<'_>) -> Self {
        let current = order.current();
        self.id = Some(order.table);
        for column in &mut self.columns {
            column.heading.link(order, current);
        }
        self
    }

    /// Puts the rows in the order that was asked for; rows of the same value stay as they were given.
    #[must_use]
    pub fn ordered(mut self, order: &TableOrder<'_>) -> Self {
        if let Some(asked) = order.asked.filter(|sort| sort.table == order.table)
            && let Some(column) =
                self.columns.iter().find(|column| column.heading.column == Some(asked.column))
        {
            let moving = self.rows().saturating_sub(order.fixed);
            let value = |row: &usize| column.cells[*row].value.as_ref();
            let mut rows: Vec<usize> = (0..moving).collect();
            rows.sort_by(|one, two| first(value(one), value(two), asked.descending));
            rows.extend(moving..self.rows());
            for column in &mut self.columns {
                let mut cells: Vec<Option<Cell>> =
                    std::mem::take(&mut column.cells).into_iter().map(Some).collect();
                column.cells = rows.iter().filter_map(|row| cells[*row].take()).collect();
            }
        }
        self.linked(order)
    }

    /// In a frame that scrolls sideways on a narrow screen.
    pub fn scrolling(&self) -> Markup {
        html! { div.scroll { (self) } }
    }

    fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }
}

/// Compiled once per type of row, not once per column.
fn cells<R>(rows: &[R], cell: &dyn Fn(&R) -> Cell) -> Vec<Cell> {
    rows.iter().map(cell).collect()
}

impl Render for Table {
    fn render(&self) -> Markup {
        html! {
            table class=[given(self.class)] id=[self.id] {
                thead {
                    tr { @for column in &self.columns { (column.heading) } }
                }
                tbody {
                    @for row in 0..self.rows() {
                        tr { @for column in &self.columns { (column.cells[row]) } }
                    }
                }
            }
        }
    }
}

impl Render for Heading {
    fn render(&self) -> Markup {
        let sorted = self.sorted.map(|direction| match direction {
            Direction::Ascending => "ascending",
            Direction::Descending => "descending",
        });
        html! { th class=[given(self.class)] aria-sort=[sorted] { (self.content) } }
    }
}

impl Render for Cell {
    fn render(&self) -> Markup {
        html! { td class=[given(self.class)] title=[&self.title] { (self.content) } }
    }
}

fn given(class: &'static str) -> Option<&'static str> {
    Some(class).filter(|class| !class.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_rows_and_an_absent_column_leaves_no_trace() {
        let rows = [("a", 1), ("b", 2)];
        let table = |numbers| {
            Table::plain()
                .column(heading("", "Name"), &rows, |(name, _)| cell("", *name).title("t"))
                .column_if(numbers, heading("n", "Number"), &rows, |(_, number)| cell("n wide", *number))
                .render()
                .into_string()
        };
        assert_eq!(
            table(true),
            "<table class=\"plain\"><thead><tr><th>Name</th><th class=\"n\">Number</th></tr></thead><tbody>\
             <tr><td title=\"t\">a</td><td class=\"n wide\">1</td></tr>\
             <tr><td title=\"t\">b</td><td class=\"n wide\">2</td></tr></tbody></table>"
        );
        assert!(!table(false).contains("class=\"n"));
    }

    #[test]
    fn rows_are_put_in_order_by_one_column_and_the_last_row_stays() {
        let rows = [("b", Some(2_i64)), ("a", Some(3)), ("C", None), ("d", Some(3)), ("rest", Some(9))];
        let of = |sort: &str, order: &str| {
            let address = |sort: Sort| {
                let [(_, sort), (_, order)] = Sort::parameters(Some(sort));
                format!("/?{sort}&{order}")
            };
            let page = PageOrder { asked: Sort::parse(sort, order).unwrap(), address: &address };
            let order = page.of("tools", ("calls", true)).with_fixed(1);
            let name = |(name, _): &(&'static str, _)| cell("", *name).value(*name);
            Table::plain()
                .column(heading("", "Name").by("name"), &rows, name)
                .column(heading("", "Calls").by("calls"), &rows, |(_, calls)| cell("", "").value_if(*calls))
                .column(heading("", "Kind"), &rows, |_| cell("", ""))
                .ordered(&order)
                .render()
                .into_string()
        };
        let names = |html: &str| {
            let cells: Vec<String> =
                html.split("<tr><td>").skip(1).map(|row| row[..row.find('<').unwrap()].into()).collect();
            cells.join(" ")
        };
        for (sort, order, expected) in [
            ("", "", "b a C d rest"),
            ("cost", "", "b a C d rest"),
            ("tools.name", "", "a b C d rest"),
            ("tools.name", "desc", "d C b a rest"),
            ("tools.calls", "", "a d b C rest"),
            ("tools.calls", "asc", "b a d C rest"),
            ("tools.failed", "", "b a C d rest"),
        ] {
            assert_eq!(names(&of(sort, order)), expected, "{sort} {order}");
        }
        let sorted = of("tools.name", "");
        let headings = "<th aria-sort=\"ascending\"><a href=\"/?tools.name&amp;desc#tools\">Name ↑</a></th>\
                        <th><a href=\"/?tools.calls&amp;#tools\">Calls</a></th><th>Kind</th>";
        assert!(sorted.contains(headings), "{sorted}");
        let given = of("", "");
        assert!(
            given
                .contains("<th aria-sort=\"descending\"><a href=\"/?tools.calls&amp;asc#tools\">Calls ↓</a>"),
            "{given}"
        );
    }
}
