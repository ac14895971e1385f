//! How sessions begin and end. `start` and `end` exist once; exit, `/clear`, switch, stop, signal and crash recovery all
//! come through here, and a transition is both in one transaction.
//!
//! Each function takes a transaction: the rows and the events that describe them are committed together or not at all.
//! What is allowed is decided by [`State::step`]; a refused move is logged and changes nothing.

use std::path::PathBuf;

use super::Error;
use super::event::{amend_end, queue_bound, queue_end, queue_start, revise_start};
use super::names;
use super::proxied::{self, RecentCallPolicy};
use super::state::{Ending, Move, Next, Phase, State};
use crate::{NewRun, RunRow, SessionRow, Tx, Workspace};
use types::Timestamp;
use types::{AgentSessionId, Ids, RunId, SessionId};
use types::{EndReason, EvidenceKind, StartReason, TransitionKind};

/// A switch is noticed some time after the agent made it (150 ms at most, nearly always), and what the agent did in
/// between is the new session's: a prompt pasted at once; an answer takes longer. More than this would take the last
/// words of the old conversation, copied along but not read yet, for the new one's.
pub(super) const NOTICED_WITHIN_MS: i64 = 500;

/// Everything that is known of a run when it starts.
#[derive(Clone, Debug)]
pub struct RunStart {
    pub run: NewRun,
    pub agent: String,
    /// Nothing of it is ever sent, and `usage` leaves it out.
    pub local_only: bool,
    pub agent_version: Option<String>,
    pub workspace: Workspace,
    pub conversation: ConversationStart,
    pub name: Option<String>,
    pub tags: Vec<String>,
    pub group: Option<String>,
    /// The run this one was started inside of (`CODEMIE_RUN_ID` of the environment).
    pub parent: Option<RunId>,
}

/// How the conversation of a run starts, as far as the arguments show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversationStart {
    /// It begins empty for certain, so every line of its file is its own whatever the clock shows.
    Fresh,
    /// It may begin with copies of another's lines (a fork, unknown flags): only lines since the START are its own.
    Unsure,
    /// It goes on with the one named.
    Named(AgentSessionId),
    /// It goes on with one that is not named: provisional until bound.
    Unnamed,
}

/// The agent's session, and how we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub agent_session: AgentSessionId,
    pub file: Option<PathBuf>,
    pub evidence: EvidenceKind,
}

/// From one conversation to another inside a run.
#[derive(Clone, Debug)]
pub struct Transition {
    pub kind: TransitionKind,
    /// Known at once from most evidence; otherwise `bind` follows.
    pub binding: Option<Binding>,
    /// Where the new session works; `None`: where the old one did.
    pub workspace: Option<Workspace>,
}

/// The session that a run is in from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartResult {
    pub session: SessionId,
    pub name: String,
    pub kind: StartKind,
}

/// How a run came into its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartKind {
    New,
    /// Its START is held back until it is bound or ends.
    Provisional,
    Reopened,
    /// Another run is in it; it ends when the last one leaves.
    Joined,
}

/// The session that a run has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndResult {
    pub session: SessionId,
    /// False while another run is in it, and when the run had ended before.
    pub closed: bool,
}

/// The session that a run has left, and the one it is in instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionResult {
    pub old: EndResult,
    pub new: StartResult,
}

/// Which session has the agent's session after [`bind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindResult {
    /// The one that was bound, from now on.
    New,
    /// The one that was bound, as before.
    Already,
    /// The session was provisional and is gone; its id answers for this one.
    Merged(StartResult),
    /// The session had been reported already, so it ended as a switch to the one that has that conversation.
    Switched(TransitionResult),
}

/// Begins a run: the session exists from here on, with its START unless it is provisional.
pub fn start(tx: &Tx<'_>, at: Timestamp, ids: &dyn Ids, begin: &RunStart) -> Result<StartResult, Error> {
    let name = begin.name.as_deref().map(names::check).transpose()?;
    let run = tx.insert_run(&begin.run, at)?;
    if let ConversationStart::Named(id) = &begin.conversation
        && let Some(row) = tx.session_by_agent_session(&begin.agent, id)?
    {
        let kind = reopen(tx, &row, run, at, StartReason::Resume, None)?;
        label(tx, row.n, name, &begin.tags, begin.group.as_deref())?;
        let row = load(tx, row.n, row.id)?;
        return Ok(StartResult { session: row.id, name: row.name, kind });
    }

    let default = || names::default_name(&begin.agent, at, &os::zone::local());
    let wanted = name.map_or_else(default, str::to_owned);
    let parent = begin.parent.map(|run| tx.current(run)).transpose()?.flatten();
    let (phase, reason) = match begin.conversation {
        ConversationStart::Unnamed => (Phase::Provisional, StartReason::Resume),
        ConversationStart::Named(_) => (Phase::Open, StartReason::Resume),
        ConversationStart::Fresh | ConversationStart::Unsure => (Phase::Open, StartReason::Startup),
    };
    let fresh = begin.conversation == ConversationStart::Fresh;
    let (id, workspace) = (ids.session(), begin.workspace.clone());
    let new = SessionRow {
        named: name.is_some(),
        local_only: begin.local_only,
        agent_version: begin.agent_version.clone(),
        phase,
        run: Some(run),
        parent: parent.map(|parent| parent.n),
        owns_from: (!fresh).then_some(at),
        group: begin.group.clone(),
        proxied: begin.run.proxied,
        ..SessionRow::new(id, begin.agent.clone(), names::first(tx, &wanted)?, workspace, at)
    };
    create(tx, &new, run, reason, &begin.tags)
}

