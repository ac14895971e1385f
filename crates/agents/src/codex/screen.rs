//! Codex's screen. Full-screen since 0.150; before, it draws at the end of the terminal's own history. In both, what counts is the
//! lower end: a composer with a line of status below it, or a dialog in its place. Whatever stands above is conversation,
//! and may quote a dialog word for word.
//!
//! - The composer is the row `› …` in which the terminal's cursor stands; a dialog hides the cursor.
//! - The choices of a dialog begin with `›`, too, and below them is a line that names Enter and Esc.
//! - While an answer streams, 0.166.0 shows no sign of work on the screen: only the title has a spinner, and `OSC 7501` says
//!   `working`.

use crate::kit::dialog::ScreenDialog;
use crate::live::{Composer, ScreenReading, Shown};
use pty::screen::ScreenView;

pub(super) fn read(view: &ScreenView) -> ScreenReading {
    let rows: Vec<&str> = view.rows.iter().map(String::as_str).collect();
    let reported = reported(view);
    if let Some(dialog) = Dialog::find(&rows, view) {
        let asked = dialog.asked();
        return ScreenReading { shown: Some(dialog.shown()), reported, composer: None, dialog: Some(asked) };
    }
    let Some(composer) = ComposerRows::find(&rows, view) else {
        // The report alone is no proof that prompts can be typed: it is there before the composer is.
        return ScreenReading {
            shown: None,
            reported: reported.filter(|shown| *shown != Shown::Quiet),
            composer: None,
            dialog: None,
        };
    };
    let shown = match (status(&rows[..composer.first]), &reported) {
        (Some(status), _) => Some(Shown::Working(status)),
        (None, Some(Shown::Working(_) | Shown::NeedsInput(_))) => None,
        (None, _) => Some(Shown::Quiet),
    };
    ScreenReading { shown, reported, composer: Some(composer.read(&rows, view)), dialog: None }
}

/// What it reports by its own sequence (`state=blocked:app=codex:kind=permission`); where a version has none, by its title.
fn reported(view: &ScreenView) -> Option<Shown> {
    const SPINNER: std::ops::RangeInclusive<char> = '\u{2801}'..='\u{28ff}';
    if let Some(report) = &view.reported_state {
        let field =
            |name: &str| report.split(':').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        return match field("state")? {
            "idle" | "done" => Some(Shown::Quiet),
            "working" => Some(Shown::Working("working on a turn".to_owned())),
            "blocked" => Some(Shown::NeedsInput(match field("kind") {
                Some("permission") => "it asks for a permission".to_owned(),
                Some("question") => "it asks a question".to_owned(),
                _ => "it waits for an answer".to_owned(),
            })),
            _ => None,
        };
    }
    if view.title.starts_with('[') && view.title.contains("Action Required") {
        return Some(Shown::NeedsInput("it waits for an answer".to_owned()));
    }
    let spins = view.title.starts_with(|first: char| SPINNER.contains(&first));
    spins.then(|| Shown::Working("working on a turn".to_owned()))
}

/// The line of status above the composer: `• Working (3s • esc to interrupt)`, `◦ Compacting context (1s • esc to interrupt)`. Only its
/// details and waiting prompts stand between them.
fn status(above: &[&str]) -> Option<String> {
    for row in above.iter().rev().filter(|row| !row.trim().is_empty()) {
        let bullet = row.strip_prefix("• ").or_else(|| row.strip_prefix("◦ "));
        if let Some((what, rest)) = bullet.and_then(|text| text.split_once(" ("))
            && rest.contains("esc to interrupt)")
        {
            return Some(if what == "Working" { "working on a turn".to_owned() } else { what.to_owned() });
        }
        let waits =
            bullet.is_some_and(|text| text.starts_with("Queued ") || text.starts_with("Messages to be "));
        let detail = ["  └", "  ↳", "    "].iter().any(|begin| row.starts_with(begin));
        if !waits && !detail {
            return None;
        }
    }
    None
}

/// The rows of the composer.
struct ComposerRows {
    first: usize,
    last: usize,
}

const SIGN: char = '›';

impl ComposerRows {
    fn find(rows: &[&str], view: &ScreenView) -> Option<Self> {
        let (row, column) = (usize::from(view.cursor.0), view.cursor.1);
        if !view.cursor_visible || column < 2 || row >= rows.len() {
            return None;
        }
        let first = (0..=row).rev().find(|&at| rows[at].starts_with(SIGN))?;
        let inside = |at: &usize| rows[*at].is_empty() || rows[*at].starts_with("  ");
        if !(first + 1..=row).all(|at| inside(&at)) {
            return None;
        }
        // The status below is one block of rows behind a blank one; a text may hold blank rows, too.
        let end = (row..rows.len()).rev().find(|&at| !rows[at].trim().is_empty()).unwrap_or(row);
        let blank = (row + 1..=end).rev().find(|&at| rows[at].trim().is_empty());
        Some(Self { first, last: blank.map_or(row, |blank| blank - 1).max(row) })
    }

