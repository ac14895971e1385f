//! Continuing a conversation: whether it can be, with which arguments of the agent, and the end of the runs it is in.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::registry;
use terminal::process::{Processes, SystemProcesses};
use wire::{AgentSessionId, Pid, ProcessId};

/// How long the agent of a run that is taken over has to end. Claude was measured at 2.6 s while it streams.
const TAKEOVER_GRACE: Duration = Duration::from_secs(10);
/// The same for the run: a little more.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(12);
const TAKEOVER_POLL: Duration = Duration::from_millis(20);

/// A session that is to be continued, or a conversation that codemie never wrapped.
#[derive(Clone, Debug)]
pub struct Resumable {
    pub name: String,
    pub agent: String,
    pub conversation: Option<AgentSessionId>,
    pub folder: Option<PathBuf>,
    /// The wrappers of the runs that are in it by the store.
    pub wrappers: Vec<ProcessId>,
}

/// Why a session cannot be continued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotResumable {
    #[error("{name} ran {program}, which is no agent; there is no conversation to continue")]
    NoAgent { name: String, program: String },
    #[error(
        "{name} was never bound to a conversation of {agent}; there is nothing to continue (`codemie explain` shows why)"
    )]
    NoConversation { name: String, agent: String },
    #[error(
        "{name} has the conversation id {id:?}, which {agent} would not take for one; it cannot be continued"
    )]
    OddId { name: String, agent: String, id: String },
    #[error("codemie does not know how {agent} continues a conversation")]
    NoArguments { agent: String },
}

impl Resumable {
    /// The agent and its conversation.
    pub fn target(&self) -> Result<(&'static dyn Agent, &AgentSessionId), NotResumable> {
        let (name, agent) = (self.name.clone(), self.agent.clone());
        let Some(known) = registry::by_name(&self.agent) else {
            return Err(NotResumable::NoAgent { name, program: agent });
        };
        match &self.conversation {
            None => Err(NotResumable::NoConversation { name, agent }),
            Some(id) if !id.is_plain() => Err(NotResumable::OddId { name, agent, id: id.0.clone() }),
            Some(id) => Ok((known, id)),
        }
    }

    /// The wrappers that are alive.
    pub fn running(&self) -> Vec<ProcessId> {
        self.wrappers.iter().copied().filter(|wrapper| SystemProcesses.alive(*wrapper)).collect()
    }
}

/// The agent's arguments that continue a conversation, or a copy of it.
pub fn arguments(
    agent: &dyn Agent,
    conversation: &AgentSessionId,
    fork: bool,
    further: &[OsString],
) -> Result<Vec<OsString>, NotResumable> {
    let line = agent.resume(conversation, fork);
    let mut line = line.ok_or_else(|| NotResumable::NoArguments { agent: agent.name().to_owned() })?;
    line.extend(further.iter().cloned());
    Ok(line)
}

/// A run that was asked to end and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillRunning(pub Pid);

/// Asks a run to end and waits until it has.
pub fn take_over(wrapper: ProcessId) -> Result<(), StillRunning> {
    terminal::ask_to_end(wrapper, TAKEOVER_GRACE);
    let deadline = Instant::now() + TAKEOVER_TIMEOUT;
    while SystemProcesses.alive(wrapper) {
        if Instant::now() >= deadline {
            return Err(StillRunning(wrapper.pid));
        }
        std::thread::sleep(TAKEOVER_POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumable(agent: &str, conversation: Option<&str>) -> Resumable {
        Resumable {
            name: "fix-auth".into(),
            agent: agent.into(),
            conversation: conversation.map(|id| AgentSessionId(id.into())),
            folder: None,
            wrappers: Vec::new(),
        }
    }

    #[test]
    fn only_a_known_conversation_of_an_agent_is_continued() {
        let id = "7a276c6b-0000-4000-8000-000000000003";
        for (agent, conversation, expected) in [
            ("claude", Some(id), None),
            ("make", None, Some("is no agent")),
            ("claude", None, Some("never bound")),
            ("claude", Some("--help me"), Some("cannot be continued")),
        ] {
            let wanted = resumable(agent, conversation);
            let refused = wanted.target().err().map(|error| error.to_string());
            match (&refused, expected) {
                (None, None) => {}
                (Some(refused), Some(expected)) => assert!(refused.contains(expected), "{refused}"),
                _ => panic!("{agent} {conversation:?}: {refused:?}"),
            }
        }
    }

    #[test]
    fn the_arguments_of_the_user_follow_those_of_the_agent() {
        let id = AgentSessionId("7a276c6b".into());
        let agent = registry::called("claude").unwrap();
        for (fork, expected) in
            [(false, "--resume 7a276c6b -p hi"), (true, "--resume 7a276c6b --fork-session -p hi")]
        {
            let line = arguments(agent, &id, fork, &["-p".into(), "hi".into()]).unwrap();
            let line: Vec<&str> = line.iter().map(|arg| arg.to_str().unwrap()).collect();
            assert_eq!(line.join(" "), expected);
        }
    }
}
