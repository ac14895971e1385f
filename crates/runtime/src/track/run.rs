//! The tracker's thread: wake up, look, decide, commit, read, sleep.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use super::budgets::BudgetWatch;
use super::exit_note;
use super::notify::{Noticed, RunNotices};
use super::plan::Plan;
use super::recover::recover;
use super::run_state::{Refused, RunState};
use super::shared::SharedRun;
use super::summary::{Summary, record_of, run_total, still_running};
use super::timers::{RunClock, SystemClocks};
use super::timers::{Scope, Wake};
use crate::live::UnhostedSession;
use agents::correlate::{SETTLE, Signal};
use agents::registry;
use os::log;
use os::watch::{Change, Watch};
use pty::process;
use pty::process::SystemProcesses;
use store::Store;
use store::session::import::found;
use store::session::lifecycle;
use store::session::state::{Ending, Exit};
use types::{Pid, SessionId, Timestamp};

/// A database log longer than this is moved into the database by a run that has the time: the next process that opens the
/// store reads all of it.
const LONG_LOG: u64 = 256 * 1024;
/// And longer than this by any run, at its end. A run writes some 200 KiB, so this is one short run in five, and that one
/// waits some milliseconds for the disk.
const TOO_LONG_LOG: u64 = 1024 * 1024;

