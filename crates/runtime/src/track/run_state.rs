//! The state of a run, and what changes it: signals are judged, the pending writes carried out, the agent's files read.
//!
//! It composes the [`Watcher`], the [`WriteQueue`] and the [`Sessions`], which know nothing of each other. A session changes here
//! only once the store has taken the change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::begin::{self, workspace};
use super::plan::{Plan, RunNews};
use super::sessions;
use super::sessions::{FileChange, Sessions};
use super::timers::{Moment, RunClock};
use super::version;
use super::watcher::Watcher;
use super::write_queue::WriteQueue;
use super::write_queue::{PendingWrite, WriteContent};
use agents::correlate::{Correlator, Decision, Fork, Maker, Signal};
use config::prices::price_list;
use pty::process::{Processes, SystemProcesses};
use store::session::lifecycle::{self, BindResult, Binding, ConversationStart, Transition};
use store::session::neighbours::maker_by_runs;
use store::session::publish::publish;
use store::session::{self};
use store::{self, Store, Tx};
use types::{AgentSessionId, EvidenceKind, Pid, ProcessId, RandomIds, Timestamp, TransitionKind};

pub(super) struct RunState {
    pub(super) plan: Plan,
    /// The agent's process; what it is beyond that cannot be seen of one that has ended already.
    pid: Pid,
    pub(super) agent: Option<ProcessId>,
    pub(super) clock: Box<dyn RunClock>,
    pub(super) watcher: Watcher,
    pub(super) queue: WriteQueue,
    pub(super) sessions: Sessions,
    /// Lines were stored since this was asked.
    metered: bool,
}

/// The store did not take all that was read.
#[derive(Debug)]
pub(super) struct Refused;

