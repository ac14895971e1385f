//! A dialog on an agent's screen: what it asks, what can be chosen, and what makes it this very dialog.
//!
//! An agent's own module finds the rows of its dialog; what stands in them is read here, for all agents alike. Only a list in
//! which the agent marks one choice is one that can be answered: numbers in a plan or in a command that is shown are none.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use types::hex::hex;

/// Agents take the key of one digit; a longer number would be two keys.
const MOST_CHOICES: u32 = 9;

/// Digits of a hash that are kept: 64 bits, for dialogs of one screen that follow each other.
const HASH_DIGITS: usize = 16;

/// One thing that can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Choice {
    pub number: u32,
    pub label: String,
}

/// How a choice is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChoiceKeys {
    /// The key of its number.
    #[default]
    Digit,
    /// The list has no numbers: arrows move the mark, and Enter takes what is marked.
    Arrows,
}

/// What stands in the rows of a dialog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenDialog {
    /// What is asked: everything above the choices.
    pub text: String,
    /// Those that can be made; empty where the dialog is no such list.
    pub choices: Vec<Choice>,
    /// The number of the choice that is marked.
    pub marked: Option<u32>,
    pub keys: ChoiceKeys,
    /// Every row of it, without the mark, which moves while the dialog stays the same.
    cells: String,
}

impl ScreenDialog {
    /// From rows without the sides of a box. `marks`: what the agent puts in front of the choice that is selected.
    pub fn read(rows: &[&str], marks: &[char]) -> Self {
        let list = NumberedList::last(rows, marks).filter(|list| list.marked.is_some());
        let first = list.as_ref().map_or(rows.len(), |list| list.first);
        let (choices, marked) = list.map(|list| (list.choices, list.marked)).unwrap_or_default();
        Self::new(rows, marks, first, choices, marked, ChoiceKeys::Digit)
    }

    /// The same of a dialog whose choices have no numbers: the rows around the mark that begin in its column.
    pub fn read_unnumbered(rows: &[&str], marks: &[char]) -> Self {
        let label = |row: &str| {
            let (mark, rest) = without_mark(row, marks);
            let text = rest.trim();
            (!text.is_empty() && !is_frame(text)).then(|| (mark, column_of(row, rest), text.to_owned()))
        };
        let labels: Vec<_> = rows.iter().map(|row| label(row)).collect();
        let Some(at) = labels.iter().position(|label| label.as_ref().is_some_and(|(mark, ..)| *mark)) else {
            return Self::read(rows, marks);
        };
        let column = labels[at].as_ref().map(|(_, column, _)| *column);
        let same = |at: &usize| labels[*at].as_ref().map(|(_, column, _)| *column) == column;
        let first = (0..=at).rev().take_while(same).last().unwrap_or(at);
        let list = (first..rows.len()).take_while(same).filter_map(|at| labels[at].clone());
        let numbered = list.zip(1..=MOST_CHOICES).map(|((_, _, label), number)| Choice { number, label });
        let marked = u32::try_from(at - first + 1).ok();
        Self::new(rows, marks, first, numbered.collect(), marked, ChoiceKeys::Arrows)
    }

    fn new(
        rows: &[&str],
        marks: &[char],
        first_choice: usize,
        choices: Vec<Choice>,
        marked: Option<u32>,
        keys: ChoiceKeys,
    ) -> Self {
        let rows_without_mark = rows.iter().map(|row| without_mark(row, marks).1.trim());
        let filled: Vec<&str> = rows_without_mark.filter(|row| !row.is_empty()).collect();
        Self { text: text(&rows[..first_choice]), choices, marked, keys, cells: filled.join("\n") }
    }

    /// A hash over its cells. `occasion` tells apart dialogs that look the same and come one after the other.
    pub fn hash(&self, occasion: &str) -> String {
        let digest = Sha256::new().chain_update(occasion).chain_update("\0").chain_update(&self.cells);
        let mut hash = hex(&digest.finalize());
        hash.truncate(HASH_DIGITS);
        hash
    }
}

/// A list with numbers that follow each other.
#[derive(Default)]
struct NumberedList {
    /// The row of its first choice.
    first: usize,
    choices: Vec<Choice>,
    marked: Option<u32>,
}

