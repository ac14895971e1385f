//! Tools that speak to a running session: a message, waiting for it, its end.

use std::time::{Duration, Instant};

use super::error::{ErrorCode, ToolError};
use super::forms::{
    AnswerDialog, EndSession, EndedSession, OneOrMore, SendMessage, SentMessage, WaitForSession,
    WaitedForSession,
};
use super::rules;
use super::tools::{Call, LiveRun, Tools};
use report::find::LiveTarget;
use report::wait::WaitFor;
use runtime::launch::is_shared_daemon;
use runtime::live::events::Cursor;
use runtime::remote::RemoteError;
use runtime::remote::protocol::{AnswerRequest, SendRequest, StopRequest};
use runtime::remote::send::Recipient;
use store::session::approval::{Approver, Refusal, refusal};
use store::session::lineage::Lineage;
use store::{BootAndPidNs, SessionRow};
use types::{Moment, ProcessId};

/// How long a message may take to be proved delivered.
const SEND_TIMEOUT_MS: u64 = 20_000;

const WAIT_TIMEOUT_MS: u64 = 50_000;
const LONGEST_WAIT_MS: u64 = 600_000;
/// A wait is made of shorter ones: after each the caller is told that it goes on, and one that nobody wants any more ends.
const WAIT_PART: Duration = Duration::from_secs(5);

/// Sessions that one call may wait for. Each is a connection to a host.
const WAITED_SESSIONS: usize = 100;

const GRACE_MS: u64 = 10_000;
const LONGEST_GRACE_MS: u64 = 60_000;
/// What a wrapper needs after it has killed its program: the END, and its own end.
const FORCE_TIMEOUT: Duration = Duration::from_secs(3);

impl Tools {
    pub(super) fn send_message(&self, args: SendMessage) -> Result<SentMessage, ToolError> {
        rules::text(&args.text)?;
        args.idempotency_key.as_deref().map(|key| rules::word("idempotency_key", key)).transpose()?;
        let run = self.look(self.given.scope, |view, caller, filter| {
            let row = self.meant_session(view, filter, &args.session)?;
            let run = self.live_run(view, &row)?.ok_or_else(|| has_ended(&row.name))?;
            if caller.run.is_some_and(|caller| caller.id == run.id) {
                // What is typed counts as the user's own word.
                return Err(ToolError::new(
                    ErrorCode::Refused,
                    "a session cannot speak to itself in its user's name",
                    "name another session",
                ));
            }
            Ok(run)
        })?;
        let request = SendRequest {
            text: args.text,
            idempotency_key: args.idempotency_key,
            timeout_ms: SEND_TIMEOUT_MS,
        };
        let to = Recipient { run: run.id, session: run.session.id };
        let answer = self.given.live.send(to, &request)?;
        Ok(SentMessage::of(answer, &run))
    }

