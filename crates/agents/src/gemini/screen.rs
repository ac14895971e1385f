//! Gemini CLI's screen. What counts is its lower end: the composer below a rule of the whole width, or a box in its place, in which
//! a dialog or a question stands. Whatever is above is conversation, and may quote a dialog word for word.
//!
//! It hides the terminal's cursor, and yet moves it to where it draws its own. The title says `◇  Ready`, `✦  Working…` (or
//! what it thinks about) and `✋  Action Required`: from 0.40.1 on at the latest, unless the user has switched it off.

use crate::kit::dialog::ScreenDialog;
use crate::kit::screen::Boxed;
use crate::live::{Composer, ScreenReading, Shown};
use pty::screen::ScreenView;

pub(super) fn read(view: &ScreenView) -> ScreenReading {
    let rows: Vec<&str> = view.rows.iter().map(String::as_str).collect();
    let reported = reported(&view.title);
    if let Some(composer) = ComposerRows::find(&rows, view) {
        let shown = match (status(&rows[..composer.rule]), &reported) {
            (Some(status), _) => Some(Shown::Working(status)),
            (None, Some(Shown::Working(_) | Shown::NeedsInput(_))) => None,
            (None, _) => Some(Shown::Quiet),
        };
        let composer = Some(composer.read(&rows, view));
        return ScreenReading { shown, reported, composer, dialog: None };
    }
    // The title is `Ready` before the composer is there, and while a dialog covers it.
    let asks = matches!(reported, Some(Shown::NeedsInput(_)));
    let reported = reported.filter(|shown| *shown != Shown::Quiet);
    let boxed = Boxed::at_end(&rows, &['╭'], &['╰']);
    let dialog = boxed.as_ref().map(|boxed| ScreenDialog::read(&boxed.indented, &['●']));
    let shown = boxed.map(|boxed| shown(&boxed, asks));
    // 0.40.1 has no composer while it compresses, but its rule.
    let above = rows.iter().rposition(|row| is_rule(row)).unwrap_or(rows.len());
    let shown = shown.or_else(|| sessions(&rows)).or_else(|| status(&rows[..above]).map(Shown::Working));
    ScreenReading { shown, reported, composer: None, dialog }
}

fn reported(title: &str) -> Option<Shown> {
    let text = title.trim_start_matches(['◇', '✦', '✋', '⏲', '\u{fe0f}', ' ']);
    match title.chars().next()? {
        '◇' if text.starts_with("Ready") => Some(Shown::Quiet),
        '✋' => Some(Shown::NeedsInput("it waits for an answer".to_owned())),
        '✦' | '⏲' => Some(Shown::Working("working on a turn".to_owned())),
        _ => None,
    }
}

/// The line of status right above the composer: ` ⠏ Thinking... (esc to cancel, 3s)`. A command has none, but a spinner in the
/// conversation's last line: `⠹ Compressing chat history`; meanwhile the title says `Ready`.
fn status(above: &[&str]) -> Option<String> {
    const SPINNER: std::ops::RangeInclusive<char> = '\u{2801}'..='\u{28ff}';
    let near = above.iter().rev().filter(|row| !row.trim().is_empty()).take(STATUS_ROWS);
    let spins = |row: &&str| {
        let text = row.strip_prefix(' ').unwrap_or(row);
        text.strip_prefix(|first: char| SPINNER.contains(&first)).map(str::to_owned)
    };
    let text = near.copied().find_map(|row| spins(&row))?;
    // At the right end of the line may stand a hint.
    let what = text.trim().split("  ").next()?.split("(esc to cancel").next()?.trim().trim_end_matches('.');
    Some(if what.is_empty() || what == "Thinking" { "working on a turn".to_owned() } else { what.to_owned() })
}

/// The list of conversations stands in no box.
fn sessions(rows: &[&str]) -> Option<Shown> {
    let heading = rows.iter().rposition(|row| row.trim_start().starts_with("Chat Sessions ("))?;
    let keys = rows[heading..].iter().any(|row| row.trim_start().starts_with("Navigate: "));
    keys.then(|| Shown::Dialog("which conversation to resume".to_owned()))
}

/// In a narrow terminal the line of status is broken up.
const STATUS_ROWS: usize = 3;

/// The rows of the composer, and the rule above it.
struct ComposerRows {
    rule: usize,
    first: usize,
    last: usize,
}

/// In front of the text: `>`, `*` where no permission is asked for, `!` for a shell command.
const SIGNS: [&str; 3] = [" > ", " * ", " ! "];

