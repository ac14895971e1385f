//! A list to choose from: typing narrows it, a preview shows more of the chosen line, and a footer names the keys.
//!
//! What it looks like and what a key does is decided without a terminal ([`Chooser`]); [`choose`] connects it to one.

use std::io;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::{Event, Fullscreen, Key, edit, key_line, put, style};
use format::output::Colour;
use format::text::shorten;

/// What there is to choose from.
pub trait Choices {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What typed letters are looked for in.
    fn text(&self, place: usize) -> String;

    /// The line above all others.
    fn heading(&self, width: usize) -> Line<'static>;

    fn line(&self, place: usize, width: usize) -> Line<'static>;

    /// More of the chosen one: lines of at most `width` cells.
    fn preview(&mut self, place: usize, width: usize, rows: usize) -> Vec<Line<'static>>;

    /// What Enter does, in a word.
    fn enter(&self) -> &'static str;

    /// Keys with Control, and what they do in a word.
    fn keys(&self) -> &'static [(char, &'static str)] {
        &[]
    }

    /// A key was pressed for one of them.
    fn on_key(&mut self, _key: char, _place: usize) -> KeyResult {
        KeyResult::Nothing
    }

    /// A text that a key asked for was typed; an error says why it cannot be.
    fn on_text(&mut self, _key: char, _place: usize, _text: &str) -> Result<(), String> {
        Ok(())
    }
}

/// What follows a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyResult {
    Nothing,
    /// The choice is made: this key, for this one.
    Chosen,
    /// What there is to choose from has changed.
    Changed,
    /// A text is wanted: the question, and what it begins with.
    Ask(&'static str, String),
    /// It cannot be done, and why.
    Failed(String),
}

/// How a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Enter(usize),
    Key(char, usize),
    /// Left without one.
    None,
    /// A signal is to end us.
    End(i32),
}

/// A question under the list.
#[derive(Debug)]
struct Question {
    key: char,
    place: usize,
    words: &'static str,
    text: String,
}

/// The state of the list.
#[derive(Debug)]
pub struct Chooser {
    filter: String,
    /// The places of the choices that match, the best first.
    matching: Vec<usize>,
    selected: usize,
    top: usize,
    question: Option<Question>,
    message: Option<String>,
    matcher: Matcher,
}

/// With fewer rows there is no preview.
const ROWS_WITH_PREVIEW: u16 = 12;

impl Chooser {
    pub fn new(choices: &dyn Choices) -> Self {
        let mut chooser = Self {
            filter: String::new(),
            matching: Vec::new(),
            selected: 0,
            top: 0,
            question: None,
            message: None,
            matcher: Matcher::new(Config::DEFAULT),
        };
        chooser.match_again(choices);
        chooser
    }

    /// The place of the line that is chosen.
    pub fn chosen(&self) -> Option<usize> {
        self.matching.get(self.selected).copied()
    }

    fn match_again(&mut self, choices: &dyn Choices) {
        let pattern = Pattern::parse(&self.filter, CaseMatching::Ignore, Normalization::Smart);
        if pattern.atoms.is_empty() {
            self.matching = (0..choices.len()).collect();
        } else {
            let mut letters = Vec::new();
            let mut scored: Vec<(u32, usize)> = (0..choices.len())
                .filter_map(|place| {
                    let text = choices.text(place);
                    let score = pattern.score(Utf32Str::new(&text, &mut letters), &mut self.matcher)?;
                    Some((score, place))
                })
                .collect();
            // Among equals the order stays.
            scored.sort_by_key(|(score, place)| (std::cmp::Reverse(*score), *place));
            self.matching = scored.into_iter().map(|(_, place)| place).collect();
        }
        self.selected = self.selected.min(self.matching.len().saturating_sub(1));
    }

