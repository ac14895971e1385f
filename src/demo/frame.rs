//! The scripted agent's screen as rows of text: a heading, the conversation, the input line. Pure.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use format::output::{Colour, Style};
use format::text::shorten;

/// A screen lower than this has no room for a heading, a shorter one than [`CRAMPED`] none for rules.
const LOW: usize = 14;
const CRAMPED: usize = 8;

/// What the screen shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) messages: Vec<Message>,
    /// The step of the spinner while an answer is awaited.
    pub(super) busy: Option<usize>,
    /// The text on the input line.
    pub(super) typed: String,
    pub(super) tokens: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    Prompt(String),
    Answer(String),
    /// A tool's call, and its result, line by line.
    Tool(String, Vec<(String, Colour)>),
    /// A note about the conversation.
    Note(String),
}

/// A finished screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// From the top, one per row of the terminal.
    pub(super) rows: Vec<String>,
    /// Row and column, counted from 1.
    pub(super) cursor: (usize, usize),
}

pub(super) const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠧", "⠇", "⠏"];

const TITLE: &str = "demo agent";
const SUBTITLE: &str = "a scripted stand-in; no model is called";

/// Pieces of one colour each.
type Row = Vec<(String, Colour)>;

pub(super) fn frame(scene: &Scene, rows: usize, style: Style) -> Frame {
    let columns = style.columns.max(8);
    let mut heading = if rows >= LOW { heading(columns) } else { Vec::new() };
    let (composer, cursor) = composer(scene, columns, rows >= CRAMPED);
    let room = rows.saturating_sub(heading.len() + composer.len());
    let mut body = conversation(scene, columns);
    if body.len() > room {
        body.drain(..body.len() - room); // the latest messages stay in sight
    }
    body.resize_with(room, Row::new);
    let typing = heading.len() + room + cursor.0;
    heading.extend(body);
    heading.extend(composer);
    heading.truncate(rows);
    let painted = |row: Row| row.iter().map(|(text, colour)| style.paint(text, *colour)).collect();
    Frame {
        rows: heading.into_iter().map(painted).collect(),
        cursor: (typing.min(rows), cursor.1.min(columns)),
    }
}

fn plain(text: impl Into<String>) -> (String, Colour) {
    (text.into(), Colour::Plain)
}

fn faint(text: impl Into<String>) -> (String, Colour) {
    (text.into(), Colour::Faint)
}

fn heading(columns: usize) -> Vec<Row> {
    let inside = columns - 2;
    let rule = "─".repeat(inside);
    let room = inside.saturating_sub(TITLE.width() + 4);
    let subtitle = if room > 12 { shorten(&format!("  {SUBTITLE}"), room) } else { String::new() };
    let title = shorten(TITLE, inside.saturating_sub(4));
    let pad = inside.saturating_sub(title.width() + subtitle.width() + 3);
    vec![
        vec![faint(format!("╭{rule}╮"))],
        vec![
            faint("│"),
            (" ✻ ".into(), Colour::Note),
            (title, Colour::Heading),
            faint(subtitle),
            faint(format!("{}│", " ".repeat(pad))),
        ],
        vec![faint(format!("╰{rule}╯"))],
    ]
}

/// The rows at the bottom, and the cursor's place among them.
fn composer(scene: &Scene, columns: usize, ruled: bool) -> (Vec<Row>, (usize, usize)) {
    let typed = shorten(&scene.typed, columns.saturating_sub(3));
    let cursor = 3 + typed.width();
    let line = vec![("❯ ".into(), Colour::Note), plain(typed)];
    if !ruled {
        return (vec![line], (1, cursor));
    }
    let rule = || vec![faint("─".repeat(columns))];
    let (left, right) =
        ("  plays by itself · ^C ends it", format!("{} tokens  ", format::grouped(scene.tokens)));
    let footer = match columns.checked_sub(left.width() + right.width()) {
        Some(gap) => vec![faint(format!("{left}{}{right}", " ".repeat(gap)))],
        None => vec![faint(shorten(left, columns))],
    };
    (vec![rule(), line, rule(), footer], (2, cursor))
}

