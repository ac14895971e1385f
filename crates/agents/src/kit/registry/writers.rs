//! Which processes write to a conversation: by the registry, where background processes stand, too; by the jobs of the agent's
//! background service; and for processes that do not register (older versions, print mode), by their command lines.
//!
//! These agents have no lock: two processes that continue one conversation both append to its file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{BackgroundService, MAX_ENTRY, RegistryAgent, RegistryFiles, RegistryFormat};
use crate::Var;
use crate::correlate::RegistryEntry;
use crate::kit::writers::{background, foreground, named_by_command};
use crate::live::Writer;
use os::file::{entries, read_at_most};
use pty::process::Processes;
use types::{AgentSessionId, Pid};

/// An entry is rewritten in place, several times a turn, within microseconds.
const TORN: Duration = Duration::from_millis(2);
const READS: usize = 5;

pub(crate) fn writers<A: RegistryAgent>(
    agent: &A,
    var: Var<'_>,
    conversation: &AgentSessionId,
    processes: &dyn Processes,
) -> Vec<Writer> {
    let format = A::FORMAT;
    let Some(files) = RegistryFiles::from_env(format.layout, var) else { return Vec::new() };
    let name = |in_background: bool| if in_background { agent.product() } else { agent.name() };
    let registered = registered(format, &files, processes);
    let mut writers: Vec<Writer> = registered
        .iter()
        .filter(|entry| entry.session == *conversation)
        .filter_map(|entry| {
            let folder = entry.cwd.as_ref().map(Into::into);
            let kind = if entry.background { background } else { foreground };
            kind(name(entry.background), entry.pid, folder, processes)
        })
        .collect();
    let named: BTreeSet<Pid> =
        registered.iter().filter(|entry| has_file(entry, &files)).map(|entry| entry.pid).collect();
    let known: BTreeSet<Pid> = writers.iter().map(|writer| writer.pid).collect();
    for running in named_by_command(format.program, agent, conversation, processes) {
        // Once registered, it is in the conversation of its entry, whatever it was started with.
        if !named.contains(&running.pid) && !known.contains(&running.pid) {
            writers.extend(foreground(name(false), running.pid, running.folder, processes));
        }
    }
    if writers.is_empty() {
        let service = format.background.as_ref();
        let job = service.and_then(|service| job_of(service, &files, conversation));
        let running = job.and_then(|folder| Some((service_process(format, processes)?, folder)));
        writers
            .extend(running.and_then(|(pid, folder)| background(name(true), pid, Some(folder), processes)));
    }
    writers
}

/// The entries of processes that live. One without a start time is believed: a wrong yes only asks the user.
fn registered(
    format: &RegistryFormat,
    files: &RegistryFiles,
    processes: &dyn Processes,
) -> Vec<RegistryEntry> {
    let paths = entries(&files.registry()).unwrap_or_default().into_iter();
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let living = |entry: &RegistryEntry| {
        let start = processes.start_time(entry.pid);
        start.is_some() && (entry.start.is_none() || entry.start == start)
    };
    let mut registered: Vec<RegistryEntry> =
        paths.filter_map(|path| read(format, &path)).filter(living).collect();
    registered.sort_by_key(|entry| entry.pid);
    registered
}

fn read(format: &RegistryFormat, path: &Path) -> Option<RegistryEntry> {
    for _ in 1..READS {
        if let Ok(entry) = format.entry(&read_at_most(path, MAX_ENTRY).ok()?) {
            return Some(entry);
        }
        std::thread::sleep(TORN);
    }
    format.entry(&read_at_most(path, MAX_ENTRY).ok()?).ok()
}

/// Claude Code 2.1.100 registers a placeholder first, and the conversation that it resumes only 0.7 s later.
fn has_file(entry: &RegistryEntry, files: &RegistryFiles) -> bool {
    files.find_session(&entry.session).is_ok_and(|found| !found.is_empty())
}

/// The folder of the conversation, if it is an unfinished job: the background service starts a process for it whenever there is
/// work.
fn job_of(
    service: &BackgroundService,
    files: &RegistryFiles,
    conversation: &AgentSessionId,
) -> Option<PathBuf> {
    let mut jobs = service.jobs_in(files, |_| true);
    Some(jobs.find(|job| job.session == *conversation && !job.over)?.cwd.into())
}

