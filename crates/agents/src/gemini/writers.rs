//! Which processes write to a conversation of Gemini CLI: those that were started with its id. One that was started with a number,
//! with `latest` or without any id and has the conversation open cannot be known from outside: it keeps no lock, no open file and
//! no record of its process. Runs of codemie's own are known by the store.

use super::observer::PROGRAM;
use crate::kit::writers::{foreground, named_by_command};
use crate::live::Writer;
use crate::{Agent, Var};
use pty::process::Processes;
use types::AgentSessionId;

pub(super) fn writers(
    _var: Var<'_>,
    conversation: &AgentSessionId,
    processes: &dyn Processes,
) -> Vec<Writer> {
    let named = named_by_command(&PROGRAM, &super::Gemini, conversation, processes).into_iter();
    named
        .filter_map(|running| foreground(super::Gemini.name(), running.pid, running.folder, processes))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_table::ProcessTable;

    #[test]
    fn launcher_and_program_started_with_the_id_are_writers() {
        let id = "11111111-2222-4333-8444-555555555555";
        let line = |option: &str| format!("node /x/bin/gemini {option}");
        let lines = [
            line(&format!("--resume {id}")),
            line(&format!("--session-id {id}")),
            line("--resume latest"),
            line("--resume 5"),
        ];
        let table: Vec<(i32, u64, &str)> =
            lines.iter().zip(10..).map(|(line, pid)| (pid, 1, line.as_str())).collect();
        let found = writers(&|_| None, &AgentSessionId(id.into()), &ProcessTable::new(&table));
        assert_eq!(found.iter().map(|writer| writer.pid.0).collect::<Vec<_>>(), [10, 11]);
        assert!(found.iter().all(|writer| !writer.background));
    }
}
