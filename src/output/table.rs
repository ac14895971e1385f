//! Aligned tables that fit the terminal. First wide columns are shortened, then the least important ones are dropped, then
//! the remaining ones are shortened further where their content allows it.

use unicode_width::UnicodeWidthStr;

use super::{Colour, Style};
use human::text::{is_plain, shorten};

/// Spaces between columns.
const GAP: usize = 2;

/// No cell is wider, because texts come from files of others: where nobody folds lines, every row would be as long as the
/// longest.
const WIDEST: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    pub align: Align,
    /// It may be cut down to this; a column whose content must stay whole has `usize::MAX`.
    pub least: usize,
    /// And down to this when no further column can be dropped.
    pub at_worst: usize,
    /// The higher, the sooner it is left out; 0 stays.
    pub dispensable: u8,
}

impl Column {
    /// Words: cut with an ellipsis where they do not fit.
    pub const fn text(title: &'static str, least: usize) -> Self {
        Self { title, align: Align::Left, least, at_worst: least, dispensable: 0 }
    }

    /// Numbers: never cut.
    pub const fn number(title: &'static str) -> Self {
        Self { title, align: Align::Right, least: usize::MAX, at_worst: usize::MAX, dispensable: 0 }
    }

    #[must_use]
    pub const fn at_worst(self, cells: usize) -> Self {
        Self { at_worst: cells, ..self }
    }

    #[must_use]
    pub const fn dispensable(self, rank: u8) -> Self {
        Self { dispensable: rank, ..self }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    colour: Colour,
}

impl Cell {
    pub fn painted(text: impl Into<String>, colour: Colour) -> Self {
        Self { text: text.into(), colour }
    }

    fn bounded(self) -> Self {
        // No text is wider than it has bytes; among ten thousand rows a copy of each cell would be felt.
        if self.text.len() <= WIDEST { self } else { Self { text: shorten(&self.text, WIDEST), ..self } }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), colour: Colour::Plain }
    }
}

#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// The last row is a sum, set off by its weight.
    total: Option<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new(), total: None }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().map(Cell::bounded).collect());
    }

    pub fn total(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let heavy = |cell: Cell| Cell { colour: Colour::Heading, ..cell.bounded() };
        self.total = Some(cells.into_iter().map(heavy).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether there is room for a column.
    pub fn shows(&self, title: &str, style: Style) -> bool {
        let widths = self.widths(style.columns);
        self.columns.iter().zip(widths).any(|(column, width)| column.title == title && width.is_some())
    }

    pub fn render(&self, style: Style) -> String {
        let widths = self.widths(style.columns);
        let mut text = String::new();
        let titles = self.columns.iter().map(|column| Cell::painted(column.title, Colour::Faint)).collect();
        for row in std::iter::once(&titles).chain(&self.rows).chain(&self.total) {
            self.line(&mut text, row, &widths, style);
        }
        text
    }

    /// The width of each column, `None` for those left out.
    fn widths(&self, available: usize) -> Vec<Option<usize>> {
        let natural = |at: usize| {
            let cells = self.rows.iter().chain(&self.total).filter_map(|row| row.get(at));
            cells.map(|cell| width_of(&cell.text)).chain([self.columns[at].title.width()]).max().unwrap_or(0)
        };
        let mut widths: Vec<_> = (0..self.columns.len()).map(|at| Some(natural(at))).collect();
        while !self.shrink(&mut widths, available, |column| column.least) {
            let least_needed = (0..widths.len())
                .filter(|at| widths[*at].is_some() && self.columns[*at].dispensable > 0)
                .max_by_key(|at| self.columns[*at].dispensable);
            let Some(at) = least_needed else {
                // If not even that suffices, a terminal this narrow folds the lines itself.
                self.shrink(&mut widths, available, |column| column.at_worst);
                break;
            };
            widths[at] = None;
        }
        widths
    }

    /// Shortens columns, down to `least` of each, if that makes the table fit; false if it does not.
    fn shrink(
        &self,
        widths: &mut [Option<usize>],
        available: usize,
        least: impl Fn(&Column) -> usize,
    ) -> bool {
        let used = widths.iter().flatten().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP);
        let excess = used.saturating_sub(available);
        let spare =
            |at: usize, width: Option<usize>| width.unwrap_or(0).saturating_sub(least(&self.columns[at]));
        if (0..widths.len()).map(|at| spare(at, widths[at])).sum::<usize>() < excess {
            return false;
        }
        for _ in 0..excess {
            // One cell off the widest at a time keeps the columns in proportion.
            let shrinkable = (0..widths.len()).filter(|at| spare(*at, widths[*at]) > 0);
            if let Some(widest) = shrinkable.max_by_key(|at| widths[*at]) {
                widths[widest] = widths[widest].map(|width| width - 1);
            }
        }
        true
    }

    fn line(&self, text: &mut String, row: &[Cell], widths: &[Option<usize>], style: Style) {
        let mut line = String::new();
        let mut owed = 0; // spaces not written yet: none at the end of a line
        for ((cell, column), width) in row.iter().zip(&self.columns).zip(widths) {
            let Some(width) = *width else { continue };
            let shown = shorten(&cell.text, width);
            let pad = width - width_of(&shown).min(width);
            if column.align == Align::Right {
                owed += pad;
            }
            // A number may end with a blank, to stand below one that ends with a mark.
            let seen = shown.trim_end_matches(' ');
            if !seen.is_empty() {
                push_blanks(&mut line, owed);
                line += &style.paint(seen, cell.colour);
                owed = 0;
            }
            owed += shown.len() - seen.len();
            owed += GAP + if column.align == Align::Left { pad } else { 0 };
        }
        *text += &line;
        text.push('\n');
    }
}

