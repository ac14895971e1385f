//! What the screen of Qwen Code shows. What counts is its lower end: the composer between two rules, a permission or a question with
//! the row that waits for it as the last one, or a box. Whatever is above is conversation.
//!
//! The terminal's cursor stands in the composer. A placeholder or a suggestion of the model's begins under the cursor: it is not
//! typed. Behind what is typed stands a blank without width.
//!
//! The title says `◐ Qwen - FOLDER` while a turn goes on, `✳ …` while one waits for an answer, and else has no sign, unless the user
//! has switched it off.

use crate::kit::dialog::ScreenDialog;
use crate::kit::screen::{Boxed, ComposerRows, rules};
use crate::live::{Composer, ScreenReading, Shown};
use pty::screen::ScreenView;

const MARKS: &[char] = &['›', '❯'];

/// Queued prompts stand between the line of status and the composer.
const STATUS_ROWS: usize = 6;

pub(super) fn read(screen: &ScreenView) -> ScreenReading {
    let reported = reported(&screen.title);
    let reading = rows(screen);
    // The title has no sign before the composer is there, and while a dialog covers it.
    let reported = reported.filter(|shown| *shown != Shown::Quiet || reading.composer.is_some());
    ScreenReading { reported, ..reading }
}

fn reported(title: &str) -> Option<Shown> {
    Some(match title.chars().next()? {
        '◐' => Shown::Working("working on a turn".to_owned()),
        '✳' => Shown::NeedsInput("it waits for an answer".to_owned()),
        _ => Shown::Quiet,
    })
}

fn rows(screen: &ScreenView) -> ScreenReading {
    let rows: Vec<&str> = screen.rows.iter().map(String::as_str).collect();
    if let Some((shown, dialog)) = waiting(&rows) {
        return ScreenReading { shown: Some(shown), dialog: Some(dialog), ..ScreenReading::default() };
    }
    let signs = ['>', '*', '!', '?'];
    let Some(composer) = ComposerRows::between_rules(&screen.rows, &rules(&screen.rows), &signs) else {
        let boxed = Boxed::at_end(&rows, &['╭', '┌'], &['╰', '└']).filter(|boxed| chooses(boxed));
        let dialog = boxed.as_ref().map(|boxed| ScreenDialog::read(&boxed.indented, MARKS));
        return ScreenReading { shown: boxed.map(|boxed| menu(&boxed)), dialog, ..ScreenReading::default() };
    };
    let work = status(&rows[..composer.first - 1], &rows[composer.end + 1..]);
    let shown = Some(work.map_or(Shown::Quiet, Shown::Working));
    let untouched = (usize::from(screen.cursor.0), screen.cursor.1) == (composer.first, 2);
    let text = if untouched { String::new() } else { composer.typed(screen) };
    let text = text.trim_end_matches(['\u{200b}', ' ', '\n']).to_owned();
    ScreenReading { shown, composer: Some(Composer { text }), ..ScreenReading::default() }
}

/// What a turn waits for: `⠏ Waiting for user confirmation...`.
fn waiting(rows: &[&str]) -> Option<(Shown, ScreenDialog)> {
    let last = rows.iter().rposition(|row| !row.trim().is_empty())?;
    rows[last].trim_end().ends_with("Waiting for user confirmation...").then_some(())?;
    let begin = rows[..last].iter().rposition(|row| row.starts_with("  ? ")).unwrap_or(0);
    let block = &rows[begin..last];
    let has = |text: &str| block.iter().any(|row| row.trim_start().starts_with(text));
    let what = if has("Allow execution of") {
        "permission to run a command"
    } else if has("Apply this change?") {
        "permission to change a file"
    } else if has("Would you like to proceed?") {
        "approval of a plan"
    } else if has("↑/↓: Navigate") {
        "an answer to a question"
    } else {
        "permission to use a tool"
    };
    Some((Shown::NeedsInput(what.to_owned()), ScreenDialog::read(block, MARKS)))
}

/// The row above the composer: `.. Painting the serifs back on... (2s · ↓ 2 tokens · esc to cancel)`; or the one below it while the
/// program starts.
fn status(above: &[&str], below: &[&str]) -> Option<String> {
    let mut near = above.iter().rev().filter(|row| !row.trim().is_empty()).take(STATUS_ROWS);
    if near.any(|row| row.trim_end().ends_with("esc to cancel)")) {
        return Some("working on a turn".to_owned());
    }
    below.iter().any(|row| row.contains("Initializing...")).then(|| "it starts".to_owned())
}

/// Warnings stand in boxes as well; a menu has a marked row.
fn chooses(boxed: &Boxed<'_>) -> bool {
    boxed.rows.iter().any(|row| row.starts_with(MARKS))
}

fn menu(boxed: &Boxed<'_>) -> Shown {
    let heading = boxed.rows.iter().copied().find(|row| !row.is_empty()).unwrap_or("a dialog");
    Shown::Dialog(match heading {
        "Do you trust this folder?" => "whether to trust the folder".to_owned(),
        "Connect a Provider" => "how to sign in".to_owned(),
        "Resume Session" => "which conversation to resume".to_owned(),
        other => format!("a menu: {other}"),
    })
}
