//! What a run has to tell the store, step by step. A step that the store refuses (it is full, or locked for long) is kept and
//! tried again before any later one: the correlator has moved on and will not say it twice.

use std::path::{Path, PathBuf};

use super::begin::place;
use super::follow::Follower;
use super::left::Left;
use super::run::Run;
use crate::forward::Word;
use crate::session::correlate::{self, Decision, Explained, TransitionKind};
use crate::session::lifecycle::{self, Begin, Binding, Bound, Passage};
use crate::session::{self};
use crate::store::{Evidence, NewRun, Realm, Store, Surroundings, Tx, Verdict};
use system::clock::{Clock, SystemClock};
use terminal::process::{Processes, SystemProcesses};
use wire::EvidenceKind;
use wire::ProcessId;
use wire::Timestamp;
use wire::{AgentSessionId, Ids, RandomIds, SessionId};

/// One step, and when it was due: that is its time, however late the store takes it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    at: Timestamp,
    what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// For `explain`.
    Seen(Evidence),
    Decided {
        decision: Decision,
        /// Where the agent worked.
        folder: PathBuf,
    },
    /// The agent went to another folder and took the conversation along: there it is to be resumed.
    Moved(PathBuf),
    /// The agent's version became known.
    Version(String),
}

impl Step {
    /// A verdict, in the order in which it is to be told.
    pub(super) fn of(at: Timestamp, verdict: correlate::Verdict, folder: &Path) -> Vec<Self> {
        let seen = verdict.explained.iter().map(|explained| What::Seen(evidence(explained)));
        let decided = verdict
            .decisions
            .into_iter()
            .map(|decision| What::Decided { decision, folder: folder.to_owned() });
        seen.chain(decided).map(|what| Self { at, what }).collect()
    }

    pub(super) fn leads_elsewhere(&self) -> bool {
        matches!(&self.what, What::Decided { decision: Decision::Transition { .. }, .. })
    }
}

/// The source of evidence that a conversation goes on after its terminal has ended: later commands look at its file.
/// `store::query` asks for it by this name.
const HANDED_OVER: &str = "handed-over";

fn begin_in_background(
    tx: &Tx<'_>,
    at: Timestamp,
    begin: &Begin,
    surroundings: &Surroundings,
) -> Result<SessionId, session::Error> {
    let started = lifecycle::start(tx, at, &RandomIds, begin)?;
    let process = begin.run.wrapper;
    tx.set_agent_process(begin.run.id, process.pid, Some(process.start))?;
    tx.set_surroundings(begin.run.id, surroundings)?;
    Ok(started.session)
}

fn evidence(explained: &Explained) -> Evidence {
    Evidence {
        at: explained.at,
        source: explained.kind.to_owned(),
        verdict: if explained.accepted { Verdict::Accepted } else { Verdict::Rejected },
        agent_session_id: None,
        detail: format!("{}: {}", explained.value, explained.why),
    }
}

impl Run {
    /// Tells the store now, or after what waits already.
    pub(super) fn tell(&mut self, what: What) {
        self.undone.push_back(Step { at: SystemClock.now(), what });
        if self.undone.len() == 1 {
            self.work_off();
        }
    }

