//! The beginning of a run: its START in the store.

use std::path::Path;

use uuid::Uuid;

use super::plan::Plan;
use super::write_queue::Receivers;
use delivery::{self, Sinks};
use os::project::Project;
use pty::process::{Processes, SystemProcesses};
use store::session::lifecycle::{self, RunStart};
use store::session::{self};
use store::{BootAndPidNs, NewRun, Store, Workspace};
use types::{Ids, Pid, ProcessId, RandomIds, SessionId, StartTime};

/// Commits the START, with all that is known of the run. Returns its session, and where its events are sent.
pub(super) fn start(
    store: &mut Store,
    plan: &Plan,
    pid: Pid,
    agent: Option<ProcessId>,
) -> Result<(SessionId, Receivers), session::Error> {
    let wrapper = Pid(i32::try_from(std::process::id()).unwrap_or(0));
    let wrapper =
        SystemProcesses.identify(wrapper).unwrap_or(ProcessId { pid: wrapper, start: StartTime(0) });
    let begin = RunStart {
        run: NewRun { id: plan.run, realm: BootAndPidNs::here(), wrapper, proxied: plan.proxied },
        agent: plan.agent.clone(),
        local_only: plan.local_only,
        agent_version: plan.version.clone(),
        workspace: workspace(&plan.folder),
        conversation: plan.conversation.clone(),
        name: plan.name.clone(),
        tags: plan.tags.clone(),
        group: plan.group.clone(),
        parent: None,
    };
    let ids = FirstChosen::new(plan.session);
    let targets = plan.sinks.as_ref().map(Sinks::targets).unwrap_or_default();
    let (started, sinks) = store.write(|tx| {
        delivery::register(tx, &targets)?;
        let live = tx.live_runs()?;
        let parent = plan.lineage.enclosing(&live, &begin.run.realm).map(|run| run.id);
        let begin = RunStart { parent, ..begin.clone() };
        let started = lifecycle::start(tx, plan.begun_at, &ids, &begin)?;
        tx.set_agent_process(plan.run, pid, agent.map(|agent| agent.start))?;
        if started.session != plan.session {
            // The agent's environment names the id chosen before we knew.
            tx.add_session_alias(plan.session, started.session)?;
        }
        tx.set_surroundings(plan.run, &plan.surroundings)?;
        for note in &plan.notes {
            tx.note_evidence(started.session, plan.run, note)?;
        }
        Ok::<_, session::Error>((started, tx.sinks()?))
    })?;
    Ok((started.session, Receivers::begin(plan.sinks.clone(), targets, &sinks)))
}

/// The folder that a session works in, with the project, repository and branch found there.
pub(super) fn workspace(folder: &Path) -> Workspace {
    let project = Project::of(folder);
    Workspace {
        cwd: folder.to_owned(),
        project: project.name,
        repository: project.repository,
        branch: project.branch,
    }
}

/// The first session has the id that the agent's environment names; later ones are random.
struct FirstChosen(std::sync::Mutex<Option<SessionId>>);

impl FirstChosen {
    fn new(first: SessionId) -> Self {
        Self(std::sync::Mutex::new(Some(first)))
    }
}

impl Ids for FirstChosen {
    fn uuid(&self) -> Uuid {
        let first = self.0.lock().ok().and_then(|mut first| first.take());
        first.map_or_else(|| RandomIds.uuid(), |id| id.0)
    }
}
