//! Tools that read: the list, a conversation by pages, the evidence.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::{ErrorCode, ToolError};
use super::forms::{
    DataItem, ExplainSession, GetSessionData, ListSessions, ListedSession, SessionData, SessionList,
};
use super::rules;
use super::scope::Scope;
use super::tools::{LiveRun, ResolvedSession, StartedHere, Tools, as_value};
use agents::registry;
use agents::transcript::Page;
use os::clock::{Clock, SystemClock};
use report::conversation::{PageRecord, PageStart, ReadableConversation};
use report::explain::Explanation;
use report::question::asks;
use runtime::remote::protocol::ScreenText;
use store::session::record::records;
use store::{SessionQuery, SessionRow, Show};
use types::{LiveState, SessionId, Status};

/// What an answer may hold, in characters of JSON.
const DEFAULT_CHARS: u32 = 2_000;
const MOST_CHARS: u32 = 48_000;
/// Ids, names and cursors alone need some hundred: a smaller cap holds for the conversation's text alone.
const LEAST_CHARS: usize = 1_000;

/// Sessions in one list.
const LISTED: usize = 50;

/// How long a list may ask hosts what their sessions do; further states are left out.
const STATES_WITHIN: Duration = Duration::from_secs(2);

/// The characters of a choice that are shown at least, and at most.
const LEAST_LABEL: usize = 12;
const MOST_LABEL: usize = 200;

/// Stands before a cursor that leads backwards.
const BACKWARDS: &str = "before-";

/// The longest screen line that is shown, and the most lines: both bound what a hostile host can send.
const SCREEN_LINES: usize = 400;

impl Tools {
    /// The scope that a call asks for; never more than the server's own.
    fn narrowed(&self, wanted: Option<Scope>) -> Result<Scope, ToolError> {
        let most = self.given.scope;
        match wanted {
            Some(wanted) if wanted > most => Err(ToolError::new(
                ErrorCode::ScopeTooWide,
                "the user started this server with a narrower scope",
                "leave scope out, or ask for a narrower one",
            )),
            wanted => Ok(wanted.unwrap_or(most)),
        }
    }

    pub(super) fn list_sessions(&self, args: &ListSessions) -> Result<SessionList, ToolError> {
        let scope = self.narrowed(args.scope)?;
        let show = if args.active == Some(true) { Show::Active } else { Show::NotArchived };
        let (rows, runs, more) = self.look(scope, |view, _, filter| {
            let (mut rows, mut more) = (Vec::new(), 0);
            for row in view.list(&SessionQuery::showing(show))? {
                if filter.allows(&row)? {
                    if rows.len() < LISTED { rows.push(row) } else { more += 1 }
                }
            }
            let runs: Vec<Option<LiveRun>> = rows
                .iter()
                .map(|row| if row.is_active() { self.live_run(view, row) } else { Ok(None) })
                .collect::<Result<_, _>>()?;
            Ok((records(view, &rows, SystemClock.now())?, runs, more))
        })?;
        // Outside the look: hosts may take their time, and the store must not wait for them.
        let deadline = Instant::now() + STATES_WITHIN;
        let sessions = rows.into_iter().zip(runs).map(|(record, run)| {
            let state = run.filter(|_| Instant::now() < deadline).and_then(|run| self.state(&run));
            ListedSession::of(record, state.is_some(), state)
        });
        Ok(SessionList { sessions: sessions.collect(), more, scope })
    }

    /// `None` where no host can tell.
    pub(super) fn state(&self, run: &LiveRun) -> Option<LiveState> {
        self.given.live.state(run.id).ok()
    }