/// Ends a run. To call it twice, or from ten recoveries at once, ends the run once.
pub fn end(tx: &Tx<'_>, at: Timestamp, run: RunId, ending: Ending) -> Result<EndResult, Error> {
    let run = tx.run(run)?.ok_or(Error::NoRun(run))?;
    let old = session_of(tx, &run)?;
    if run.ended_at.is_some() {
        return Ok(EndResult { session: old.id, closed: false });
    }
    let ended = leave(tx, at, &old, run.n, ending, None)?;
    tx.end_run(run.n, at)?;
    Ok(ended)
}

/// The conversation of a run became another one.
pub fn transition(
    tx: &Tx<'_>,
    at: Timestamp,
    ids: &dyn Ids,
    run: RunId,
    transition: &Transition,
) -> Result<TransitionResult, Error> {
    let run = tx.run(run)?.filter(|row| row.ended_at.is_none()).ok_or(Error::NoRun(run))?;
    let old = session_of(tx, &run)?;
    let target = match &transition.binding {
        Some(binding) => tx.session_by_agent_session(&old.agent, &binding.agent_session)?,
        None => None,
    };
    if target.as_ref().is_some_and(|target| target.n == old.n) {
        return Err(Error::AlreadyThere(old.id));
    }
    let new_id = target.as_ref().map_or_else(|| ids.session(), |target| target.id);
    let kind = transition.kind;
    let (end_reason, start_reason) = (EndReason::from(kind), StartReason::from(kind));
    let ended = leave(tx, at, &old, run.n, Ending { reason: end_reason, exit: None }, Some(new_id))?;

    let started = if let Some(target) = target {
        let start = reopen(tx, &target, run.n, at, start_reason, Some(old.id))?;
        StartResult { session: target.id, name: target.name, kind: start }
    } else {
        let name = match kind {
            TransitionKind::Clear => names::successor(tx, &old.name_base, old.name_number)?,
            TransitionKind::Switch => {
                names::first(tx, &names::default_name(&old.agent, at, &os::zone::local()))?
            }
        };
        let workspace = transition.workspace.as_ref().unwrap_or(&old.workspace).clone();
        let new = SessionRow {
            local_only: old.local_only,
            agent_version: old.agent_version.clone(),
            run: Some(run.n),
            parent: old.parent,
            transitioned_from: Some(old.id),
            owns_from: (kind == TransitionKind::Switch).then_some(Timestamp(at.0 - NOTICED_WITHIN_MS)),
            group: old.group.clone(),
            proxied: run.proxied,
            ..SessionRow::new(new_id, old.agent.clone(), name, workspace, at)
        };
        let started = create(tx, &new, run.n, start_reason, &tx.tags(old.n)?)?;
        if let Some(binding) = &transition.binding {
            bind(tx, at, ids, new_id, binding)?;
        }
        started
    };
    let (from, to) = (old.id, new_id);
    tx.log_after_commit(move || tracing::info!(session = %from, %to, reason = %end_reason, "{from} -> {to}"));
    Ok(TransitionResult { old: ended, new: started })
}

/// The agent's session of this session is known.
pub fn bind(
    tx: &Tx<'_>,
    at: Timestamp,
    ids: &dyn Ids,
    session: SessionId,
    binding: &Binding,
) -> Result<BindResult, Error> {
    let row = tx.session(session)?.ok_or(Error::NoSession(session))?;
    if row.agent_session.as_ref() == Some(&binding.agent_session) {
        if let Some(file) = &binding.file {
            tx.set_agent_session_file(row.id, file)?;
        }
        return Ok(BindResult::Already);
    }
    let Some(known) = tx.session_by_agent_session(&row.agent, &binding.agent_session)? else {
        return bind_new(tx, at, &row, binding);
    };
    match (row.phase, row.run.map(|run| tx.run_number(run)).transpose()?.flatten()) {
        (Phase::Open, Some(run)) if row.agent_session.is_none() => {
            let change =
                Transition { kind: TransitionKind::Switch, binding: Some(binding.clone()), workspace: None };
            transition(tx, at, ids, run.id, &change).map(BindResult::Switched)
        }
        _ => merge(tx, &row, &known).map(BindResult::Merged),
    }
}

