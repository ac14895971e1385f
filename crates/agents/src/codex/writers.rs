//! Which processes write to a thread of Codex: those that hold its lock (`thread-writer-locks/<id>.lock`), and in versions without
//! locks those that have its rollout open for writing. The agent itself refuses a second writer; this says who the first one is.
//!
//! A process that starts opens every lock for some microseconds to see whether it is held. Meanwhile it has `.coordination.lock`
//! open, so such a process is looked at again.

use std::time::Duration;

use super::agent::daemon;
use super::files::{self, CodexFiles};
use crate::kit::neighbours::Program;
use crate::kit::writers::{background, foreground};
use crate::live::Writer;
use crate::{Agent, Live, Var};
use pty::process::{OpenFile, Processes};
use types::{AgentSessionId, Pid};

/// An npm package around a native program; the shared background server is a copy of that.
const PROGRAM: Program = Program { names: &["codex"], folders: &["/@openai/codex"] };

/// Each lock is examined for some microseconds.
const EXAMINATION: Duration = Duration::from_millis(10);
const LOOKS: usize = 5;

pub(super) fn writers(var: Var<'_>, conversation: &AgentSessionId, processes: &dyn Processes) -> Vec<Writer> {
    let Some(files) = CodexFiles::from_env(var) else { return Vec::new() };
    let holders = processes.lock_holders(&files.lock(conversation));
    let running = processes.running(&|command| PROGRAM.arguments(command).is_some()).unwrap_or_default();
    let mut pids: Vec<Pid> = running.iter().map(|process| process.pid).collect();
    pids.extend(holders.iter().filter(|holder| !running.iter().any(|process| process.pid == **holder)));
    // What a process has open may be hidden from us; the kernel's list of locks is not.
    let hidden = |pid: Pid| holders.contains(&pid) && processes.open_files(pid).is_empty();
    pids.retain(|pid| holds(*pid, conversation, processes) || hidden(*pid));
    let server = daemon(&files, processes);
    pids.into_iter()
        .filter_map(|pid| {
            let folder = running.iter().find(|process| process.pid == pid).and_then(|at| at.folder.clone());
            let shared = server == Some(pid) || super::Codex.is_shared_daemon(&processes.command(pid));
            if shared {
                background(super::Codex.product(), pid, folder, processes)
            } else {
                foreground(super::Codex.name(), pid, folder, processes)
            }
        })
        .collect()
}

fn holds(pid: Pid, thread: &AgentSessionId, processes: &dyn Processes) -> bool {
    for look in 1..=LOOKS {
        let open = processes.open_files(pid);
        if !open.iter().any(|file| is_of(file, thread)) {
            return false;
        }
        if look == LOOKS || !open.iter().any(|file| files::is_coordination(&file.path)) {
            return true;
        }
        std::thread::sleep(EXAMINATION);
    }
    true
}

fn is_of(file: &OpenFile, thread: &AgentSessionId) -> bool {
    files::locked_thread(&file.path).as_ref() == Some(thread)
        || file.writes && files::thread_of(&file.path).as_ref() == Some(thread)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::process_table::ProcessTable;

    const ID: &str = "01a1e18d-46b4-7352-92dc-1e28b60230dc";

    fn found(root: &Path, table: &ProcessTable) -> Vec<(i32, bool)> {
        let var = |name: &str| (name == "CODEX_HOME").then(|| OsString::from(root));
        let writers = writers(&var, &AgentSessionId(ID.into()), table);
        writers.iter().map(|writer| (writer.pid.0, writer.background)).collect()
    }

    #[test]
    fn holders_of_the_lock_and_writers_of_the_rollout_are_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let lock = root.join(format!("thread-writer-locks/{ID}.lock"));
        let rollout = root.join(format!("sessions/2026/11/15/rollout-2026-11-15T23-31-34-{ID}.jsonl"));
        let processes =
            [(10, 1, "node /x/bin/codex"), (11, 1, "/x/vendor/codex/codex resume"), (12, 1, "codex")];
        let mut table = ProcessTable::new(&processes);
        table.open(10, &lock, false).open(11, &rollout, true).open(12, &rollout, false);
        assert_eq!(found(root, &table), [(10, false), (11, false)], "12 only reads");
        let mut examining = ProcessTable::new(&[(10, 1, "codex")]);
        let coordination = root.join("thread-writer-locks/.coordination.lock");
        examining.open(10, &lock, false).open(10, &coordination, false);
        assert_eq!(found(root, &examining), [(10, false)], "for longer than any examination: it holds it");
        assert_eq!(found(root, &ProcessTable::new(&[])), []);
    }

    #[test]
    fn the_shared_server_is_a_background_writer_and_a_hidden_holder_is_found_by_its_lock() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let files = CodexFiles::at(root);
        fs::create_dir_all(files.daemon_note().parent().unwrap()).unwrap();
        fs::write(files.daemon_note(), r#"{"pid":10,"processIdentity":{"startTicks":1}}"#).unwrap();
        let mut table = ProcessTable::new(&[(10, 1, "codex app-server --listen unix://"), (11, 1, "hidden")]);
        table.open(10, &files.lock(&AgentSessionId(ID.into())), false);
        table.holders = vec![Pid(10), Pid(11)];
        assert_eq!(found(root, &table), [(10, true), (11, false)]);
    }
}
