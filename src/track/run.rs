//! The tracker's thread: wake up, look, decide, commit, read, sleep.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use super::follow::Follower;
use super::left::{Left, Refused};
use super::receivers::Receivers;
use super::step::{Step, What};
use super::watch::{Change, Watch};
use super::{Begun, End, Plan, Summary, Together, Wake, exit_note, recover, version};
use crate::detached;
use crate::forward::Word;
use crate::log;
use crate::session::correlate::{self, Correlator, Signal};
use crate::session::import::found;
use crate::session::lifecycle;
use crate::session::publish::publish;
use crate::session::record::record;
use crate::session::state::{Ending, Exit};
use crate::session::{self};
use crate::store::{PicoDollars, Store};
use system::clock::{Clock, SystemClock};
use terminal::process::{Processes, SystemProcesses};
use wire::SessionRecord;
use wire::Timestamp;
use wire::{AgentSessionId, SessionId};
use wire::{Pid, ProcessId};

/// Looks after an Enter, for what no file change announces (a folder that is not there yet, a network file system).
const AFTER_ENTER: [Duration; 4] = [
    Duration::from_millis(30),
    Duration::from_millis(120),
    Duration::from_millis(300),
    Duration::from_millis(700),
];
/// The safety net where changes are reported, and the pace where they are not.
const SLOW: Duration = Duration::from_secs(5);
const POLLING: Duration = Duration::from_millis(500);
/// The least time between two looks that changes of files ask for: where much is written at once, by fifty agents that start
/// together, one look sees many changes.
const PACE: Duration = Duration::from_millis(20);
/// How soon what other runs change is looked at. It can only narrow down what this run's own files leave open.
const OF_OTHERS: Duration = Duration::from_millis(500);
/// How soon something half written is looked at again.
const TORN: Duration = Duration::from_millis(5);
/// A database log longer than this is moved into the database by a run that has the time: whoever opens the store next
/// reads all of it.
const LONG_LOG: u64 = 256 * 1024;
/// And longer than this by any run, at its end. A run writes some 200 KiB, so this is one short run in five, and that one
/// waits some milliseconds for the disk.
const TOO_LONG_LOG: u64 = 1024 * 1024;
/// How often a store that was busy or full is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(2);

