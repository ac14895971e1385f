//! Stopping sessions, for commands and other callers: which run is meant, and what became of it.

use std::time::Duration;

use serde::Serialize;

use super::find::{self, FindError};
use super::open;
use os::home::Home;
use pty::process::{Processes, SystemProcesses};
use runtime::launch::stop::{self, CannotStop};
use runtime::launch::{Origin, lineage};
use store::{self, BootAndPidNs, RunRow, SessionRow, Store, View};
use types::{SessionId, Status};

/// What became of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopReport {
    pub session_id: SessionId,
    pub name: String,
    /// The session that was named, if its run is in another one by now.
    pub redirected_from: Option<SessionId>,
    pub result: StopResult,
    /// Processes that survived even KILL, as people know them.
    pub survivors: Vec<String>,
    /// Everything is gone, but nobody could store that it was stopped (a full disk): it counts as interrupted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unrecorded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopResult {
    /// Everything is gone.
    Stopped,
    EndedBefore,
    Survived,
}

/// Why a session was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("{name} cannot be stopped: {why}")]
    CannotStop { name: String, why: CannotStop },
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// A session and the runs that are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningSession {
    pub session: SessionRow,
    /// The session that was asked for, if its run has left it by `/clear` or a switch.
    pub redirected_from: Option<SessionId>,
    /// Those that have not ended by the store.
    pub runs: Vec<RunRow>,
}

/// The session that a live command means when it names `session`: the one itself, or where its run is now.
pub fn running(view: &View<'_>, session: SessionRow) -> Result<RunningSession, store::Error> {
    let runs = view.live_runs_in(session.n)?;
    if runs.is_empty()
        && let Some(run) = session.run.map(|run| view.run_number(run)).transpose()?.flatten()
        && run.ended_at.is_none()
        && let Some(current) = run.session.map(|at| view.session_number(at)).transpose()?.flatten()
        && current.n != session.n
    {
        let runs = view.live_runs_in(current.n)?;
        return Ok(RunningSession { session: current, redirected_from: Some(session.id), runs });
    }
    Ok(RunningSession { session, redirected_from: None, runs })
}

/// Stops the session that `wanted` names, and waits until it is gone.
pub fn stop_one(
    store: &mut Store,
    home: &Home,
    wanted: &str,
    origin: &Origin,
    grace: Duration,
) -> Result<StopReport, StopError> {
    let found = store.read(|view| {
        let row = find::session(view, wanted, origin)?;
        Ok::<_, StopError>(running(view, row)?)
    })?;
    let mut report = stop_session(found, home, grace);
    // What was killed has stored no END.
    open::recover(store, home);
    mark_unrecorded(store, report.as_mut().ok());
    report
}

/// Looks up whether the ends of stopped sessions are stored as such.
fn mark_unrecorded<'a>(store: &mut Store, reports: impl IntoIterator<Item = &'a mut StopReport>) {
    for report in reports.into_iter().filter(|report| report.result == StopResult::Stopped) {
        let row = store.read(|view| view.session(report.session_id));
        report.unrecorded = match row {
            Ok(Some(row)) => row.is_active() || row.status == Some(Status::Interrupted),
            Ok(None) => false,
            Err(_) => true,
        };
    }
}