fn conversation(scene: &Scene, columns: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for message in &scene.messages {
        rows.push(Row::new());
        match message {
            Message::Prompt(text) => {
                rows.extend(marked(("❯ ", Colour::Faint), text, Colour::Faint, columns));
            }
            Message::Answer(text) => rows.extend(marked(("● ", Colour::Plain), text, Colour::Plain, columns)),
            Message::Tool(call, outcome) => {
                rows.extend(marked(("● ", Colour::Good), call, Colour::Heading, columns));
                for (at, (text, colour)) in outcome.iter().enumerate() {
                    let mark = if at == 0 { "  ⎿ " } else { "    " };
                    rows.push(vec![faint(mark), (shorten(text, columns.saturating_sub(4)), *colour)]);
                }
            }
            Message::Note(text) => rows.extend(marked(("  ", Colour::Plain), text, Colour::Faint, columns)),
        }
    }
    if let Some(step) = scene.busy {
        rows.push(Row::new());
        let spinner = format!("{} ", SPINNER[step % SPINNER.len()]);
        rows.extend(marked((&spinner, Colour::Warning), "Thinking…", Colour::Faint, columns));
    }
    if !rows.is_empty() {
        rows.push(Row::new());
    }
    rows
}

/// Text wrapped to the width, the first row after a mark and the others indented below it.
fn marked(mark: (&str, Colour), text: &str, colour: Colour, columns: usize) -> Vec<Row> {
    let lines = fold(text, columns.saturating_sub(mark.0.width()));
    let row = |(at, line): (usize, String)| {
        let mark = if at == 0 { (mark.0.to_owned(), mark.1) } else { plain(" ".repeat(mark.0.width())) };
        vec![mark, (line, colour)]
    };
    lines.into_iter().enumerate().map(row).collect()
}

/// Breaks between words; a word wider than the line is cut.
fn fold(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or(0, |line| line.width());
        let fits = line == 0 || line + 1 + word.width() <= columns;
        if !fits {
            lines.push(String::new());
        } else if line > 0
            && let Some(line) = lines.last_mut()
        {
            line.push(' ');
        }
        for letter in word.chars() {
            let wide = lines.last().map_or(0, |line| line.width()) + letter.width().unwrap_or(0) > columns;
            if wide {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push(letter);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene {
            messages: vec![
                Message::Prompt("Let it greet whoever is named".into()),
                Message::Tool(
                    "Edit(greet.py)".into(),
                    vec![
                        ("added 2 lines, removed 1".into(), Colour::Faint),
                        ("+ name = sys.argv[1]".into(), Colour::Good),
                    ],
                ),
                Message::Answer("Now `python greet.py Ada` greets Ada.".into()),
                Message::Note("a new conversation".into()),
            ],
            busy: Some(3),
            typed: "What does greet.py do?".into(),
            tokens: 12_345,
        }
    }

    fn shown(columns: usize, rows: usize) -> Frame {
        frame(&scene(), rows, Style { colour: false, columns })
    }

    #[test]
    fn a_frame_fills_the_terminal_and_nothing_beyond() {
        for columns in 8..130 {
            for rows in [1, 2, 5, 8, 13, 14, 20, 40] {
                let frame = shown(columns, rows);
                assert_eq!(frame.rows.len(), rows, "{columns}x{rows}");
                for row in &frame.rows {
                    assert!(row.width() <= columns, "{columns}x{rows}: {row:?}");
                }
                assert!(frame.cursor.0 <= rows && frame.cursor.1 <= columns, "{:?}", frame.cursor);
            }
        }
    }

    #[test]
    fn the_end_of_the_conversation_stays_in_sight() {
        let frame = shown(40, 14);
        let text = frame.rows.join("\n");
        assert!(text.contains("a new conversation") && text.contains("Thinking…"), "{text}");
        assert!(!text.contains("whoever"), "{text}");
        assert_eq!(frame.rows[frame.cursor.0 - 1], "❯ What does greet.py do?");
        assert_eq!(frame.cursor.1, "❯ What does greet.py do?".width() + 1);
    }

    #[test]
    fn text_is_wrapped_and_long_words_are_cut() {
        assert_eq!(fold("one two three", 7), ["one two", "three"]);
        assert_eq!(fold("extraordinary", 5), ["extra", "ordin", "ary"]);
        assert_eq!(fold("日本 語", 4), ["日本", "語"]);
        assert_eq!(fold("", 4), [""]);
    }
}
