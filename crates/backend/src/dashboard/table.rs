//! Tables as data: columns with a heading and one cell per row. A page defines each column once, also one
//! that is not always shown; this file alone turns columns into rows of HTML.

use maud::{Markup, Render, html};

use super::filter::{Filter, Sort};

/// A table, built column by column.
#[derive(Debug, Default)]
pub struct Table {
    class: &'static str,
    /// The heading is for screen readers alone.
    hidden_head: bool,
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
    /// The rows are in the order of this column.
    sorted: bool,
}

#[derive(Debug)]
pub struct Cell {
    class: &'static str,
    title: Option<String>,
    content: Markup,
}

pub fn heading(class: &'static str, name: &str) -> Heading {
    Heading { class, content: name.render(), sorted: false }
}

/// A heading that sorts the page at this path by its column.
pub fn sortable(class: &'static str, name: &str, filter: &Filter, path: &str, sort: Sort) -> Heading {
    let sorted = filter.sort == sort;
    let sorting = filter.with(|f| f.sort = sort).address(path);
    let content = html! { a href=(sorting) { (name) @if sorted { " ↓" } } };
    Heading { class, content, sorted }
}

pub fn cell(class: &'static str, content: impl Render) -> Cell {
    Cell { class, title: None, content: content.render() }
}

impl Cell {
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }
}

impl Table {
    /// A table of numbers, with little space between its rows.
    pub fn plain() -> Self {
        Self { class: "plain", ..Self::default() }
    }

    /// A table whose rows are bars.
    pub fn bars() -> Self {
        Self { class: "bars", hidden_head: true, ..Self::default() }
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
            table class=[given(self.class)] {
                thead class=[self.hidden_head.then_some("hidden")] {
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
        html! {
            th class=[given(self.class)] aria-sort=[self.sorted.then_some("descending")] { (self.content) }
        }
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
        assert_eq!(
            Table::bars().render().into_string(),
            "<table class=\"bars\"><thead class=\"hidden\"><tr></tr></thead><tbody></tbody></table>"
        );
    }
}
