//! `codemie view`: the conversation of a session, from the agent's own file, by pages.

mod draw;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::open::{open, recover};
use super::{Failure, USAGE, find, format};
use crate::agent;
use crate::agent::transcript::{self, Cursor, Item, Page, Said};
use crate::cli::View as Args;
use crate::home::Home;
use crate::output::failure::shown;
use crate::output::{Style, json};
use crate::session::lookup::Found;
use crate::session::record::record;
use crate::store::{Store, View};
use draw::Drawing;
use human::shell;
use system::clock::{Clock, SystemClock};
use system::file::open_regular;
use wire::Link;
use wire::Timestamp;

/// How often a followed conversation is looked at: sooner than a reader of text notices, and two looks a second cost
/// nothing.
const PAUSE: Duration = Duration::from_millis(500);

/// The least that is read of a followed conversation at once.
const FOLLOWED: usize = 49_152;

pub fn run(args: &Args, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let at = begin(args.since.as_deref())?;
    let mut store = open(home)?;
    let subject = store.read(|view| Subject::of(view, &args.session))?;
    subject.must_be_of_an_agent()?;
    let drawing = Drawing::new(Style::of_stdout(), system::zone::local(), &subject.agent);
    if args.follow {
        follow(&mut store, home, subject, at, drawing, args, out, err)?;
    } else {
        once(&subject, at, drawing, args, out, err)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn once(
    subject: &Subject,
    at: At,
    mut drawing: Drawing,
    args: &Args,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<()> {
    let page = subject.page(at, args.tail_bytes)?;
    if args.json {
        out.write_all(json::pretty(&Spelled::of(subject, page.as_ref()))?.as_bytes())?;
        return Ok(());
    }
    if let Some(page) = &page {
        out.write_all(drawing.page(&page.items, SystemClock.now()).as_bytes())?;
    }
    Ok(remark(subject, page.as_ref(), args, out, err)?)
}

#[expect(clippy::too_many_arguments, reason = "the second half of a command, not an interface")]
fn follow(
    store: &mut Store,
    home: &Home,
    mut subject: Subject,
    mut at: At,
    mut drawing: Drawing,
    args: &Args,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<()> {
    // By its id: the name may soon be another.
    let wanted = subject.id().to_owned();
    loop {
        let first = matches!(at, At::Last);
        let bytes = if first { args.tail_bytes } else { args.tail_bytes.max(FOLLOWED) };
        let page = subject.page(at, bytes)?;
        let news = page.as_ref().filter(|page| !page.items.is_empty());
        if let Some(page) = news {
            if args.json {
                out.write_all(json::line(&Spelled::of(&subject, Some(page)))?.as_bytes())?;
            } else {
                out.write_all(drawing.page(&page.items, SystemClock.now()).as_bytes())?;
            }
            out.flush()?;
        }
        if let (Some(ended), None) = (&subject.ended, news) {
            if !args.json {
                write!(err, "{}", shown(&format!("codemie: {} ended: {ended}", subject.name)))?;
            }
            return Ok(());
        }
        let more = !first && page.as_ref().is_some_and(|page| page.truncated);
        at = page.map_or(at, |page| At::After(page.cursor));
        if !more {
            std::thread::sleep(PAUSE);
            recover(store, home);
        }
        subject = store.read(|view| Subject::of(view, &wanted))?;
    }
}

/// Where the next page begins.
#[derive(Clone, Copy)]
enum At {
    /// So that it ends with the conversation.
    Last,
    Start,
    After(Cursor),
}

fn begin(since: Option<&str>) -> anyhow::Result<At> {
    match since {
        None => Ok(At::Last),
        Some("start") => Ok(At::Start),
        Some(cursor) => cursor.parse().map(At::After).map_err(|error| {
            let message = format!("--since {cursor:?}: {error}, or `start`");
            Failure { code: USAGE, message }.into()
        }),
    }
}

/// What is looked at.
struct Subject {
    /// `None` for a conversation that codemie never wrapped.
    session: Option<String>,
    agent_session: Option<String>,
    name: String,
    agent: String,
    file: Option<PathBuf>,
    /// Whether a conversation may yet come.
    pending: bool,
    ambiguous: bool,
    /// How, if it has.
    ended: Option<String>,
}

impl Subject {
    fn of(view: &View<'_>, wanted: &str) -> anyhow::Result<Self> {
        Ok(match find::find(view, wanted)? {
            Found::Session(row) => {
                let record = record(view, &row, SystemClock.now())?;
                let agent_session = row.agent_session.as_ref().map(ToString::to_string);
                let file = row.agent_session_file.clone().filter(|file| file.exists());
                let file = file.or_else(|| refind(&row.agent, agent_session.as_deref()));
                Self {
                    session: Some(row.shown_id()),
                    pending: row.is_active() && file.is_none(),
                    ambiguous: row.link == Link::Ambiguous,
                    // One that once was is missed: the agent has deleted it.
                    file: file.or(row.agent_session_file),
                    ended: record.end_time.is_some().then(|| format::status(&record)),
                    agent_session,
                    name: row.name,
                    agent: row.agent,
                }
            }
            Found::Foreign(foreign) => Self {
                session: None,
                name: foreign.agent_session.to_string(),
                agent_session: Some(foreign.agent_session.0),
                agent: foreign.agent,
                file: Some(foreign.file),
                pending: false,
                ambiguous: false,
                ended: None,
            },
        })
    }

    fn id(&self) -> &str {
        self.session.as_ref().or(self.agent_session.as_ref()).unwrap_or(&self.name)
    }

    /// Any other program has a session and says nothing in it.
    fn must_be_of_an_agent(&self) -> anyhow::Result<()> {
        agent::by_name(&self.agent)
            .map(drop)
            .with_context(|| format!("{} has no conversation: {} is no agent", self.name, self.agent))
    }

    /// `None` where there is no conversation yet, or never was.
    fn page(&self, at: At, bytes: usize) -> anyhow::Result<Option<Page>> {
        let Some(path) = self.file.as_deref().filter(|_| !self.pending) else { return Ok(None) };
        let agent = agent::by_name(&self.agent);
        let reader = agent.and_then(|agent| Some(agent.transcript()?.of_form(agent.form(path.as_ref()))));
        let reader =
            reader.with_context(|| format!("codemie cannot read the conversations of {} yet", self.agent))?;
        let file = open_regular(path).with_context(|| self.missing(path))?;
        let page = match at {
            At::Last => transcript::last(&file, bytes, reader).map_err(transcript::Error::from),
            At::Start => transcript::after(&file, None, bytes, reader),
            At::After(cursor) => transcript::after(&file, Some(cursor), bytes, reader),
        };
        match page {
            Ok(page) => Ok(Some(page)),
            Err(transcript::Error::Io(error)) => Err(error).with_context(|| path.display().to_string()),
            Err(error) => Err(error.into()),
        }
    }

    fn missing(&self, path: &Path) -> String {
        let name = &self.name;
        if path.exists() {
            format!("cannot read {}", path.display())
        } else {
            format!(
                "the conversation of {name} is gone: {} has deleted {}; `codemie show {}` has what was recorded",
                self.agent,
                path.display(),
                shell::word(name)
            )
        }
    }
}

/// The file is not where it was: the agent may have moved it.
fn refind(agent: &str, conversation: Option<&str>) -> Option<PathBuf> {
    let (agent, wanted) = (agent::by_name(agent)?, conversation?);
    let found = agent.conversations(&|name| std::env::var_os(name), wanted);
    found.into_iter().find(|found| found.agent_session.0 == wanted).map(|found| found.file)
}

/// A page as `--json` has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spelled<'a> {
    session_id: Option<&'a str>,
    agent_session_id: Option<&'a str>,
    pending: bool,
    items: Vec<SpelledItem<'a>>,
    cursor: Option<String>,
    truncated: bool,
}

#[derive(Serialize)]
struct SpelledItem<'a> {
    role: &'static str,
    /// Of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// Of a tool that failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    text: &'a str,
    time: Option<Timestamp>,
}

impl<'a> Spelled<'a> {
    fn of(subject: &'a Subject, page: Option<&'a Page>) -> Self {
        Self {
            session_id: subject.session.as_deref(),
            agent_session_id: subject.agent_session.as_deref(),
            pending: subject.pending,
            items: page.map_or(Vec::new(), |page| page.items.iter().map(SpelledItem::of).collect()),
            cursor: page.map(|page| page.cursor.to_string()),
            truncated: page.is_some_and(|page| page.truncated),
        }
    }
}

impl<'a> SpelledItem<'a> {
    fn of(item: &'a Item) -> Self {
        let (role, text, name) = match &item.said {
            Said::User(text) => ("user", text.as_str(), None),
            Said::Assistant(text) | Said::Filler(text) => ("assistant", text.as_str(), None),
            Said::Tool { name, about } => ("tool", about.as_str(), Some(name.as_str())),
            Said::ToolFailed(text) => ("tool", text.as_str(), None),
            Said::Note(text) => ("note", *text, None),
        };
        Self { role, name, failed: matches!(item.said, Said::ToolFailed(_)), text, time: item.at }
    }
}

/// What a person should know beside the page itself.
fn remark(
    subject: &Subject,
    page: Option<&Page>,
    args: &Args,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let Subject { name, agent, .. } = subject;
    let word = shell::word(name);
    let (to_reader, line) = match page {
        None if subject.ambiguous => (
            true,
            format!(
                "{name} is ambiguous: its conversation is not known for certain. `codemie explain {word}` tells why."
            ),
        ),
        None if subject.pending => (
            true,
            format!("{name} is pending: {agent} has not written a conversation yet. --follow waits for it."),
        ),
        None => (true, format!("{name} has no conversation: it ended before anything was said.")),
        Some(page) if page.items.is_empty() && !page.truncated => match args.since {
            Some(_) => (true, "Nothing since then.".to_owned()),
            None => (true, format!("Nothing has been said in {name} yet.")),
        },
        Some(page) if page.truncated && args.since.is_some() => {
            (false, format!("codemie: there is more: codemie view {word} --since {}", page.cursor))
        }
        Some(page) if page.truncated => {
            (false, "codemie: only the end is shown; `--since start` begins at the beginning".to_owned())
        }
        Some(_) => return Ok(()),
    };
    if to_reader {
        write!(out, "{}", Style::of_stdout().fold(&line))
    } else {
        write!(err, "{}", shown(&line))
    }
}
