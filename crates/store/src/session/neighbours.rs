//! Other runs that go on in a folder with the same agent. They are neighbours of a run whether their processes are recognised or
//! not, and wherever they run: one of another pid namespace is in the same store.

use std::fs;
use std::path::{Path, PathBuf};

use super::recover::gone;
use crate::{BootAndPidNs, RunRow, View};
use agents::correlate::Maker;
use pty::process::Processes;
use types::{RunId, Timestamp};

/// Who can have made something in `folder` just now, by the live runs of the agent there other than `own`.
pub fn maker_by_runs(
    view: &View<'_>,
    (own, agent, folder): (RunId, &str, &Path),
    processes: &dyn Processes,
    now: Timestamp,
) -> Result<Maker, crate::Error> {
    let (here, folder) = (BootAndPidNs::here(), real(folder));
    let mut maker = Maker::Ours;
    let others = view.live_runs()?.into_iter().filter(|run| run.id != own && !gone(run, processes, &here));
    for run in others {
        if is_in(view, &run, agent, &folder)? {
            maker = maker.max(Maker::beside(now.since(run.started_at)));
        }
    }
    Ok(maker)
}

fn is_in(view: &View<'_>, run: &RunRow, agent: &str, folder: &Path) -> Result<bool, crate::Error> {
    let session = run.session.map(|session| view.session_number(session)).transpose()?.flatten();
    Ok(session.is_some_and(|session| session.agent == agent && real(&session.workspace.cwd) == folder))
}

fn real(folder: &Path) -> PathBuf {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}
