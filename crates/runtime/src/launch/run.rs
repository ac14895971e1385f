//! Starting what was prepared and staying beside it until its end.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use super::injection::RESTARTED_VARIABLE;
use super::{Origin, RUN_VARIABLE, SESSION_VARIABLE, note};
use crate::proxy::{Companion, CompanionThread};
use crate::shim;
use crate::track::{Plan, Summary, Tracker};
use os::clock::{Clock, SystemClock};
use pty::{Observer, ProgramEnd, ProgramExit, ProgramSpec, ProgramStarted, Tap};

/// How long the shell waits for the END to be stored. A commit takes a millisecond; this bounds a database that somebody
/// else keeps locked.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// What the system reports of a program that it cannot execute, where it reports nothing more precise.
const CANNOT_EXECUTE: u8 = 126;

/// How a run went: the exit code, and what to print on standard error now that the terminal is the user's again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RunResult {
    pub code: u8,
    /// The program died of this signal, and so must we.
    pub signal: Option<i32>,
    pub message: Option<String>,
    /// A line for standard output.
    pub output: Option<String>,
}

impl RunResult {
    pub fn failed(code: u8, message: String) -> Self {
        Self { code, message: Some(message), ..Self::default() }
    }

    /// A further line of the message.
    pub fn add_line(&mut self, line: String) {
        self.message = Some(match self.message.take() {
            Some(message) => format!("{message}\n{line}"),
            None => line,
        });
    }
}

/// Puts the program in our place. Returns only if that fails.
pub fn execute(mut launch: ProgramSpec, origin: &Origin) -> RunResult {
    origin.complete(&mut launch);
    let error = origin.enter().err().unwrap_or_else(|| pty::exec(&launch));
    cannot_run(&launch, error.raw_os_error().unwrap_or(0), origin)
}

/// The same command line once more, without an id for the agent's session. Returns only if that fails.
pub fn restart_without_id(command_line: Vec<OsString>) {
    let mut args = command_line.into_iter();
    let (Some(arg0), Ok(program)) = (args.next(), std::env::current_exe()) else { return };
    let error = pty::exec(&ProgramSpec {
        program: program.into_os_string(),
        arg0,
        args: args.collect(),
        set: vec![(RESTARTED_VARIABLE.into(), "1".into())],
        remove: Vec::new(),
    });
    tracing::error!("the agent was not started again: {error}");
}

/// Runs a program to its end on the user's terminal, followed by a tracker where there is a plan.
pub fn wrap(
    launch: ProgramSpec,
    plan: Option<Plan>,
    companion: Option<Companion>,
    origin: &Origin,
) -> (RunResult, Summary) {
    wrap_on(launch, plan, companion, origin, pty::run)
}

/// The same by another way of running it: a background host has a front end of its own.
pub fn wrap_on(
    mut launch: ProgramSpec,
    mut plan: Option<Plan>,
    companion: Option<Companion>,
    origin: &Origin,
    run: impl FnOnce(&ProgramSpec, &mut dyn Observer) -> io::Result<ProgramEnd>,
) -> (RunResult, Summary) {
    if let Some(plan) = &mut plan {
        let added = format!("added: {SESSION_VARIABLE} {RUN_VARIABLE}");
        plan.notes.push(note(plan.begun_at, "environment", added));
        launch.set.push((SESSION_VARIABLE.into(), plan.session.to_string().into()));
        launch.set.push((RUN_VARIABLE.into(), plan.run.to_string().into()));
    }
    origin.complete(&mut launch);
    let home = plan.as_ref().map(|plan| plan.home.clone());
    let mut observer = TrackerStarter { plan, tracker: None, companion, beside: None };
    let ended = origin.enter().and_then(|()| run(&launch, &mut observer));
    let ended_at = SystemClock.now();
    let (result, ended) = match ended {
        // A program that never ran was no session.
        Ok(ProgramEnd { exit: ProgramExit::NotStarted(errno), .. }) => {
            return (cannot_run(&launch, errno, origin), Summary::default());
        }
        Ok(ended) => {
            let (code, signal) = (ended.exit.code(), ended.exit.signal());
            (RunResult { code, signal, ..RunResult::default() }, ended)
        }
        Err(error) => {
            let message = format!("codemie: cannot start {}: {error}", launch.program.display());
            return (RunResult::failed(CANNOT_EXECUTE, message), Summary::default());
        }
    };
    let finish = |tracker: Tracker| tracker.finish(ended, ended_at, END_TIMEOUT);
    let mut summary = observer.tracker.map_or_else(Summary::default, finish);
    let proxy_problem = observer.beside.and_then(|companion| companion.problem());
    summary.problem = summary.problem.into_iter().chain(proxy_problem).reduce(|a, b| format!("{a}; {b}"));
    if let (Some(sender), Some(home)) = (summary.sender.take(), home)
        && sender.finish()
    {
        delivery::spawn_delivery(&home);
    }
    (result, summary)
}

/// Starts the tracker and the proxy while the program starts, and has the tracker begin once the program runs.
struct TrackerStarter {
    plan: Option<Plan>,
    tracker: Option<Tracker>,
    companion: Option<Companion>,
    beside: Option<CompanionThread>,
}

impl Observer for TrackerStarter {
    fn forked(&mut self) -> Option<Tap> {
        if let Some(plan) = self.plan.take() {
            self.tracker = Some(Tracker::prepare(plan));
        }
        self.beside = self.companion.take().map(Companion::start);
        self.tracker.as_ref().map(Tracker::tap)
    }

    fn started(&mut self, program: ProgramStarted) {
        if let Some(tracker) = &self.tracker {
            tracker.begin(program.pid);
        }
    }
}

fn cannot_run(launch: &ProgramSpec, errno: i32, origin: &Origin) -> RunResult {
    let name = launch.program.to_string_lossy();
    let sought = !pty::is_path(&launch.program);
    // execvp reports EACCES for a folder on PATH that may not be searched. To a shell, and so here, such a folder is empty.
    let on_path = || shim::is_on_path(&name, &|name| origin.var(name), origin.other_folder());
    let unseen = errno == libc::EACCES && sought && !on_path();
    let errno = if unseen { libc::ENOENT } else { errno };
    let why = if errno == libc::ENOENT && sought {
        "command not found".to_owned()
    } else {
        io::Error::from_raw_os_error(errno).to_string()
    };
    RunResult::failed(ProgramExit::NotStarted(errno).code(), format!("codemie: {name}: {why}"))
}
