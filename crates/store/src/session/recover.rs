//! Sessions whose run vanished: killed, crashed, or gone with a reboot. Each is read to the end of its file and ended
//! like any other. What lives is left alone, however long it has been silent.

use super::Error;
use super::lifecycle::end;
use super::state::Ending;
use crate::{BootAndPidNs, RunRow, SessionRow, Store};
use pty::process::Processes;
use types::SessionId;
use types::Timestamp;

/// Whether a run's wrapper has ended. A process of another pid namespace cannot be seen from here, so it is taken for alive;
/// a codemie in its own namespace recovers it.
pub fn gone(run: &RunRow, processes: &dyn Processes, here: &BootAndPidNs) -> bool {
    if run.realm.boot != here.boot {
        return true;
    }
    run.realm.pids == here.pids && !processes.alive(run.wrapper)
}

/// Ends every session whose last run is gone, and returns them. Any number of processes may do this at once: each END is made
/// once. A run whose wrapper left a note of how the agent ended (`noted`) ends so, any other as `interrupted`.
///
/// `read_to_end` meters the unread lines of a session of the run, through the same store, and returns when its files last grew,
/// if it knows. A file that cannot be read is no error and keeps no session open. A store that refuses is an error: the files
/// of ended sessions are not read any more, so the run is left as it is for the next recovery.
pub fn recover(
    store: &mut Store,
    processes: &dyn Processes,
    here: &BootAndPidNs,
    now: Timestamp,
    noted: impl Fn(&RunRow) -> Option<(Ending, Timestamp)>,
    mut read_to_end: impl FnMut(&mut Store, &RunRow, &SessionRow) -> Result<Option<Timestamp>, Error>,
) -> Result<Vec<SessionId>, Error> {
    let mut runs = store.read(|view| Ok::<_, Error>(view.live_runs()?))?;
    runs.retain(|run| gone(run, processes, here));
    let mut ended = Vec::new();
    for run in runs {
        let Some(session) = store.read(|view| view.current(run.id))? else {
            store.write(|tx| tx.end_run(run.n, now))?;
            continue;
        };
        tracing::info!(session = %session.id, run = %run.id, wrapper = %run.wrapper.pid, "its run is gone");
        // The sessions it had departed from may have grown as well: the agents write late.
        for departed in store.read(|view| view.sessions_of_run(run.n))? {
            if departed.n != session.n {
                read_to_end(store, &run, &departed)?;
            }
        }
        let grew = read_to_end(store, &run, &session)?;
        let noted = noted(&run);
        let result = store.write(|tx| {
            if let Some((ending, at)) = noted {
                return end(tx, at.max(run.started_at).min(now), run.id, ending);
            }
            let lived = last_sign_of_life(&[
                Some(run.started_at),
                session.bound_at,
                tx.openings(session.n)?.pop().map(|opening| opening.opened_at),
                tx.last_record_at(session.n)?,
                grew,
            ]);
            end(tx, lived.min(now), run.id, Ending::crashed())
        })?;
        if result.closed {
            ended.push(result.session);
        }
    }
    Ok(ended)
}

