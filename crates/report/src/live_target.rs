//! Where a live command (`attach`, `send`, `wait`, `stop`) goes: from the session that a person names to the run it is in now.

use os::home::Home;
use runtime::remote::address;
use store::{self, RunRow, SessionRow, View};
use types::{RunId, SessionId};

/// A session and what goes on in it.
#[derive(Clone, Debug)]
pub struct LiveTarget {
    /// The session that is meant: the one that was named, or the one its run is in now.
    pub session: SessionRow,
    /// The session that was named, where its run has left it by `/clear` or a switch.
    pub redirected_from: Option<SessionId>,
    /// `None`: the session has ended.
    pub run: Option<RunRow>,
    /// The run it is in, or was in last.
    pub last_run: Option<RunId>,
}

impl LiveTarget {
    /// Of several runs in one session, one in the background is meant: only that one can be spoken to.
    pub fn of(view: &View<'_>, home: &Home, named: SessionRow) -> Result<Self, store::Error> {
        let runs = view.live_runs_in(named.n)?;
        let hosted = runs.iter().rev().find(|run| address::exists(home, run.id)).cloned();
        if let Some(run) = hosted.or_else(|| runs.into_iter().next_back()) {
            let last_run = Some(run.id);
            return Ok(Self { session: named, redirected_from: None, run: Some(run), last_run });
        }
        let left = named.run.map(|run| view.run_number(run)).transpose()?.flatten();
        let last_run = left.as_ref().map(|run| run.id);
        let left = left.filter(|run| run.ended_at.is_none());
        let now_in = left.as_ref().and_then(|run| run.session).map(|n| view.session_number(n));
        match (left, now_in.transpose()?.flatten()) {
            (Some(run), Some(session)) => {
                Ok(Self { session, redirected_from: Some(named.id), run: Some(run), last_run })
            }
            _ => Ok(Self { session: named, redirected_from: None, run: None, last_run }),
        }
    }
}

/// Where a session without a host runs, for people: `in the terminal /dev/pts/3 (process 4242)`.
pub fn where_it_runs(run: &RunRow) -> String {
    let pid = run.wrapper.pid;
    let terminal = std::fs::read_link(format!("/proc/{pid}/fd/0")).ok();
    match terminal.filter(|path| path.starts_with("/dev")) {
        Some(terminal) => format!("in the terminal {} (process {pid})", terminal.display()),
        None => format!("in a terminal of its own (process {pid})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::session::lifecycle::{self, ConversationStart, Transition};
    use store::session::state::{Ending, Exit};
    use store::session::testing::World;
    use types::{RandomIds, Timestamp, TransitionKind};

    #[test]
    fn a_session_that_its_run_has_left_leads_to_the_one_it_is_in_now() {
        let mut world = World::new();
        let home = Home::at("/nonexistent");
        let (run, first) = world.start(ConversationStart::Fresh);
        let target = |world: &mut World, id: SessionId| {
            world
                .store
                .read(|view| LiveTarget::of(view, &home, view.session(id)?.unwrap()))
                .unwrap_or_else(|error: store::Error| panic!("{error}"))
        };
        let own = target(&mut world, first.session);
        assert_eq!((own.session.id, own.redirected_from), (first.session, None));
        assert_eq!(own.run.map(|run| run.id), Some(run));

        let at = Timestamp(1_768_135_100_000);
        let clear = Transition { kind: TransitionKind::Clear, binding: None, workspace: None };
        let second = world
            .store
            .write(|tx| lifecycle::transition(tx, at, &RandomIds, run, &clear))
            .unwrap()
            .new
            .session;
        let moved = target(&mut world, first.session);
        assert_eq!((moved.session.id, moved.redirected_from), (second, Some(first.session)));
        assert_eq!(moved.run.map(|run| run.id), Some(run));

        world.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
        for id in [first.session, second] {
            let ended = target(&mut world, id);
            assert_eq!((ended.session.id, ended.redirected_from), (id, None));
            assert!(ended.run.is_none());
        }
    }
}
