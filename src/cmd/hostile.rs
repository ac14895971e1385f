//! For tests of everything that is drawn: hostile text, at many widths.

use format::output::{Colour, Style};
use format::text::is_harmful;

/// Longer than a format's width may be, which ended the program.
const ENDLESS: usize = 70_000;

fn texts(length: usize) -> Vec<String> {
    vec![
        String::new(),
        "x".repeat(length),
        "修".repeat(length),
        "\u{301}".repeat(length),
        "👩\u{200d}💻".repeat(length / 3),
        "\u{202e}\u{2066}".repeat(length / 2),
        "\x1b[31m\x1b]0;x\x07\u{9b}\u{85}\r\n\t\x7f\u{2028}\0".repeat(length / 16),
        "a b/c `d ".repeat(length / 9),
        " ".repeat(length),
    ]
}

/// Draws each text at each width: it must come to an end, stay within bounds, and hold nothing that steers a terminal but our own
/// colours. `draw` puts the text into every field there is.
pub(crate) fn draw_everywhere(draw: impl Fn(&str, Style) -> String) {
    let widths = (1..=40).chain((45..=200).step_by(5)).map(|columns| (columns, columns + 20));
    let widths = widths.chain([40, usize::MAX].map(|columns| (columns, ENDLESS)));
    for (columns, length) in widths {
        for text in texts(length) {
            let drawn = draw(&text, Style { colour: columns % 2 == 0, columns });
            let begin: String = text.chars().take(12).collect();
            let bare = Colour::sequences().iter().fold(drawn, |drawn, colour| drawn.replace(colour, ""));
            let harmful = bare.chars().find(|letter| *letter != '\n' && is_harmful(*letter));
            assert_eq!(harmful, None, "{begin:?} on {columns} columns:\n{bare:?}");
        }
    }
}
