//! `codemie resume SESSION`: go on in the same conversation of the agent, in its own folder.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::Failure;
use super::find::find;
use super::run::{self, Outcome};
use crate::agent::Agent;
use crate::cli::{OnConflict, Resume, RunOptions, Target};
use crate::home::Home;
use crate::registry;
use crate::session::lookup::Found;
use crate::store::{RunRow, Store};
use system::clock::{Clock, SystemClock};
use terminal::process::{Processes, SystemProcesses};
use wire::AgentSessionId;
use wire::ProcessId;

use crate::track;

/// How long a run that is taken over has to end: the wrapper's own grace for the agent, and a little.
const TAKEOVER: Duration = Duration::from_secs(12);
const TAKEOVER_LOOK: Duration = Duration::from_millis(20);

/// What is gone on with.
struct Wanted {
    name: String,
    agent: String,
    conversation: Option<AgentSessionId>,
    folder: Option<PathBuf>,
    /// The wrappers it runs in now.
    wrappers: Vec<ProcessId>,
}

pub fn resume(args: &Resume, home: &Home) -> anyhow::Result<Outcome> {
    let wanted = look_up(&args.session, home)?;
    let agent = registry::by_name(&wanted.agent).with_context(|| {
        format!("{} was no agent but {}; there is nothing to go on with", wanted.name, wanted.agent)
    })?;
    let conversation = wanted.conversation.with_context(|| {
        format!(
            "{} never showed which conversation of {} it is; there is nothing to go on with",
            wanted.name, wanted.agent
        )
    })?;
    if !conversation.is_plain() {
        bail!(
            "{} is called {:?} by {}, which is no id to go on with",
            wanted.name,
            conversation.0,
            wanted.agent
        );
    }
    let fork = resolve_conflict(args.on_conflict, &wanted.name, &wanted.wrappers)?;
    let mut line = agent
        .resume(&conversation, fork)
        .with_context(|| format!("codemie does not know how {} goes on with a conversation", wanted.agent))?;
    line.extend(args.args.iter().cloned());
    if let Some(folder) = wanted.folder {
        std::env::set_current_dir(&folder).with_context(|| {
            format!(
                "its folder {} cannot be entered; make it again or move the conversation",
                folder.display()
            )
        })?;
    }
    Ok(go_on(agent, line))
}

fn go_on(agent: &'static dyn Agent, line: Vec<OsString>) -> Outcome {
    run::run(&RunOptions::default(), &Target::Agent(agent), line)
}

/// The store is closed again before anything is started: no connection may live through a fork.
fn look_up(session: &str, home: &Home) -> anyhow::Result<Wanted> {
    let mut store = Store::open(home, SystemClock.now())?;
    track::recover(&mut store, home)?;
    store.read(|view| {
        Ok(match find(view, session)? {
            Found::Session(row) => Wanted {
                wrappers: view.live_runs_in(row.n)?.into_iter().map(|run: RunRow| run.wrapper).collect(),
                name: row.name,
                agent: row.agent,
                conversation: row.agent_session,
                folder: Some(row.place.cwd),
            },
            Found::Foreign(foreign) => Wanted {
                name: foreign.agent_session.to_string(),
                agent: foreign.agent,
                conversation: Some(foreign.agent_session),
                folder: foreign.cwd,
                wrappers: Vec::new(),
            },
        })
    })
}

/// Whether to go on in a copy. A session that runs is left alone unless the user says what to do about it.
fn resolve_conflict(on_conflict: OnConflict, name: &str, wrappers: &[ProcessId]) -> anyhow::Result<bool> {
    let running: Vec<ProcessId> =
        wrappers.iter().copied().filter(|wrapper| SystemProcesses.alive(*wrapper)).collect();
    let Some(first) = running.first() else { return Ok(false) };
    match on_conflict {
        OnConflict::Fail => Err(Failure {
            code: 1,
            message: format!(
                "{name} is running (pid {}); end it first, or use --on-conflict takeover or --on-conflict fork",
                first.pid
            ),
        }
        .into()),
        OnConflict::Attach => Err(Failure {
            code: 1,
            message: format!(
                "{name} runs in a terminal of its own (pid {}), which cannot be connected to; go there, or use --on-conflict takeover or fork",
                first.pid
            ),
        }
        .into()),
        OnConflict::Fork => Ok(true),
        OnConflict::Takeover => {
            for wrapper in running {
                take_over(wrapper, name)?;
            }
            Ok(false)
        }
    }
}

/// Asks a run to end and waits until it has.
fn take_over(wrapper: ProcessId, name: &str) -> anyhow::Result<()> {
    terminal::ask_to_end(wrapper.pid);
    let deadline = Instant::now() + TAKEOVER;
    while SystemProcesses.alive(wrapper) {
        if Instant::now() >= deadline {
            bail!("{name} did not end (pid {}); end it by hand and try again", wrapper.pid);
        }
        std::thread::sleep(TAKEOVER_LOOK);
    }
    Ok(())
}
