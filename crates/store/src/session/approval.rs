//! Who may make a choice in the dialog of a session.
//!
//! An agent never approves its own permissions: what runs inside of a session makes no choice for that session, nor for one that
//! it descends from, since the choice of a session that was started for a purpose would be its starter's own. Everything else
//! that runs inside of a session needs the user's word (`mcp.allowAnswers`). A person outside of every run is always allowed.
//!
//! This guards against a mistake and against a prompt that somebody else wrote, not against a program of the same user that
//! hides where it comes from: that can type into the terminal, and edit the settings.

use std::collections::HashSet;

use crate::{RunRow, SessionRow, View};
use types::{RunId, SessionId};

/// No chain of sessions is longer.
const LONGEST_CHAIN: usize = 1000;

/// Where a caller comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approver {
    /// No run is around it.
    Outside,
    /// It runs inside of this run.
    Inside(RunId),
    /// It was started by a daemon that agents share, so nothing shows which session it works for.
    OfADaemon,
}

/// Why a caller may not make a choice. Nothing was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("a session does not answer its own dialogs: what an agent may do is for its user to decide")]
    Own,
    #[error(
        "a session does not answer the dialogs of one that it was started from: what that one may do is for its user to decide"
    )]
    Ancestor,
    #[error(
        "dialogs are not answered from inside a run: that is for a person, in a terminal of their own, unless the setting \
         mcp.allowAnswers is true"
    )]
    NotAllowed,
    #[error(
        "this was started by a daemon that agents share, so nothing shows whose dialog it would answer: that is for a person, in a \
         terminal of their own"
    )]
    Unknown,
}

/// Why `by` may not make a choice for the session `target`, which `run` is in; `None`: it may. `allowed`: the user lets
/// sessions answer for others.
pub fn refusal(
    view: &View<'_>,
    by: Approver,
    target: &SessionRow,
    run: &RunRow,
    allowed: bool,
) -> Result<Option<Refusal>, crate::Error> {
    let own_run = match by {
        Approver::Outside => return Ok(None),
        Approver::OfADaemon => return Ok(Some(Refusal::Unknown)),
        Approver::Inside(own_run) => own_run,
    };
    if own_run == run.id {
        return Ok(Some(Refusal::Own));
    }
    // A `/clear` or a switch makes another session of what is one agent.
    let targets = with_predecessors(view, target)?;
    let mut next = view.current(own_run)?;
    let mut refusal = Refusal::Own;
    let mut seen = HashSet::new();
    while let Some(session) = next.filter(|session| seen.len() < LONGEST_CHAIN && seen.insert(session.n)) {
        if session.run == Some(run.n) || targets.contains(&session.id) {
            return Ok(Some(refusal));
        }
        refusal = Refusal::Ancestor;
        next = session.parent.map(|parent| view.session_number(parent)).transpose()?.flatten();
    }
    Ok((!allowed).then_some(Refusal::NotAllowed))
}

/// A session and those that led to it by `/clear` and switches.
fn with_predecessors(view: &View<'_>, session: &SessionRow) -> Result<HashSet<SessionId>, crate::Error> {
    let (mut all, mut next) = (HashSet::from([session.id]), view.came_from(session.n)?);
    while let Some((id, _)) = next.filter(|(id, _)| all.len() < LONGEST_CHAIN && all.insert(*id)) {
        let row = view.session(id)?;
        next = row.map(|row| view.came_from(row.n)).transpose()?.flatten();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::lifecycle::{self, ConversationStart, Transition};
    use crate::session::testing::World;
    use types::{RandomIds, Timestamp, TransitionKind};

    /// Whether the run `by` is refused the choice for what `target` is in now.
    fn refused(world: &mut World, by: RunId, target: RunId, allowed: bool) -> Option<Refusal> {
        world
            .store
            .read(|view| {
                let (run, session) = (view.run(target)?.unwrap(), view.current(target)?.unwrap());
                refusal(view, Approver::Inside(by), &session, &run, allowed)
            })
            .unwrap_or_else(|error: crate::Error| panic!("{error}"))
    }

    fn start(world: &mut World, parent: Option<RunId>) -> RunId {
        let mut begin = world.begin(ConversationStart::Fresh);
        begin.parent = parent;
        let run = begin.run.id;
        world.start_as(&begin);
        run
    }

    #[test]
    fn nobody_answers_for_itself_or_upwards_and_for_others_only_where_the_user_allows_it() {
        let mut world = World::new();
        let orchestrator = start(&mut world, None);
        let worker = start(&mut world, Some(orchestrator));
        let helper = start(&mut world, Some(worker));
        let sibling = start(&mut world, Some(orchestrator));
        let stranger = start(&mut world, None);
        for (by, target, expected) in [
            (orchestrator, orchestrator, Some(Refusal::Own)),
            (worker, orchestrator, Some(Refusal::Ancestor)),
            (helper, orchestrator, Some(Refusal::Ancestor)),
            (helper, worker, Some(Refusal::Ancestor)),
            (orchestrator, worker, None),
            (orchestrator, helper, None),
            (sibling, worker, None),
            (stranger, worker, None),
        ] {
            assert_eq!(refused(&mut world, by, target, true), expected);
            let without = expected.or(Some(Refusal::NotAllowed));
            assert_eq!(refused(&mut world, by, target, false), without);
        }
    }

    #[test]
    fn a_clear_makes_no_stranger_of_a_session() {
        let mut world = World::new();
        let orchestrator = start(&mut world, None);
        let worker = start(&mut world, Some(orchestrator));
        for (second, run) in [orchestrator, worker].into_iter().enumerate() {
            let at = Timestamp(1_768_135_100_000 + i64::try_from(second).unwrap());
            let clear = Transition { kind: TransitionKind::Clear, binding: None, workspace: None };
            world.store.write(|tx| lifecycle::transition(tx, at, &RandomIds, run, &clear)).unwrap();
        }
        assert_eq!(refused(&mut world, worker, worker, true), Some(Refusal::Own));
        assert_eq!(refused(&mut world, worker, orchestrator, true), Some(Refusal::Ancestor));
        assert_eq!(refused(&mut world, orchestrator, worker, true), None);
    }

    #[test]
    fn a_person_may_answer_and_a_daemons_worker_may_not() {
        let mut world = World::new();
        let run = start(&mut world, None);
        for (by, expected) in [(Approver::Outside, None), (Approver::OfADaemon, Some(Refusal::Unknown))] {
            let refused = world
                .store
                .read(|view| {
                    let (row, session) = (view.run(run)?.unwrap(), view.current(run)?.unwrap());
                    refusal(view, by, &session, &row, true)
                })
                .unwrap_or_else(|error: crate::Error| panic!("{error}"));
            assert_eq!(refused, expected);
        }
    }
}