/// The whole life of a run.
pub(super) fn track(
    plan: Plan,
    agent: &OnceLock<Pid>,
    woken: &Receiver<Wake>,
    wake: SyncSender<Wake>,
    end: &End,
    begun: &Begun,
) -> Summary {
    // A log that cannot be written is done without.
    let _ = log::start(&plan.home, plan.log_level.as_deref());
    let opened = Store::open(&plan.home, SystemClock.now());
    // There is no session until the agent runs.
    let agent = loop {
        match agent.get() {
            Some(agent) => break *agent,
            None if woken.recv().is_err() => return Summary::default(),
            None => {}
        }
    };
    let mut run = Run::new(plan, agent);
    run.begin(opened);
    begun.store(run.store.is_some(), Ordering::Relaxed);
    if run.plan.trail.is_some() && end.get().is_none() {
        run.watch = Some(Watch::new(move |change| {
            let _ = wake.try_send(match change {
                Change::Own => Wake::Look,
                Change::Others => Wake::Others,
            });
        }));
    }
    loop {
        run.look();
        if let Some((ended, at)) = end.get() {
            run.retry_now();
            // What the agent did last may be on disk since that look.
            run.look();
            run.settle();
            return run.finish(*ended, *at);
        }
        run.publish(); // a START whose END is known already is published with it
        run.tidy();
        loop {
            match woken.recv_timeout(run.patience()) {
                Ok(first) => {
                    let wakes = std::iter::once(first).chain(woken.try_iter());
                    if wakes.filter(|wake| run.heeds(wake)).count() > 0 || end.get().is_some() {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Summary::default(),
            }
        }
    }
}

/// What the end of the agent's process means for its session.
pub(super) fn ending(ended: terminal::Ended) -> Ending {
    let exit = match ended.ending {
        terminal::Ending::Exited(code) => Exit::Code(code),
        terminal::Ending::Killed(signal) => Exit::Signal(signal),
        ending @ terminal::Ending::NotStarted(_) => Exit::Code(ending.code().into()),
    };
    if ended.asked { Ending::asked(exit) } else { Ending::exited(exit) }
}

pub(super) struct Run {
    pub(super) plan: Plan,
    /// The agent's process; what it is beyond that cannot be seen of one that has ended already.
    pub(super) pid: Pid,
    pub(super) agent: Option<ProcessId>,
    pub(super) store: Option<Store>,
    /// When to try the store again, after it was busy or full.
    pub(super) retry_at: Option<Instant>,
    /// The first thing of ours that broke for good.
    pub(super) problem: Option<String>,
    /// What the store refused last and is asked again: nothing is lost if it takes it in the end.
    pub(super) trouble: Option<String>,
    /// Whether there was such a refusal in this look.
    refused: bool,
    watch: Option<Watch>,
    correlator: Option<Correlator>,
    pub(super) session: SessionId,
    /// Every session of this run, the present one too.
    pub(super) sessions: Vec<SessionId>,
    pub(super) conversation: Option<AgentSessionId>,
    /// The conversation's file as the store was told; the agent may move it.
    pub(super) file: Option<PathBuf>,
    /// The conversation that goes on in the background, and in which process if there is one.
    pub(super) background: Option<(AgentSessionId, Option<ProcessId>)>,
    /// Where the agent works.
    folder: PathBuf,
    pub(super) version: Option<String>,
    pub(super) follower: Follower,
    pub(super) left: Vec<Left>,
    /// What is to be told to the store, in order: a step that the store refused keeps the later ones waiting.
    pub(super) undone: VecDeque<Step>,
    looks: Vec<Instant>,
    looked_at: Option<Instant>,
    tidied: bool,
    pub(super) receivers: Receivers,
}

impl Run {
    fn new(plan: Plan, pid: Pid) -> Self {
        let begun_at = plan.begun_at;
        let agent = SystemProcesses.identify(pid);
        let correlator = plan.trail.as_ref().and(agent).map(|agent| {
            let correlator = Correlator::new(agent, begun_at);
            match plan.conversation {
                lifecycle::Conversation::Unnamed => correlator.continuing(),
                lifecycle::Conversation::Named(_) => correlator.resuming(),
                _ => correlator,
            }
        });
        Self {
            correlator,
            session: plan.session,
            sessions: Vec::new(),
            version: plan.version.clone(),
            folder: plan.folder.clone(),
            pid,
            agent,
            plan,
            store: None,
            retry_at: None,
            problem: None,
            trouble: None,
            refused: false,
            watch: None,
            conversation: None,
            background: None,
            file: None,
            follower: Follower::default(),
            left: Vec::new(),
            undone: VecDeque::new(),
            looks: Vec::new(),
            looked_at: None,
            tidied: false,
            receivers: Receivers::default(),
        }
    }

    /// What any codemie command does for the whole home, once a run: ends what vanished, keeps the database's log short, has
    /// old stores that lie here taken in by a process apart. After the START, so that nothing waits for it.
    fn tidy(&mut self) {
        if self.tidied || self.store.is_none() {
            return;
        }
        self.tidied = true;
        let (home, folder) = (self.plan.home.clone(), self.plan.folder.clone());
        self.commit(|store| {
            recover(store, &home)?;
            if let Some(user) = std::env::home_dir()
                && found::is_something(store, &user, &folder)?
            {
                let args = [OsStr::new("import-found"), folder.as_os_str()];
                detached::start(&home, args)
                    .unwrap_or_else(|error| tracing::warn!("old stores wait: {error}"));
            }
            if store.log_bytes() > LONG_LOG {
                store.checkpoint()?;
            }
            Ok(())
        });
        self.say(Word::Soon);
    }

    /// Something is to be sent.
    pub(super) fn say(&mut self, word: Word) {
        if let Some(store) = &mut self.store {
            self.receivers.follow(store, &self.plan.home, self.plan.sinks_now);
        }
        self.receivers.say(word);
    }

    /// The end has come: what waits for the store is tried now.
    fn retry_now(&mut self) {
        self.retry_at = self.retry_at.map(|_| Instant::now());
    }

    /// Sees what is new, decides, and reads what was written.
    fn look(&mut self) {
        if self.store.is_none() {
            match self.retry_at {
                Some(at) if Instant::now() >= at => {
                    let opened = Store::open(&self.plan.home, SystemClock.now());
                    self.begin(opened);
                }
                _ => {}
            }
        }
        if self.store.is_none() {
            return;
        }
        self.retry_at = None;
        self.refused = false;
        if let Some(watch) = &self.watch {
            watch.begin_look();
        }
        self.looked_at = Some(Instant::now());
        self.work_off();
        self.looks.retain(|at| *at > Instant::now());
        if let (Some(trail), Some(agent)) = (&mut self.plan.trail, self.agent) {
            let seen = trail.look(agent, &SystemProcesses);
            if seen.torn {
                self.looks.push(Instant::now() + TORN);
            }
            self.looks.extend(seen.again.map(|delay| Instant::now() + delay));
            if let (Some(proper), Some(correlator)) = (seen.adopted, &mut self.correlator) {
                correlator.adopt(proper);
            }
            if let Some(version) = seen.version {
                self.learn_version(version);
            }
            let moved = seen.folder.filter(|folder| *folder != self.folder);
            if let Some(folder) = &moved {
                self.folder.clone_from(folder);
            }
            let mut elsewhere = false;
            for signal in seen.signals {
                elsewhere |= self.consider(signal);
            }
            // A conversation picked from another folder brings the agent there, and the one before stays where it was.
            if let Some(folder) = moved.filter(|_| !elsewhere) {
                self.tell(What::Moved(folder));
            }
            self.consider(Signal::Tick);
        }
        // What is written now may be of a conversation that the store does not know yet.
        if self.undone.is_empty() {
            let _ = self.read(false); // what is refused is read with the next look
        }
        if let (Some(watch), Some(trail)) = (&mut self.watch, &self.plan.trail) {
            watch.set(trail.watched());
            watch.set_own(trail.own());
        }
        if !self.refused {
            self.trouble = None;
        }
    }

    /// A last word that needs a moment to be certain (a clear that only the log tells of, because the agent was gone before
    /// we saw its registry) is waited for: there is no later look that could hear it. At most a second, and hardly ever.
    fn settle(&mut self) {
        let now = SystemClock.now();
        if let Some(at) = self.correlator.as_ref().and_then(|correlator| correlator.wake_at(now)) {
            std::thread::sleep(at.since(now).min(correlate::SETTLE));
            self.look();
        }
    }

    /// Feeds a signal to the correlator; whether that leads to another conversation.
    pub(super) fn consider(&mut self, signal: Signal) -> bool {
        let Some(correlator) = &mut self.correlator else { return false };
        match &signal {
            Signal::Background { to, process, forked: false, .. } => {
                self.background = Some((to.clone(), Some(*process)));
            }
            Signal::HandedOver { to, .. } => self.background = Some((to.clone(), None)),
            _ => {}
        }
        let now = SystemClock.now();
        let verdict = correlator.feed(now, signal);
        let steps = Step::of(now, verdict, &self.folder);
        let elsewhere = steps.iter().any(Step::leads_elsewhere);
        let waiting = !self.undone.is_empty();
        self.undone.extend(steps);
        if !waiting {
            self.work_off();
        }
        elsewhere
    }

    pub(super) fn learn_version(&mut self, version: String) {
        if self.version.as_ref() == Some(&version) {
            return;
        }
        if let Some(binary) = &self.plan.binary {
            version::remember(&self.plan.home, &self.plan.agent, binary, &version);
        }
        self.version = Some(version.clone());
        self.tell(What::Version(version));
    }

    /// Does something with the store; what goes wrong is remembered, and the run goes on.
    pub(super) fn commit<T>(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<T, session::Error>,
    ) -> Option<T> {
        let done = work(self.store.as_mut()?);
        done.map_err(|error| self.broke(&error)).ok()
    }

    /// What the store refused is asked of it again; anything else will not be better next time.
    pub(super) fn broke(&mut self, error: &session::Error) {
        let text = error.to_string();
        if let session::Error::Store(_) = error {
            if self.trouble.as_ref() != Some(&text) {
                tracing::error!(session = %self.session, "{error}");
            }
            self.trouble = Some(text);
            self.refused = true;
            self.retry_at = Some(Instant::now() + RETRY);
        } else {
            tracing::error!(session = %self.session, "{error}");
            self.problem.get_or_insert(text);
        }
    }

    pub(super) fn publish(&mut self) {
        let home = self.plan.home.clone();
        let now = SystemClock.now();
        self.commit(|store| publish(store, &home, now));
    }

    /// Whether it is a reason to look now.
    fn heeds(&mut self, wake: &Wake) -> bool {
        let now = Instant::now();
        let at = match wake {
            Wake::Enter => {
                self.looks = AFTER_ENTER.iter().map(|delay| now + *delay).collect();
                return true;
            }
            Wake::Look => self.looked_at.map_or(now, |at| at + PACE),
            Wake::Others => now + OF_OTHERS,
        };
        if at > now && !self.looks.contains(&at) {
            self.looks.push(at);
        }
        at <= now
    }

    /// How long to sleep if nothing happens.
    fn patience(&self) -> Duration {
        let pace = match (&self.watch, &self.plan.trail) {
            (_, None) => Duration::from_hours(1),
            (Some(watch), _) if watch.works() => SLOW,
            _ => POLLING,
        };
        let now = Instant::now();
        let clock = SystemClock.now();
        let undecided = self.correlator.as_ref().and_then(|correlator| correlator.wake_at(clock));
        let in_a_moment = undecided.map(|at| now + at.since(clock));

        self.looks
            .iter()
            .copied()
            .chain(self.left.iter().filter_map(|left| left.until))
            .chain(self.retry_at)
            .chain(in_a_moment)
            .map(|at| at.saturating_duration_since(now))
            .fold(pace, Duration::min)
            .max(Duration::from_millis(1))
    }

    fn record(&mut self, at: Timestamp) -> Option<SessionRecord> {
        let session = self.session;
        self.commit(|store| {
            store.read(|view| {
                let row = view.session(session)?.ok_or(session::Error::NoSession(session))?;
                Ok::<_, session::Error>(record(view, &row, at)?)
            })
        })
    }

    /// What the run cost, where it was more than one session.
    fn together(&mut self) -> Option<Together> {
        let sessions = self.sessions.clone();
        let cost = self.commit(|store| {
            store.read(|view| {
                let mut sum = 0_i64;
                for session in &sessions {
                    if let Some(row) = view.session(*session)? {
                        sum = sum.saturating_add(view.totals(row.n)?.cost.0);
                    }
                }
                Ok::<_, session::Error>(PicoDollars(sum))
            })
        })?;
        (sessions.len() > 1).then_some(Together { sessions: sessions.len(), cost })
    }

    fn finish(mut self, ended: terminal::Ended, at: Timestamp) -> Summary {
        self.refused = false;
        self.work_off();
        let read = match self.undone.front() {
            Some(step) => {
                tracing::error!(session = %self.session, "never stored: {step:?}");
                Err(Refused)
            }
            None => self.read(true),
        };
        let (run, ending) = (self.plan.run, ending(ended));
        // Nobody reads the files of what has ended: without all of its calls it is left to the recovery, which does.
        if read.is_ok()
            && let Err(error) = self.leave_in_background(at)
        {
            self.broke(&error);
        }
        if read.is_ok()
            && self.commit(|store| store.write(|tx| lifecycle::end(tx, at, run, ending))).is_some()
        {
            exit_note::remove(&self.plan.home, run);
        } else if self.store.is_none() {
            exit_note::remove(&self.plan.home, run); // a run that was never stored is never recovered
        }
        self.say(Word::Now);
        if !self.tidied {
            // A run too short to tidy up still ends what vanished, as any command does.
            let home = self.plan.home.clone();
            self.commit(|store| recover(store, &home));
        }
        self.publish();
        let (record, together) =
            if self.plan.summary { (self.record(at), self.together()) } else { (None, None) };
        self.commit(|store| if store.log_bytes() > TOO_LONG_LOG { Ok(store.checkpoint()?) } else { Ok(()) });
        if self.store.is_some() && !self.refused {
            self.trouble = None;
        }
        // Closing the last connection would move the log into the database, which waits for the disk; that is left to a
        // moment when nobody waits for us.
        std::mem::forget(self.store.take());
        let problem = self.trouble.take().or(self.problem.take());
        Summary { session: record, together, problem, sender: self.receivers.into_sender() }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
