//! What an agent asks, on a terminal: its screen, and how to answer.

use crate::output::{Colour, Style};
use crate::report::question::Question;
use human::shell;
use human::text::clean;

/// The screen, and below it the choices with the command that makes one.
pub(super) fn draw(question: &Question, name: &str, style: Style) -> String {
    let screen: String = question.screen.iter().map(|row| format!("{}\n", clean(row))).collect();
    format!("{screen}\n{}", how_to_answer(question, name, style))
}

fn how_to_answer(question: &Question, name: &str, style: Style) -> String {
    let word = shell::word(name);
    match &question.dialog {
        Some(dialog) if !dialog.choices.is_empty() => {
            let command = format!("codemie answer {word} --dialog {} CHOICE", dialog.hash);
            let choices = dialog.choices.iter();
            let choices: String =
                choices.map(|choice| format!("  {}  {}\n", choice.number, clean(&choice.label))).collect();
            format!("{}\n{choices}", style.paint(&command, Colour::Heading))
        }
        _ => style.fold(&format!(
            "It asks something that cannot be answered by a number: `codemie attach {word}` and answer there."
        )),
    }
}
