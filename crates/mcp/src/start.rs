//! Tools that start a session in the background: a new one, or one that has ended.
//!
//! The session's id is chosen before the start and kept with the idempotency key. A repeated call, one at the same time from
//! another server, or one after a launcher was killed finds that id and looks for its session.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::error::{ErrorCode, ToolError};
use super::forms::{ResumeSession, StartSession, StartedSession};
use super::live::{LaunchFailure, LaunchLine};
use super::places::{NoPlace, Place, Starter};
use super::rules;
use super::scope::{Caller, Scope, depth};
use super::tools::{ResolvedSession, StartedHere, Tools};
use agents::{Agent, registry};
use os::clock::{Clock, SystemClock};
use runtime::launch::resume::Resumable;
use store::{BootAndPidNs, Claim, NewRequest, SessionRow, Store, View};
use types::hex::hex;
use types::{Ids, ProcessId, RandomIds, SessionId, StartTime, Timestamp};

/// How long a repeated call waits for the session that the first call is starting.
const APPEARS_WITHIN: Duration = Duration::from_secs(20);
const APPEARS_POLL: Duration = Duration::from_millis(50);

/// A start is answered within seconds. After this time a key without a session is one whose launcher was killed before it
/// started anything, and the start is made up for under the same id.
const ABANDONED_AFTER: Duration = Duration::from_mins(1);

/// A session is recorded beside its agent's start.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);

/// A start that has been checked.
#[derive(Clone, Debug)]
pub(super) struct CheckedStart {
    /// The agent's name, or the program's.
    pub(super) agent: String,
    /// What follows codemie's own options: `claude ARGS…`, `-- PROGRAM ARGS…`.
    pub(super) line: Vec<OsString>,
    pub(super) name: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) key: Option<String>,
    /// Everything that was asked for, to compare calls with one key.
    pub(super) request: String,
}

impl Tools {
    pub(super) fn start_session(&self, args: StartSession) -> Result<StartedSession, ToolError> {
        let request = format!("{args:?}");
        let Some(agent) = registry::called(&args.agent) else {
            return Err(unknown_agent(&args.agent, registry::names()));
        };
        let further = args.args.unwrap_or_default();
        rules::arguments(&further, &self.given.config)?;
        let mut line = vec![OsString::from(agent.name())];
        line.extend(further.into_iter().map(OsString::from));
        line.extend(prompt_arguments(agent, args.prompt.as_deref())?);
        self.start(CheckedStart {
            agent: agent.name().to_owned(),
            line,
            name: rules::name(args.name.as_deref())?,
            cwd: args.cwd,
            key: args.idempotency_key,
            request,
        })
    }

    pub(super) fn start(&self, start: CheckedStart) -> Result<StartedSession, ToolError> {
        start.key.as_deref().map(|key| rules::word("idempotency_key", key)).transpose()?;
        let _one_at_a_time = self.starting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (caller, folder) = self.look(self.given.scope, |_, caller, _| {
            Ok((caller.clone(), rules::folder(start.cwd.as_deref(), caller, &self.given.config)?))
        })?;
        let mut session = RandomIds.session();
        if let Some(key) = &start.key {
            let claim = self.claim(key, &start.request, session)?;
            match self.of_claim(&claim, &start.agent)? {
                Some(found) => return Ok(found),
                None => session = claim.session,
            }
        }
        let started = self.launch_new(&start, session, &caller, folder.clone());
        if let (Err(error), Some(key)) = (&started, &start.key)
            && error.code != ErrorCode::StartUnknown
        {
            self.with_store(|store| Ok(release(store.store(), key)?))?;
        }
        let session = started?;
        let recorded = self.recorded(session, RECORDED_WITHIN)?;
        Ok(StartedSession {
            session_id: session.to_string(),
            pending: recorded.is_none(),
            name: recorded.map(|row| row.name).or(start.name),
            agent: start.agent,
            working_directory: folder.to_string_lossy().into_owned(),
            created: true,
        })
    }

