//! What the tracker reports to the wrapper at the end of a run.

use crate::budget::BudgetStatus;
use crate::remote::address;
use delivery::Sender;
use os::home::Home;
use pty::process::{Processes, SystemProcesses};
use store::session::{self, record::record};
use store::{RunRow, Store};
use types::{PicoDollars, SessionId, SessionRecord, Timestamp};

#[derive(Debug, Default)]
pub struct Summary {
    /// The session the run ended in.
    pub session: Option<SessionRecord>,
    /// `None`: the run had only that session.
    pub run_total: Option<RunTotal>,
    /// The budgets that the session counts towards and that are used by 80 % or more.
    pub budgets: Vec<BudgetStatus>,
    /// The names of the background sessions that the run has started, at any depth, and that still run.
    pub running: Vec<String>,
    /// What broke in codemie itself, in one line.
    pub problem: Option<String>,
    /// Everything is committed; not everything may have been sent.
    pub sender: Option<Sender>,
}

/// All sessions of a run, and what they cost together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTotal {
    pub sessions: usize,
    pub cost: PicoDollars,
}

pub(super) fn record_of(
    store: &mut Store,
    session: SessionId,
    at: Timestamp,
) -> Result<SessionRecord, session::Error> {
    store.read(|view| {
        let row = view.session(session)?.ok_or(session::Error::NoSession(session))?;
        Ok(record(view, &row, at)?)
    })
}

/// The background sessions that still run of those that a run has started, at any depth.
pub(super) fn still_running(
    store: &mut Store,
    home: &Home,
    sessions: &[SessionId],
) -> Result<Vec<String>, session::Error> {
    store.read(|view| {
        let mut names = Vec::new();
        for session in sessions {
            let Some(row) = view.session(*session)? else { continue };
            for below in view.descendants(row.n)? {
                let runs = view.live_runs_in(below.n)?;
                let lives =
                    |run: &RunRow| address::exists(home, run.id) && SystemProcesses.alive(run.wrapper);
                names.extend(runs.iter().any(lives).then_some(below.name));
            }
        }
        Ok(names)
    })
}

/// The total of a run that had more than one session.
pub(super) fn run_total(
    store: &mut Store,
    sessions: &[SessionId],
) -> Result<Option<RunTotal>, session::Error> {
    let cost = store.read(|view| {
        let mut sum = 0_i64;
        for session in sessions {
            if let Some(row) = view.session(*session)? {
                sum = sum.saturating_add(view.totals(row.n)?.calls.cost.0);
            }
        }
        Ok::<_, session::Error>(PicoDollars(sum))
    })?;
    Ok((sessions.len() > 1).then_some(RunTotal { sessions: sessions.len(), cost }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::session::lifecycle::{self, ConversationStart};
    use store::session::state::{Ending, Exit};
    use store::session::testing::World;
    use types::{Pid, RunId};

    #[test]
    fn background_sessions_below_a_run_are_named_while_they_run() {
        let mut world = World::new();
        let own = SystemProcesses.identify(Pid(std::process::id().cast_signed())).unwrap();
        let mut start = |name: &str, parent: Option<RunId>| {
            let mut begin = world.begin(ConversationStart::Fresh);
            (begin.parent, begin.name, begin.run.wrapper) = (parent, Some(name.to_owned()), own);
            (begin.run.id, world.start_as(&begin).1.session)
        };
        let (top_run, top) = start("top", None);
        let (child_run, _) = start("child", Some(top_run));
        let (grandchild_run, _) = start("grandchild", Some(child_run));
        start("in a terminal", Some(top_run));
        let (other_run, _) = start("other", None);
        let home = world.home.clone();
        let _sockets = [child_run, grandchild_run, other_run].map(|run| address::bind(&home, run).unwrap());
        let running = |world: &mut World| {
            let mut names = still_running(&mut world.store, &home, &[top]).unwrap();
            names.sort_unstable();
            names
        };
        assert_eq!(running(&mut world), ["child", "grandchild"]);
        let at = world.now;
        world
            .store
            .write(|tx| lifecycle::end(tx, at, grandchild_run, Ending::exited(Exit::Code(0))))
            .unwrap();
        assert_eq!(running(&mut world), ["child"]);
    }
}
