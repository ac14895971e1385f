//! What the screen of Claude Code shows.
//!
//! Everything is told by the layout of its lower end, never by words alone: an answer may quote a dialog or end in a question.
//! The composer stands between the last two rules, and only a footer or a menu of completions stands below it. A dialog takes the
//! composer's place; it is the last thing on the screen, ends in a line of keys, or has a numbered choice marked by `❯`.
//!
//! The agent hides the terminal's cursor and draws a caret of inverse colours. Suggestions in the composer are faint, and the
//! caret stands on their first letter.

use crate::kit::dialog::ScreenDialog;
use crate::kit::screen::{ComposerRows, is_rule, rules};
use crate::live::{Composer, ScreenReading, Shown};
use pty::screen::ScreenView;

pub(super) fn read(screen: &ScreenView) -> ScreenReading {
    let layout = Layout::of(&screen.rows);
    let reported = reported(&screen.title);
    let Some(rows) = layout.composer else {
        let shown = dialog(&screen.rows[layout.dialog..]);
        let dialog = shown.is_some().then(|| asked(&screen.rows, layout.dialog));
        return ScreenReading { shown, reported, composer: None, dialog };
    };
    let work = work(&screen.rows, rows);
    let composer = Some(Composer { text: rows.typed(screen) });
    ScreenReading { shown: Some(work.map_or(Shown::Quiet, Shown::Working)), reported, composer, dialog: None }
}

/// What stands in the dialog that begins in this row.
fn asked(rows: &[String], begin: usize) -> ScreenDialog {
    const MARK: &[char] = &['❯'];
    let trimmed = |row: &String| row.trim().to_owned();
    let holds = |from: usize, text: &str| rows[from..].iter().position(|row| trimmed(row).starts_with(text));
    // The plan that is to be approved stands above the rule, and the pictures of the first screens move.
    let plan = rows[..begin.saturating_sub(1)].iter().rposition(|row| is_rule(row)).map(|rule| rule + 1);
    let plan = plan.filter(|plan| {
        rows[*plan..begin].iter().map(trimmed).find(|row| !row.is_empty()).as_deref()
            == Some("Ready to code?")
    });
    let first_screen = || {
        let heading = |text: &str| holds(begin, text).map(|at| begin + at);
        heading("Choose the text style").or_else(|| heading("Select login method"))
    };
    let begin = plan.or_else(first_screen).unwrap_or(begin);
    let block: Vec<&str> = rows[begin..].iter().map(String::as_str).collect();
    let dialog = ScreenDialog::read(&block, MARK);
    let has = |text: &str| block.iter().any(|row| row.contains(text));
    // These lists have no numbers from 2.1.325 on at the latest. In others a row need not be a choice.
    let unnumbered = has("Is this a project you created") || has("Do you want to use this API key");
    if dialog.choices.is_empty() && unnumbered { ScreenDialog::read_unnumbered(&block, MARK) } else { dialog }
}

/// Where things stand.
#[derive(Clone, Copy, Debug)]
struct Layout {
    composer: Option<ComposerRows>,
    /// The first row of the dialog, if there is one.
    dialog: usize,
}

impl Layout {
    fn of(rows: &[String]) -> Self {
        let rules = rules(rows);
        let composer = ComposerRows::between_rules(rows, &rules, &['❯', '>', '!', '#']);
        Self { composer, dialog: dialog_begin(rows, &rules) }
    }
}

/// Below the last rule; but a rule may divide a list of choices, and then the one before it.
fn dialog_begin(rows: &[String], rules: &[usize]) -> usize {
    let begins = rules.iter().rev().map(|rule| rule + 1).chain([0]);
    let goes_on = |begin: &usize| {
        let first = rows[*begin..].iter().find(|row| !row.trim().is_empty());
        first
            .and_then(|row| choice_number(row.trim().trim_start_matches("❯ ")))
            .is_some_and(|number| number > 1)
    };
    begins.into_iter().find(|begin| !goes_on(begin)).unwrap_or(0)
}