fn service_process(format: &RegistryFormat, processes: &dyn Processes) -> Option<Pid> {
    let service = processes.running(&|command| {
        format
            .program
            .arguments(command)
            .is_some_and(|args| args.first().is_some_and(|first| first == "daemon"))
    });
    Some(service?.first()?.pid)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::*;
    use crate::claude::Claude;
    use crate::claude::files::LAYOUT;
    use crate::process_table::ProcessTable;

    const ID: &str = "11111111-2222-4333-8444-555555555555";
    const OTHER: &str = "22222222-2222-4333-8444-555555555555";

    fn found(registry: &[(i32, &str)], job: Option<&str>, processes: &ProcessTable) -> Vec<(i32, bool)> {
        let root = tempfile::tempdir().unwrap();
        let files = RegistryFiles::at(LAYOUT, root.path());
        fs::create_dir_all(files.registry()).unwrap();
        for (pid, text) in registry {
            fs::write(files.registry_entry(Pid(*pid)), text).unwrap();
        }
        fs::create_dir_all(files.projects().join("-p")).unwrap();
        fs::write(files.projects().join(format!("-p/{OTHER}.jsonl")), "").unwrap();
        if let Some(job) = job {
            fs::create_dir_all(root.path().join("jobs").join("j1")).unwrap();
            fs::write(root.path().join("jobs").join("j1/state.json"), job).unwrap();
        }
        let var = |name: &str| (name == "CLAUDE_CONFIG_DIR").then(|| OsString::from(root.path()));
        let writers = writers(&Claude, &var, &AgentSessionId(ID.into()), processes);
        writers.iter().map(|writer| (writer.pid.0, writer.background)).collect()
    }

    fn entry(pid: i32, id: &str, start: &str, kind: &str) -> String {
        format!(r#"{{"pid":{pid},"sessionId":"{id}","procStart":"{start}","cwd":"/p","kind":"{kind}"}}"#)
    }

    #[test]
    fn registered_processes_that_live_are_writers_background_ones_included() {
        let processes = ProcessTable::new(&[(10, 5, "claude"), (11, 6, "claude"), (12, 7, "claude")]);
        let registry = [
            (10, entry(10, ID, "5", "interactive")),
            (11, entry(11, ID, "6", "bg")),
            (12, entry(12, OTHER, "7", "interactive")),
            (13, entry(13, ID, "5", "interactive")),
        ];
        let registry: Vec<(i32, &str)> = registry.iter().map(|(pid, text)| (*pid, text.as_str())).collect();
        assert_eq!(found(&registry, None, &processes), [(10, false), (11, true)]);
        let reused = [(10, registry[0].1)];
        assert_eq!(
            found(&reused, None, &ProcessTable::new(&[(10, 6, "vim")])),
            [],
            "a later process with the pid"
        );
    }

    #[test]
    fn command_lines_count_where_there_is_no_entry_of_a_conversation() {
        let resume = format!("claude --resume {ID}");
        let fork = format!("claude --resume {ID} --fork-session");
        let copied = format!("claude --resume {OTHER}.jsonl --fork-session --session-id {ID}");
        let print = format!("node /x/claude-code/cli.js -p hi --resume={ID}");
        let table = ProcessTable::new(&[
            (10, 5, &resume),
            (11, 5, &fork),
            (12, 5, &copied),
            (13, 5, &print),
            (14, 5, "vim"),
        ]);
        assert_eq!(found(&[], None, &table), [(10, false), (12, false), (13, false)]);
        let moved_on = entry(10, OTHER, "5", "interactive");
        assert_eq!(found(&[(10, &moved_on)], None, &table), [(12, false), (13, false)]);
        let placeholder = entry(10, "33333333-2222-4333-8444-555555555555", "5", "interactive");
        assert_eq!(found(&[(10, &placeholder)], None, &table).len(), 3, "it has no file, so it is none yet");
    }

    #[test]
    fn an_unfinished_job_belongs_to_the_running_service() {
        let job = |state: &str| {
            format!(
                r#"{{"state":"{state}","sessionId":"{ID}","cwd":"/p","createdAt":"2026-11-17T09:55:24.405Z"}}"#
            )
        };
        let service = ProcessTable::new(&[(20, 5, "claude daemon run")]);
        assert_eq!(found(&[], Some(&job("working")), &service), [(20, true)]);
        assert_eq!(found(&[], Some(&job("done")), &service), []);
        assert_eq!(found(&[], Some(&job("working")), &ProcessTable::new(&[])), []);
    }
}
