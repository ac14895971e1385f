//! Processes that write to a conversation, as far as their command lines show it: for agents, or versions of them, that keep no
//! record of which process is in which conversation.

use std::ffi::OsString;
use std::path::PathBuf;

use super::neighbours::Program;
use crate::live::Writer;
use crate::{Agent, Conversation, Invocation};
use pty::process::{Processes, Running};
use types::{AgentSessionId, Pid};

/// The processes of a program that were started with this conversation's id: to continue it, or to begin it under that id. A copy
/// of it is another conversation. Where processes cannot be listed there are none.
pub(crate) fn named_by_command(
    program: &Program,
    agent: &dyn Agent,
    conversation: &AgentSessionId,
    processes: &dyn Processes,
) -> Vec<Running> {
    let names_it = |command: &[OsString]| {
        let invocation = program.arguments(command).map(|args| agent.classify(args));
        invocation.is_some_and(|invocation| writes_to(&invocation, conversation))
    };
    processes.running(&names_it).unwrap_or_default()
}

fn writes_to(invocation: &Invocation, conversation: &AgentSessionId) -> bool {
    let (Conversation::Named(id) | Conversation::Chosen(id) | Conversation::Fork { to: Some(id), .. }) =
        &invocation.session
    else {
        return false;
    };
    invocation.persistent && id == conversation
}

/// A living process as a writer; `name` is the agent's.
pub(crate) fn foreground(
    name: &str,
    pid: Pid,
    folder: Option<PathBuf>,
    processes: &dyn Processes,
) -> Option<Writer> {
    let start = processes.start_time(pid)?;
    Some(Writer { pid, start, what: format!("{name} (pid {pid})"), background: false, folder })
}

/// A process of the agent's own background service; `product` is what the vendor calls the agent.
pub(crate) fn background(
    product: &str,
    pid: Pid,
    folder: Option<PathBuf>,
    processes: &dyn Processes,
) -> Option<Writer> {
    let start = processes.start_time(pid)?;
    let what = format!("a background process of {product} (pid {pid})");
    Some(Writer { pid, start, what, background: true, folder })
}