/// What the agent works on, by the line above the composer that goes on changing, or by the key in the footer that stops it.
fn work(rows: &[String], ComposerRows { first, end }: ComposerRows) -> Option<String> {
    let conversation = &rows[..first - 1];
    let spinner =
        conversation.iter().rev().take_while(|row| !row.starts_with('●')).find(|row| is_spinner(row));
    let stoppable = rows[end + 1..].iter().any(|row| row.contains("esc to interrupt"));
    if spinner.is_none() && !stoppable {
        return None;
    }
    let compacting = spinner.is_some_and(|row| row.contains("ompacting"));
    let tool =
        || conversation.iter().rev().take_while(|row| !row.starts_with('❯')).any(|row| is_running_tool(row));
    Some(if compacting {
        "it compacts the conversation".to_owned()
    } else if tool() {
        "a tool runs".to_owned()
    } else {
        "it works on an answer".to_owned()
    })
}

/// `✻ Pondering… (3s · ↓ 20 tokens)`; `✻ Worked for 3s` when it is over.
fn is_spinner(row: &str) -> bool {
    let mut letters = row.chars();
    letters.next().is_some_and(|sign| "·✢✳✶✻✽*".contains(sign))
        && letters.next() == Some(' ')
        && row.contains('…')
}

fn is_running_tool(row: &str) -> bool {
    row.trim_start().strip_prefix('⎿').is_some_and(|text| text.trim_start().starts_with("Running"))
}

/// What the last block of the screen asks, if it asks something.
fn dialog(block: &[String]) -> Option<Shown> {
    let lines: Vec<&str> = block.iter().map(|row| row.trim()).filter(|row| !row.is_empty()).collect();
    let keys = lines.iter().rev().take(3).any(|line| names_keys(line));
    let choice = lines.iter().any(|line| is_marked_choice(line));
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    // The first screens of all name no keys.
    let first_screens = has("Choose the text style") || has("Select login method");
    if !keys && !choice && !first_screens {
        return None;
    }
    let asks = |text: &str| choice && lines.iter().any(|line| line.starts_with(text));
    let needs = |what: &str| Some(Shown::NeedsInput(what.to_owned()));
    let opens = |what: &str| Some(Shown::Dialog(what.to_owned()));
    if has("Is this a project you created") || has("Do you trust the files") {
        opens("it asks whether to trust this folder")
    } else if has("API key") && (has("Detected") || has("Do you want to use this API key")) {
        opens("it asks whether to use an API key")
    } else if first_screens {
        opens("it is being set up")
    } else if asks("Do you want to") {
        needs(permission(lines.first().copied().unwrap_or_default()))
    } else if choice && (has("Would you like to proceed?") || asks("Exit plan mode?")) {
        needs("approval of a plan")
    } else if choice && (has("Type something") || has("Chat about this")) {
        needs("an answer to a question")
    } else if has("Resume") {
        opens("it asks which conversation to resume")
    } else {
        opens("a menu is open")
    }
}

/// The permission that is asked for in a dialog of this title.
fn permission(title: &str) -> &'static str {
    const KINDS: &[(&str, &str)] = &[
        ("Bash", "permission to run a command"),
        ("Edit", "permission to change a file"),
        ("Create", "permission to change a file"),
        ("Write", "permission to change a file"),
        ("Overwrite", "permission to change a file"),
        ("Fetch", "permission to fetch a page"),
        ("Read", "permission to read a file"),
        ("Search", "permission to read a file"),
    ];
    let kind = KINDS.iter().find(|(word, _)| title.starts_with(word));
    kind.map_or("permission to use a tool", |(_, what)| what)
}

/// `❯ 1. Yes`.
fn is_marked_choice(line: &str) -> bool {
    line.strip_prefix("❯ ").and_then(choice_number).is_some()
}

/// The number of `2. No`.
fn choice_number(line: &str) -> Option<usize> {
    line.split_once(". ")?.0.parse().ok()
}

/// `Enter to confirm · Esc to cancel`. The footer of the composer names keys, too, but not to leave it.
fn names_keys(line: &str) -> bool {
    !line.contains("esc to interrupt")
        && ["Esc to ", "Enter to ", "esc to ", "enter to "].iter().any(|keys| line.contains(keys))
}

/// The title begins with a turning sign while the agent works. At other times it says nothing about the state: it is the same
/// before the first prompt, in dialogs and after a turn.
fn reported(title: &str) -> Option<Shown> {
    // Braille dots up to 2.1.259 at least; a half-filled circle in 2.1.325.
    let is_turning = |sign: char| ('\u{2800}'..='\u{28ff}').contains(&sign) || "◐◓◑◒".contains(sign);
    let turning = title.chars().next().is_some_and(is_turning);
    turning.then(|| Shown::Working("its title says that it works".to_owned()))
}