fn bind_new(tx: &Tx<'_>, at: Timestamp, row: &SessionRow, binding: &Binding) -> Result<BindResult, Error> {
    let next = step(row, Move::BindNew)?;
    if row.phase == Phase::Provisional {
        release(tx, row)?;
    }
    tx.set_phase(row.n, next.parts())?;
    tx.set_binding(row.n, &binding.agent_session, binding.file.as_deref(), binding.evidence, at)?;
    let row = load(tx, row.n, row.id)?;
    let (session, agent_session, evidence) = (row.id, binding.agent_session.clone(), binding.evidence);
    tx.log_after_commit(move || tracing::info!(%session, %agent_session, %evidence, "bound"));
    queue_bound(tx, &row, at, &binding.agent_session, binding.evidence)?;
    if row.phase == Phase::Closed {
        amend_end(tx, &load(tx, row.n, row.id)?)?;
    }
    proxied::assign(tx, at, row.n, RecentCallPolicy::Wait)?;
    Ok(BindResult::New)
}

/// A provisional session is the known one: that one is opened again, as of the time the run began.
fn merge(tx: &Tx<'_>, row: &SessionRow, known: &SessionRow) -> Result<StartResult, Error> {
    step_to(row, Move::BindKnown)?;
    let run = row.run.ok_or(Error::NoSession(row.id))?;
    let since = known.ended_at.map_or(row.started_at, |ended| ended.max(row.started_at));
    let tags = tx.tags(row.n)?;
    tx.merge_session(row, known.n)?;
    let kind = reopen(tx, known, run, since, StartReason::Resume, None)?;
    label(tx, known.n, row.named.then_some(row.name.as_str()), &tags, row.group.as_deref())?;
    for child in tx.children(known.n)? {
        revise_start(tx, &child)?;
    }
    let known = load(tx, known.n, known.id)?;
    let (session, alias) = (known.id, row.id);
    tx.log_after_commit(move || tracing::info!(%session, %alias, "provisional session is a known one"));
    Ok(StartResult { session: known.id, name: known.name, kind })
}

/// The evidence allows two conversations; later evidence may decide.
pub fn doubt(tx: &Tx<'_>, session: SessionId) -> Result<(), Error> {
    let row = tx.session(session)?.ok_or(Error::NoSession(session))?;
    let next = step(&row, Move::Doubt)?;
    if next != State::of_row(&row)? {
        tx.set_phase(row.n, next.parts())?;
        tx.log_after_commit(move || tracing::info!(%session, "ambiguous"));
    }
    Ok(())
}

/// The agent's version became known after its START.
pub fn learn_version(tx: &Tx<'_>, session: SessionId, version: &str) -> Result<(), Error> {
    let row = tx.session(session)?.ok_or(Error::NoSession(session))?;
    if row.agent_version.as_deref() != Some(version) {
        tx.set_version_of_session(row.n, version)?;
        revise_start(tx, &load(tx, row.n, row.id)?)?;
    }
    Ok(())
}

/// Writes a new session that a run is in, with its tags.
fn create(
    tx: &Tx<'_>,
    new: &SessionRow,
    run: i64,
    reason: StartReason,
    tags: &[String],
) -> Result<StartResult, Error> {
    let n = tx.insert_session(new, reason)?;
    for tag in tags {
        tx.add_tag(n, tag)?;
    }
    tx.put_run_in(run, n, new.started_at)?;
    let (session, name) = (new.id, new.name.clone());
    tx.log_after_commit(move || tracing::info!(%session, name, %reason, "created"));
    let kind = if new.phase == Phase::Provisional {
        StartKind::Provisional
    } else {
        queue_start(tx, &load(tx, n, new.id)?, new.started_at)?;
        StartKind::New
    };
    Ok(StartResult { session: new.id, name: new.name.clone(), kind })
}