/// The best estimate of when a session ended that nobody saw end. It keeps the hours afterwards out of its open time.
fn last_sign_of_life(signs: &[Option<Timestamp>]) -> Timestamp {
    signs.iter().flatten().copied().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Barrier;

    use super::super::lifecycle::{ConversationStart, Transition, transition};
    use super::super::state::{Exit, Phase};
    use super::super::testing::{World, binding, realm};
    use super::*;
    use types::TransitionKind;
    use types::{EndReason, Status};
    use types::{Pid, StartTime};

    /// The processes there are, by pid.
    #[derive(Default)]
    struct Table(HashMap<i32, u64>);

    impl Processes for Table {
        fn start_time(&self, pid: Pid) -> Option<StartTime> {
            self.0.get(&pid.0).copied().map(StartTime)
        }

        fn parent(&self, _: Pid) -> Option<Pid> {
            None
        }
    }

    fn alive(world: &mut World, run: types::RunId) -> Table {
        let wrapper = world.store.read(|view| view.run(run)).unwrap().unwrap().wrapper;
        Table(HashMap::from([(wrapper.pid.0, wrapper.start.0)]))
    }

    #[test]
    fn the_dead_are_ended_and_the_living_left_alone() {
        let mut world = World::new();
        let (_, dead) = world.start(ConversationStart::Fresh);
        let (living, alive_one) = world.start(ConversationStart::Fresh);
        let table = alive(&mut world, living);
        let hours_later = world.wait(8 * 3_600_000);
        let mut read = Vec::new();
        let ended = recover(
            &mut world.store,
            &table,
            &realm(),
            hours_later,
            |_| None,
            |_, _, session| {
                read.push(session.id);
                Ok(None)
            },
        )
        .unwrap();
        world.check();
        assert_eq!((ended, read), (vec![dead.session], vec![dead.session]));
        let row = world.session(dead.session);
        assert_eq!((row.status, row.end_reason), (Some(Status::Interrupted), Some(EndReason::Crash)));
        assert_eq!(row.ended_at, Some(row.started_at), "the hours nobody saw are not open time");
        assert_eq!(world.session(alive_one.session).phase, Phase::Open);
    }

    #[test]
    fn every_session_of_a_dead_run_is_read_to_its_end() {
        let mut world = World::new();
        let (run, first) = world.start(ConversationStart::Fresh);
        world.bind(first.session, "a").unwrap();
        let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("b")), workspace: None };
        let at = world.wait(1000);
        let ids = &world.ids;
        let second = world.store.write(|tx| transition(tx, at, ids, run, &change)).unwrap().new.session;
        let now = world.wait(60_000);
        let mut read = Vec::new();
        recover(
            &mut world.store,
            &Table::default(),
            &realm(),
            now,
            |_| None,
            |_, row, session| {
                assert_eq!(row.id, run);
                read.push(session.id);
                Ok(None)
            },
        )
        .unwrap();
        world.check();
        assert_eq!(read, [first.session, second], "the one that was cleared may have grown since");
    }

    #[test]
    fn what_was_read_and_when_the_file_grew_say_when_it_ended() {
        let mut world = World::new();
        let (_, dead) = world.start(ConversationStart::Fresh);
        let grew = world.wait(5000);
        let now = world.wait(60_000);
        recover(&mut world.store, &Table::default(), &realm(), now, |_| None, |_, _, _| Ok(Some(grew)))
            .unwrap();
        assert_eq!(world.session(dead.session).ended_at, Some(grew));
    }

    #[test]
    fn a_run_that_left_a_note_of_its_end_is_ended_as_the_note_says() {
        let mut world = World::new();
        let (_, killed) = world.start(ConversationStart::Fresh);
        let noted_at = world.wait(5000);
        let now = world.wait(60_000);
        let note = |_: &RunRow| Some((Ending::exited(Exit::Code(3)), noted_at));
        recover(&mut world.store, &Table::default(), &realm(), now, note, |_, _, _| Ok(None)).unwrap();
        world.check();
        let row = world.session(killed.session);
        assert_eq!((row.status, row.end_reason), (Some(Status::Failed), Some(EndReason::Exit)));
        assert_eq!((row.exit_code, row.ended_at), (Some(3), Some(noted_at)));
    }

    #[test]
    fn who_is_gone() {
        let mut world = World::new();
        let (run, _) = world.start(ConversationStart::Fresh);
        let row = world.store.read(|view| view.run(run)).unwrap().unwrap();
        let living = alive(&mut world, run);
        let reused = Table(HashMap::from([(row.wrapper.pid.0, row.wrapper.start.0 + 1)]));
        let nobody = Table::default();
        let rebooted = BootAndPidNs { boot: "another".into(), ..realm() };
        let container = BootAndPidNs { pids: "other".into(), ..realm() };
        assert!(!gone(&row, &living, &realm()));
        assert!(gone(&row, &nobody, &realm()));
        assert!(gone(&row, &reused, &realm()), "a later process with its pid");
        assert!(gone(&row, &living, &rebooted), "the same pid and ticks, since another boot");
        assert!(!gone(&row, &nobody, &container), "cannot be seen from here");
    }

    #[test]
    fn a_background_run_that_was_cleared_outlives_the_pruning_of_its_first_session() {
        let mut world = World::new();
        let (run, first) = world.start(ConversationStart::Fresh);
        world.bind(first.session, "a").unwrap();
        let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("b")), workspace: None };
        let at = world.wait(1000);
        let ids = &world.ids;
        let second = world.store.write(|tx| transition(tx, at, ids, run, &change)).unwrap().new.session;
        let (living, later) = (alive(&mut world, run), world.wait(60_000));
        let home = tempfile::tempdir().unwrap();
        let home = os::home::Home::at(home.path());
        let pruned = super::super::prune::prune(&mut world.store, &home, later, None, false).unwrap();
        assert_eq!(pruned.iter().map(|row| row.id).collect::<Vec<_>>(), [first.session]);
        let ended =
            recover(&mut world.store, &living, &realm(), later, |_| None, |_, _, _| Ok(None)).unwrap();
        assert_eq!(ended, []);
        let row = world.store.read(|view| view.current(run)).unwrap().unwrap();
        assert_eq!((row.id, row.phase), (second, Phase::Open));
    }

    #[test]
    fn ten_recoveries_at_once_make_one_end() {
        let mut world = World::new();
        let sessions: Vec<_> = (0..5).map(|_| world.start(ConversationStart::Fresh).1.session).collect();
        let barrier = Barrier::new(10);
        let now = world.now;
        let ended: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..10)
                .map(|_| {
                    let (mut store, barrier) = (world.another(), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        recover(&mut store, &Table::default(), &realm(), now, |_| None, |_, _, _| Ok(None))
                            .unwrap()
                            .len()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        world.check();
        assert_eq!(ended, 5, "each was ended by exactly one");
        for session in sessions {
            assert_eq!(world.events(session), ["1.0 session.start startup", "2.0 session.end crash"]);
        }
    }

    #[test]
    fn two_runs_of_one_session_both_gone_end_it_once() {
        let mut world = World::new();
        let (_, started) = world.start(ConversationStart::Fresh);
        world.bind(started.session, "a").unwrap();
        world.start(ConversationStart::Named(super::super::testing::agent_session("a")));
        let now = world.now;
        let ended = recover(&mut world.store, &Table::default(), &realm(), now, |_| None, |_, _, _| Ok(None))
            .unwrap();
        world.check();
        assert_eq!(ended, [started.session]);
    }
}