    pub(super) fn get_session_data(&self, args: &GetSessionData) -> Result<Value, ToolError> {
        let at = page_start(args.cursor.as_deref())?;
        let wanted = args.max_chars.unwrap_or(DEFAULT_CHARS).clamp(1, MOST_CHARS) as usize;
        let most = wanted.max(LEAST_CHARS);
        let origin = &self.given.origin;
        let (source, row, run) = match self.look(self.given.scope, |view, _, filter| {
            let meant = self.meant(view, filter, &args.session)?;
            let (wanted, row) = match meant {
                ResolvedSession::Starting(id, started) => return Ok(Err((id, started))),
                ResolvedSession::Unwrapped(foreign) => (foreign.agent_session.0, None),
                ResolvedSession::Session(row) => (row.shown_id(), Some(*row)),
            };
            let source = ReadableConversation::of(view, &wanted, origin, SystemClock.now())?;
            let run = row.as_ref().map(|row| self.live_run(view, row)).transpose()?.flatten();
            Ok(Ok((source, row, run.filter(|run| run.redirected_from.is_none()))))
        })? {
            Ok(found) => found,
            Err((id, started)) => return as_value(&starting(id, started)),
        };
        let mut data = self.frame(&source, row.as_ref(), run.as_ref());
        let readable = registry::by_name(&source.agent).is_some_and(|agent| agent.transcript().is_some());
        let asked = self.asked(&data, run.as_ref());
        let mut room = wanted;
        loop {
            // What is asked now comes before what was said.
            let said = if asked.is_some() { room / 3 } else { room };
            // A program that is no agent never writes a conversation.
            let page = if readable { source.page(at, said)? } else { None };
            data.truncated = false;
            if let Some(page) = &page {
                fill(&mut data, &source, page, at);
            }
            match &asked {
                Some(screen) => show_question(&mut data, screen, room / 3),
                None if page.is_none() => self.show_screen(&mut data, run.as_ref(), room),
                None => {}
            }
            let value = as_value(&data)?;
            let length = value.to_string().chars().count();
            if length <= most || room <= 1 {
                return Ok(value);
            }
            // Names of fields and escapes take room, too. Each time at least one item is left out, or cut.
            let held = text_length(&data).min(room);
            room = (held * most / length).min(held.saturating_sub(1)).max(1);
        }
    }

    fn frame(
        &self,
        source: &ReadableConversation,
        row: Option<&SessionRow>,
        run: Option<&LiveRun>,
    ) -> SessionData {
        let ended = source.ended.as_ref().map(|record| record.status);
        SessionData {
            session_id: source.session.clone(),
            agent_session_id: source.agent_session.clone(),
            name: source.name.clone(),
            agent: source.agent.clone(),
            status: row.map(|_| ended.unwrap_or(Status::Active).to_string()),
            pending: source.pending,
            state: run.and_then(|run| self.state(run)),
            items: Vec::new(),
            screen: None,
            dialog: None,
            cursor: None,
            before: None,
            truncated: false,
        }
    }

    /// The screen of a session whose agent asks something.
    fn asked(&self, data: &SessionData, run: Option<&LiveRun>) -> Option<ScreenText> {
        let run = run.filter(|_| data.state.as_ref().is_some_and(asks))?;
        self.given.live.screen(run.id).ok()
    }

    fn show_screen(&self, data: &mut SessionData, run: Option<&LiveRun>, room: usize) {
        // A host that does not answer is no reason to call a session ended.
        let screen = run.and_then(|run| self.given.live.screen(run.id).ok());
        let rows = screen.map_or_else(Vec::new, |screen| screen.rows);
        let (kept, cut) = last_lines(&rows, room);
        data.truncated = cut;
        data.screen = run.map(|_| kept);
    }

    pub(super) fn explain_session(&self, args: &ExplainSession) -> Result<Value, ToolError> {
        self.look(self.given.scope, |view, _, filter| {
            let row = self.meant_session(view, filter, &args.session)?;
            as_value(&Explanation::of(view, &row, SystemClock.now())?)
        })
    }
}

