//! `codemie search`: words in every conversation on this machine.

use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::list::project;
use super::{Failure, USAGE};
use crate::cli::Search;
use crate::progress::Bar;
use format::output::table::padded;
use format::output::{Colour, Style, json};
use format::text::{clean, shorten};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::open::open_existing;
use report::search::{FoundMessage, FoundMessages, Where, search};
use runtime::launch::Origin;
use scan::Progress;
use scan::search::{Query, Word, places};
use types::Timestamp;

mod browse;

pub fn run(args: &Search, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (now, zone) = (SystemClock.now(), os::zone::local());
    let words: Vec<Word> = args.words.iter().filter_map(|word| Word::new(word)).collect();
    if words.is_empty() {
        let message = "there is nothing to look for; give at least one word".to_owned();
        return Err(Failure { code: USAGE, message }.into());
    }
    let query = Query {
        words,
        role: args.role,
        since: args.since.map(|since| since.before(now, &zone)),
        most: if args.limit == 0 { usize::MAX } else { args.limit },
    };
    let place = Where { agent: args.agent.clone(), project: args.project.as_deref().map(project) };
    let mut store = open_existing(home)?;
    let found = {
        let bar = Bar::on_terminal("searching conversations", format::bytes);
        let watch = bar.as_ref().map(|bar| bar as &dyn Progress);
        search(&query, &place, &Origin::of_this_process(), store.as_mut(), watch)?
    };
    // No connection is kept while somebody reads.
    drop(store);
    for refusal in &found.refused {
        tracing::warn!("not searched: {refusal}");
    }
    if args.json {
        out.write_all(json::pretty(&found.messages)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let hits = Drawn { words: &query.words, now, zone: &zone };
    if !found.messages.is_empty()
        && !args.print
        && let Some(code) = browse::browse(&found, &hits, home, out, err)?
    {
        return Ok(code);
    }
    out.write_all(hits.all(&found, Style::of_stdout()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Hits on their way to a terminal.
pub(super) struct Drawn<'a> {
    words: &'a [Word],
    now: Timestamp,
    zone: &'a TimeZone,
}

/// The parts of a hit before its words.
struct Head {
    session: String,
    when: String,
    who: String,
}

/// A usual name whole.
const SESSION: usize = super::session_text::NAME;

/// With less room beside its head the words stand below it.
const BESIDE: usize = 40;

impl Drawn<'_> {
    fn head(&self, message: &FoundMessage) -> Head {
        let foreign = || message.agent_session_id.as_ref().map(|id| id.chars().take(8).collect());
        let session = message.name.clone().or_else(foreign).unwrap_or_default();
        let when = message.time.map(|at| format::moment(at, self.now, self.zone));
        let who = match message.role {
            "user" => "you",
            "assistant" => message.agent,
            other => other,
        };
        Head { session, when: when.unwrap_or_default(), who: who.to_owned() }
    }

    fn all(&self, found: &FoundMessages, style: Style) -> String {
        if found.messages.is_empty() {
            return style.fold("Nothing found. All words must be in one message; fewer words find more.");
        }
        let heads: Vec<Head> = found.messages.iter().map(|message| self.head(message)).collect();
        let widest = |part: fn(&Head) -> &String, most: usize| {
            heads.iter().map(|head| part(head).width()).max().unwrap_or(0).min(most)
        };
        let (session, when, who) = (
            widest(|head| &head.session, SESSION),
            widest(|head| &head.when, 20),
            widest(|head| &head.who, 12),
        );
        let taken = session + when + who + 6;
        let below = style.columns < taken + BESIDE;
        let mut text = String::new();
        for (message, head) in found.messages.iter().zip(&heads) {
            let cell = |part: &str, width: usize| padded(&shorten(part, width), width);
            text += &style.paint(&cell(&head.session, session), Colour::Heading);
            text += "  ";
            text += &style.paint(&cell(&head.when, when), Colour::Faint);
            text += "  ";
            text += &style.paint(&cell(&head.who, who), Colour::Note);
            let room = if below { style.columns.saturating_sub(2) } else { style.columns - taken };
            text += if below { "\n  " } else { "  " };
            text += &Excerpt::of(&message.text, self.words, room).painted(style);
            text.push('\n');
        }
        if let Some(more) = found.older() {
            text += &style.paint(&format!("… {more} older ones, `-n 0` shows all"), Colour::Faint);
            text.push('\n');
        }
        text
    }
}

// The line of a message that has a hit, cut so that the hit is seen.

/// Where nobody folds lines, this much of one is given.
const WIDEST: usize = 400;

/// A part of one line, and where the words are in it.
pub(super) struct Excerpt {
    pub(super) text: String,
    pub(super) places: Vec<Range<usize>>,
}

impl Excerpt {
    pub(super) fn of(text: &str, words: &[Word], width: usize) -> Self {
        let width = width.min(WIDEST);
        // The line with the most of the words; words that are folded over two lines are in none.
        let line = text.lines().max_by_key(|line| {
            let found = words.iter().filter(|word| !places(std::slice::from_ref(word), line).is_empty());
            (found.count(), std::cmp::Reverse(line.as_ptr()))
        });
        let line = clean(line.unwrap_or_default().trim());
        let first = places(words, &line).first().map_or(0, |place| place.start);
        let text = if line.width() <= width {
            line.into_owned()
        } else {
            shorten(&from(&line, first, width), width)
        };
        let places = places(words, &text);
        Self { text, places }
    }

    pub(super) fn painted(&self, style: Style) -> String {
        let mut painted = String::new();
        let mut at = 0;
        for place in &self.places {
            painted += &self.text[at..place.start];
            painted += &style.paint(&self.text[place.clone()], Colour::Warning);
            at = place.end;
        }
        painted + &self.text[at..]
    }
}

/// The line from a third of the width before the hit on, with an ellipsis where something is missing.
fn from(line: &str, hit: usize, width: usize) -> String {
    let (mut begin, mut cells) = (hit, 0);
    for (at, letter) in line[..hit].char_indices().rev() {
        cells += letter.width().unwrap_or(0);
        if cells > width / 3 {
            break;
        }
        begin = at;
    }
    // A line that ends soon is shown to its end, and more of its beginning.
    let rest = line[begin..].width();
    if rest < width {
        let mut left = width - rest - 1;
        for (at, letter) in line[..begin].char_indices().rev() {
            let Some(less) = left.checked_sub(letter.width().unwrap_or(0)) else { break };
            (left, begin) = (less, at);
        }
    }
    if begin == 0 { line.to_owned() } else { format!("…{}", &line[begin..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: Option<&str>, role: &'static str, text: &str) -> FoundMessage {
        FoundMessage {
            session_id: name.map(str::to_owned),
            agent_session_id: Some("7a276c6b-d81e-4000-8000-000000000003".into()),
            agent: "claude",
            role,
            time: Timestamp::parse("2026-11-16T09:05:00Z"),
            text: text.into(),
            cursor: None,
            name: name.map(str::to_owned),
            title: None,
        }
    }

    fn drawn(found: &FoundMessages, columns: usize, colour: bool) -> String {
        let words: Vec<Word> = Word::new("proxy").into_iter().collect();
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        let hits = Drawn { words: &words, now, zone: &TimeZone::UTC };
        hits.all(found, Style { colour, columns })
    }

    fn found() -> FoundMessages {
        let long = format!("{} the proxy {}", "before ".repeat(20), "after ".repeat(20));
        FoundMessages {
            messages: vec![
                message(Some("fix-auth"), "user", "first line\n  why does the Proxy refuse it?\nmore"),
                message(None, "assistant", &long),
                message(Some("fix-auth"), "tool", "Bash curl proxy"),
            ],
            more: 1234,
            more_unread: false,
            refused: Vec::new(),
        }
    }

    #[test]
    fn each_hit_is_one_line_with_its_session_time_and_speaker() {
        assert_eq!(
            drawn(&found(), 80, false),
            "\
fix-auth  09:05  you     why does the Proxy refuse it?
7a276c6b  09:05  claude  …efore before  the proxy after after after after after…
fix-auth  09:05  tool    Bash curl proxy
… 1,234 older ones, `-n 0` shows all
"
        );
    }

    #[test]
    fn a_narrow_terminal_has_the_words_below() {
        let text = drawn(&found(), 40, false);
        assert!(text.starts_with("fix-auth  09:05  you   \n  why does the Proxy refuse it?\n"), "{text}");
        assert!(text.lines().all(|line| line.width() <= 40), "{text}");
    }

    #[test]
    fn hits_are_marked_in_colour() {
        let text = drawn(&found(), 100, true);
        assert!(text.contains("why does the \x1b[33mProxy\x1b[0m refuse it?"), "{text:?}");
        assert!(drawn(&FoundMessages::default(), 100, true).starts_with("Nothing found."));
    }
}

#[cfg(test)]
mod excerpt_tests {
    use super::*;

    #[test]
    fn the_hit_is_always_seen() {
        let words: Vec<Word> = ["proxy", "ü"].iter().filter_map(|word| Word::new(word)).collect();
        for (text, width, shown) in [
            ("a proxy", 20, "a [proxy]"),
            ("nothing\n\n  the PROXY is für  \n", 40, "the [PROXY] is f[ü]r"),
            ("0123456789 0123456789 proxy 0123456789", 20, "…56789 [proxy] 012345…"),
            ("0123456789 0123456789 a proxy", 20, "… 0123456789 a [proxy]"),
            ("proxy 0123456789 0123456789", 12, "[proxy] 01234…"),
            ("日本日本日本日本 proxy 日本", 12, "…本 [proxy] …"),
            ("", 10, ""),
        ] {
            let mut excerpt = Excerpt::of(text, &words, width);
            assert!(excerpt.text.width() <= width, "{:?}", excerpt.text);
            for place in excerpt.places.iter().rev() {
                excerpt.text.insert(place.end, ']');
                excerpt.text.insert(place.start, '[');
            }
            assert_eq!(excerpt.text, shown, "{text:?} in {width}");
        }
    }
}