    /// The cursor stands at the first column of a placeholder, and behind what was typed.
    fn read(&self, rows: &[&str], view: &ScreenView) -> Composer {
        let text = |row: &&str| row.chars().skip(2).collect::<String>();
        let lines: Vec<String> = rows[self.first..=self.last].iter().map(text).collect();
        let untouched = (usize::from(view.cursor.0), view.cursor.1) == (self.first, 2);
        if untouched && lines.iter().skip(1).all(|line| line.is_empty()) {
            return Composer::default();
        }
        Composer { text: lines.join("\n").trim_end().to_owned() }
    }
}

/// A list of choices, or a text with keys below it, in the place of the composer.
struct Dialog<'a> {
    /// From its first row to the one above the line that names the keys.
    rows: &'a [&'a str],
}

impl<'a> Dialog<'a> {
    fn find(rows: &'a [&'a str], view: &ScreenView) -> Option<Self> {
        let last = rows.iter().rposition(|row| !row.trim().is_empty())?;
        // The picker of conversations has two lines of keys, and in a narrow terminal one line is broken in two.
        let keys =
            (last.saturating_sub(1)..=last).rev().find(|&at| names_keys(&rows[at..=last].join(" ")))?;
        // The composer's status may hold any words: the title of the conversation. A dialog hides the cursor, unless one can type
        // in it, below its choices.
        let typed_in = ComposerRows::find(rows, view);
        if typed_in.is_some_and(|at| usize::from(view.cursor.0) == at.first || !is_choice(rows[at.first])) {
            return None;
        }
        Some(Self { rows: &rows[..keys] })
    }

    /// (Its keys are known by its list, so the line that names them is no part of it.)
    fn asked(&self) -> ScreenDialog {
        // Up to 0.60 the first screens mark with the other sign.
        ScreenDialog::read(&self.rows[self.first()..], &[SIGN, '>'])
    }

    fn shown(&self) -> Shown {
        let question = self.question();
        let field = |name: &str| {
            let value = self.rows.iter().rev().find_map(|row| row.trim_start().strip_prefix(name));
            value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        match question.as_str() {
            "Would you like to run the following command?" => Shown::NeedsInput(field("$ ").map_or_else(
                || "permission to run a command".to_owned(),
                |command| format!("permission to run a command: {command}"),
            )),
            "Would you like to make the following edits?" => {
                Shown::NeedsInput(field("Destination:").map_or_else(
                    || "permission to edit files".to_owned(),
                    |file| format!("permission to edit files: {file}"),
                ))
            }
            asks if asks.starts_with("Would you like to ") => {
                Shown::NeedsInput(format!("permission: {asks}"))
            }
            "Implement this plan?" => Shown::NeedsInput("a plan to approve: Implement this plan?".to_owned()),
            asks if asks.starts_with("Question ") => {
                Shown::NeedsInput(format!("a question: {}", self.below(asks)))
            }
            other => Shown::Dialog(self.words(other)),
        }
    }

    /// What a dialog is about; its heading, where it is none of the known ones.
    fn words(&self, heading: &str) -> String {
        let holds = |text: &str| self.rows[self.first()..].iter().any(|row| row.contains(text));
        let known = [
            ("Trust this folder?", "whether to trust the folder"),
            ("Do you trust ", "whether to trust the folder"),
            ("Sign in with ", "how to sign in"),
            ("Update available", "an update is offered"),
            ("Hooks need review", "hooks to review"),
            ("Resume a previous session", "which conversation to resume"),
            ("Fork a previous session", "which conversation to copy"),
        ];
        let found = known.iter().find(|(mark, _)| holds(mark));
        found.map_or_else(|| format!("a menu: {heading}"), |(_, words)| (*words).to_owned())
    }

    /// The question of a turn, or the heading.
    fn question(&self) -> String {
        let known = ["Would you like to ", "Question ", "Implement this plan?"];
        let asked = |row: &&&str| {
            known.iter().any(|begin| row.strip_prefix("  ").is_some_and(|row| row.starts_with(begin)))
        };
        let block = &self.rows[self.first()..];
        let row = block.iter().rev().find(asked).or_else(|| block.iter().find(|row| !row.trim().is_empty()));
        row.map_or_else(|| "a dialog".to_owned(), |row| row.trim().to_owned())
    }

    /// Its first row. The choices are one block; what stands above them is separated by single blank rows, and from the
    /// conversation by two. A page without choices is the whole screen.
    fn first(&self) -> usize {
        let filled = |at: usize| !self.rows[at].trim().is_empty();
        let Some(choice) = self.rows.iter().rposition(|row| is_choice(row)) else { return 0 };
        let mut first = choice;
        while first > 0 && filled(first - 1) {
            first -= 1;
        }
        let mut allowed = usize::MAX;
        loop {
            let Some(end) = (0..first).rev().find(|&at| filled(at)) else { return first };
            if first - end - 1 > allowed {
                return first;
            }
            first = end;
            while first > 0 && filled(first - 1) {
                first -= 1;
            }
            allowed = 1;
        }
    }

    /// The line below the one that begins so.
    fn below(&self, line: &str) -> &'a str {
        let at = self.rows.iter().rposition(|row| row.trim() == line);
        at.and_then(|at| self.rows.get(at + 1)).map_or("", |row| row.trim())
    }
}

