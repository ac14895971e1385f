//! `codemie view`: the conversation of a session, from the agent's own file, by pages.

use std::ffi::OsString;
use std::io;
use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

pub(super) use draw::Drawing;

use super::{Failure, USAGE, answer, session_text};
use crate::cli::View as Args;
use crate::failure::shown;
use agents::transcript::Page;
use format::output::screen::Screen;
use format::output::{Style, json};
use format::shell;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::conversation::{PageRecord, PageStart, ReadableConversation};
use report::open::{open, recover};
use report::question::Question;
use runtime::launch::Origin;
use store::Store;

mod draw;

/// How often a followed conversation is looked at: sooner than a reader of text notices, and two looks a second cost
/// nothing.
const PAUSE: Duration = Duration::from_millis(500);

/// The least that is read of a followed conversation at once.
const FOLLOWED: usize = 49_152;

pub fn run(args: &Args, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let paging = if args.no_pager { Paging::Never } else { Paging::IfLong };
    show(args, home, paging, out, err)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the conversation; returns whether the pager did.
pub(super) fn show(
    args: &Args,
    home: &Home,
    paging: Paging,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<bool> {
    let at = begin(args.since.as_deref())?;
    let origin = Origin::of_this_process();
    let mut store = open(home)?;
    let subject =
        store.read(|view| ReadableConversation::of(view, &args.session, &origin, SystemClock.now()))?;
    if !args.follow
        && !args.json
        && let Some(paged) = draw_screen(&subject, home, paging, out)?
    {
        return Ok(paged);
    }
    subject.must_be_of_an_agent()?;
    let drawing = Drawing::new(Style::of_stdout(), os::zone::local(), &subject.agent);
    if args.follow {
        follow(&mut store, home, subject, at, drawing, args, out, err)?;
        return Ok(false);
    }
    // No connection is kept while somebody reads.
    drop(store);
    let asked = Question::of_runs(home, &subject.runs);
    once(&subject, asked, at, drawing, paging, args, out, err)
}

/// A background session without a conversation, or of a program that never has one, is shown as its screen. Returns whether the
/// pager showed it; `None` for a session with a conversation.
fn draw_screen(
    subject: &ReadableConversation,
    home: &Home,
    paging: Paging,
    out: &mut dyn Write,
) -> anyhow::Result<Option<bool>> {
    let has_conversation = subject.file.is_some() && !subject.pending;
    let Some(rows) = (!has_conversation).then(|| subject.screen(home)).flatten() else { return Ok(None) };
    let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    let text: String = match Question::of_runs(home, &subject.runs) {
        Some(asked) => answer::draw_question(&asked, &subject.name, Style::of_stdout()),
        None => rows[..used].iter().flat_map(|row| [row.as_str(), "\n"]).collect(),
    };
    // A screen fits the terminal, and is printed; only a caller that has the whole terminal wants a pager.
    let paged = paging == Paging::Always && through_pager(&text, paging, false)?;
    if !paged {
        out.write_all(text.as_bytes())?;
    }
    Ok(Some(paged))
}

#[expect(clippy::too_many_arguments, reason = "the second half of a command, not an interface")]
fn once(
    subject: &ReadableConversation,
    asked: Option<Question>,
    at: PageStart,
    mut drawing: Drawing,
    paging: Paging,
    args: &Args,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<bool> {
    let page = subject.page(at, args.tail_bytes)?;
    if args.json {
        let record = PageRecord { question: asked, ..PageRecord::of(subject, page.as_ref()) };
        out.write_all(json::pretty(&record)?.as_bytes())?;
        return Ok(false);
    }
    let mut paged = false;
    if let Some(page) = &page {
        let text = drawing.page(&page.items, SystemClock.now());
        paged = through_pager(&text, paging, matches!(at, PageStart::Last))?;
        if !paged {
            out.write_all(text.as_bytes())?;
        }
    }
    remark(subject, page.as_ref(), args, out, err)?;
    if let Some(asked) = &asked {
        write!(out, "\n{}", answer::draw_question(asked, &subject.name, Style::of_stdout()))?;
    }
    Ok(paged)
}

#[expect(clippy::too_many_arguments, reason = "the second half of a command, not an interface")]
fn follow(
    store: &mut Store,
    home: &Home,
    mut subject: ReadableConversation,
    mut at: PageStart,
    mut drawing: Drawing,
    args: &Args,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<()> {
    let origin = Origin::of_this_process();
    // By its id: the name may soon be another.
    let wanted = subject.id().to_owned();
    loop {
        let first = matches!(at, PageStart::Last);
        let bytes = if first { args.tail_bytes } else { args.tail_bytes.max(FOLLOWED) };
        let page = subject.page(at, bytes)?;
        let news = page.as_ref().filter(|page| !page.items.is_empty());
        if let Some(page) = news {
            if args.json {
                out.write_all(json::line(&PageRecord::of(&subject, Some(page)))?.as_bytes())?;
            } else {
                out.write_all(drawing.page(&page.items, SystemClock.now()).as_bytes())?;
            }
            out.flush()?;
        }
        if let (Some(ended), None) = (&subject.ended, news) {
            if !args.json {
                let line = format!("codemie: {} ended: {}", subject.name, session_text::status(ended));
                write!(err, "{}", shown(&line))?;
            }
            return Ok(());
        }
        let more = !first && page.as_ref().is_some_and(|page| page.truncated);
        at = page.map_or(at, |page| PageStart::After(page.cursor));
        if !more {
            std::thread::sleep(PAUSE);
            recover(store, home);
        }
        subject = store.read(|view| ReadableConversation::of(view, &wanted, &origin, SystemClock.now()))?;
    }
}

fn begin(since: Option<&str>) -> anyhow::Result<PageStart> {
    match since {
        None => Ok(PageStart::Last),
        Some("start") => Ok(PageStart::Start),
        Some(cursor) => cursor.parse().map(PageStart::After).map_err(|error| {
            let message = format!("--since {cursor:?}: {error}, or `start`");
            Failure { code: USAGE, message }.into()
        }),
    }
}

/// Prints a remark beside the page: why it is empty, or that there is more.
fn remark(
    subject: &ReadableConversation,
    page: Option<&Page>,
    args: &Args,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let ReadableConversation { name, agent, .. } = subject;
    let word = shell::word(name);
    let (to_reader, line) = match page {
        None if subject.ambiguous => (
            true,
            format!(
                "{name} is ambiguous: its conversation is not known for certain. `codemie explain {word}` shows why."
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

// A long text on a terminal: through the user's pager.

/// When a text goes through the pager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cmd) enum Paging {
    Never,
    /// Where it is longer than the terminal.
    IfLong,
    Always,
}

/// Shows a text in `$PAGER`, or less; with `at_end`, its end first. False: print it.
pub(super) fn through_pager(text: &str, paging: Paging, at_end: bool) -> io::Result<bool> {
    let rows = Style::rows_of_stdout().filter(|rows| match paging {
        Paging::Never => false,
        Paging::IfLong => text.lines().count() >= *rows,
        Paging::Always => true,
    });
    let Some(mut command) = rows.and_then(|_| pager(std::env::var_os("PAGER"), at_end)) else {
        return Ok(false);
    };
    let mut child = match command.stdin(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // ^C is for the pager.
    pty::ignore_interrupt();
    if let Some(stdin) = child.stdin.take() {
        // Who leaves it early has seen enough.
        let _ = Screen::new(stdin, true).write_all(text.as_bytes());
    }
    let ended = child.wait();
    pty::restore_sigint();
    // A shell that cannot find it.
    ended.map(|status| status.code() != Some(127))
}

/// The user's own pager by the shell, which splits its arguments; `None` where it is none.
fn pager(wanted: Option<OsString>, at_end: bool) -> Option<Command> {
    match wanted.filter(|pager| !pager.is_empty()) {
        Some(pager) if pager == "cat" => None,
        Some(pager) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(pager);
            Some(command)
        }
        None => {
            let mut command = Command::new("less");
            command.arg("-R").args(at_end.then_some("+G"));
            Some(command)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_pager_or_less() {
        let line = |wanted: Option<&str>, at_end| {
            let command = pager(wanted.map(OsString::from), at_end)?;
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            Some(words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(line(None, true).as_deref(), Some("less -R +G"));
        assert_eq!(line(Some(""), false).as_deref(), Some("less -R"));
        assert_eq!(line(Some("most -s"), true).as_deref(), Some("sh -c most -s"));
        assert_eq!(line(Some("cat"), true), None);
    }
}