/// Opens a known session once more, or joins it if a run is in it.
fn reopen(
    tx: &Tx<'_>,
    row: &SessionRow,
    run: i64,
    at: Timestamp,
    reason: StartReason,
    from: Option<SessionId>,
) -> Result<StartKind, Error> {
    tx.put_run_in(run, row.n, at)?;
    let session = row.id;
    if row.phase != Phase::Closed {
        step(row, Move::Join)?;
        tx.set_session_run(row.n, run)?;
        tx.log_after_commit(move || tracing::info!(%session, "joined by a further run"));
        return Ok(StartKind::Joined);
    }
    let next = step(row, Move::Reopen)?;
    // Every receiver gets it from its first event on, though it was imported, or ended before there was a receiver.
    tx.requeue_session(row.n)?;
    tx.set_phase(row.n, next.parts())?;
    tx.reopen_session(row, run, reason, at, from)?;
    tx.log_after_commit(move || tracing::info!(%session, %reason, "re-opened"));
    queue_start(tx, &load(tx, row.n, row.id)?, at)?;
    proxied::assign(tx, at, row.n, RecentCallPolicy::Wait)?;
    Ok(StartKind::Reopened)
}

/// A run goes out of a session; with the last one the session ends.
fn leave(
    tx: &Tx<'_>,
    at: Timestamp,
    row: &SessionRow,
    run: i64,
    ending: Ending,
    to: Option<SessionId>,
) -> Result<EndResult, Error> {
    let session = row.id;
    // What the agent did right before a transition was noticed is the next session's.
    proxied::assign(
        tx,
        at,
        row.n,
        if to.is_some() { RecentCallPolicy::Wait } else { RecentCallPolicy::Take },
    )?;
    if let Some(other) = tx.live_runs_in(row.n)?.iter().rev().find(|other| other.n != run) {
        step(row, Move::LeaveOne)?;
        if row.run == Some(run) {
            // The record names the processes of a run that is in it.
            tx.set_session_run(row.n, other.n)?;
        }
        tx.log_after_commit(
            move || tracing::info!(%session, reason = %ending.reason, "left by one run, another stays"),
        );
        return Ok(EndResult { session, closed: false });
    }
    let next = step(row, Move::LeaveLast)?;
    tx.log_after_commit(move || tracing::info!(%session, reason = %ending.reason, "ending"));
    if row.phase == Phase::Provisional {
        release(tx, row)?;
    }
    tx.set_phase(row.n, next.parts())?;
    let opened = tx.openings(row.n)?.pop().map_or(row.started_at, |opening| opening.opened_at);
    let at = at.max(opened);
    tx.close_session(row, at, ending.status(), ending.reason, ending.exit, to)?;
    queue_end(tx, &load(tx, row.n, row.id)?, at)?;
    tx.log_after_commit(move || tracing::info!(%session, status = %ending.status(), "ended"));
    Ok(EndResult { session, closed: true })
}

/// A provisional session is a session of its own: its START, held back so far, is sent with the time it was made.
fn release(tx: &Tx<'_>, row: &SessionRow) -> Result<(), Error> {
    tx.set_phase(row.n, State::OpenPending.parts())?;
    queue_start(tx, &load(tx, row.n, row.id)?, row.started_at)?;
    for child in tx.children(row.n)? {
        revise_start(tx, &child)?;
    }
    Ok(())
}

/// The labels that the command line gives a session that exists already.
fn label(
    tx: &Tx<'_>,
    session: i64,
    name: Option<&str>,
    tags: &[String],
    group: Option<&str>,
) -> Result<(), Error> {
    let mut changed = false;
    if let Some(name) = name {
        let current = tx.session_number(session)?.map(|row| row.name);
        if current.as_deref() != Some(name) {
            let name = names::first(tx, name)?;
            tx.set_name(session, &name.full, &name.base, name.number)?;
            changed = true;
        }
    }
    for tag in tags {
        changed |= tx.add_tag(session, tag)?;
    }
    if let Some(group) = group {
        tx.set_group(session, Some(group))?;
        changed = true;
    }
    if changed && let Some(row) = tx.session_number(session)? {
        revise_start(tx, &row)?;
    }
    Ok(())
}

fn step(row: &SessionRow, attempted: Move) -> Result<State, Error> {
    match step_to(row, attempted)? {
        Next::State(state) => Ok(state),
        Next::Merged => Err(Error::NoSession(row.id)),
    }
}

fn step_to(row: &SessionRow, attempted: Move) -> Result<Next, Error> {
    match State::of_row(row)?.step(attempted) {
        Ok(next) => Ok(next),
        Err(source) => {
            tracing::warn!(session = %row.id, "refused: {source}");
            Err(Error::Illegal { session: row.id, source })
        }
    }
}

fn load(tx: &Tx<'_>, n: i64, id: SessionId) -> Result<SessionRow, Error> {
    tx.session_number(n)?.ok_or(Error::NoSession(id))
}

fn session_of(tx: &Tx<'_>, run: &RunRow) -> Result<SessionRow, Error> {
    let row = run.session.map(|n| tx.session_number(n)).transpose()?.flatten();
    row.ok_or(Error::NoRun(run.id))
}
