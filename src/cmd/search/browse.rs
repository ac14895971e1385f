//! Hits as a list on the terminal: Enter opens the conversation at the hit, ^R continues its session.

use std::io::Write;
use std::process::ExitCode;

use ratatui_core::text::{Line, Span};

use super::Drawn;
use super::Excerpt;
use crate::cli::{Resume, View};
use crate::cmd::resume;
use crate::cmd::view::{self, Paging};
use crate::fullscreen::choose::{Choice, Choices, Chooser, KeyResult, choose};
use crate::fullscreen::{Fullscreen, folded, marked, style};
use format::output::Colour;
use format::output::table::padded;
use format::text::{clean_lines, shorten};
use os::home::Home;
use report::search::FoundMessages;
use scan::search::places;

/// How much of a conversation is opened from a hit on.
const OPENED: usize = 256 * 1024;

/// Lets a person look through the hits, and continue one's session. `None` where there is no terminal for it.
pub(super) fn browse(
    found: &FoundMessages,
    drawn: &Drawn<'_>,
    home: &Home,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<Option<ExitCode>> {
    let mut hits = HitList { found, drawn };
    let mut chooser = Chooser::new(&hits);
    loop {
        let Some(mut screen) = Fullscreen::open()? else { return Ok(None) };
        let choice = choose(&mut screen, &mut chooser, &mut hits)?;
        drop(screen);
        match choice {
            Choice::Enter(place) => {
                let message = &found.messages[place];
                let Some(session) = message.conversation() else { continue };
                let args = View {
                    session: session.to_owned(),
                    tail_bytes: OPENED,
                    since: message.cursor.clone(),
                    follow: false,
                    no_pager: false,
                    json: false,
                };
                // What is printed instead would be hidden by the list.
                if !view::show(&args, home, Paging::Always, out, err)? {
                    return Ok(Some(ExitCode::SUCCESS));
                }
            }
            Choice::Key(_, place) => {
                let Some(session) = found.messages[place].session_id.clone() else { continue };
                let args = Resume { session: Some(session), ..Resume::default() };
                return resume::run(&args, home, out, err).map(Some);
            }
            Choice::None => return Ok(Some(ExitCode::SUCCESS)),
            Choice::End(signal) => {
                pty::die_of(signal);
                return Ok(Some(ExitCode::FAILURE));
            }
        }
    }
}

struct HitList<'a> {
    found: &'a FoundMessages,
    drawn: &'a Drawn<'a>,
}

/// The cells of session, time and speaker.
const SESSION: usize = 19;
const WHEN: usize = 12;
const WHO: usize = 6;

impl HitList<'_> {
    /// Which of the parts before the words there is room for.
    fn head(&self, place: usize, width: usize) -> Vec<Span<'static>> {
        let head = self.drawn.head(&self.found.messages[place]);
        Self::cells(&head.session, &head.when, &head.who, width)
    }

    fn cells(session: &str, when: &str, who: &str, width: usize) -> Vec<Span<'static>> {
        let cell = |text: &str, cells: usize| padded(&shorten(text, cells), cells) + "  ";
        let mut spans = vec![Span::styled(cell(session, SESSION.min(width / 3)), style(Colour::Heading))];
        if width >= 60 {
            spans.push(Span::styled(cell(when, WHEN), style(Colour::Faint)));
        }
        if width >= 50 {
            spans.push(Span::styled(cell(who, WHO), style(Colour::Note)));
        }
        spans
    }
}

impl Choices for HitList<'_> {
    fn len(&self) -> usize {
        self.found.messages.len()
    }

    fn text(&self, place: usize) -> String {
        let message = &self.found.messages[place];
        let parts =
            [message.name.as_deref(), message.title.as_deref(), Some(message.agent), Some(&message.text)];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
        // Somewhere letters of any word are found in a long text.
        text.chars().take(1000).collect()
    }

    fn heading(&self, width: usize) -> Line<'static> {
        let mut spans = Self::cells("SESSION", "WHEN", "WHO", width);
        let rest = self.found.older().map_or_else(String::new, |more| format!(" ({more} older ones: -n)"));
        spans.push(Span::raw(format!("MESSAGE{rest}")));
        Line::from(spans)
    }

    fn line(&self, place: usize, width: usize) -> Line<'static> {
        let mut spans = self.head(place, width);
        let taken: usize = spans.iter().map(Span::width).sum();
        let text = &self.found.messages[place].text;
        let excerpt = Excerpt::of(text, self.drawn.words, width.saturating_sub(taken));
        spans.extend(marked(&excerpt.text, &excerpt.places));
        Line::from(spans)
    }

    fn preview(&mut self, place: usize, width: usize, rows: usize) -> Vec<Line<'static>> {
        let message = &self.found.messages[place];
        let text = clean_lines(&message.text).replace('\t', "    ");
        let lines = folded(&text, width);
        let hit = lines.iter().position(|line| !places(self.drawn.words, line).is_empty());
        // The hit in the middle, with what was said around it.
        let first = hit.unwrap_or(0).saturating_sub(rows / 2).min(lines.len().saturating_sub(rows));
        let about =
            message.title.as_ref().map(|title| Line::styled(shorten(title, width), style(Colour::Heading)));
        let body =
            lines[first..].iter().map(|line| Line::from(marked(line, &places(self.drawn.words, line))));
        about.into_iter().chain(body).take(rows).collect()
    }

    fn enter(&self) -> &'static str {
        "open the conversation there"
    }

    fn keys(&self) -> &'static [(char, &'static str)] {
        &[('r', "resume")]
    }

    fn on_key(&mut self, _key: char, place: usize) -> KeyResult {
        let message = &self.found.messages[place];
        if message.session_id.is_some() {
            return KeyResult::Chosen;
        }
        KeyResult::Failed(format!("it did not run through codemie; resume it with {} itself", message.agent))
    }
}