    fn launch_new(
        &self,
        start: &CheckedStart,
        session: SessionId,
        caller: &Caller,
        folder: std::path::PathBuf,
    ) -> Result<SessionId, ToolError> {
        let place = self.take_place(Some(session))?;
        let mut args: Vec<OsString> = ["run", "--detach", "--through-mcp", "--session", &session.to_string()]
            .map(OsString::from)
            .into();
        if let Some(name) = &start.name {
            args.extend([OsString::from("--name"), name.into()]);
        }
        args.extend(start.line.iter().cloned());
        let line = LaunchLine { args, folder, parent: caller.run.map(|run| run.id) };
        let here = StartedHere { agent: start.agent.clone(), name: start.name.clone() };
        // Known before the answer: a question that comes first is answered with "pending".
        self.started().insert(session, here.clone());
        let launched = self.given.live.launch(&line);
        self.settle_place(place, &launched);
        match launched {
            Ok(answered) => {
                self.started().insert(answered, here);
                Ok(answered)
            }
            // The launcher was killed after it had started the session.
            Err(_) if self.recorded(session, Duration::ZERO)?.is_some() => Ok(session),
            Err(failure) => {
                self.started().remove(&session);
                Err(not_started(&failure))
            }
        }
    }

    /// This server, as others know it.
    fn server(&self) -> ProcessId {
        let pid = self.given.server;
        ProcessId { pid, start: self.given.processes.start_time(pid).unwrap_or(StartTime(0)) }
    }

    fn claim(&self, key: &str, request: &str, session: SessionId) -> Result<StartClaim, ToolError> {
        let (server, now) = (self.server(), SystemClock.now());
        self.with_store(|store| Ok(claim(store.store(), key, request, session, server, now)?))
    }

    /// The session that a key stands for already; `None`: it is to be started, with the claim's id.
    fn of_claim(&self, claim: &StartClaim, agent: &str) -> Result<Option<StartedSession>, ToolError> {
        if claim.first {
            return Ok(None);
        }
        let reused = || {
            ToolError::new(
                ErrorCode::KeyReused,
                "the idempotency key was used for another request",
                "use a new key for a new session",
            )
        };
        if !claim.same_request {
            return Err(reused());
        }
        let abandoned = |now: Timestamp| now.since(claim.at) >= ABANDONED_AFTER;
        let patience = if abandoned(SystemClock.now()) { Duration::ZERO } else { APPEARS_WITHIN };
        let Some(row) = self.recorded(claim.session, patience)? else {
            if abandoned(SystemClock.now()) {
                return Ok(None);
            }
            return Err(ToolError::new(
                ErrorCode::StartUnknown,
                "an earlier call with this key is still starting the session, or was killed",
                "try again with the same key in a minute",
            ));
        };
        let allowed = self.look(self.given.scope, |_, _, filter| Ok(filter.allows(&row)?))?;
        if !allowed {
            return Err(reused());
        }
        Ok(Some(StartedSession {
            session_id: row.shown_id(),
            name: Some(row.name),
            agent: agent.to_owned(),
            working_directory: row.workspace.cwd.to_string_lossy().into_owned(),
            created: false,
            pending: false,
        }))
    }

    /// The session's row, once it is there.
    fn recorded(&self, session: SessionId, within: Duration) -> Result<Option<SessionRow>, ToolError> {
        let deadline = Instant::now() + within;
        loop {
            let row = self.look(Scope::All, |view, _, _| Ok(view.session(session)?))?;
            if row.is_some() || Instant::now() >= deadline {
                return Ok(row);
            }
            std::thread::sleep(APPEARS_POLL);
        }
    }

