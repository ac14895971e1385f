//! `codemie resume SESSION`: continue the same conversation of the agent, in its own folder.

use std::io;

use anyhow::Context;

use super::{Failure, attach, run};
use crate::cli::{Resume, RunOptions};
use crate::home::Home;
use crate::launch::claim::{self, NotClaimed};
use crate::launch::conflict::{self, Conflict, Decision, OnConflict};
use crate::launch::resume::{Resumable, arguments, is_inside, take_over};
use crate::launch::{LaunchTarget, Origin, RunResult};
use crate::report::find::find;
use crate::session::lookup::Found;
use crate::store::Store;
use crate::track;
use system::clock::{Clock, SystemClock};
use terminal::process::{Processes, SystemProcesses};
use wire::{Pid, ProcessId};

pub fn resume(args: &Resume, home: &Home) -> anyhow::Result<RunResult> {
    let mut wanted = look_up(&args.session, home)?;
    let (agent, conversation) = wanted.target().map(|(agent, conversation)| (agent, conversation.clone()))?;
    if args.on_conflict != OnConflict::Fork {
        claim(&wanted, home)?;
    }
    // The one before us may have begun between the look and the claim.
    wanted.refresh(home)?;
    let origin = Origin::of_this_process();
    let var = |name: &str| origin.var(name);
    let holders = wanted.holders(home, &var, &SystemProcesses);
    let inside = is_inside(&holders, &SystemProcesses);
    let decision = conflict::decide(args.on_conflict, &wanted.name, holders, inside)
        .map_err(|conflict| refused(&conflict))?;
    let line = arguments(agent, &conversation, decision == Decision::Fork, &args.args)?;
    match decision {
        Decision::Continue | Decision::Fork => {}
        Decision::TakeOver(holders) => take_over(&mut wanted, &holders, home, &var)?,
        Decision::Attach(_) => {
            let code = attach::attach_to(&args.session, false, home, &mut io::stderr())?;
            return Ok(RunResult { code, ..RunResult::default() });
        }
    }
    if let Some(folder) = &wanted.folder {
        std::env::set_current_dir(folder).with_context(|| {
            format!(
                "its folder {} cannot be entered; make it again or move the conversation",
                folder.display()
            )
        })?;
    }
    let options = RunOptions { detach: args.detach, ..RunOptions::default() };
    Ok(run::run(&options, LaunchTarget::Agent(agent), line))
}

fn refused(conflict: &Conflict) -> Failure {
    Failure { code: 1, message: conflict.to_string() }
}

/// Two that continue one conversation at the same time must not both go on. Without a claim (a home that cannot be written)
/// nothing is recorded either, and the agent is started all the same.
fn claim(wanted: &Resumable, home: &Home) -> anyhow::Result<()> {
    let own = Pid(i32::try_from(std::process::id())?);
    let (Some(own), Some(conversation)) = (SystemProcesses.identify(own), &wanted.conversation) else {
        return Ok(());
    };
    claim::sweep(home, &SystemProcesses);
    match claim::claim(home, &wanted.agent, conversation, own, &SystemProcesses, |other| {
        has_begun(home, other)
    }) {
        Ok(()) => Ok(()),
        Err(NotClaimed::By(pid)) => {
            Err(refused(&Conflict::Starting { name: wanted.name.clone(), pid }).into())
        }
        Err(NotClaimed::Failed(error)) => {
            tracing::warn!("no claim on the conversation: {error}");
            Ok(())
        }
    }
}

/// Whether the run of that wrapper is in the store.
fn has_begun(home: &Home, wrapper: ProcessId) -> bool {
    let runs = Store::open(home, SystemClock.now()).and_then(|mut store| store.read(|view| view.live_runs()));
    runs.is_ok_and(|runs| runs.iter().any(|run| run.wrapper == wrapper))
}

/// The store is closed again before anything is started: no connection may live through a fork.
fn look_up(session: &str, home: &Home) -> anyhow::Result<Resumable> {
    let mut store = Store::open(home, SystemClock.now())?;
    track::recover(&mut store, home)?;
    store.read(|view| {
        Ok(match find(view, session, &Origin::of_this_process())? {
            Found::Session(row) => Resumable {
                runs: view.live_runs_in(row.n)?,
                session: Some(row.n),
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
                session: None,
                runs: Vec::new(),
            },
        })
    })
}
