//! `codemie resume SESSION`: continue the same conversation of the agent, in its own folder.

use anyhow::{Context, bail};

use super::{Failure, run};
use crate::cli::{Resume, RunOptions};
use crate::home::Home;
use crate::launch::conflict::{self, Decision};
use crate::launch::resume::{Resumable, StillRunning, arguments, take_over};
use crate::launch::{LaunchTarget, Origin, RunResult};
use crate::report::find::find;
use crate::session::lookup::Found;
use crate::store::{RunRow, Store};
use crate::track;
use system::clock::{Clock, SystemClock};

pub fn resume(args: &Resume, home: &Home) -> anyhow::Result<RunResult> {
    let wanted = look_up(&args.session, home)?;
    let (agent, conversation) = wanted.target()?;
    let decision = conflict::decide(args.on_conflict, &wanted.name, wanted.running())
        .map_err(|conflict| Failure { code: 1, message: conflict.to_string() })?;
    let line = arguments(agent, conversation, decision == Decision::Fork, &args.args)?;
    if let Decision::TakeOver(wrappers) = decision {
        for wrapper in wrappers {
            if let Err(StillRunning(pid)) = take_over(wrapper) {
                bail!("{} did not end (pid {pid}); end it by hand and try again", wanted.name);
            }
        }
    }
    if let Some(folder) = wanted.folder {
        std::env::set_current_dir(&folder).with_context(|| {
            format!(
                "its folder {} cannot be entered; make it again or move the conversation",
                folder.display()
            )
        })?;
    }
    Ok(run::run(&RunOptions::default(), LaunchTarget::Agent(agent), line))
}

/// The store is closed again before anything is started: no connection may live through a fork.
fn look_up(session: &str, home: &Home) -> anyhow::Result<Resumable> {
    let mut store = Store::open(home, SystemClock.now())?;
    track::recover(&mut store, home)?;
    store.read(|view| {
        Ok(match find(view, session, &Origin::of_this_process())? {
            Found::Session(row) => Resumable {
                wrappers: view.live_runs_in(row.n)?.into_iter().map(|run: RunRow| run.wrapper).collect(),
                name: row.name,
                agent: row.agent,
                conversation: row.agent_session,
                folder: Some(row.workspace.cwd),
            },
            Found::Foreign(foreign) => Resumable {
                name: foreign.agent_session.to_string(),
                agent: foreign.agent,
                conversation: Some(foreign.agent_session),
                folder: foreign.cwd,
                wrappers: Vec::new(),
            },
        })
    })
}
