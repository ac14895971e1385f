//! `codemie resume [SESSION]`: continue the same conversation of the agent, in its own folder. Without SESSION a list to choose
//! from.

mod picker;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use super::{Failure, attach, no_such_session, run, show};
use crate::cli::{Resume, RunOptions, Show};
use crate::failure::shown;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use picker::Picked;
use pty::process::{Processes, SystemProcesses};
use report::find::find;
use report::open::open;
use runtime::launch::conflict::{self, Conflict, Decision, NotClaimed, OnConflict};
use runtime::launch::resume::{Resumable, arguments, is_inside, take_over};
use runtime::launch::{LaunchTarget, Origin, RunResult};
use runtime::track;
use store::session::lookup::Found;
use store::{SessionQuery, Store};
use types::{Pid, ProcessId};

pub fn run(args: &Resume, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut agent_args = args.args.clone();
    let session = match &args.session {
        _ if args.last => {
            // What comes after --last and is no option of ours is the agent's.
            agent_args.splice(0..0, args.session.iter().map(OsString::from));
            last_used(home)?
        }
        Some(session) => session.clone(),
        None => match picker::pick(home)? {
            Picked::Resume(session) => session,
            Picked::Show(session) => return show::run(&Show { session, json: false }, home, out),
            Picked::Nothing => return Ok(ExitCode::SUCCESS),
            Picked::End(signal) => {
                pty::die_of(signal);
                return Ok(ExitCode::FAILURE);
            }
        },
    };
    let result = resume(&session, args, &agent_args, home)?;
    if let Some(output) = result.output {
        writeln!(out, "{output}")?;
    }
    if let Some(message) = result.message {
        write!(err, "{}", shown(&message))?;
    }
    result.signal.into_iter().for_each(pty::die_of);
    Ok(ExitCode::from(result.code))
}

/// The session with a conversation that was used last in this folder's project.
fn last_used(home: &Home) -> anyhow::Result<String> {
    let here = picker::here();
    let mut store = open(home)?;
    let rows = store.read(|view| view.listed(&SessionQuery::default(), usize::MAX))?;
    let last = rows.into_iter().find(|row| {
        picker::is_resumable(row)
            && row.cwd.as_deref().is_some_and(|folder| Path::new(folder).starts_with(&here))
    });
    last.map(|row| row.id).ok_or_else(|| {
        let folder = here.display();
        no_such_session(format!(
            "no session was in {folder} yet; `codemie resume` shows those of other folders"
        ))
    })
}

fn resume(session: &str, args: &Resume, agent_args: &[OsString], home: &Home) -> anyhow::Result<RunResult> {
    let mut wanted = look_up(session, home)?;
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
    let line = arguments(agent, &conversation, decision == Decision::Fork, agent_args)?;
    match decision {
        Decision::Continue | Decision::Fork => {}
        Decision::TakeOver(holders) => take_over(&mut wanted, &holders, home, &var)?,
        Decision::Attach(_) => {
            let code = attach::attach_to(session, false, home, &mut io::stderr())?;
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
    let options = RunOptions {
        detach: args.detach,
        json: args.json,
        through_mcp: args.through_mcp,
        proxy: args.proxy,
        ..RunOptions::default()
    };
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
    conflict::sweep(home, &SystemProcesses);
    match conflict::claim(home, &wanted.agent, conversation, own, &SystemProcesses, |other| {
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
            Found::Unwrapped(foreign) => Resumable {
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
