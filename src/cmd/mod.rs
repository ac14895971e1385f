//! The commands: parse result in, library calls, output.
//!
//! The way of a question such as `codemie show NAME`: `main` wraps standard output and error so that no text steers the terminal,
//! [`manage`] calls the command's file, `report::open` opens the store and ends sessions whose wrapper vanished, `report::find` finds
//! the session, `report` answers with typed values from one look at the store, and the command draws them with `format`, or prints
//! JSON.

mod answer;
mod attach;
mod backend;
mod browser;
mod budget;
mod completions;
mod config;
mod current;
mod damage;
mod dashboard;
mod demo;
mod doctor;
mod exchange;
mod explain;
#[cfg(test)]
pub(crate) mod hostile;
mod labels;
mod limits;
mod list;
mod mcp;
mod prices;
mod proxy;
mod prune;
mod resume;
pub mod run;
mod scanner;
mod search;
mod send;
mod session_text;
mod shim;
mod show;
pub mod statusline;
mod stop;
mod sync;
mod top;
mod usage;
mod view;
mod wait;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::Command;
use crate::failure::shown;
use agents::registry;
use os::home::Home;
use report::find::FindError;

/// The exit code of a command line that cannot be obeyed.
const USAGE: u8 = 2;

/// An error with an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Failure {
    code: u8,
    message: String,
}

const NO_SUCH_SESSION: u8 = 3;
const AMBIGUOUS: u8 = 4;
/// Neither success nor failure: a wait whose time is up, a text of which nothing is proved.
const NOT_KNOWN_YET: u8 = 5;

fn no_such_session(message: String) -> anyhow::Error {
    Failure { code: NO_SUCH_SESSION, message }.into()
}

/// The exit code of an error that has one of its own.
fn exit_code(error: &anyhow::Error) -> Option<u8> {
    match error.downcast_ref::<FindError>() {
        Some(FindError::Unknown { .. } | FindError::Unwrapped(_)) => Some(NO_SUCH_SESSION),
        Some(FindError::Several(_)) => Some(AMBIGUOUS),
        Some(FindError::Store(_)) => None,
        None => error.downcast_ref::<Failure>().map(|failure| failure.code),
    }
}

/// Carries out a management command: everything that starts no agent.
pub fn manage(
    command: &Command,
    home: Option<Home>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let same_home = home.clone();
    let result = carry_out(command, home, out, err);
    if let Some(message) =
        same_home.filter(|_| about_sessions(command)).and_then(|home| damage::unreported(&home))
    {
        write!(err, "{}", shown(&format!("codemie: {message}")))?;
    }
    match result {
        Err(error) => match exit_code(&error) {
            Some(code) => {
                write!(err, "{}", shown(&format!("codemie: {error}")))?;
                Ok(ExitCode::from(code))
            }
            None => Err(error),
        },
        done => done,
    }
}

/// Commands by which a person asks about sessions; shells and other programs must not find a remark in their output.
fn about_sessions(command: &Command) -> bool {
    !matches!(
        command,
        Command::Doctor(_)
            | Command::Complete(_)
            | Command::Completions(_)
            | Command::Config(_)
            | Command::Deliver
            | Command::ImportFound(_)
            | Command::Proxy(_)
            | Command::ProxyKeeper
            | Command::ProxyWorker
            | Command::DemoAgent(_)
            | Command::DemoBackend(_)
            | Command::Backend(_)
            | Command::Init(_)
            | Command::Mcp(_)
            | Command::Shim(_)
            | Command::Statusline(_)
            | Command::CommitNote
    )
}

fn carry_out(
    command: &Command,
    home: Option<Home>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let agents = registry::names();
    // The doctor's work begins where there is no home.
    if let Command::Doctor(args) = command {
        return doctor::run(args, home, agents, out);
    }
    if let Command::Statusline(args) = command {
        return statusline::run(args, home.as_ref(), out);
    }
    let home = home.context("there is no home folder: set HOME or CODEMIE_HOME")?;
    match command {
        Command::Resume(args) => resume::run(args, &home, out, err),
        Command::Attach(args) => attach::run(args, &home, err),
        Command::Stop(args) => stop::run(args, &home, out, err),
        Command::List(args) => list::run(args, &home, out),
        Command::Top => top::run(&home),
        Command::Search(args) => search::run(args, &home, out, err),
        Command::Show(args) => show::run(args, &home, out),
        Command::View(args) => view::run(args, &home, out, err),
        Command::Send(args) => send::run(args, &home, out, err),
        Command::Answer(args) => answer::run(args, &home, out, err),
        Command::Wait(args) => wait::run(args, &home, out, err),
        Command::Explain(args) => explain::run(args, &home, out),
        Command::Current(args) => current::run(args, &home, out),
        Command::Rename(args) => labels::rename(args, &home, out),
        Command::Tag(args) => labels::tag(args, &home, out),
        Command::Untag(args) => labels::untag(args, &home, out),
        Command::Group(args) => labels::group(args, &home, out),
        Command::Archive(args) => labels::archive(args, true, &home, out),
        Command::Unarchive(args) => labels::archive(args, false, &home, out),
        Command::Prune(args) => prune::run(args, &home, out),
        Command::Export(args) => exchange::export(args, &home, out, err),
        Command::Import(args) => exchange::import(args, &home, out, err),
        Command::Usage(args) => usage::run(args, &home, out, err),
        Command::CommitNote => current::commit_note(&home, out),
        Command::Budget(args) => budget::run(args, &home, out),
        Command::Prices(args) => prices::run(args, &home, out),
        Command::Limits(args) => limits::run(args, &home, out),
        Command::Backend(args) => backend::run(args, &home, out, err),
        Command::Sync(args) => sync::run(args, &home, out, err),
        Command::Complete(args) => completions::words(args, &home, agents, out),
        Command::Deliver => sync::deliver(&home),
        Command::ImportFound(args) => exchange::import_found(args, &home),
        Command::Proxy(args) => proxy::run(args, &home, out),
        Command::ProxyKeeper => proxy::keep(),
        Command::ProxyWorker => proxy::work(),
        Command::Shim(args) => shim::run(args, &home, agents, out),
        Command::Init(args) => shim::init(args, &home, agents, out),
        Command::Dashboard(args) => dashboard::run(args, &home, out),
        Command::Mcp(args) => mcp::run(args, &home),
        Command::Config(args) => config::run(args, &home, agents, out, err),
        Command::Completions(args) => completions::run(args, out),
        Command::Demo(args) => demo::run(args, &home, out, err),
        Command::DemoBackend(args) => demo::serve(args, &home),
        Command::DemoAgent(args) => demo::act(args, &home),
        Command::Doctor(_) | Command::Statusline(_) | Command::Help(_) | Command::Run(_) => {
            anyhow::bail!("not a management command")
        }
    }
}