/// The last lines of a screen, as many as fit, and whether some did not.
fn last_lines(rows: &[String], room: usize) -> (Vec<String>, bool) {
    let used = rows.iter().rposition(|row| !row.trim().is_empty()).map_or(0, |last| last + 1);
    let (mut held, mut kept) = (0, Vec::new());
    for row in rows[..used].iter().rev().take(SCREEN_LINES) {
        held += row.len() + 1;
        if held > room {
            break;
        }
        kept.push(row.trim_end().to_owned());
    }
    kept.reverse();
    let cut = kept.len() < used;
    (kept, cut)
}

/// What is asked, and the screen beside it, each in its room. The hash is that of the whole dialog.
fn show_question(data: &mut SessionData, screen: &ScreenText, room: usize) {
    let (kept, cut) = last_lines(&screen.rows, room);
    data.screen = Some(kept);
    data.dialog.clone_from(&screen.dialog);
    data.truncated |= cut && data.dialog.is_none();
    let Some(dialog) = &mut data.dialog else { return };
    let mut shorten = |text: &mut String, most: usize| {
        if let Some((end, _)) = text.char_indices().nth(most) {
            text.truncate(end);
            text.push('…');
            data.truncated = true;
        }
    };
    shorten(&mut dialog.text, room);
    let label = (room / 4).clamp(LEAST_LABEL, MOST_LABEL);
    dialog.choices.iter_mut().for_each(|choice| shorten(&mut choice.label, label));
}

/// A session that was started and is not recorded yet has said nothing.
fn starting(id: SessionId, started: StartedHere) -> SessionData {
    SessionData {
        session_id: Some(id.to_string()),
        agent_session_id: None,
        name: started.name.unwrap_or_else(|| id.to_string()),
        agent: started.agent,
        status: Some(Status::Active.to_string()),
        pending: true,
        state: None,
        items: Vec::new(),
        screen: None,
        dialog: None,
        cursor: None,
        before: None,
        truncated: false,
    }
}

fn fill(data: &mut SessionData, source: &ReadableConversation, page: &Page, at: PageStart) {
    let record = PageRecord::of(source, Some(page));
    data.items = record
        .items
        .into_iter()
        .map(|item| DataItem {
            role: item.role.to_owned(),
            name: item.name.map(str::to_owned),
            failed: item.failed,
            text: item.text.to_owned(),
            time: item.time.map(|time| time.0),
        })
        .collect();
    data.cursor = record.cursor;
    data.truncated = record.truncated;
    // From the beginning on nothing comes before; a page at the end has something before it only if not all fitted.
    let more_before = match at {
        PageStart::Last | PageStart::Before(_) => page.truncated,
        PageStart::Start => false,
        PageStart::After(_) => true,
    };
    data.before = more_before.then(|| format!("{BACKWARDS}{}", page.start));
}

/// The bytes of all texts.
fn text_length(data: &SessionData) -> usize {
    let items = data.items.iter().map(|item| item.text.len() + item.name.as_ref().map_or(0, String::len));
    let lines = data.screen.iter().flatten().map(|line| line.len() + 1);
    let asked = data.dialog.iter().map(|dialog| dialog.text.len());
    items.chain(lines).chain(asked).sum()
}

fn page_start(cursor: Option<&str>) -> Result<PageStart, ToolError> {
    let no_cursor = |_| {
        ToolError::new(
            ErrorCode::StaleCursor,
            "the cursor is none of get_session_data's",
            "take cursor or before from an earlier answer, or \"start\", or leave it out",
        )
    };
    match cursor {
        None => Ok(PageStart::Last),
        Some("start") => Ok(PageStart::Start),
        Some(cursor) => {
            let cursor = rules::word("cursor", cursor)?;
            match cursor.strip_prefix(BACKWARDS) {
                Some(cursor) => cursor.parse().map(PageStart::Before).map_err(no_cursor),
                None => cursor.parse().map(PageStart::After).map_err(no_cursor),
            }
        }
    }
}
