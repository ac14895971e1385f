//! The tools behind their names, and what all of them share: the store, the caller, and the session that is meant.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{ErrorCode, ToolError};
use super::live::LiveSessions;
use super::scope::{Caller, Scope, ScopeFilter};
use super::{forms, rules};
use agents::UnwrappedConversation;
use config::McpConfig;
use os::home::Home;
use pty::process::Processes;
use report::find::LiveTarget;
use report::find::{FindError, find};
use report::open::OpenStore;
use runtime::launch::Origin;
use store::session::lookup::{Found, LookupError};
use store::{self, SessionRow, View};
use types::{ProcessId, RunId, SessionId};

/// How often sessions are ended whose wrapper has vanished.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Everything the tools work with. Tests hand in processes and sessions of their own.
pub struct ToolContext {
    pub home: Home,
    pub origin: Origin,
    /// The most that a caller may ask for.
    pub scope: Scope,
    pub config: McpConfig,
    /// This process, by which the caller is found.
    pub server: types::Pid,
    pub processes: Box<dyn Processes>,
    pub live: Box<dyn LiveSessions>,
}

pub struct Tools {
    pub(super) given: ToolContext,
    /// Looked up once: what appears above it later widens nothing.
    folder: PathBuf,
    store: Mutex<Option<OpenStore>>,
    caller: Mutex<Option<Caller>>,
    started: Mutex<HashMap<SessionId, StartedHere>>,
    /// One start at a time, so that limits hold.
    pub(super) starting: Mutex<()>,
}

/// A session that this server has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedHere {
    pub agent: String,
    pub name: Option<String>,
}

/// A call under way: whether anybody still wants its answer, and where to report that it goes on.
pub struct Call<'a> {
    pub abandoned: &'a AtomicBool,
    pub report: &'a dyn Fn(String),
}

impl Call<'_> {
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// The session that a caller means.
#[derive(Clone, Debug)]
pub enum ResolvedSession {
    Session(Box<SessionRow>),
    /// A conversation that codemie never wrapped.
    Unwrapped(UnwrappedConversation),
    /// Started by this server and not recorded yet.
    Starting(SessionId, StartedHere),
}

/// The run that a session is in, or has gone on from to another session.
#[derive(Clone, Debug)]
pub struct LiveRun {
    pub id: RunId,
    pub wrapper: ProcessId,
    /// The session it is in now.
    pub session: SessionRow,
    /// The session that was asked for, where that is another one.
    pub redirected_from: Option<String>,
}

impl LiveRun {
    /// `None`: the session that was asked for has ended, and its run with it.
    pub(super) fn of(target: LiveTarget, asked_for: &SessionRow) -> Option<Self> {
        let run = target.run?;
        Some(Self {
            id: run.id,
            wrapper: run.wrapper,
            session: target.session,
            redirected_from: target.redirected_from.map(|_| asked_for.shown_id()),
        })
    }
}

impl Tools {
    pub fn new(given: ToolContext) -> Self {
        let folder = given.origin.folder();
        Self {
            given,
            folder,
            store: Mutex::default(),
            caller: Mutex::default(),
            started: Mutex::default(),
            starting: Mutex::default(),
        }
    }

    /// Calls a tool by its name.
    pub fn call(&self, tool: &str, arguments: JsonObject, call: &Call<'_>) -> Result<Value, ToolError> {
        match tool {
            "start_session" => answered(self.start_session(parsed(arguments)?)),
            "list_sessions" => answered(self.list_sessions(&parsed(arguments)?)),
            "get_session_data" => self.get_session_data(&parsed(arguments)?),
            "send_message" => answered(self.send_message(parsed(arguments)?)),
            "answer_dialog" if self.given.config.allow_answers => {
                answered(self.answer_dialog(&parsed(arguments)?))
            }
            "wait_for_session" => answered(self.wait_for_session(parsed(arguments)?, call)),
            "resume_session" => answered(self.resume_session(&parsed(arguments)?)),
            "end_session" => answered(self.end_session(&parsed(arguments)?)),
            "explain_session" => self.explain_session(&parsed(arguments)?),
            "run" => answered(self.genie_run(&parsed(arguments)?)),
            "resume" => answered(self.genie_resume(parsed(arguments)?)),
            "view" => self.genie_view(parsed(arguments)?),
            "stop" => answered(self.genie_stop(parsed(arguments)?)),
            _ => Err(ToolError::new(
                ErrorCode::InvalidArguments,
                format!("there is no tool {tool:?}"),
                "tools/list shows the tools there are",
            )),
        }
    }

    /// One look at the store, with the sessions in scope.
    pub(super) fn look<T>(
        &self,
        scope: Scope,
        work: impl FnOnce(&View<'_>, &Caller, &mut ScopeFilter<'_>) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        self.with_store(|store| {
            store.catch_up_every(CATCH_UP);
            let started: HashSet<SessionId> = self.started().keys().copied().collect();
            store.read(|view| {
                let caller = self.caller(view)?;
                let mut filter = ScopeFilter::new(view, &caller, scope, &started)?;
                work(view, &caller, &mut filter)
            })
        })
    }