impl NumberedList {
    /// The last one: what is asked about may hold lists of its own above it.
    fn last(rows: &[&str], marks: &[char]) -> Option<Self> {
        let mut list: Option<Self> = None;
        // Where the label of the choice above begins; `None` behind a row that is not part of it.
        let mut column = None;
        for (at, row) in rows.iter().enumerate() {
            let (marked, rest) = without_mark(row, marks);
            let Some((number, label)) = numbered(rest) else {
                let text = cell_text(row);
                let continues = column.is_some_and(|column| column_of(row, row.trim_start()) >= column);
                match list.as_mut().and_then(|list| list.choices.last_mut()) {
                    Some(above) if continues && !text.is_empty() && !is_frame(text) => {
                        above.label = format!("{} {text}", above.label);
                    }
                    _ => column = None,
                }
                continue;
            };
            column = Some(column_of(row, label));
            let follows = list
                .as_ref()
                .and_then(|list| list.choices.last())
                .is_some_and(|last| last.number + 1 == number);
            if !follows {
                list = Some(Self { first: at, ..Self::default() });
            }
            if let Some(list) = &mut list {
                list.marked = if marked { Some(number) } else { list.marked };
                list.choices.push(Choice { number, label: cell_text(label).to_owned() });
            }
        }
        let mut list = list?;
        list.choices.retain(|choice| (1..=MOST_CHOICES).contains(&choice.number));
        Some(list)
    }
}

/// The number of `2. No`, and its label.
fn numbered(text: &str) -> Option<(u32, &str)> {
    let (number, label) = text.split_once(". ")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let label = label.trim_start();
    (is_number && !label.is_empty()).then_some(())?;
    Some((number.parse().ok()?, label))
}

/// Whether a row begins with a mark, and what stands behind it.
fn without_mark<'a>(row: &'a str, marks: &[char]) -> (bool, &'a str) {
    let text = row.trim_start();
    match text.strip_prefix(marks) {
        Some(rest) if rest.starts_with(' ') => (true, rest.trim_start()),
        _ => (false, text),
    }
}

/// In which column of a row a part of it begins. What stands before it is signs of one column each.
fn column_of(row: &str, part: &str) -> usize {
    row[..row.len() - part.len()].chars().count()
}

/// What a row says: without a column beside it (a preview).
fn cell_text(row: &str) -> &str {
    row.split(" │").next().unwrap_or(row).trim()
}

/// A rule, or the edge of a box.
fn is_frame(text: &str) -> bool {
    text.chars().all(|sign| is_frame_sign(sign) || sign == ' ')
}

fn is_frame_sign(sign: char) -> bool {
    ('\u{2500}'..='\u{257f}').contains(&sign) || sign == '▔'
}

