//! What an agent asks, on a terminal: its screen, and how to answer.

use std::fmt::Write;

use format::output::{Colour, Style};
use format::shell;
use format::text::clean;
use report::question::Question;

/// The screen, and below it the choices with the command that makes one.
pub(super) fn draw(question: &Question, name: &str, style: Style) -> String {
    let mut text = String::new();
    for row in &question.screen {
        text += &clean(row);
        text.push('\n');
    }
    text.push('\n');
    text + &how_to_answer(question, name, style)
}

fn how_to_answer(question: &Question, name: &str, style: Style) -> String {
    let word = shell::word(name);
    match &question.dialog {
        Some(dialog) if !dialog.choices.is_empty() => {
            let command = format!("codemie answer {word} --dialog {} CHOICE", dialog.hash);
            let mut text = style.paint(&command, Colour::Heading) + "\n";
            for choice in &dialog.choices {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "  {}  {}", choice.number, clean(&choice.label));
            }
            text
        }
        _ => style.fold(&format!(
            "It asks something that cannot be answered by a number: `codemie attach {word}` and answer there."
        )),
    }
}