    pub(super) fn wait_for_session(
        &self,
        args: WaitForSession,
        call: &Call<'_>,
    ) -> Result<WaitedForSession, ToolError> {
        let timeout = args.timeout_ms.unwrap_or(WAIT_TIMEOUT_MS).min(LONGEST_WAIT_MS);
        let deadline = Instant::now() + Duration::from_millis(timeout);
        let mut cursor = args.cursor.as_deref().map(wait_cursor).transpose()?;
        let until = args.until.map(OneOrMore::into_list).unwrap_or_default();
        let given = cursor.is_some();
        let wanted = waited_sessions(args.session, args.sessions)?;
        loop {
            let (rows, targets) = self.look(self.given.scope, |view, _, filter| {
                let (mut rows, mut targets) = (Vec::new(), Vec::new());
                for session in &wanted {
                    let row = self.meant_session(view, filter, session)?;
                    targets.push(self.live_target(view, &row)?);
                    rows.push(row);
                }
                Ok((rows, targets))
            })?;
            if let ([row], [LiveTarget { run: None, .. }]) = (&rows[..], &targets[..]) {
                // It ended, and nothing else can happen to it.
                return Ok(WaitedForSession {
                    result: Moment::Exit.to_string(),
                    session_id: row.shown_id(),
                    redirected_from: None,
                    state: None,
                    cursor: cursor.map(|cursor| cursor.to_string()),
                    answer: None,
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = left.min(WAIT_PART);
            // Without a cursor of the caller's, what holds counts in every part.
            let part = WaitFor { until: until.clone(), cursor: cursor.clone().filter(|_| given), timeout };
            let waited = self.given.live.wait(&targets, &part)?;
            let answer = waited.answer().map(str::to_owned);
            cursor = Some(waited.cursor);
            if waited.result.is_some() || left <= timeout || call.is_abandoned() {
                let named = waited.redirected_from.map(|from| {
                    let row = rows.iter().find(|row| row.id == from);
                    row.map_or_else(|| from.to_string(), SessionRow::shown_id)
                });
                return Ok(WaitedForSession {
                    result: waited.result.map_or("pending", Moment::as_str).to_owned(),
                    session_id: waited.session.to_string(),
                    redirected_from: named,
                    state: waited.state,
                    cursor: cursor.map(|cursor| cursor.to_string()),
                    answer,
                });
            }
            let doing = waited.state.as_ref().map_or("it runs", |state| state.is.as_str());
            (call.report)(match &targets[..] {
                [target] => format!("{}: {doing}", target.session.name),
                several => format!("{} sessions: nothing yet", several.len()),
            });
        }
    }

    /// A session may end itself in every scope: its own session is always in it.
    pub(super) fn end_session(&self, args: &EndSession) -> Result<EndedSession, ToolError> {
        let (row, run, own) = self.look(self.given.scope, |view, caller, filter| {
            let row = self.meant_session(view, filter, &args.session)?;
            let run = self.live_run(view, &row)?;
            let own = run.as_ref().is_some_and(|run| caller.run.is_some_and(|caller| caller.id == run.id));
            Ok((row, run, own))
        })?;
        let Some(run) = run else {
            return Ok(EndedSession {
                session_id: row.shown_id(),
                redirected_from: None,
                ended: true,
                already: true,
                survivors: Vec::new(),
            });
        };
        let grace_ms = args.grace_ms.unwrap_or(GRACE_MS).min(LONGEST_GRACE_MS);
        let survivors = match self.given.live.stop(run.id, StopRequest { grace_ms }) {
            Ok(answer) => answer.survivors,
            // Nobody but the session itself may end what runs in somebody's terminal.
            Err(RemoteError::NoHost) if own => self.ask_to_end(run.wrapper, grace_ms),
            // The host is gone, and the agent with it.
            Err(RemoteError::Closed) if !self.given.processes.alive(run.wrapper) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(EndedSession {
            session_id: run.session.shown_id(),
            redirected_from: run.redirected_from,
            ended: survivors.is_empty(),
            already: false,
            survivors,
        })
    }

    fn ask_to_end(&self, wrapper: ProcessId, grace_ms: u64) -> Vec<String> {
        let grace = Duration::from_millis(grace_ms);
        pty::ask_to_end(wrapper, grace);
        let deadline = Instant::now() + grace + FORCE_TIMEOUT;
        while self.given.processes.alive(wrapper) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let alive = self.given.processes.alive(wrapper);
        alive.then(|| format!("codemie (pid {})", wrapper.pid)).into_iter().collect()
    }
}

/// The sessions that a wait is for: one, or several.
fn waited_sessions(one: Option<String>, several: Option<Vec<String>>) -> Result<Vec<String>, ToolError> {
    let refused = |message: &str| {
        let next = "give one session, or up to 100 sessions";
        Err(ToolError::new(ErrorCode::InvalidArguments, message, next))
    };
    match (one, several) {
        (Some(one), None) => Ok(vec![one]),
        (None, Some(several)) if several.is_empty() => refused("sessions is empty"),
        (None, Some(several)) if several.len() > WAITED_SESSIONS => refused("there are too many sessions"),
        (None, Some(several)) => Ok(several),
        (None, None) => refused("it is not said which session to wait for"),
        (Some(_), Some(_)) => refused("session and sessions exclude each other"),
    }
}

fn wait_cursor(cursor: &str) -> Result<Cursor, ToolError> {
    rules::word("cursor", cursor)?.parse().map_err(|_| {
        ToolError::new(
            ErrorCode::StaleCursor,
            "the cursor is none of wait_for_session's or send_message's",
            "take it from an earlier answer, or leave it out",
        )
    })
}

pub(super) fn has_ended(name: &str) -> ToolError {
    ToolError::new(ErrorCode::Ended, format!("{name} has ended"), "resume_session goes on with it")
}

// The tool that makes a choice in a session's dialog. It exists only where the user allows it (`mcp.allowAnswers`).

impl Tools {
    pub(super) fn answer_dialog(&self, args: &AnswerDialog) -> Result<SentMessage, ToolError> {
        rules::word("dialog", &args.dialog)?;
        let run = self.look(self.given.scope, |view, caller, filter| {
            let row = self.meant_session(view, filter, &args.session)?;
            let target = self.live_target(view, &row)?;
            let live = target.run.clone().ok_or_else(|| has_ended(&row.name))?;
            let run = LiveRun::of(target, &row).ok_or_else(|| has_ended(&row.name))?;
            // Without variables, like the caller itself: an agent could set those of its own server.
            let lineage = Lineage::of(self.given.server, None, &*self.given.processes, &is_shared_daemon);
            let by = match caller.run {
                Some(caller) => Approver::Inside(caller.id),
                None => lineage.approver(&view.live_runs()?, &BootAndPidNs::here()),
            };
            match refusal(view, by, &run.session, &live, self.given.config.allow_answers)? {
                Some(why) => Err(refused(why)),
                None => Ok(run),
            }
        })?;
        let request = AnswerRequest { dialog: args.dialog.clone(), choice: args.choice };
        let to = Recipient { run: run.id, session: run.session.id };
        let answer = self.given.live.answer(to, &request)?;
        Ok(SentMessage::of(answer, &run))
    }
}

fn refused(why: Refusal) -> ToolError {
    let next = match why {
        Refusal::Own | Refusal::Ancestor | Refusal::Unknown => "ask the user to answer it",
        Refusal::NotAllowed => "ask the user to answer it, or to set mcp.allowAnswers",
    };
    ToolError::new(ErrorCode::Refused, why.to_string(), next)
}