impl RunState {
    pub(super) fn new(mut plan: Plan, pid: Pid, clock: Box<dyn RunClock>) -> Self {
        let watcher = Watcher::new(plan.observer.take());
        let agent = SystemProcesses.identify(pid);
        let correlator = watcher.method().zip(agent).map(|(method, agent)| {
            let correlator = Correlator::new(method, agent, plan.begun_at);
            match plan.conversation {
                ConversationStart::Unnamed => correlator.continuing(),
                ConversationStart::Named(_) => correlator.resuming(),
                _ => correlator,
            }
        });
        let prices = Arc::new(price_list(&plan.home.config_file()));
        let sessions = Sessions::new(plan.session, plan.folder.clone(), correlator).pricing(prices);
        Self { plan, pid, agent, clock, watcher, queue: WriteQueue::default(), sessions, metered: false }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Where the run is now, for the host; `None`: there is none.
    pub(super) fn news(&self, name: &str) -> Option<(&dyn Fn(RunNews), RunNews)> {
        let report = self.plan.on_news.as_deref()?;
        let news = RunNews {
            session: self.sessions.current(),
            name: name.to_owned(),
            conversation: self.sessions.conversation().cloned(),
            file: self.sessions.file().map(Path::to_owned),
            recorded: self.queue.is_open(),
            refused: self.queue.refused_for_good().map(str::to_owned),
        };
        Some((report, news))
    }

    /// When there is something to do without any change of files.
    pub(super) fn due(&self, now: Moment) -> impl Iterator<Item = Instant> {
        self.sessions.quiet_at().chain(self.queue.retry_at()).chain(self.sessions.undecided_until(now))
    }

    /// Commits the START. A busy store is tried again with a later look; what is broken is remembered and reported in the end.
    pub(super) fn begin(&mut self, opened: Result<Store, store::Error>) {
        for error in self.plan.drop_bad_labels() {
            self.queue.report(format!("this session is recorded without it: {error}"));
        }
        let begun = opened.map_err(session::Error::from).and_then(|mut store| {
            let (session, receivers) = begin::start(&mut store, &self.plan, self.pid, self.agent)?;
            Ok((store, session, receivers))
        });
        match begun {
            Ok((store, session, receivers)) => {
                self.sessions.begin(session);
                self.queue.open(store, receivers);
                self.send_now();
                if let Some(id) = self.plan.take_assigned() {
                    self.consider(Signal::Assigned(id));
                }
            }
            Err(error) => {
                tracing::error!(run = %self.plan.run, "not recorded: {error}");
                let now = self.now().steady;
                self.queue.not_opened(now, &error);
            }
        }
    }

    /// Lets the correlator judge a signal and writes what follows. Returns whether that leads to another conversation.
    pub(super) fn consider(&mut self, signal: Signal) -> bool {
        let writes = self.sessions.consider(self.now(), signal);
        let transition = writes.iter().any(PendingWrite::is_transition);
        self.write(writes);
        transition
    }

    /// The calls that the run's proxy saw in conversations that nobody knows, while the one the run is in is not known.
    pub(super) fn called(&mut self) -> Vec<Signal> {
        if !self.plan.proxied || self.sessions.conversation().is_some() {
            return Vec::new();
        }
        let run = self.plan.run;
        let callers = self.commit(|store| Ok(store.read(|view| view.callers(run))?)).unwrap_or_default();
        callers.into_iter().map(|(id, pid)| Signal::Called { id, pid }).collect()
    }

    /// What only our own process can have done, by the processes that are recognised, other runs of the store may have done as well.
    pub(super) fn doubt_beside_others(&mut self, signals: &mut [Signal]) {
        let mut makers: Vec<&mut Maker> = signals.iter_mut().filter_map(Signal::maker).collect();
        if makers.iter().all(|maker| **maker >= Maker::Anybody) {
            return;
        }
        let (run, agent, folder) = (self.plan.run, self.plan.agent.clone(), self.plan.folder.clone());
        let now = self.now().wall;
        let by_runs = self.commit(|store| {
            let own = (run, agent.as_str(), folder.as_path());
            Ok(store.read(|view| maker_by_runs(view, own, &SystemProcesses, now))?)
        });
        for maker in &mut makers {
            **maker = (**maker).max(by_runs.unwrap_or(Maker::Anybody));
        }
    }

    /// The agent went to another folder with its conversation.
    pub(super) fn moved(&mut self, folder: PathBuf) {
        self.write_now(WriteContent::Moved(folder));
    }

    pub(super) fn learn_version(&mut self, version: String) {
        if self.plan.version.as_ref() == Some(&version) {
            return;
        }
        if let Some(binary) = &self.plan.binary {
            version::remember(&self.plan.home, &self.plan.agent, binary, &version);
        }
        self.plan.version = Some(version.clone());
        self.write_now(WriteContent::Version(version));
    }

    fn write_now(&mut self, content: WriteContent) {
        let at = self.now().wall;
        self.write(vec![PendingWrite { at, content }]);
    }

    /// Writes now, or after the writes that wait already.
    fn write(&mut self, writes: Vec<PendingWrite>) {
        let waiting = self.queue.is_waiting();
        self.queue.push(writes);
        if !waiting {
            self.work_off();
        }
    }

    /// Carries out pending writes until the store refuses one.
    pub(super) fn work_off(&mut self) {
        while let Some(write) = self.queue.next() {
            if let Err(error) = self.carry_out(&write) {
                let now = self.now().steady;
                if !self.queue.write_failed(now, self.sessions.current(), write, &error) {
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, write: &PendingWrite) -> Result<(), session::Error> {
        let session = self.sessions.current();
        match &write.content {
            WriteContent::Evidence(evidence) => {
                let run = self.plan.run;
                self.transact(|tx| Ok(tx.note_evidence(session, run, evidence)?))
            }
            WriteContent::Version(version) => {
                self.transact(|tx| lifecycle::learn_version(tx, session, version))?;
                self.send_soon();
                Ok(())
            }
            WriteContent::Moved(folder) => {
                self.transact(|tx| Ok(tx.set_folder(session, folder)?))?;
                self.publish();
                Ok(())
            }
            WriteContent::Decision { decision, folder } => {
                self.carry_out_decision(write.at, decision, folder)?;
                if let Some(conversation) = self.sessions.conversation() {
                    tracing::info!(session = %self.sessions.current(), %conversation, "watching");
                }
                self.send_now();
                self.publish();
                Ok(())
            }
        }
    }

    fn carry_out_decision(
        &mut self,
        at: Timestamp,
        decision: &Decision,
        folder: &Path,
    ) -> Result<(), session::Error> {
        match decision {
            Decision::Bind { id, evidence } => {
                let binding = self.binding(id, *evidence);
                self.bind(at, binding)
            }
            Decision::Transition { kind, to, evidence } => {
                // The old session ends with all that is known of it now.
                let _ = self.read(false); // what is refused is read as of a departed session
                let to = to.as_ref().map(|id| self.binding(id, *evidence));
                self.transition(at, *kind, to, folder)
            }
            Decision::Forked(fork) => {
                let binding = self.binding(&fork.to, EvidenceKind::Registry);
                self.fork(at, binding, fork, folder)
            }
            Decision::Ambiguous { .. } => {
                let session = self.sessions.current();
                self.transact(|tx| lifecycle::doubt(tx, session))
            }
        }
    }

    fn bind(&mut self, at: Timestamp, binding: Binding) -> Result<(), session::Error> {
        let session = self.sessions.current();
        let bound = self.transact(|tx| lifecycle::bind(tx, at, &RandomIds, session, &binding))?;
        self.sessions.bind(binding.agent_session, binding.file);
        match bound {
            BindResult::Merged(started) => self.sessions.merge_into(started.session),
            BindResult::Switched(result) => self.sessions.enter(result.new.session),
            BindResult::New | BindResult::Already => {}
        }
        Ok(())
    }

    fn transition(
        &mut self,
        at: Timestamp,
        kind: TransitionKind,
        to: Option<Binding>,
        folder: &Path,
    ) -> Result<(), session::Error> {
        let transition = Transition { kind, binding: to, workspace: Some(workspace(folder)) };
        let run = self.plan.run;
        let result = self.transact(|tx| lifecycle::transition(tx, at, &RandomIds, run, &transition))?;
        let (conversation, file) =
            transition.binding.map(|binding| (binding.agent_session, binding.file)).unzip();
        let now = self.now().steady;
        self.sessions.transition(now, result.new.session, conversation, file.flatten());
        Ok(())
    }

    /// A copy of the conversation goes on in the background.
    fn fork(
        &mut self,
        at: Timestamp,
        binding: Binding,
        fork: &Fork,
        folder: &Path,
    ) -> Result<(), session::Error> {
        // Its own lines begin with its process. Nothing of it is older than this run, whatever its entry claims.
        let begun_at = fork.begun_at.map_or(at, |begun| begun.clamp(self.plan.begun_at.min(at), at));
        let begin = sessions::run_of(&self.plan, fork.process, ConversationStart::Unsure, folder);
        let surroundings = self.plan.surroundings.clone();
        let session = self.transact(|tx| {
            let session = sessions::start(tx, begun_at, &begin, &surroundings)?;
            lifecycle::bind(tx, at, &RandomIds, session, &binding)?;
            Ok(session)
        })?;
        let now = self.now().steady;
        self.sessions.fork(now, session, binding.agent_session);
        Ok(())
    }

    /// The terminal has ended, and the conversation goes on in the background: with a process that is there, as that one's run;
    /// otherwise its file is looked at by later commands.
    pub(super) fn hand_over(&mut self, at: Timestamp) -> Result<(), session::Error> {
        let Some((conversation, process)) = self.sessions.in_background().cloned() else { return Ok(()) };
        let note = sessions::handed_over(at, &conversation);
        let living = process.filter(|process| SystemProcesses.alive(*process));
        let named = ConversationStart::Named(conversation);
        let begin = living.map(|process| sessions::run_of(&self.plan, process, named, &self.plan.folder));
        let (session, run) = (self.sessions.current(), self.plan.run);
        let surroundings = self.plan.surroundings.clone();
        self.transact(|tx| {
            tx.note_evidence(session, run, &note)?;
            if let Some(begin) = &begin {
                sessions::start(tx, at, begin, &surroundings)?;
            }
            Ok(())
        })
    }

    /// Meters new lines; with `all`, looks at the files of every session of this run. An error if the store
    /// refused some of it that it may take another time.
    pub(super) fn read(&mut self, all: bool) -> Result<(), Refused> {
        let departed = self.read_departed(all);
        self.read_current().and(departed)
    }

    fn read_departed(&mut self, all: bool) -> Result<(), Refused> {
        let (Some(store), Some(observer)) = (self.queue.store(), self.watcher.observer()) else {
            return Ok(());
        };
        let (metered, failed) = self.sessions.read_departed(store, observer, &*self.clock, all);
        if metered {
            self.metered = true;
            self.send_soon();
        }
        failed.map_or(Ok(()), |error| self.not_read(&error))
    }

    fn read_current(&mut self) -> Result<(), Refused> {
        let (Some(store), Some(observer)) = (self.queue.store(), self.watcher.observer()) else {
            return Ok(());
        };
        let read = self.sessions.read_current(store, observer, &*self.clock);
        if let Some(change) = read.file {
            self.note_file(change);
        }
        if read.metered {
            self.metered = true;
            self.send_soon();
        }
        if let Some(version) = read.version {
            self.learn_version(version);
        }
        read.error.map_or(Ok(()), |error| self.not_read(&error))
    }

    /// Whether lines were stored since this was last asked.
    pub(super) fn take_metered(&mut self) -> bool {
        std::mem::take(&mut self.metered)
    }

    fn not_read(&mut self, error: &session::Error) -> Result<(), Refused> {
        self.failed(error);
        if error.may_pass() { Err(Refused) } else { Ok(()) }
    }

    fn note_file(&mut self, change: FileChange) {
        let session = self.sessions.current();
        let file = match change {
            FileChange::Is(file) => Some(file),
            FileChange::Vanished => None,
        };
        let noted = self.commit(|store| {
            store.write(|tx| match &file {
                Some(file) => tx.set_agent_session_file(session, file).map_err(session::Error::from),
                None => tx.forget_agent_session_file(session).map_err(session::Error::from),
            })
        });
        if noted.is_some() {
            self.sessions.set_file(file);
            self.publish();
        }
    }

    /// Does something with the store; what goes wrong is remembered, and the run goes on.
    pub(super) fn commit<T>(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<T, session::Error>,
    ) -> Option<T> {
        let done = work(self.queue.store()?);
        done.map_err(|error| self.failed(&error)).ok()
    }

    pub(super) fn failed(&mut self, error: &session::Error) {
        let now = self.now().steady;
        self.queue.failed(now, self.sessions.current(), error);
    }

    fn transact<T>(
        &mut self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, session::Error>,
    ) -> Result<T, session::Error> {
        let store = self.queue.store().ok_or(session::Error::NoRun(self.plan.run))?;
        store.write(work)
    }

    pub(super) fn publish(&mut self) {
        let home = self.plan.home.clone();
        let now = self.now().wall;
        self.commit(|store| publish(store, &home, now));
    }

    pub(super) fn send_now(&mut self) {
        self.queue.send_now(&self.plan.home, self.plan.sinks_now);
    }

    pub(super) fn send_soon(&mut self) {
        self.queue.send_soon(&self.plan.home, self.plan.sinks_now);
    }

    pub(super) fn into_queue(self) -> WriteQueue {
        self.queue
    }

    fn binding(&mut self, id: &AgentSessionId, evidence: EvidenceKind) -> Binding {
        Binding { agent_session: id.clone(), file: self.watcher.file(id), evidence }
    }
}