    /// What a key does. `page`: how many lines a page has. `None`: the choice goes on.
    pub fn on_key(&mut self, key: Key, page: usize, choices: &mut dyn Choices) -> Option<Choice> {
        self.message = None;
        if self.question.is_some() {
            self.answer(key, choices);
            return None;
        }
        match key {
            Key::Escape | Key::Control('c' | 'd' | 'g') => return Some(Choice::None),
            Key::Enter => return self.chosen().map(Choice::Enter),
            Key::Up | Key::Control('p' | 'k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Control('n' | 'j') => self.go_to(self.selected + 1),
            Key::PageUp => self.selected = self.selected.saturating_sub(page),
            Key::PageDown => self.go_to(self.selected + page),
            Key::Home => self.selected = 0,
            Key::End => self.go_to(usize::MAX),
            key if edit(&mut self.filter, key) => {
                (self.selected, self.top) = (0, 0);
                self.match_again(choices);
            }
            Key::Control(key) if choices.keys().iter().any(|(known, _)| *known == key) => {
                let place = self.chosen()?;
                match choices.on_key(key, place) {
                    KeyResult::Nothing => {}
                    KeyResult::Chosen => return Some(Choice::Key(key, place)),
                    KeyResult::Changed => self.match_again(choices),
                    KeyResult::Ask(words, text) => self.question = Some(Question { key, place, words, text }),
                    KeyResult::Failed(why) => self.message = Some(why),
                }
            }
            _ => {}
        }
        None
    }

    fn go_to(&mut self, line: usize) {
        self.selected = line.min(self.matching.len().saturating_sub(1));
    }

    fn answer(&mut self, key: Key, choices: &mut dyn Choices) {
        let Some(question) = &mut self.question else { return };
        match key {
            key if edit(&mut question.text, key) => {}
            Key::Escape | Key::Control('c' | 'd' | 'g') => self.question = None,
            Key::Enter => match choices.on_text(question.key, question.place, question.text.trim()) {
                Ok(()) => {
                    self.question = None;
                    self.match_again(choices);
                }
                Err(why) => self.message = Some(why),
            },
            _ => {}
        }
    }

    /// How many lines of the list there are room for.
    fn rows(area: Rect) -> u16 {
        // The filter, the heading and the footer.
        let free = area.height.saturating_sub(3);
        if area.height < ROWS_WITH_PREVIEW { free } else { free - free / 2 - 1 }
    }

    /// Paints everything; returns where the cursor stands.
    pub fn paint(&mut self, buffer: &mut Buffer, choices: &mut dyn Choices) -> Option<Position> {
        let area = buffer.area;
        let width = usize::from(area.width);
        let rows = usize::from(Self::rows(area)).max(1);
        self.top = self.top.clamp((self.selected + 1).saturating_sub(rows), self.selected);
        let cursor = self.paint_filter(buffer, choices.len());
        put(buffer, 1, &choices.heading(width.saturating_sub(2)).style(style(Colour::Heading)), 2);
        for (row, at) in (self.top..self.matching.len()).take(rows).enumerate() {
            let line = choices.line(self.matching[at], width.saturating_sub(2));
            let y = u16::try_from(row).unwrap_or(u16::MAX).saturating_add(2);
            put(buffer, y, &line, 2);
            if at == self.selected {
                put(buffer, y, &Line::raw("▸"), 0);
                let whole = Rect::new(0, y, area.width, 1).intersection(area);
                buffer.set_style(whole, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
        if self.matching.is_empty() {
            put(buffer, 2, &Line::styled("Nothing matches.", style(Colour::Faint)), 2);
        }
        if area.height >= ROWS_WITH_PREVIEW {
            self.paint_preview(buffer, choices, 2 + Self::rows(area));
        }
        self.paint_footer(buffer, choices, width);
        cursor
    }

    fn paint_filter(&self, buffer: &mut Buffer, all: usize) -> Option<Position> {
        let width = usize::from(buffer.area.width);
        let (words, text) = match &self.question {
            Some(question) => (question.words, &question.text),
            None => ("> ", &self.filter),
        };
        let count = format!("{}/{all}", self.matching.len());
        let room = width.saturating_sub(words.width() + count.len() + 3);
        // The end of a long text is where letters are typed.
        let skipped = text.chars().count().saturating_sub(room);
        let shown = shorten(&text.chars().skip(skipped).collect::<String>(), room);
        let end = words.width() + shown.width();
        put(buffer, 0, &Line::from(vec![Span::styled(words, style(Colour::Note)), Span::raw(shown)]), 0);
        let right = width.saturating_sub(count.len());
        if right > end + 1 {
            put(buffer, 0, &Line::styled(count, style(Colour::Faint)), u16::try_from(right).unwrap_or(0));
        }
        u16::try_from(end).ok().filter(|x| *x < buffer.area.width).map(|x| Position { x, y: 0 })
    }

    fn paint_preview(&self, buffer: &mut Buffer, choices: &mut dyn Choices, from: u16) {
        let area = buffer.area;
        let rule = "─".repeat(usize::from(area.width));
        put(buffer, from, &Line::styled(rule, style(Colour::Faint)), 0);
        let rows = area.height.saturating_sub(from + 2);
        let Some(place) = self.chosen() else { return };
        let lines = choices.preview(place, usize::from(area.width).saturating_sub(2), rows.into());
        for (row, line) in lines.iter().take(rows.into()).enumerate() {
            put(buffer, from + 1 + u16::try_from(row).unwrap_or(0), line, 1);
        }
    }

    fn paint_footer(&self, buffer: &mut Buffer, choices: &dyn Choices, width: usize) {
        let y = buffer.area.height.saturating_sub(1);
        if let Some(message) = &self.message {
            put(buffer, y, &Line::styled(shorten(message, width), style(Colour::Bad)), 0);
            return;
        }
        let asked = self.question.is_some();
        let enter = if asked { "take it" } else { choices.enter() };
        let mut keys = vec![("Enter".to_owned(), enter)];
        if !asked {
            keys.extend(
                choices.keys().iter().map(|(key, does)| (format!("^{}", key.to_ascii_uppercase()), *does)),
            );
        }
        keys.push(("Esc".to_owned(), "leave"));
        put(buffer, y, &key_line(&keys, width), 0);
    }
}

/// Lets a person choose on the terminal.
pub fn choose(
    screen: &mut Fullscreen,
    chooser: &mut Chooser,
    choices: &mut dyn Choices,
) -> io::Result<Choice> {
    loop {
        screen.draw(|buffer| chooser.paint(buffer, choices));
        let page = usize::from(Chooser::rows(screen.area()));
        match screen.next(None)? {
            Event::Key(key) => {
                if let Some(choice) = chooser.on_key(key, page, choices) {
                    return Ok(choice);
                }
            }
            Event::Repaint | Event::Woken | Event::TimeUp => {}
            Event::End(signal) => return Ok(Choice::End(signal)),
            Event::Gone => return Ok(Choice::None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words(Vec<&'static str>);

    impl Choices for Words {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn text(&self, place: usize) -> String {
            self.0[place].to_owned()
        }

        fn heading(&self, _: usize) -> Line<'static> {
            Line::raw("WORD")
        }

        fn line(&self, place: usize, _: usize) -> Line<'static> {
            Line::raw(self.0[place])
        }

        fn preview(&mut self, place: usize, width: usize, rows: usize) -> Vec<Line<'static>> {
            vec![Line::raw(format!("{} in {width}x{rows}", self.0[place]))]
        }

        fn enter(&self) -> &'static str {
            "take"
        }

        fn keys(&self) -> &'static [(char, &'static str)] {
            &[('x', "remove"), ('r', "rename"), ('s', "show")]
        }

        fn on_key(&mut self, key: char, place: usize) -> KeyResult {
            match key {
                'x' => {
                    self.0.remove(place);
                    KeyResult::Changed
                }
                'r' => KeyResult::Ask("name: ", self.0[place].to_owned()),
                _ => KeyResult::Chosen,
            }
        }

        fn on_text(&mut self, _: char, place: usize, text: &str) -> Result<(), String> {
            if text == "bad" {
                return Err("bad is taken".to_owned());
            }
            self.0[place] = String::leak(text.to_owned());
            Ok(())
        }
    }

    fn words() -> Words {
        Words(vec!["fix-auth proxy", "docs", "proxy-meter", "auth"])
    }

    fn typed(chooser: &mut Chooser, choices: &mut Words, text: &str) {
        for letter in text.chars() {
            assert_eq!(chooser.on_key(Key::Letter(letter), 5, choices), None);
        }
    }

    fn drawn(
        chooser: &mut Chooser,
        choices: &mut Words,
        columns: u16,
        rows: u16,
    ) -> (String, Option<Position>) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
        let cursor = chooser.paint(&mut buffer, choices);
        let lines = (0..rows).map(|y| {
            let line: String = (0..columns).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
            line.trim_end().to_owned() + "\n"
        });
        (lines.collect(), cursor)
    }

    #[test]
    fn the_whole_view() {
        let (mut choices, mut chooser) = (words(), Chooser::new(&words()));
        chooser.on_key(Key::Down, 5, &mut choices);
        let (text, cursor) = drawn(&mut chooser, &mut choices, 40, 14);
        assert_eq!(
            text,
            "\
>                                    4/4
  WORD
  fix-auth proxy
▸ docs
  proxy-meter
  auth

────────────────────────────────────────
 docs in 38x5




Enter take  ^X remove  ^R rename
"
        );
        assert_eq!(cursor, Some(Position { x: 2, y: 0 }));
    }

    #[test]
    fn typing_narrows_and_keys_move() {
        let (mut choices, mut chooser) = (words(), Chooser::new(&words()));
        typed(&mut chooser, &mut choices, "PRX");
        assert_eq!(chooser.matching.len(), 2);
        typed(&mut chooser, &mut choices, " mtr");
        assert_eq!(chooser.chosen(), Some(2), "all words, fuzzily");
        assert_eq!(chooser.on_key(Key::Enter, 5, &mut choices), Some(Choice::Enter(2)));
        chooser.on_key(Key::Control('w'), 5, &mut choices);
        assert_eq!(chooser.filter, "PRX ");
        typed(&mut chooser, &mut choices, "zzz");
        assert_eq!(chooser.on_key(Key::Enter, 5, &mut choices), None, "there is nothing to take");
        assert!(drawn(&mut chooser, &mut choices, 40, 14).0.contains("Nothing matches."));
        chooser.on_key(Key::Control('u'), 5, &mut choices);
        for (key, selected) in [
            (Key::Up, 0),
            (Key::Down, 1),
            (Key::End, 3),
            (Key::Down, 3),
            (Key::PageUp, 0),
            (Key::PageDown, 3),
            (Key::Home, 0),
            (Key::Control('n'), 1),
            (Key::Control('p'), 0),
        ] {
            chooser.on_key(key, 5, &mut choices);
            assert_eq!(chooser.selected, selected, "{key:?}");
        }
        assert_eq!(chooser.on_key(Key::Escape, 5, &mut choices), Some(Choice::None));
        assert_eq!(chooser.on_key(Key::Control('s'), 5, &mut choices), Some(Choice::Key('s', 0)));
    }

    #[test]
    fn keys_change_what_there_is_and_ask_for_a_text() {
        let (mut choices, mut chooser) = (words(), Chooser::new(&words()));
        chooser.on_key(Key::End, 5, &mut choices);
        chooser.on_key(Key::Control('x'), 5, &mut choices);
        assert_eq!((choices.0.len(), chooser.selected), (3, 2));
        chooser.on_key(Key::Control('r'), 5, &mut choices);
        chooser.on_key(Key::Control('u'), 5, &mut choices);
        typed(&mut chooser, &mut choices, "bad");
        assert!(drawn(&mut chooser, &mut choices, 40, 14).0.starts_with("name: bad"));
        assert_eq!(chooser.on_key(Key::Enter, 5, &mut choices), None);
        assert!(drawn(&mut chooser, &mut choices, 40, 14).0.contains("bad is taken"));
        typed(&mut chooser, &mut choices, "ger");
        chooser.on_key(Key::Enter, 5, &mut choices);
        assert_eq!(choices.0[2], "badger");
        chooser.on_key(Key::Control('r'), 5, &mut choices);
        assert_eq!(chooser.on_key(Key::Escape, 5, &mut choices), None, "only the question is left");
    }

    #[test]
    fn any_size_can_be_painted() {
        let (mut choices, mut chooser) = (words(), Chooser::new(&words()));
        typed(&mut chooser, &mut choices, &"a".repeat(50));
        for columns in [1, 2, 5, 40, 200] {
            for rows in [1, 2, 3, 11, 12, 60] {
                drawn(&mut chooser, &mut choices, columns, rows);
            }
        }
    }
}
