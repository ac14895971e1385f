//! Aligned tables that fit the terminal. First wide columns are shortened, then the least important ones are dropped, then
//! the remaining ones are shortened further where their content allows it.

use std::borrow::Cow;

use super::{Colour, Style};
use crate::text::{is_plain, shorten};
use unicode_width::UnicodeWidthStr;

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
pub struct Cell<'a> {
    text: Cow<'a, str>,
    colour: Colour,
}

impl<'a> Cell<'a> {
    pub fn painted(text: impl Into<Cow<'a, str>>, colour: Colour) -> Self {
        Self { text: text.into(), colour }
    }
}

impl<'a, T: Into<Cow<'a, str>>> From<T> for Cell<'a> {
    fn from(text: T) -> Self {
        Self { text: text.into(), colour: Colour::Plain }
    }
}

/// Rows as they are kept until the widths are known: all texts in one piece, and each measured once. Ten thousand rows have a
/// hundred thousand cells, and a piece of memory for each of them took longer than drawing them.
#[derive(Debug, Default)]
struct Rows {
    text: String,
    /// One for each column of each row, row after row.
    cells: Vec<MeasuredCell>,
}

#[derive(Clone, Copy, Debug)]
struct MeasuredCell {
    /// Where its text ends; it begins where the one before it ends.
    end: usize,
    width: u16,
    /// Each byte is a letter that takes one cell.
    is_plain: bool,
    colour: Colour,
}

impl Rows {
    /// A row with a cell for each column: missing ones are blank.
    fn push<'a>(&mut self, cells: impl IntoIterator<Item = Cell<'a>>, columns: usize) {
        let blank = std::iter::repeat_with(Cell::default);
        for Cell { text, colour } in cells.into_iter().chain(blank).take(columns) {
            // No text is wider than it has bytes.
            let text = if text.len() <= WIDEST { text } else { Cow::Owned(shorten(&text, WIDEST)) };
            let is_plain = is_plain(&text);
            let width = if is_plain { text.len() } else { text.width() };
            self.text += &text;
            let width = u16::try_from(width).unwrap_or(u16::MAX);
            self.cells.push(MeasuredCell { end: self.text.len(), width, is_plain, colour });
        }
    }

    /// The cells of one row, from the `first` of all.
    fn row(&self, first: usize, columns: usize) -> impl Iterator<Item = (&str, MeasuredCell)> {
        let mut begin = first.checked_sub(1).map_or(0, |before| self.cells[before].end);
        self.cells[first..first + columns].iter().map(move |cell| {
            let text = &self.text[begin..cell.end];
            begin = cell.end;
            (text, *cell)
        })
    }

    fn widest(&self, column: usize, columns: usize) -> usize {
        let cells = self.cells.iter().skip(column).step_by(columns.max(1));
        cells.map(|cell| cell.width).max().unwrap_or(0).into()
    }
}

#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Rows,
    /// The last row is a sum, set off by its weight.
    total: Rows,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Rows::default(), total: Rows::default() }
    }

    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = Cell<'a>>) {
        self.rows.push(cells, self.columns.len());
    }

    pub fn total<'a>(&mut self, cells: impl IntoIterator<Item = Cell<'a>>) {
        let heavy = |cell: Cell<'a>| Cell { colour: Colour::Heading, ..cell };
        self.total = Rows::default();
        self.total.push(cells.into_iter().map(heavy), self.columns.len());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.cells.is_empty()
    }

    /// Whether there is room for a column.
    pub fn shows(&self, title: &str, style: Style) -> bool {
        let widths = self.widths(style.columns);
        self.columns.iter().zip(widths).any(|(column, width)| column.title == title && width.is_some())
    }

    pub fn render(&self, style: Style) -> String {
        let widths = self.widths(style.columns);
        let columns = self.columns.len();
        let mut titles = Rows::default();
        titles.push(self.columns.iter().map(|column| Cell::painted(column.title, Colour::Faint)), columns);
        let mut text = String::new();
        for rows in [&titles, &self.rows, &self.total] {
            for first in (0..rows.cells.len()).step_by(columns.max(1)) {
                self.line(&mut text, rows.row(first, columns), &widths, style);
            }
        }
        text
    }

    /// The width of each column, `None` for those left out.
    fn widths(&self, available: usize) -> Vec<Option<usize>> {
        let columns = self.columns.len();
        let natural = |at: usize| {
            let cells = self.rows.widest(at, columns).max(self.total.widest(at, columns));
            cells.max(self.columns[at].title.width())
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

    fn line<'a>(
        &self,
        line: &mut String,
        row: impl Iterator<Item = (&'a str, MeasuredCell)>,
        widths: &[Option<usize>],
        style: Style,
    ) {
        let mut owed = 0; // spaces not written yet: none at the end of a line
        for (((text, cell), column), width) in row.zip(&self.columns).zip(widths) {
            let Some(width) = *width else { continue };
            let (shown, taken) = if cell.is_plain && text.len() <= width {
                (Cow::Borrowed(text), text.len())
            } else {
                let short = shorten(text, width);
                let taken = width_of(&short).min(width);
                (Cow::Owned(short), taken)
            };
            let pad = width - taken;
            if column.align == Align::Right {
                owed += pad;
            }
            // A number may end with a blank, to stand below one that ends with a mark.
            let seen = shown.trim_end_matches(' ');
            if !seen.is_empty() {
                push_blanks(line, owed);
                style.paint_onto(line, seen, cell.colour);
                owed = 0;
            }
            owed += shown.len() - seen.len();
            owed += GAP + if column.align == Align::Left { pad } else { 0 };
        }
        line.push('\n');
    }
}

/// A format's width must not be used for this: it ends the program beyond 65,535.
pub fn push_blanks(text: &mut String, count: usize) {
    const BLANKS: &str = "                                ";
    let mut missing = count;
    while missing > 0 {
        let some = missing.min(BLANKS.len());
        *text += &BLANKS[..some];
        missing -= some;
    }
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
    fn missing_cells_are_blank_and_further_ones_are_not_shown() {
        let mut table = Table::new([Column::text("A", 1), Column::number("B"), Column::text("C", 1)]);
        table.row(["1"].map(Cell::from));
        table.row(["1", "22", "333", "4444"].map(Cell::from));
        table.total(["", "", "t"].map(Cell::from));
        let text = table.render(Style { colour: false, columns: 80 });
        assert_eq!(text, "A   B  C\n1\n1  22  333\n       t\n");
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        let coloured = table().render(Style { colour: true, columns: usize::MAX });
        let stripped =
            ["\x1b[0m", "\x1b[1m", "\x1b[2m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, WIDE);
    }
}
