//! What a person sees: tables that fit the terminal, and colour only where it is wanted.

pub mod json;
pub mod screen;
pub mod table;
pub mod wrap;

use std::fmt::Write;
use std::io::{stderr, stdout};
use std::os::fd::AsFd;
use std::sync::LazyLock;

use anstyle::AnsiColor;
use rustix::termios::{isatty, tcgetwinsize};
use unicode_width::UnicodeWidthStr;

/// How text is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// How wide a line may be; `usize::MAX` where nobody folds it.
    pub columns: usize,
}

impl Style {
    /// For standard output: colour and folding only on a terminal; `NO_COLOR` and a dumb terminal are respected.
    pub fn of_stdout() -> Self {
        Self::of(stdout())
    }

    /// The same for standard error.
    pub fn of_stderr() -> Self {
        Self::of(stderr())
    }

    fn of(end: impl AsFd) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        let on_terminal = isatty(&end);
        let columns = tcgetwinsize(&end).map_or(0, |size| usize::from(size.ws_col));
        Self {
            colour: on_terminal && set("NO_COLOR").is_none() && !dumb,
            // A reader that is not a terminal folds lines itself, if it wants to.
            columns: if on_terminal && columns > 0 { columns } else { usize::MAX },
        }
    }

    /// How many lines standard output shows at once; `None` where it is no terminal.
    pub fn rows_of_stdout() -> Option<usize> {
        let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_row > 0 && isatty(stdout()));
        size.map(|size| usize::from(size.ws_row))
    }

    /// Words as lines that fit; what goes on is set in.
    pub fn fold(self, text: &str) -> String {
        text.lines().map(|line| wrap::hanging(line, self.columns, wrap::INDENT)).collect()
    }

    /// Words side by side, or one below the other where they do not fit.
    pub fn heading(self, words: &[(&str, Colour)]) -> String {
        let words: Vec<(String, Colour)> =
            words.iter().map(|(word, colour)| (crate::text::shorten(word, usize::MAX), *colour)).collect();
        let wide: usize = words.iter().map(|(word, _)| word.width() + 2).sum();
        let gap = if wide <= self.columns.saturating_add(2) { "  " } else { "\n  " };
        let words: Vec<String> = words.iter().map(|(word, colour)| self.paint(word, *colour)).collect();
        words.join(gap) + "\n"
    }

    pub fn paint(self, text: &str, colour: Colour) -> String {
        let mut painted = String::new();
        self.paint_onto(&mut painted, text, colour);
        painted
    }

    /// The same at the end of a text.
    fn paint_onto(self, line: &mut String, text: &str, colour: Colour) {
        let text = crate::text::clean(text);
        if !self.colour || text.is_empty() || colour == Colour::Plain {
            *line += &text;
            return;
        }
        let ansi = colour.ansi();
        // Writing to a text cannot fail.
        let _ = write!(line, "{ansi}{text}{ansi:#}");
    }
}

/// The few colours there are, by what they mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    #[default]
    Plain,
    Heading,
    Faint,
    Good,
    Note,
    Warning,
    Bad,
}

impl Colour {
    const ALL: [Self; 7] =
        [Self::Plain, Self::Heading, Self::Faint, Self::Good, Self::Note, Self::Warning, Self::Bad];

    /// The same for this program's tables and for clap's help.
    pub const fn ansi(self) -> anstyle::Style {
        let style = anstyle::Style::new();
        match self {
            Self::Plain => style,
            Self::Heading => style.bold(),
            Self::Faint => style.dimmed(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Note => AnsiColor::Cyan.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }

    /// Every escape sequence that this program writes.
    pub fn sequences() -> &'static [String] {
        static SEQUENCES: LazyLock<Vec<String>> = LazyLock::new(|| {
            let colours = Colour::ALL.iter().map(|colour| colour.ansi().render().to_string());
            colours.chain([anstyle::Reset.render().to_string()]).filter(|text| !text.is_empty()).collect()
        });
        &SEQUENCES
    }
}