/// `› 1. Yes, proceed (y)`
fn is_choice(row: &str) -> bool {
    let text = row.trim_start_matches([SIGN, ' ', '>']);
    let label = text.trim_start_matches(|char: char| char.is_ascii_digit());
    label.len() < text.len() && label.starts_with(". ")
}

/// `Press enter to confirm or esc to cancel`, `enter select · esc back`, `tab to add notes | enter to submit answer | esc to interrupt`.
fn names_keys(row: &str) -> bool {
    let lower = row.to_lowercase();
    let words: Vec<&str> = lower.split(|char: char| !char.is_alphanumeric()).collect();
    words.contains(&"enter") && (words.contains(&"esc") || words.contains(&"continue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(rows: &[&str], cursor: (u16, u16)) -> ScreenView {
        let rows = rows.iter().map(|row| (*row).to_owned()).collect();
        ScreenView { rows, cursor, cursor_visible: true, ..ScreenView::default() }
    }

    #[test]
    fn reports_are_read() {
        let working = || Some(Shown::Working("working on a turn".to_owned()));
        for (report, title, expected) in [
            (Some("state=idle:app=codex"), "⠋ project", Some(Shown::Quiet)),
            (Some("state=done:app=codex"), "", Some(Shown::Quiet)),
            (Some("state=working:app=codex"), "", working()),
            (
                Some("state=blocked:app=codex:kind=permission"),
                "",
                Some(Shown::NeedsInput("it asks for a permission".to_owned())),
            ),
            (
                Some("state=blocked:app=codex"),
                "",
                Some(Shown::NeedsInput("it waits for an answer".to_owned())),
            ),
            (Some("state=clear"), "", None),
            (Some("nonsense"), "⠋ project", None),
            (None, "⠋ project", working()),
            (
                None,
                "[ ! ] Action Required | project",
                Some(Shown::NeedsInput("it waits for an answer".to_owned())),
            ),
            (None, "project", None),
            (None, "", None),
        ] {
            let view = ScreenView {
                title: title.to_owned(),
                reported_state: report.map(str::to_owned),
                ..view(&["› Ask", "", "  model"], (0, 2))
            };
            assert_eq!(read(&view).reported, expected, "{report:?} {title}");
        }
    }

    #[test]
    fn idleness_is_not_reported_before_there_is_a_composer() {
        let start =
            ScreenView { reported_state: Some("state=idle:app=codex".to_owned()), ..view(&["", ""], (0, 0)) };
        assert_eq!(read(&start), ScreenReading::default());
    }

    /// The choice is moved: the program draws two rows, and its hidden cursor stays there.
    #[test]
    fn a_dialog_is_one_wherever_its_hidden_cursor_stands() {
        let rows = [
            "• I make a file.",
            "",
            "",
            "  Would you like to run the following command?",
            "",
            "  $ touch made.txt",
            "",
            "  1. Yes, proceed (y)",
            "› 2. No (esc)",
            "",
            "  Press enter to confirm or esc to cancel",
        ];
        for cursor in [(8, 13), (7, 20), (10, 0), (0, 0)] {
            let view = ScreenView { cursor_visible: false, ..view(&rows, cursor) };
            let expected = Shown::NeedsInput("permission to run a command: touch made.txt".to_owned());
            assert_eq!(read(&view).shown, Some(expected), "{cursor:?}");
            assert_eq!(read(&view).composer, None);
        }
    }

    #[test]
    fn a_title_that_names_keys_is_no_dialog() {
        let rows =
            ["› first", "  second", "", "  GPT-5.5 default · ~/project · Continue behind Enter and Esc"];
        for cursor in [(0, 7), (1, 8)] {
            assert_eq!(read(&view(&rows, cursor)).composer.unwrap().text, "first\nsecond", "{cursor:?}");
        }
    }

    #[test]
    fn a_status_that_the_conversation_quotes_is_none() {
        let rows = [
            "• Working (3s • esc to interrupt)",
            "",
            "  Worked for 1s • 16:18",
            "",
            "",
            "› Ask",
            "",
            "  model",
        ];
        assert_eq!(read(&view(&rows, (5, 2))).shown, Some(Shown::Quiet));
        let rows = ["• Working (3s • esc to interrupt)", "  └ Reading", "", "", "› Ask", "", "  model"];
        assert_eq!(read(&view(&rows, (4, 2))).shown, Some(Shown::Working("working on a turn".to_owned())));
    }
}
