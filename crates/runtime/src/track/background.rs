//! Conversations that go on in a background process of the agent's: sessions of their own, and that process is their run, so
//! that they end with it whatever becomes of ours.

use std::path::Path;

use super::begin::workspace;
use super::plan::Plan;
use store::session::lifecycle::{self, ConversationStart, RunStart};
use store::session::{self};
use store::{NewRun, Realm, Surroundings, Tx};
use types::{AgentSessionId, Ids, ProcessId, RandomIds, SessionId, Timestamp};
use types::{Evidence, EvidenceVerdict};

/// The source of evidence that a conversation goes on after its terminal has ended: later commands look at its file.
/// `store::query` asks for it by this name.
const HANDED_OVER: &str = "handed-over";

/// A run of the agent's own background process.
pub(super) fn run_of(
    plan: &Plan,
    process: ProcessId,
    conversation: ConversationStart,
    folder: &Path,
) -> RunStart {
    RunStart {
        run: NewRun { id: RandomIds.run(), realm: Realm::here(), wrapper: process, proxied: false },
        agent: plan.agent.clone(),
        local_only: plan.local_only,
        agent_version: plan.version.clone(),
        workspace: workspace(folder),
        conversation,
        name: None,
        tags: plan.tags.clone(),
        group: plan.group.clone(),
        parent: Some(plan.run),
    }
}

pub(super) fn start(
    tx: &Tx<'_>,
    at: Timestamp,
    begin: &RunStart,
    surroundings: &Surroundings,
) -> Result<SessionId, session::Error> {
    let started = lifecycle::start(tx, at, &RandomIds, begin)?;
    let process = begin.run.wrapper;
    tx.set_agent_process(begin.run.id, process.pid, Some(process.start))?;
    tx.set_surroundings(begin.run.id, surroundings)?;
    Ok(started.session)
}

pub(super) fn handed_over(at: Timestamp, conversation: &AgentSessionId) -> Evidence {
    Evidence {
        at,
        source: HANDED_OVER.to_owned(),
        verdict: EvidenceVerdict::Accepted,
        agent_session_id: None,
        detail: format!("{conversation}: goes on in the background after its terminal has ended"),
    }
}