    /// A place for one more session: so many may run at once, and start each other so deep.
    fn take_place(&self, session: Option<SessionId>) -> Result<Place, ToolError> {
        let (max_sessions, max_depth) = (self.given.config.max_sessions, self.given.config.max_depth);
        let (deep, top) = self.look(Scope::All, |view, caller, _| {
            let Some(own) = caller.session(view)? else { return Ok((0, None)) };
            let (deep, top) = depth(view, &own)?;
            Ok((deep, Some((top.n, top.id))))
        })?;
        if deep >= max_depth {
            return Err(ToolError::new(
                ErrorCode::TooDeep,
                format!("sessions may start sessions {max_depth} deep, and this one is {deep} deep itself"),
                "do the work in this session; the user may raise mcp.maxDepth",
            ));
        }
        let (starter, processes) = (Starter { top, server: self.server() }, &*self.given.processes);
        let taken = self.with_store(|store| {
            let now = SystemClock.now();
            Ok(Place::take(store.store(), &starter, max_sessions, session, processes, now)?)
        })?;
        taken.map_err(|NoPlace(running)| {
            ToolError::new(
                ErrorCode::TooManySessions,
                format!("{running} sessions are running already"),
                "wait for one to end, or end one; the user may raise mcp.maxSessions",
            )
        })
    }

    /// What became of the start that a place was taken for. One that nobody knows the outcome of keeps it for a while.
    fn settle_place(&self, place: Place, launched: &Result<SessionId, LaunchFailure>) {
        let settled = self.with_store(|store| match launched {
            Ok(session) => Ok(place.keep(store.store(), *session)?),
            Err(LaunchFailure::Refused(_)) => Ok(place.give_back(store.store())?),
            Err(LaunchFailure::Unknown(_)) => Ok(()),
        });
        if let Err(error) = settled {
            tracing::warn!("a place among the running sessions was not settled: {error}");
        }
    }

    pub(super) fn resume_session(&self, args: &ResumeSession) -> Result<StartedSession, ToolError> {
        let _one_at_a_time = self.starting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (wanted, resumable, caller) = self.look(self.given.scope, |view, caller, filter| {
            let meant = self.meant(view, filter, &args.session)?;
            let mine = matches!(&meant, ResolvedSession::Session(row) if filter.is_mine(row)?);
            let (wanted, resumable) = self.resumable(view, meant)?;
            let folder = resumable.folder.as_deref();
            let may = mine || folder.is_some_and(|at| rules::may_continue_in(at, caller, &self.given.config));
            if !may {
                return Err(ToolError::new(
                    ErrorCode::FolderNotAllowed,
                    format!("{} works outside the caller's project", resumable.name),
                    "the user may allow it with mcp.anyFolder",
                ));
            }
            Ok((wanted, resumable, caller.clone()))
        })?;
        let not_resumable = |error: runtime::launch::resume::NotResumable| {
            ToolError::new(ErrorCode::NotResumable, error.to_string(), "start_session begins a new one")
        };
        let (agent, _) = resumable.target().map_err(not_resumable)?;
        // The `--` is codemie's own: what follows it, another one included, is the agent's.
        let mut line: Vec<OsString> =
            ["resume", "--detach", "--through-mcp", &wanted, "--"].map(OsString::from).into();
        line.extend(prompt_arguments(agent, args.prompt.as_deref())?);
        let folder =
            resumable.folder.filter(|folder| folder.is_dir()).unwrap_or_else(|| caller.folder.clone());
        let line = LaunchLine { args: line, folder: folder.clone(), parent: caller.run.map(|run| run.id) };
        let place = self.take_place(None)?;
        let launched = self.given.live.launch(&line);
        self.settle_place(place, &launched);
        let session = launched.map_err(|failure| not_started(&failure))?;
        let name = Some(resumable.name);
        self.started().insert(session, StartedHere { agent: agent.name().to_owned(), name: name.clone() });
        Ok(StartedSession {
            session_id: session.to_string(),
            pending: self.recorded(session, RECORDED_WITHIN)?.is_none(),
            name,
            agent: agent.name().to_owned(),
            working_directory: folder.to_string_lossy().into_owned(),
            created: false,
        })
    }

