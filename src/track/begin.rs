//! The beginning of a run: its START in the store, under the labels it may have.

use std::path::Path;
use std::time::Instant;

use uuid::Uuid;

use super::receivers::Receivers;
use super::run::{RETRY, Run};
use crate::forward::{self, Hint, Sinks};
use crate::project::Project;
use crate::session::correlate::Signal;
use crate::session::lifecycle::{self, Begin};
use crate::session::{self, names};
use crate::store::{self, NewRun, Place, Realm, Store};
use terminal::process::{Processes, SystemProcesses};
use wire::{AgentSessionId, Ids, RandomIds, SessionId};
use wire::{Pid, ProcessId};

impl Run {
    /// Tells the store of the run. What was busy is tried again with a later look; what is broken is remembered and said
    /// in the end.
    pub(super) fn begin(&mut self, opened: Result<Store, store::Error>) {
        self.retry_at = None;
        self.call_by_what_may_be();
        match opened.map_err(session::Error::from).and_then(|store| self.start_in(store)) {
            Ok(store) => {
                self.store = Some(store);
                self.trouble = None;
                self.say(Hint::Now);
                if let Some(id) = self.plan.assigned.take().or_else(|| self.named()) {
                    self.consider(Signal::Assigned(id));
                }
            }
            Err(error) => {
                tracing::error!(run = %self.plan.run, "not recorded: {error}");
                self.retry_at = error.may_pass().then(|| Instant::now() + RETRY);
                self.trouble = Some(format!("this session is not recorded: {error}"));
            }
        }
    }

    /// The command line refuses such labels; should one come here all the same, it does not cost the session.
    fn call_by_what_may_be(&mut self) {
        let plan = &mut self.plan;
        let mut bad = Vec::new();
        let mut good =
            |checked: Result<&str, names::NameError>| checked.map_err(|error| bad.push(error)).is_ok();
        plan.name.take_if(|name| !good(names::check(name)));
        plan.tags.retain(|tag| good(names::check_tag(tag)));
        plan.group.take_if(|group| !good(names::check_group(group)));
        for error in bad {
            self.problem.get_or_insert_with(|| format!("this session is recorded without it: {error}"));
        }
    }

    /// The id the arguments name stands for an existing conversation: that it is meant is as certain as if we had
    /// chosen it.
    fn named(&self) -> Option<AgentSessionId> {
        match &self.plan.conversation {
            lifecycle::Conversation::Named(id) => Some(id.clone()),
            _ => None,
        }
    }

    fn start_in(&mut self, mut store: Store) -> Result<Store, session::Error> {
        let wrapper = Pid(i32::try_from(std::process::id()).unwrap_or(0));
        let wrapper = SystemProcesses
            .identify(wrapper)
            .unwrap_or(ProcessId { pid: wrapper, start: wire::StartTime(0) });
        let begin = Begin {
            run: NewRun { id: self.plan.run, realm: Realm::here(), wrapper },
            agent: self.plan.agent.clone(),
            local_only: self.plan.local_only,
            agent_version: self.version.clone(),
            place: place(&self.plan.folder),
            conversation: self.plan.conversation.clone(),
            name: self.plan.name.clone(),
            tags: self.plan.tags.clone(),
            group: self.plan.group.clone(),
            parent: self.plan.parent,
        };
        let ids = FirstOurs::new(self.plan.session);
        let targets = self.plan.sinks.as_ref().map(Sinks::targets).unwrap_or_default();
        let (started, led) = store.write(|tx| {
            forward::register(tx, &targets)?;
            let started = lifecycle::start(tx, self.plan.begun_at, &ids, &begin)?;
            tx.set_agent_process(self.plan.run, self.pid, self.agent.map(|agent| agent.start))?;
            if started.session != self.plan.session {
                // The agent's environment names the id chosen before we knew.
                tx.answer_to(self.plan.session, started.session)?;
            }
            tx.set_surroundings(self.plan.run, &self.plan.surroundings)?;
            for note in &self.plan.notes {
                tx.note_evidence(started.session, self.plan.run, note)?;
            }
            Ok::<_, session::Error>((started, tx.sinks()?))
        })?;
        self.session = started.session;
        self.sessions = vec![started.session];
        self.receivers = Receivers::begin(self.plan.sinks.clone(), targets, &led);
        Ok(store)
    }
}

pub(super) fn place(folder: &Path) -> Place {
    let project = Project::of(folder);
    Place {
        cwd: folder.to_owned(),
        project: project.name,
        repository: project.repository,
        branch: project.branch,
    }
}

/// The first session has the id that the agent was told; later ones are random.
struct FirstOurs(std::sync::Mutex<Option<SessionId>>);

impl FirstOurs {
    fn new(first: SessionId) -> Self {
        Self(std::sync::Mutex::new(Some(first)))
    }
}

impl Ids for FirstOurs {
    fn uuid(&self) -> Uuid {
        let first = self.0.lock().ok().and_then(|mut first| first.take());
        first.map_or_else(|| RandomIds.uuid(), |id| id.0)
    }
}