    /// The store, opened when it is first needed: without one the server still answers, and says so.
    pub(super) fn with_store<T>(
        &self,
        work: impl FnOnce(&mut OpenStore) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match store.as_mut() {
            Some(opened) => opened,
            None => store.insert(OpenStore::open(&self.given.home, &self.given.origin).map_err(|error| {
                ToolError::new(
                    ErrorCode::StoreUnavailable,
                    format!("the sessions' database cannot be opened: {error:#}"),
                    "`codemie doctor` on this machine shows what is wrong",
                )
            })?),
        };
        work(opened)
    }

    /// Looked up until there is one: the START of the caller's own run may not be stored yet.
    fn caller(&self, view: &View<'_>) -> Result<Caller, store::Error> {
        let mut known = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(caller) = known.as_ref().filter(|caller| caller.run.is_some()) {
            return Ok(caller.clone());
        }
        let found = Caller::find(view, &*self.given.processes, self.given.server, &self.folder)?;
        let caller = match known.take() {
            // Whatever was made above the folder since then widens nothing.
            Some(before) if found.run.is_none() => before,
            _ => found,
        };
        Ok(known.insert(caller).clone())
    }

    pub(super) fn started(&self) -> MutexGuard<'_, HashMap<SessionId, StartedHere>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that a caller means. One outside its scope is answered as if there were none.
    pub(super) fn meant(
        &self,
        view: &View<'_>,
        filter: &mut ScopeFilter<'_>,
        wanted: &str,
    ) -> Result<ResolvedSession, ToolError> {
        rules::word("session", wanted)?;
        let none = || ToolError::no_such_session(wanted, &[]);
        match find(view, wanted, &self.given.origin) {
            Ok(Found::Session(row)) => {
                if filter.allows(&row)? {
                    Ok(ResolvedSession::Session(row))
                } else {
                    Err(none())
                }
            }
            Ok(Found::Unwrapped(foreign)) => {
                let allowed = filter.allows_foreign(foreign.cwd.as_deref());
                if allowed { Ok(ResolvedSession::Unwrapped(foreign)) } else { Err(none()) }
            }
            Err(FindError::Unknown { resembling, .. }) => match self.starting(wanted) {
                Some((id, started)) => Ok(ResolvedSession::Starting(id, started)),
                None => Err(ToolError::no_such_session(wanted, &in_scope(view, filter, resembling)?)),
            },
            Err(FindError::Several(several)) => one_in_scope(view, filter, several, wanted),
            Err(error) => Err(error.into()),
        }
    }

    /// A session of codemie's own that is recorded.
    pub(super) fn meant_session(
        &self,
        view: &View<'_>,
        filter: &mut ScopeFilter<'_>,
        wanted: &str,
    ) -> Result<SessionRow, ToolError> {
        match self.meant(view, filter, wanted)? {
            ResolvedSession::Session(row) => Ok(*row),
            ResolvedSession::Unwrapped(_) => Err(ToolError::new(
                ErrorCode::NotResumable,
                format!("{wanted:?} is a conversation that never ran through codemie"),
                "resume_session adopts it",
            )),
            ResolvedSession::Starting(..) => Err(ToolError::new(
                ErrorCode::StartUnknown,
                "the session was started and is not recorded yet",
                "try again in a second",
            )),
        }
    }

    fn starting(&self, wanted: &str) -> Option<(SessionId, StartedHere)> {
        let started = self.started();
        let by_id = wanted.parse().ok().and_then(|id| started.get_key_value(&id));
        let by_name = || started.iter().find(|(_, one)| one.name.as_deref() == Some(wanted));
        by_id.or_else(by_name).map(|(id, started)| (*id, started.clone()))
    }

    /// Where a live tool that names this session goes; without a run whose process has gone.
    pub(super) fn live_target(&self, view: &View<'_>, row: &SessionRow) -> Result<LiveTarget, store::Error> {
        let mut target = LiveTarget::of(view, &self.given.home, row.clone())?;
        target.run.take_if(|run| !self.given.processes.alive(run.wrapper));
        Ok(target)
    }

    /// The run that a session is in, or the one that has gone on from it to another session.
    pub(super) fn live_run(
        &self,
        view: &View<'_>,
        row: &SessionRow,
    ) -> Result<Option<LiveRun>, store::Error> {
        Ok(LiveRun::of(self.live_target(view, row)?, row))
    }
}

/// Names that a caller may be told.
fn in_scope(
    view: &View<'_>,
    filter: &mut ScopeFilter<'_>,
    names: Vec<String>,
) -> Result<Vec<String>, ToolError> {
    let mut allowed = Vec::new();
    for name in names {
        for row in view.sessions_named(&name)? {
            if filter.allows(&row)? {
                allowed.push(name.clone());
            }
        }
    }
    Ok(allowed)
}