/// Rows as a text: without frames, the common indent and blank rows at both ends; several blank rows are one.
fn text(rows: &[&str]) -> String {
    let inner = rows.iter().map(|row| row.trim_end_matches(|sign| is_frame_sign(sign) || sign == ' '));
    let inner = inner.map(|row| match row.trim_start().strip_prefix('│') {
        Some(boxed) => boxed,
        None => row,
    });
    let lines: Vec<&str> = inner
        .zip(rows)
        // A rule is left out, a row that was blank before is kept.
        .filter(|(line, row)| !is_frame(line) || row.trim().is_empty())
        .map(|(line, _)| line)
        .collect();
    let indent = |line: &&str| line.len() - line.trim_start_matches(' ').len();
    let common = lines.iter().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        let line = line.get(common..).unwrap_or("");
        if !(line.is_empty() && (text.is_empty() || text.ends_with("\n\n"))) {
            text += line;
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: &[char] = &['❯', '›', '●'];

    fn read(rows: &str) -> ScreenDialog {
        ScreenDialog::read(&rows.lines().collect::<Vec<_>>(), MARKS)
    }

    fn labels(dialog: &ScreenDialog) -> Vec<(u32, &str)> {
        dialog.choices.iter().map(|choice| (choice.number, choice.label.as_str())).collect()
    }

    const ASKED: &str = " Bash command\n\n   touch made.txt\n\n Do you want to proceed?\n ❯ 1. Yes\n   2. Yes, and always\n      for touch\n   3. No\n\n Esc to cancel";

    #[test]
    fn a_dialog_has_a_text_and_choices() {
        let dialog = read(ASKED);
        assert_eq!(dialog.text, "Bash command\n\n  touch made.txt\n\nDo you want to proceed?");
        assert_eq!(labels(&dialog), [(1, "Yes"), (2, "Yes, and always for touch"), (3, "No")]);
        assert_eq!((dialog.marked, dialog.keys), (Some(1), ChoiceKeys::Digit));
    }

    #[test]
    fn the_hash_is_that_of_the_text_and_the_choices_and_not_of_the_mark() {
        let hash = read(ASKED).hash("");
        assert_eq!(hash.len(), HASH_DIGITS);
        let moved = ASKED.replace("❯ 1.", "  1.").replace("   3.", " ❯ 3.");
        assert_eq!(read(&moved).hash(""), hash, "the mark moved");
        assert_eq!(read(&format!("\n{ASKED}   \n\n")).hash(""), hash, "blank cells around it");
        for (from, to) in [
            ("made", "more"),
            ("2. Yes, and always", "2. Yes, and never"),
            ("3. No", "3. Nope"),
            ("Esc", "Tab"),
        ] {
            assert_ne!(read(&ASKED.replace(from, to)).hash(""), hash, "{to}");
        }
        assert_ne!(read(ASKED).hash("the next one"), hash, "one that looks the same");
    }

    #[test]
    fn lists_that_are_asked_about_are_no_choices() {
        let plan = " A plan\n 1. Do this.\n 2. Do that.\n Proceed?\n ❯ 1. Yes\n   2. No";
        assert_eq!(labels(&read(plan)), [(1, "Yes"), (2, "No")]);
        assert_eq!(read(plan).text, "A plan\n1. Do this.\n2. Do that.\nProceed?");
        let none = read(" A plan\n 1. Do this.\n 2. Do that.\n Enter to go on");
        assert_eq!((none.choices.len(), none.marked), (0, None), "nothing is marked");
        assert!(none.text.ends_with("Enter to go on"));
    }

    #[test]
    fn choices_go_on_below_a_rule_and_up_to_nine() {
        let rows = "Which?\n❯ 1. Red\n     a warm one\n  2. Type something.\n────────\n  3. Chat about this\nEnter to select";
        assert_eq!(
            labels(&read(rows)),
            [(1, "Red a warm one"), (2, "Type something."), (3, "Chat about this")]
        );
        let many = (1..=12).map(|n| format!("{} {n}. Theme {n}   │ preview", if n == 4 { '●' } else { ' ' }));
        let many = read(&many.collect::<Vec<_>>().join("\n"));
        assert_eq!((many.choices.len(), many.choices[8].label.as_str()), (9, "Theme 9"));
        let scrolled = read("  7. Seven\n› 8. Eight\n  9. Nine");
        assert_eq!(labels(&scrolled), [(7, "Seven"), (8, "Eight"), (9, "Nine")]);
    }

    #[test]
    fn choices_without_numbers_are_counted() {
        let rows = [
            " Trust it?",
            "",
            " Security guide",
            "",
            " ❯ No, exit",
            "   Yes, I trust it",
            "",
            " Enter to confirm",
        ];
        let dialog = ScreenDialog::read_unnumbered(&rows, MARKS);
        assert_eq!(labels(&dialog), [(1, "No, exit"), (2, "Yes, I trust it")]);
        assert_eq!((dialog.marked, dialog.keys), (Some(1), ChoiceKeys::Arrows));
        assert_eq!(dialog.text, "Trust it?\n\nSecurity guide");
        let moved = [rows[0], "", rows[2], "", "   No, exit", " ❯ Yes, I trust it", "", rows[7]];
        let moved = ScreenDialog::read_unnumbered(&moved, MARKS);
        assert_eq!((moved.hash(""), moved.marked), (dialog.hash(""), Some(2)));
    }

    #[test]
    fn boxes_around_what_is_asked_are_left_out() {
        let dialog = read(
            " ? Shell  touch made.txt\n ╭─────╮\n │ touch made.txt │\n ╰─────╯\n Allow?\n\n ● 1. Allow once",
        );
        assert_eq!(dialog.text, "? Shell  touch made.txt\ntouch made.txt\nAllow?");
    }
}