impl ComposerRows {
    fn find(rows: &[&str], view: &ScreenView) -> Option<Self> {
        let rule = rows.iter().rposition(|row| is_rule(row))?;
        // The mode stands between the rule and the composer; in a narrow terminal in two rows.
        let near = rule + 1..rows.len().min(rule + 6);
        let first = near.into_iter().find(|&at| has_sign(rows[at]))?;
        let cursor = usize::from(view.cursor.0);
        let from = if (first..rows.len()).contains(&cursor) { cursor } else { first };
        let last = (from..rows.len())
            .find(|&at| rows[at].trim().is_empty() || is_lower_edge(rows[at]))
            .map_or(rows.len() - 1, |end| end - 1);
        Some(Self { rule, first, last: last.max(first) })
    }

    /// The caret stands at the first column of a placeholder, and behind what was typed.
    fn read(&self, rows: &[&str], view: &ScreenView) -> Composer {
        let lines: Vec<String> =
            rows[self.first..=self.last].iter().map(|row| row.chars().skip(3).collect::<String>()).collect();
        let untouched = (usize::from(view.cursor.0), view.cursor.1) == (self.first, 3);
        if untouched && self.first == self.last {
            return Composer::default();
        }
        Composer { text: lines.join("\n").trim_end().to_owned() }
    }
}

fn has_sign(row: &str) -> bool {
    SIGNS.iter().any(|sign| row.starts_with(sign) || row == sign.trim_end())
}

/// Where the terminal has all colours the composer stands between rows of half blocks.
fn is_lower_edge(row: &str) -> bool {
    row.starts_with("▀▀") && row.chars().all(|char| char == '▀')
}

fn is_rule(row: &str) -> bool {
    row.starts_with("──") && row.chars().all(|char| char == '─')
}

/// `asks`: the agent reports that an answer of the user is needed for a turn to go on.
fn shown(boxed: &Boxed<'_>, asks: bool) -> Shown {
    let rows = &boxed.rows;
    let heading = rows.iter().copied().find(|row| !row.is_empty()).unwrap_or("a dialog");
    let holds = |begin: &str| rows.iter().copied().find(|row| row.starts_with(begin));
    let named = |what: &str| {
        heading
            .strip_prefix("? ")
            .and_then(|text| text.split_once("  "))
            .map_or_else(|| what.to_owned(), |(_, about)| format!("{what}: {}", about.trim()))
    };
    if holds("Apply this change?").is_some() {
        return Shown::NeedsInput(named("permission to change a file"));
    }
    if let Some(question) = holds("Allow execution of") {
        let what = if question.contains("MCP tool") { question } else { "permission to run a command" };
        return Shown::NeedsInput(named(what));
    }
    match heading {
        "Answer Questions" => {
            let question = rows.iter().copied().filter(|row| !row.is_empty()).nth(1).unwrap_or_default();
            Shown::NeedsInput(format!("a question: {question}"))
        }
        "Ready to start implementation?" => Shown::NeedsInput("a plan to approve".to_owned()),
        other if asks => Shown::NeedsInput(other.trim_start_matches("? ").to_owned()),
        other => Shown::Dialog(words(boxed, other)),
    }
}

/// What a dialog is about; its heading, where it is none of the known ones. A second column may stand beside it.
fn words(boxed: &Boxed<'_>, heading: &str) -> String {
    let known = [
        ("Do you trust ", "whether to trust the folder"),
        ("How would you like to authenticate", "how to sign in"),
        ("Enter Gemini API Key", "how to sign in: an API key"),
    ];
    let found = known.iter().find(|(mark, _)| boxed.rows.iter().any(|row| row.starts_with(mark)));
    let heading = heading.trim_start_matches("> ").split("  ").next().unwrap_or(heading);
    found.map_or_else(|| format!("a menu: {heading}"), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_read() {
        for (title, expected) in [
            ("◇  Ready (project)", Some(Shown::Quiet)),
            ("✦  Working… (project)", Some(Shown::Working("working on a turn".to_owned()))),
            ("✦  Reading the manifest", Some(Shown::Working("working on a turn".to_owned()))),
            ("⏲  Working… (project)", Some(Shown::Working("working on a turn".to_owned()))),
            ("✋  Action Required (project)", Some(Shown::NeedsInput("it waits for an answer".to_owned()))),
            ("Gemini CLI (project)", None),
            ("", None),
        ] {
            assert_eq!(reported(title), expected, "{title}");
        }
    }

    /// It is `Ready` from its first moment on.
    #[test]
    fn idleness_is_not_reported_before_there_is_a_composer() {
        let view = ScreenView { title: "◇  Ready (project)".to_owned(), ..ScreenView::default() };
        assert_eq!(read(&view), ScreenReading::default());
    }

    #[test]
    fn rows_like_a_composer_in_the_conversation_are_none() {
        let rows = [" > begin", "", "✦ pong", ""].map(str::to_owned).to_vec();
        assert_eq!(
            read(&ScreenView { rows, cursor: (0, 8), ..ScreenView::default() }),
            ScreenReading::default()
        );
    }
}