/// Several sessions may be meant, but perhaps only one of them may be seen.
fn one_in_scope(
    view: &View<'_>,
    filter: &mut ScopeFilter<'_>,
    several: LookupError,
    wanted: &str,
) -> Result<ResolvedSession, ToolError> {
    let LookupError::Several { candidates, .. } = several else {
        return Err(ToolError::internal(several.to_string()));
    };
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let row = candidate.id.parse().ok().map(|id| view.session(id)).transpose()?.flatten();
        if let Some(row) = row
            && filter.allows(&row)?
        {
            rows.push(row);
            kept.push(candidate);
        }
    }
    match rows.len() {
        0 => Err(ToolError::no_such_session(wanted, &[])),
        1 => Ok(ResolvedSession::Session(Box::new(rows.remove(0)))),
        _ => {
            Err(FindError::Several(LookupError::Several { wanted: wanted.to_owned(), candidates: kept })
                .into())
        }
    }
}

fn parsed<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let next = "tools/list shows each tool's arguments";
        ToolError::new(ErrorCode::InvalidArguments, format!("the arguments do not fit: {error}"), next)
    })
}

fn answered(answer: Result<impl Serialize, ToolError>) -> Result<Value, ToolError> {
    answer.and_then(|answer| as_value(&answer))
}

pub(super) fn as_value(answer: &impl Serialize) -> Result<Value, ToolError> {
    serde_json::to_value(answer).map_err(|error| ToolError::internal(error.to_string()))
}

/// The tools there are; `genie`: with Genie's names; `answers`: with the one that answers dialogs.
pub fn list(genie: bool, answers: bool) -> Vec<Tool> {
    let reads = |tool: Tool| tool.annotate(ToolAnnotations::new().read_only(true).open_world(false));
    let acts = |tool: Tool, destructive| {
        tool.annotate(ToolAnnotations::new().read_only(false).destructive(destructive))
    };
    let tool = |name: &'static str, about: &'static str, input, output| {
        Tool::new(name, about, input).with_raw_output_schema(output)
    };
    let start = "Start a coding agent in the background, with a first prompt. Answers once it runs. \
                 Then wait_for_session and get_session_data.";
    let data =
        "Read a session's conversation by pages, the end first. Without a conversation yet: its screen.";
    let send = "Send a message to a background session, as its user would type it. \
                Answers what became of it: accepted, queued, turn_started, rejected, unknown.";
    let wait = "Wait until a background session, or the first of several, has finished its turn, needs input or \
                has ended. Answers pending with a cursor when the time is up: call it again with that cursor.";
    let mut tools = vec![
        acts(
            tool(
                "start_session",
                start,
                forms::input::<forms::StartSession>(),
                forms::output::<forms::StartedSession>(),
            ),
            false,
        ),
        reads(tool(
            "list_sessions",
            "List sessions, newest first, with what each does at this moment.",
            forms::input::<forms::ListSessions>(),
            forms::output::<forms::SessionList>(),
        )),
        reads(tool(
            "get_session_data",
            data,
            forms::input::<forms::GetSessionData>(),
            forms::output::<forms::SessionData>(),
        )),
        acts(
            tool(
                "send_message",
                send,
                forms::input::<forms::SendMessage>(),
                forms::output::<forms::SentMessage>(),
            ),
            false,
        ),
        reads(tool(
            "wait_for_session",
            wait,
            forms::input::<forms::WaitForSession>(),
            forms::output::<forms::WaitedForSession>(),
        )),
        acts(
            tool(
                "resume_session",
                "Go on with a session that has ended, in the background, in its own folder.",
                forms::input::<forms::ResumeSession>(),
                forms::output::<forms::StartedSession>(),
            ),
            false,
        ),
        acts(
            tool(
                "end_session",
                "End a session and every process it started.",
                forms::input::<forms::EndSession>(),
                forms::output::<forms::EndedSession>(),
            ),
            true,
        ),
        reads(tool(
            "explain_session",
            "Show which evidence bound a session to its agent's conversation.",
            forms::input::<forms::ExplainSession>(),
            forms::any_output(),
        )),
    ];
    if answers {
        tools.push(acts(
            tool(
                "answer_dialog",
                "Answer the dialog that another session shows, while it is that very dialog. get_session_data has its hash and choices.",
                forms::input::<forms::AnswerDialog>(),
                forms::output::<forms::SentMessage>(),
            ),
            true,
        ));
    }
    if genie {
        tools.extend([
            acts(
                tool(
                    "run",
                    start,
                    forms::input::<forms::GenieRun>(),
                    forms::output::<forms::StartedSession>(),
                ),
                false,
            ),
            acts(
                tool(
                    "resume",
                    "Go on with a session: a message if it runs, else in the background.",
                    forms::input::<forms::GenieResume>(),
                    forms::any_output(),
                ),
                false,
            ),
            reads(tool(
                "view",
                data,
                forms::input::<forms::GenieView>(),
                forms::output::<forms::SessionData>(),
            )),
            acts(
                tool(
                    "stop",
                    "End a session and every process it started.",
                    forms::input::<forms::GenieStop>(),
                    forms::output::<forms::EndedSession>(),
                ),
                true,
            ),
        ]);
    }
    tools
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