/// Stops every session of this user's that codemie runs and that can be seen from here, the one that `origin` lies in last. One that fails hides no other.
pub fn stop_all(
    store: &mut Store,
    home: &Home,
    origin: &Origin,
    grace: Duration,
) -> Result<Vec<Result<StopReport, StopError>>, StopError> {
    let here = BootAndPidNs::here();
    let mine = |run: &RunRow| {
        stop::lives_here(run, &here, &SystemProcesses)
            && !run.is_agents_own()
            && SystemProcesses.owner(run.wrapper.pid).is_none_or(|owner| owner == pty::own_user())
    };
    let lineage = lineage(origin);
    let mut own = None;
    let mut found = store.read(|view| {
        let live = view.live_runs()?;
        own = lineage.enclosing(&live, &here).map(|run| run.id);
        let mut runs: Vec<RunRow> = live.into_iter().filter(mine).collect();
        runs.sort_by_key(|run| Some(run.id) == own);
        let mut found: Vec<RunningSession> = Vec::new();
        for run in runs {
            let Some(session) = run.session.map(|at| view.session_number(at)).transpose()?.flatten() else {
                continue;
            };
            // Two runs may be in one session.
            found.retain(|other| other.session.n != session.n);
            let runs = view.live_runs_in(session.n)?.into_iter().filter(mine).collect();
            found.push(RunningSession { session, redirected_from: None, runs });
        }
        Ok::<_, store::Error>(found)
    })?;
    // Each takes its grace; all at once they take no longer than one.
    let last = found.pop_if(|last| last.runs.iter().any(|run| Some(run.id) == own));
    let mut reports: Vec<Result<StopReport, StopError>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            found.into_iter().map(|one| scope.spawn(move || stop_session(one, home, grace))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    reports.extend(last.map(|last| stop_session(last, home, grace)));
    open::recover(store, home);
    mark_unrecorded(store, reports.iter_mut().flatten());
    Ok(reports)
}

fn stop_session(found: RunningSession, home: &Home, grace: Duration) -> Result<StopReport, StopError> {
    let RunningSession { session, redirected_from, runs } = found;
    let mut survivors = Vec::new();
    let ended_before = runs.is_empty();
    for run in &runs {
        let left = stop::stop(home, run, &session.agent, grace);
        let left = left.map_err(|why| StopError::CannotStop { name: session.name.clone(), why })?;
        survivors.extend(left);
    }
    let result = match (ended_before, survivors.is_empty()) {
        (true, _) => StopResult::EndedBefore,
        (false, true) => StopResult::Stopped,
        (false, false) => StopResult::Survived,
    };
    let unrecorded = false;
    Ok(StopReport {
        session_id: session.id,
        name: session.name,
        redirected_from,
        result,
        survivors,
        unrecorded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::session::lifecycle::{ConversationStart, Transition, transition};
    use store::session::state::Exit;
    use store::session::testing::{World, binding};
    use types::TransitionKind;

    #[test]
    fn a_session_left_by_its_run_leads_to_the_one_the_run_is_in() {
        let mut world = World::new();
        let (run, first) = world.start(ConversationStart::Fresh);
        world.bind(first.session, "a").unwrap();
        let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("b")), workspace: None };
        let at = world.wait(1000);
        let ids = &world.ids;
        let second = world.store.write(|tx| transition(tx, at, ids, run, &change)).unwrap().new.session;
        let mut of = |id| {
            let row = world.session(id);
            let found = world.store.read(|view| running(view, row)).unwrap();
            (found.session.id, found.redirected_from, found.runs.len())
        };
        assert_eq!(of(first.session), (second, Some(first.session), 1));
        assert_eq!(of(second), (second, None, 1));
        world.end(run, Exit::Code(0));
        let mut of = |id| {
            let row = world.session(id);
            let found = world.store.read(|view| running(view, row)).unwrap();
            (found.session.id, found.redirected_from, found.runs.len())
        };
        assert_eq!(of(first.session), (first.session, None, 0), "its run has ended: so has the session");
    }

    #[test]
    fn a_session_that_has_ended_is_reported_as_such_and_nothing_is_ended() {
        let mut world = World::new();
        let (run, started) = world.start(ConversationStart::Fresh);
        world.end(run, Exit::Code(0));
        let row = world.session(started.session);
        let found = world.store.read(|view| running(view, row)).unwrap();
        let home = tempfile::tempdir().unwrap();
        let report = stop_session(found, &Home::at(home.path()), Duration::ZERO).unwrap();
        assert_eq!((report.result, report.survivors), (StopResult::EndedBefore, Vec::new()));
    }
}