/// A format's width must not be used for this: it ends the program beyond 65,535.
pub fn push_blanks(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

/// At least `width` cells.
pub fn padded(text: &str, width: usize) -> String {
    let mut text = text.to_owned();
    let missing = width.saturating_sub(text.width());
    push_blanks(&mut text, missing);
    text
}

/// The cells that a text takes. Most are plain, and a table may have ten thousand rows.
fn width_of(text: &str) -> usize {
    if is_plain(text) { text.len() } else { text.width() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            Column::text("NAME", 6),
            Column::text("PROJECT", 4).dispensable(2),
            Column::number("TOKENS").dispensable(1),
            Column::number("COST"),
        ]);
        table.row(["fix-the-authentication", "widgets", "12.3k", "$0.12"].map(Cell::from));
        table.row(["日本語の名前", "", "7", "$0.0001"].map(Cell::from));
        table.total(["total", "", "12.3k", "$0.1201"].map(Cell::from));
        table
    }

    const WIDE: &str = "\
NAME                    PROJECT  TOKENS     COST
fix-the-authentication  widgets   12.3k    $0.12
日本語の名前                          7  $0.0001
total                             12.3k  $0.1201
";

    #[test]
    fn columns_are_aligned_by_display_width() {
        assert_eq!(table().render(Style { colour: false, columns: usize::MAX }), WIDE);
        assert_eq!(table().render(Style { colour: false, columns: 48 }), WIDE);
    }

    #[test]
    fn a_narrow_terminal_first_shortens_then_drops_columns() {
        for columns in 15..60 {
            let text = table().render(Style { colour: false, columns });
            let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap();
            assert!(widest <= columns, "{widest} cells on {columns}:\n{text}");
            assert!(text.contains("$0.1201"), "the cost stays:\n{text}");
        }
        let narrow = table().render(Style { colour: false, columns: 30 });
        assert!(narrow.contains("fix-t") && narrow.contains('…') && !narrow.contains("PROJECT"), "{narrow}");
    }

    #[test]
    fn whole_columns_are_cut_when_no_column_can_be_dropped() {
        let mut table = Table::new([
            Column::text("NAME", 8),
            Column::text("STATUS", usize::MAX).at_worst(9),
            Column::number("COST").dispensable(1),
        ]);
        table.row(["fix-auth", "interrupted", "$0.12"].map(Cell::from));
        for (columns, row) in [
            (28, "fix-auth  interrupted  $0.12"),
            (27, "fix-auth  interrupted"),
            (21, "fix-auth  interrupted"),
            (20, "fix-auth  interrupt…"),
            (19, "fix-auth  interrup…"),
            (18, "fix-auth  interrupted"), // the terminal folds it, then it may as well be whole
        ] {
            let text = table.render(Style { colour: false, columns });
            assert_eq!(text.lines().nth(1), Some(row), "{columns}");
        }
    }

    #[test]
    fn a_blank_stands_below_a_mark_and_not_at_the_end_of_a_line() {
        let mut table = Table::new([Column::text("NAME", 4), Column::number("COST")]);
        table.row(["one", "$0.12+"].map(Cell::from));
        table.row(["two", "$0.12 "].map(Cell::from));
        assert_eq!(
            table.render(Style { colour: false, columns: 80 }),
            "NAME    COST\none   $0.12+\ntwo   $0.12\n"
        );
        let mut table = Table::new([Column::number("COST"), Column::text("ID", 4)]);
        table.row(["$0.12 ", "x"].map(Cell::from));
        assert_eq!(table.render(Style { colour: false, columns: 80 }).lines().nth(1), Some("$0.12   x"));
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        let coloured = table().render(Style { colour: true, columns: usize::MAX });
        let stripped =
            ["\x1b[0m", "\x1b[1m", "\x1b[2m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, WIDE);
    }
}
