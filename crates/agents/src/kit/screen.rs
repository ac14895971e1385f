//! Finding the place where prompts are typed, and boxes, on a screen.

use unicode_width::UnicodeWidthChar;

use pty::screen::{CellRange, ScreenView};

/// The rows of a composer that stands between two rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComposerRows {
    pub(crate) first: usize,
    /// The rule below it.
    pub(crate) end: usize,
}

impl ComposerRows {
    /// Between the last two rules, if its first row begins with one of these signs.
    pub(crate) fn between_rules(rows: &[String], rules: &[usize], signs: &[char]) -> Option<Self> {
        match rules[..] {
            [.., above, below] if rows[above + 1].starts_with(signs) && below > above + 1 => {
                Some(Self { first: above + 1, end: below })
            }
            _ => None,
        }
    }

    /// What has been typed: without the sign, the caret and suggestions. Rows that only the width of the screen divides are not
    /// joined again.
    pub(crate) fn typed(self, screen: &ScreenView) -> String {
        let rows = (self.first..self.end).map(|row| {
            let text = typed_in_row(screen, row);
            // The sign and a blank, or the indent.
            text.chars().skip(2).collect::<String>().trim_end().to_owned()
        });
        rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }
}

/// The rows that are rules.
pub(crate) fn rules(rows: &[String]) -> Vec<usize> {
    (0..rows.len()).filter(|row| is_rule(&rows[*row])).collect()
}

/// A line across the screen; one may carry a name at its end.
pub(crate) fn is_rule(row: &str) -> bool {
    row.starts_with("────────") || row.starts_with("▔▔▔▔▔▔▔▔")
}

/// The cells of a row that nobody suggested.
fn typed_in_row(screen: &ScreenView, row: usize) -> String {
    let of_row = |cells: &&CellRange| usize::from(cells.row) == row;
    let faint: Vec<&CellRange> = screen.faint.iter().filter(of_row).collect();
    let suggested = |column: usize| {
        let is_faint = |column: usize| {
            faint.iter().any(|cells| (usize::from(cells.from)..usize::from(cells.to)).contains(&column))
        };
        // The caret stands on the first letter of a suggestion, which is not faint then.
        let caret = screen
            .inverse
            .iter()
            .filter(of_row)
            .any(|cells| usize::from(cells.from) == column && usize::from(cells.to) == column + 1);
        is_faint(column) || caret && is_faint(column + 1)
    };
    let mut column = 0;
    let letters = screen.rows[row].chars().filter(|letter| {
        let at = column;
        column += letter.width().unwrap_or(0);
        at < 2 || !suggested(at)
    });
    letters.collect()
}

/// What is lower is no box whose end is below the screen, but one that is still being drawn.
const TALL: usize = 15;

/// A box at the end of the screen.
#[derive(Debug)]
pub(crate) struct Boxed<'a> {
    /// What stands in it, without its sides.
    pub(crate) rows: Vec<&'a str>,
    /// The same with its indents.
    pub(crate) indented: Vec<&'a str>,
}

impl<'a> Boxed<'a> {
    /// A box can be higher than the screen: then its upper or lower edge is not there.
    /// `upper` and `lower`: how its edges begin.
    pub(crate) fn at_end(rows: &[&'a str], upper: &[char], lower: &[char]) -> Option<Self> {
        let begins = |at: usize, edge: &[char]| rows[at].trim_start().starts_with(edge);
        let last = rows.iter().rposition(|row| !row.trim().is_empty())?;
        // A line of help may stand below it.
        let bottom = (last.saturating_sub(2)..=last).rev().find(|&at| begins(at, lower));
        let top = (0..bottom.unwrap_or(last)).rev().find(|&at| begins(at, upper));
        let (first, end) = match (top, bottom) {
            (Some(top), Some(bottom)) => (top + 1, bottom),
            (None, Some(bottom)) if begins(0, &['│']) => (0, bottom),
            (Some(top), None) if begins(last, &['│']) && last - top > TALL => (top + 1, last + 1),
            _ => return None,
        };
        let inner = |row: &&'a str| row.trim().trim_start_matches('│').trim_end_matches('│').trim();
        let sides = |row: &&'a str| {
            let row = row.trim();
            let row = row.strip_prefix('│').unwrap_or(row);
            row.strip_suffix('│').unwrap_or(row).trim_end()
        };
        let indented = rows[first..end].iter().map(sides).collect();
        Some(Self { rows: rows[first..end].iter().map(inner).collect(), indented })
    }
}