/// The whole life of a run.
pub(super) fn track(
    plan: Plan,
    shared: &SharedRun,
    woken: &Receiver<Wake>,
    wake: SyncSender<Wake>,
) -> Summary {
    // A log that cannot be written is done without.
    let _ = log::start(&plan.home, plan.log_level.as_deref());
    let opened = Store::open(&plan.home, SystemClocks.now().wall);
    // There is no session until the agent runs.
    let agent = loop {
        match shared.agent.get() {
            Some(agent) => break *agent,
            None if woken.recv().is_err() => return Summary::default(),
            None => {}
        }
    };
    let mut run = Run::new(plan, agent, Box::new(SystemClocks));
    run.state.begin(opened);
    shared.begun.store(run.state.queue.is_open(), Ordering::Relaxed);
    if run.state.watcher.has_observer() && shared.end.get().is_none() {
        run.state.watcher.watch_by(Watch::new(move |change| {
            let _ = wake.try_send(match change {
                Change::Own => Wake::Look,
                Change::Others => Wake::Others,
            });
        }));
    }
    loop {
        run.look_as_due();
        run.report_news();
        if let Some((ended, at)) = shared.end.get() {
            let now = run.state.now().steady;
            run.state.queue.retry_now(now);
            // What the agent did last may be on disk since that look.
            run.look();
            run.settle();
            run.report_news(); // a START that the store has taken only now
            return run.finish(*ended, *at);
        }
        run.state.publish(); // a START whose END is known already is published with it
        run.tidy();
        loop {
            match woken.recv_timeout(run.sleep()) {
                Ok(first) => {
                    let wakes = std::iter::once(first).chain(woken.try_iter());
                    if wakes.filter(|wake| run.heeds(*wake)).count() > 0 || shared.end.get().is_some() {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Summary::default(),
            }
        }
    }
}

/// How a session ends when its agent's process ended like this.
pub(super) fn ending(ended: pty::ProgramEnd) -> Ending {
    let exit = match ended.exit {
        pty::ProgramExit::Exited(code) => Exit::Code(code),
        pty::ProgramExit::Killed(signal) => Exit::Signal(signal),
        exit @ pty::ProgramExit::NotStarted(_) => Exit::Code(exit.code().into()),
    };
    match ended {
        pty::ProgramEnd { stopped: true, .. } => Ending::stopped(exit),
        pty::ProgramEnd { asked: true, .. } => Ending::asked(exit),
        _ => Ending::exited(exit),
    }
}

fn in_words(ended: pty::ProgramEnd) -> String {
    match ended.exit {
        pty::ProgramExit::Exited(code) => format!("it exited with code {code}"),
        pty::ProgramExit::Killed(signal) => format!("it was ended by signal {signal}"),
        exit @ pty::ProgramExit::NotStarted(_) => format!("it exited with code {}", exit.code()),
    }
}

/// The name of a session, as the store has it.
fn name_of(state: &mut RunState, session: SessionId) -> String {
    let row = state.commit(|store| Ok(store.read(|view| view.session(session))?));
    row.flatten().map(|row| row.name).unwrap_or_default()
}

/// Looks at the budgets and for signs of a session that has run away, if calls were stored since the last look and that is some
/// seconds ago. `last`: at the end of the run, when nothing runs away any more.
fn check_budgets(budgets: &mut BudgetWatch, state: &mut RunState, last: bool) {
    if state.take_metered() {
        budgets.note_calls();
    }
    let now = state.now();
    if budgets.is_due(now, last) {
        let session = state.sessions.current();
        state.commit(|store| budgets.check(store, session, now));
        if !last {
            state.commit(|store| budgets.check_runaway(store, session, now));
        }
    }
}

struct Run {
    state: RunState,
    notices: RunNotices,
    budgets: BudgetWatch,
    /// The current session's name, for the host.
    named: Option<(SessionId, String)>,
    /// The home has been tidied.
    tidied: bool,
}

impl Run {
    fn new(mut plan: Plan, pid: Pid, clock: Box<dyn RunClock>) -> Self {
        let notices = RunNotices::of(std::mem::take(&mut plan.notifier));
        let budgets = BudgetWatch::of(&plan.home);
        let state = RunState::new(plan, pid, clock);
        Self { state, notices, budgets, named: None, tidied: false }
    }

    /// What any codemie command does for the whole home, once a run: ends runs that vanished, keeps the database's log short, has
    /// old stores that lie here taken in by a detached process. After the START, so that nothing waits for it.
    fn tidy(&mut self) {
        if self.tidied || !self.state.queue.is_open() {
            return;
        }
        self.tidied = true;
        let (home, folder) = (self.state.plan.home.clone(), self.state.plan.folder.clone());
        self.state.commit(|store| {
            recover(store, &home)?;
            if let Some(user) = std::env::home_dir()
                && found::is_something(store, &user, &folder)?
            {
                let args = [OsStr::new("import-found"), folder.as_os_str()];
                process::start(&home, args)
                    .unwrap_or_else(|error| tracing::warn!("old stores wait: {error}"));
            }
            if store.log_bytes() > LONG_LOG {
                store.checkpoint()?;
            }
            Ok(())
        });
        self.state.send_soon();
    }

    /// Looks at this run's own files alone where that is enough: many runs may share a folder.
    fn look_as_due(&mut self) {
        let scope = self.state.watcher.scope(self.state.now().steady);
        self.look_at(scope);
    }

    fn look(&mut self) {
        self.look_at(Scope::Everything);
    }

    /// Looks for signals, decides on them, and reads the files.
    fn look_at(&mut self, scope: Scope) {
        let state = &mut self.state;
        let now = state.now();
        if state.queue.may_open(now.steady) {
            let opened = Store::open(&state.plan.home, now.wall);
            state.begin(opened);
        }
        if !state.queue.is_open() {
            return;
        }
        state.queue.begin_look();
        state.watcher.begin_look(state.now().steady, scope);
        state.work_off();
        if let Some(mut seen) = state.watcher.look(&*state.clock, state.agent, &SystemProcesses, scope) {
            state.doubt_beside_others(&mut seen.signals);
            if let Some(process) = seen.adopted {
                state.sessions.adopt(process);
            }
            if let Some(version) = seen.version {
                state.learn_version(version);
            }
            let moved = seen.folder.and_then(|folder| state.sessions.work_in(folder));
            let mut transition = false;
            for signal in seen.signals.into_iter().chain(state.called()) {
                transition |= state.consider(signal);
            }
            // A conversation picked from another folder brings the agent there, and the one before stays where it was.
            if let Some(folder) = moved.filter(|_| !transition) {
                state.moved(folder);
            }
            state.consider(Signal::Tick);
        }
        // What is written now may be of a conversation that the store does not know yet.
        if !state.queue.is_waiting() {
            let _ = state.read(false); // what is refused is read with the next look
        }
        state.watcher.end_look(state.now().steady);
        state.queue.end_look();
        self.notify();
        check_budgets(&mut self.budgets, &mut self.state, false);
    }

    /// Reports where the run is now to the host, if there is one.
    fn report_news(&mut self) {
        if self.state.plan.on_news.is_none() {
            return;
        }
        let current = self.state.sessions.current();
        if self.named.as_ref().is_none_or(|(session, name)| *session != current || name.is_empty()) {
            self.named = Some((current, name_of(&mut self.state, current)));
        }
        let name = self.named.as_ref().map_or("", |(_, name)| name.as_str());
        if let Some((report, news)) = self.state.news(name) {
            report(news);
        }
    }

    /// Tells the user what has happened in the session, if that is wanted.
    fn notify(&mut self) {
        let Self { state, notices, .. } = self;
        let Some(agent) = registry::by_name(&state.plan.agent).filter(|_| !notices.is_off()) else {
            return;
        };
        let (now, pid) = (state.now().wall, state.agent.map(|agent| agent.pid));
        let (surroundings, started) = (state.plan.surroundings.clone(), state.plan.begun_at);
        let sessions = &state.sessions;
        let id = sessions.current();
        let (conversation, file) = (sessions.conversation().cloned(), sessions.file().map(Path::to_owned));
        let session = UnhostedSession {
            agent,
            pid,
            conversation: conversation.as_ref(),
            file: file.as_deref(),
            started,
        };
        let seen = Noticed { session, id, surroundings: &surroundings };
        notices.look(&seen, now, || name_of(state, id));
    }

    /// A last decision that needs a moment to be certain (a clear that only the log shows, because the agent was gone before
    /// we saw its registry) is waited for: there is no later look that could make it. At most a second, and hardly ever.
    fn settle(&mut self) {
        let now = self.state.now();
        if let Some(at) = self.state.sessions.undecided_until(now) {
            self.state.clock.sleep(at.saturating_duration_since(now.steady).min(SETTLE));
            self.look();
        }
    }

    /// Whether it is a reason to look now.
    fn heeds(&mut self, wake: Wake) -> bool {
        self.state.watcher.heeds(wake, self.state.now().steady)
    }

    /// How long to sleep if nothing happens.
    fn sleep(&self) -> Duration {
        let now = self.state.now();
        let notice = self.notices.due().map(|at| now.steady_at(at));
        self.state.watcher.sleep(now.steady, self.state.due(now).chain(notice).chain(self.budgets.due()))
    }

    fn finish(self, ended: pty::ProgramEnd, at: Timestamp) -> Summary {
        let Self { mut state, notices, mut budgets, tidied, .. } = self;
        state.queue.begin_look();
        state.work_off();
        let session = state.sessions.current();
        let read = match state.queue.pending() {
            Some(write) => {
                tracing::error!(%session, "never stored: {write:?}");
                Err(Refused)
            }
            None => state.read(true),
        };
        let (home, run, ending) = (state.plan.home.clone(), state.plan.run, ending(ended));
        // Nobody reads the files of a session that has ended: without all of its calls it is left to the recovery, which does.
        if read.is_ok()
            && let Err(error) = state.hand_over(at)
        {
            state.failed(&error);
        }
        if read.is_ok()
            && state.commit(|store| store.write(|tx| lifecycle::end(tx, at, run, ending))).is_some()
        {
            exit_note::remove(&home, run);
        } else if !state.queue.is_open() {
            exit_note::remove(&home, run); // a run that was never stored is never recovered
        }
        state.send_now();
        check_budgets(&mut budgets, &mut state, true);
        if !notices.is_off() {
            let (name, agent) = (name_of(&mut state, session), state.plan.agent.clone());
            notices.exit(session, &name, &agent, &in_words(ended));
        }
        if !tidied {
            // A run too short to tidy up still ends runs that vanished, as any command does.
            state.commit(|store| recover(store, &home));
        }
        state.publish();
        let mut summary = Summary::default();
        if state.plan.summary {
            let (session, all) = (state.sessions.current(), state.sessions.all().to_vec());
            summary.session = state.commit(|store| record_of(store, session, at));
            let running = state.commit(|store| still_running(store, &home, &all));
            summary.running = running.unwrap_or_default();
            summary.run_total = state.commit(|store| run_total(store, &all)).flatten();
            let now = state.now();
            let used = state.commit(|store| budgets.used(store, session, now));
            summary.budgets = used.unwrap_or_default();
        }
        state.commit(|store| if store.log_bytes() > TOO_LONG_LOG { Ok(store.checkpoint()?) } else { Ok(()) });
        state.queue.end_look();
        let (problem, sender) = state.into_queue().close();
        Summary { problem, sender, ..summary }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