    /// Does what is to be done until the store refuses something.
    pub(super) fn work_off(&mut self) {
        while self.store.is_some()
            && let Some(step) = self.undone.pop_front()
        {
            if let Err(error) = self.carry_out(&step) {
                self.broke(&error);
                if matches!(error, session::Error::Store(_)) {
                    self.undone.push_front(step);
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, step: &Step) -> Result<(), session::Error> {
        let session = self.session;
        match &step.what {
            What::Seen(evidence) => {
                let run = self.plan.run;
                self.write(|tx| Ok(tx.note_evidence(session, run, evidence)?))
            }
            What::Version(version) => {
                self.write(|tx| lifecycle::learn_version(tx, session, version))?;
                self.say(Word::Soon);
                Ok(())
            }
            What::Moved(folder) => {
                self.write(|tx| Ok(tx.set_folder(session, folder)?))?;
                self.publish();
                Ok(())
            }
            What::Decided { decision, folder } => {
                match decision {
                    Decision::Bind { id, evidence } => self.bind(step.at, id, *evidence)?,
                    Decision::Transition { kind, to, evidence } => {
                        self.pass(step.at, *kind, to.as_ref(), *evidence, folder)?;
                    }
                    Decision::Forked { to, process } => self.fork(step.at, to, *process, folder)?,
                    Decision::Ambiguous { .. } => self.write(|tx| lifecycle::doubt(tx, session))?,
                }
                if let Some(conversation) = &self.conversation {
                    tracing::info!(session = %self.session, %conversation, "watching");
                }
                self.say(Word::Now);
                self.publish();
                Ok(())
            }
        }
    }

    fn bind(
        &mut self,
        at: Timestamp,
        id: &AgentSessionId,
        evidence: EvidenceKind,
    ) -> Result<(), session::Error> {
        let binding = self.binding(id, evidence);
        let session = self.session;
        let bound = self.write(|tx| lifecycle::bind(tx, at, &RandomIds, session, &binding))?;
        self.conversation = Some(id.clone());
        self.file = binding.file;
        match bound {
            Bound::Merged(started) => {
                self.sessions.retain(|known| *known != session);
                self.arrive(started.session);
            }
            Bound::Switched(passed) => self.arrive(passed.new.session),
            Bound::New | Bound::Already => {}
        }
        Ok(())
    }

    fn pass(
        &mut self,
        at: Timestamp,
        kind: TransitionKind,
        to: Option<&AgentSessionId>,
        evidence: EvidenceKind,
        folder: &Path,
    ) -> Result<(), session::Error> {
        // The old session ends with all that is known of it now.
        let _ = self.read(false); // what is refused is read as of a session that was left
        let passage = Passage {
            to: kind,
            binding: to.map(|id| self.binding(id, evidence)),
            place: Some(place(folder)),
        };
        let run = self.plan.run;
        let passed = self.write(|tx| lifecycle::transition(tx, at, &RandomIds, run, &passage))?;
        let follower = std::mem::take(&mut self.follower);
        if let Some(conversation) = self.conversation.take() {
            self.left.push(Left::now(self.session, conversation, follower));
        }
        self.arrive(passed.new.session);
        self.conversation = to.cloned();
        self.file = passage.binding.and_then(|binding| binding.file);
        Ok(())
    }

    /// A copy of the conversation goes on in the background: a session of its own, and that process is its run, so that it ends
    /// with it whatever becomes of us.
    fn fork(
        &mut self,
        at: Timestamp,
        id: &AgentSessionId,
        process: ProcessId,
        folder: &Path,
    ) -> Result<(), session::Error> {
        let binding = self.binding(id, EvidenceKind::Registry);
        let begin = self.background_run(process, lifecycle::Conversation::Unsure, folder);
        let surroundings = self.plan.surroundings.clone();
        let session = self.write(|tx| {
            let session = begin_in_background(tx, at, &begin, &surroundings)?;
            lifecycle::bind(tx, at, &RandomIds, session, &binding)?;
            Ok(session)
        })?;
        self.left.push(Left::now(session, id.clone(), Follower::default()));
        Ok(())
    }

    /// A run of the agent's own background process.
    fn background_run(
        &self,
        process: ProcessId,
        conversation: lifecycle::Conversation,
        folder: &Path,
    ) -> Begin {
        Begin {
            run: NewRun { id: RandomIds.run(), realm: Realm::here(), wrapper: process },
            agent: self.plan.agent.clone(),
            agent_version: self.version.clone(),
            place: place(folder),
            conversation,
            name: None,
            tags: self.plan.tags.clone(),
            group: self.plan.group.clone(),
            parent: Some(self.plan.run),
        }
    }

    /// The terminal has ended, and the conversation goes on in the background: with a process that is there, as that one's run;
    /// otherwise its file is looked at by later commands.
    pub(super) fn leave_in_background(&mut self, at: Timestamp) -> Result<(), session::Error> {
        let Some((conversation, process)) = self.background.clone() else { return Ok(()) };
        if self.conversation.as_ref() != Some(&conversation) {
            return Ok(());
        }
        let (session, run) = (self.session, self.plan.run);
        let note = Evidence {
            at,
            source: HANDED_OVER.to_owned(),
            verdict: Verdict::Accepted,
            agent_session_id: None,
            detail: format!("{conversation}: goes on in the background after its terminal has ended"),
        };
        let living = process.filter(|process| SystemProcesses.alive(*process));
        let folder = self.plan.folder.clone();
        let named = lifecycle::Conversation::Named(conversation);
        let begin = living.map(|process| self.background_run(process, named, &folder));
        let surroundings = self.plan.surroundings.clone();
        self.write(|tx| {
            tx.note_evidence(session, run, &note)?;
            if let Some(begin) = &begin {
                begin_in_background(tx, at, begin, &surroundings)?;
            }
            Ok(())
        })
    }

    fn arrive(&mut self, session: SessionId) {
        self.session = session;
        self.left.retain(|left| left.session != session);
        if !self.sessions.contains(&session) {
            self.sessions.push(session);
        }
    }

    fn binding(&mut self, id: &AgentSessionId, evidence: EvidenceKind) -> Binding {
        let file = self.plan.trail.as_mut().and_then(|trail| trail.files(id).into_iter().next());
        Binding { agent_session: id.clone(), file, evidence }
    }

    fn write<T>(
        &mut self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, session::Error>,
    ) -> Result<T, session::Error> {
        let run = self.plan.run;
        let store: &mut Store = self.store.as_mut().ok_or(session::Error::NoRun(run))?;
        store.write(work)
    }
}
