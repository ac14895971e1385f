//! A conversation on a terminal: who speaks, what is said, one line per tool.

use jiff::tz::TimeZone;

use agents::transcript::{Item, ItemKind};
use format::output::{Colour, Style};
use format::text::clean_lines;
use format::text::shorten;
use types::Timestamp;

/// Remembers who spoke last, so that the next page goes on where this one ended.
pub(in crate::cmd) struct Drawing {
    style: Style,
    zone: TimeZone,
    agent: String,
    /// And when.
    speaker: Option<(Speaker, Option<Timestamp>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaker {
    You,
    Agent,
}

impl Drawing {
    pub(in crate::cmd) fn new(style: Style, zone: TimeZone, agent: &str) -> Self {
        Self { style, zone, agent: agent.to_owned(), speaker: None }
    }

    pub(in crate::cmd) fn page(&mut self, items: &[Item], now: Timestamp) -> String {
        items.iter().map(|item| self.item(item, now)).collect()
    }

    fn item(&mut self, item: &Item, now: Timestamp) -> String {
        if matches!(item.kind, ItemKind::Filler(_)) {
            return String::new();
        }
        let head = match item.kind {
            ItemKind::User(_) => self.head(Speaker::You, item.at, now),
            ItemKind::Assistant(_) | ItemKind::Tool { .. } | ItemKind::ToolFailed(_) => {
                self.head(Speaker::Agent, item.at, now)
            }
            ItemKind::Note(_) | ItemKind::Filler(_) => String::new(),
        };
        let body = match &item.kind {
            ItemKind::User(text) | ItemKind::Assistant(text) | ItemKind::Filler(text) => {
                readable(text.trim_end())
            }
            ItemKind::Tool { name, about } => self.aside("· ", &format!("{name} {about}"), Colour::Faint),
            ItemKind::ToolFailed(text) => self.aside("✗ ", &format!("failed: {text}"), Colour::Bad),
            ItemKind::Note(text) => self.aside("— ", text, Colour::Note),
        };
        format!("{head}{body}\n")
    }

    /// A new heading where another speaks, and for each prompt, set off by a blank line.
    fn head(&mut self, speaker: Speaker, at: Option<Timestamp>, now: Timestamp) -> String {
        let before = self.speaker.replace((speaker, at));
        let goes_on = match (before, speaker) {
            (Some((Speaker::Agent, _)), Speaker::Agent) => true,
            // Several parts of one prompt were said at one time.
            (Some((Speaker::You, then)), Speaker::You) => at.is_some() && then == at,
            _ => false,
        };
        if goes_on {
            return String::new();
        }
        let (name, colour) = match speaker {
            Speaker::You => ("you", Colour::Note),
            Speaker::Agent => (self.agent.as_str(), Colour::Good),
        };
        let time = at.map_or(String::new(), |at| format!("  {}", format::moment(at, now, &self.zone)));
        let gap = if before.is_some() { "\n" } else { "" };
        format!("{gap}{}{}\n", self.style.paint(name, colour), self.style.paint(&time, Colour::Faint))
    }

    /// One line, cut where the terminal ends.
    fn aside(&self, mark: &str, text: &str, colour: Colour) -> String {
        let width = self.style.columns.saturating_sub(2);
        format!("  {}", self.style.paint(&shorten(format!("{mark}{text}").trim_end(), width), colour))
    }
}

/// Without what would speak to the terminal; lines stay lines.
fn readable(text: &str) -> String {
    clean_lines(&text.replace("\r\n", "\n")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: ItemKind) -> Item {
        Item { at: Timestamp::parse("2026-11-16T09:05:00Z"), kind }
    }

    #[test]
    fn pages_read_as_one_conversation() {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        let style = Style { colour: false, columns: 30 };
        let mut drawing = Drawing::new(style, TimeZone::UTC, "claude");
        let first = drawing.page(
            &[
                item(ItemKind::User("fix it\r\n\x1b[31mnow\x07".into())),
                item(ItemKind::Assistant("Two at once.\n".into())),
                item(ItemKind::Tool {
                    name: "Bash".into(),
                    about: "a command that is longer than this".into(),
                }),
            ],
            now,
        );
        let second = drawing.page(
            &[
                item(ItemKind::ToolFailed("Exit code 3".into())),
                item(ItemKind::Note("conversation compacted")),
                item(ItemKind::User("thanks".into())),
            ],
            now,
        );
        assert_eq!(
            first + &second,
            "\
you  09:05
fix it
 [31mnow 

claude  09:05
Two at once.
  · Bash a command that is lo…
  ✗ failed: Exit code 3
  — conversation compacted

you  09:05
thanks
"
        );
    }
    #[test]
    fn whatever_was_said_is_drawn() {
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let kind = [
                ItemKind::User(text.into()),
                ItemKind::Assistant(text.into()),
                ItemKind::Tool { name: text.into(), about: text.into() },
                ItemKind::ToolFailed(text.into()),
            ];
            let items: Vec<Item> = kind.into_iter().map(item).collect();
            // Tabs are the conversation's own.
            Drawing::new(style, TimeZone::UTC, text).page(&items, Timestamp(0)).replace('\t', "")
        });
    }

    #[test]
    fn each_prompt_has_its_time_and_what_nobody_said_is_not_there() {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        let at = |time: &str, kind| Item { at: Timestamp::parse(time), kind };
        let mut drawing = Drawing::new(Style { colour: false, columns: 30 }, TimeZone::UTC, "claude");
        let drawn = drawing.page(
            &[
                at("2026-11-16T09:05:00Z", ItemKind::User("one".into())),
                at("2026-11-16T09:05:00Z", ItemKind::User("its second part".into())),
                at("2026-11-16T09:05:01Z", ItemKind::Filler("No response requested.".into())),
                at("2026-11-16T09:06:00Z", ItemKind::User("two".into())),
            ],
            now,
        );
        assert_eq!(drawn, "you  09:05\none\nits second part\n\nyou  09:06\ntwo\n");
    }
}