    /// What is to be continued, and the word that names it on a command line.
    fn resumable(&self, view: &View<'_>, meant: ResolvedSession) -> Result<(String, Resumable), ToolError> {
        match meant {
            ResolvedSession::Session(row) => {
                if self.live_run(view, &row)?.is_some_and(|run| run.redirected_from.is_none()) {
                    return Err(ToolError::new(
                        ErrorCode::AlreadyRunning,
                        format!("{} is running", row.name),
                        "send_message speaks to it",
                    ));
                }
                let (session, runs) = (Some(row.n), view.live_runs_in(row.n)?);
                let id = row.id.to_string();
                let folder = Some(row.workspace.cwd);
                let (name, agent, conversation) = (row.name, row.agent, row.agent_session);
                Ok((id, Resumable { name, agent, conversation, folder, session, runs }))
            }
            ResolvedSession::Unwrapped(foreign) => {
                let id = foreign.agent_session.to_string();
                let (agent, folder) = (foreign.agent, foreign.cwd);
                let conversation = Some(foreign.agent_session);
                let (session, runs) = (None, Vec::new());
                Ok((id.clone(), Resumable { name: id, agent, conversation, folder, session, runs }))
            }
            ResolvedSession::Starting(..) => Err(ToolError::new(
                ErrorCode::AlreadyRunning,
                "the session has just been started",
                "wait_for_session waits for it",
            )),
        }
    }
}

pub(super) fn unknown_agent(agent: &str, known: &[impl AsRef<str>]) -> ToolError {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let message = format!("there is no agent {agent:?}");
    ToolError::new(ErrorCode::UnknownAgent, message, format!("choose one of {}", known.join(", ")))
}

/// The prompt goes by the agent's arguments, never typed.
pub(super) fn prompt_arguments(agent: &dyn Agent, prompt: Option<&str>) -> Result<Vec<OsString>, ToolError> {
    let Some(prompt) = prompt else { return Ok(Vec::new()) };
    rules::text(prompt)?;
    let name = agent.name();
    let not_possible =
        |message: String, next: &str| Err(ToolError::new(ErrorCode::TextNotAllowed, message, next));
    let Some(arguments) = agent.prompt_arguments(prompt) else {
        return not_possible(
            format!("{name} takes no first prompt by its arguments"),
            "leave prompt out and use send_message",
        );
    };
    if !rules::prompt_is_safe(prompt, &arguments) {
        return not_possible(
            format!("{name} would take this prompt for an option, because it begins with a dash"),
            "begin the prompt with a word",
        );
    }
    Ok(arguments)
}

fn not_started(failure: &LaunchFailure) -> ToolError {
    match failure {
        LaunchFailure::Refused(message) => ToolError::new(
            ErrorCode::StartFailed,
            message.clone(),
            "correct what the message names; nothing was started",
        ),
        LaunchFailure::Unknown(message) => ToolError::new(
            ErrorCode::StartUnknown,
            message.clone(),
            "look with list_sessions before you start it again",
        ),
    }
}

// Idempotency keys of `start_session`: which session a key stands for.
//
// The id of a session is chosen before its start and kept with the key. Whoever asks with the same key later, or at the same
// time, finds that id, and looks for the session instead of starting another one.

/// The kind of request in the store; each kind has keys of its own.
const KIND: &str = "start";

/// A key and the session it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartClaim {
    pub session: SessionId,
    /// When the key was first used.
    pub at: Timestamp,
    /// It is the first use: the session is to be started.
    pub first: bool,
    /// The same was asked for then.
    pub same_request: bool,
}

/// The first use of `key` keeps `session` and `request`; any other returns what was kept.
pub fn claim(
    store: &mut Store,
    key: &str,
    request: &str,
    session: SessionId,
    server: ProcessId,
    now: Timestamp,
) -> Result<StartClaim, store::Error> {
    let realm = BootAndPidNs::here();
    // A prompt is nobody's business but the agent's.
    let content = hex(&Sha256::digest(request.as_bytes()));
    let request = NewRequest {
        kind: KIND,
        key,
        content: &content,
        owner: server,
        realm: &realm,
        run: None,
        session: Some(session),
    };
    Ok(match store.write(|tx| tx.claim_request(&request, now))? {
        Claim::New => StartClaim { session, at: now, first: true, same_request: true },
        Claim::Earlier(earlier) => StartClaim {
            session: earlier.session.unwrap_or(session),
            at: earlier.created_at,
            first: false,
            same_request: earlier.content == content,
        },
    })
}

/// The session was not started, so the key may be used again.
pub fn release(store: &mut Store, key: &str) -> Result<(), store::Error> {
    store.write(|tx| tx.release_request(KIND, key))
}
