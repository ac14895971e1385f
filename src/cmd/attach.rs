//! `codemie attach SESSION`: this terminal shows a background session and types into it.

use std::io::Write;
use std::process::ExitCode;

use super::Failure;
use crate::cli::Attach;
use format::shell;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::find;
use report::find::{LiveTarget, where_it_runs};
use report::open::OpenStore;
use runtime::launch::{Origin, lineage, named_run, settings};
use runtime::remote::attach::{NotAttached, Outcome, attach, request};
use runtime::remote::protocol::{Ended, ToHost};
use runtime::remote::{Connection, RemoteError, address};
use store::{BootAndPidNs, RunRow, Store, View};

pub fn run(args: &Attach, home: &Home, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    attach_to(&args.session, args.read_only, home, err).map(ExitCode::from)
}

/// Returns the exit code: the agent's own where it has ended.
pub fn attach_to(session: &str, read_only: bool, home: &Home, err: &mut dyn Write) -> anyhow::Result<u8> {
    let origin = Origin::of_this_process();
    let target = look_up(session, home, &origin)?;
    let name = shell::word(&target.session.name).into_owned();
    if target.redirected_from.is_some() {
        writeln!(err, "codemie: {session} has gone on as {name}")?;
    }
    if target.run.as_ref().is_some_and(|run| is_inside(run, &origin)) {
        return Err(refused(format!("this is {name} itself; attach to it from another terminal")));
    }
    let chord = settings(Some(home), &origin).detach_keys;
    if !pty::on_terminal() {
        return Err(refused(format!(
            "attach needs a terminal on standard input and output, in the foreground; `codemie view {name}` prints the conversation"
        )));
    }
    let request = request(read_only)?;
    let connection = connect(&target, home, &name, &ToHost::Attach(request))?;
    let outcome = attach(connection, request, chord).map_err(|error| match error {
        NotAttached::Remote(error) => refused(format!("{name}: {error}")),
        error => refused(error.to_string()),
    })?;
    report(outcome, &name, err)
}

/// Whether this process runs inside of the run. Somebody waits for the screen: without a variable of a run's in our environment
/// the processes above are not looked at.
fn is_inside(run: &RunRow, origin: &Origin) -> bool {
    named_run(origin).is_some()
        && lineage(origin).enclosing(std::slice::from_ref(run), &BootAndPidNs::here()).is_some()
}

/// The store is asked for the session as it is, without settings and log: somebody waits for the screen. Only where no host is
/// found it is brought up to date first, for what it says of a session whose host was killed.
fn look_up(session: &str, home: &Home, origin: &Origin) -> anyhow::Result<LiveTarget> {
    let target = |view: &View<'_>| -> anyhow::Result<LiveTarget> {
        Ok(LiveTarget::of(view, home, find::session(view, session, origin)?)?)
    };
    let hosted = |target: &LiveTarget| target.run.as_ref().is_some_and(|run| address::exists(home, run.id));
    let as_it_is = home.may_have_database().then(|| Store::open(home, SystemClock.now()));
    if let Some(Ok(mut store)) = as_it_is
        && let Ok(found) = store.read(target)
        && hosted(&found)
    {
        return Ok(found);
    }
    let mut store = OpenStore::open(home, origin)?;
    store.catch_up();
    store.read(target)
}

fn connect(target: &LiveTarget, home: &Home, name: &str, request: &ToHost) -> anyhow::Result<Connection> {
    let Some(run) = &target.run else {
        return Err(refused(format!("{name} has ended; `codemie resume {name}` goes on with it")));
    };
    Connection::open_saying(home, run.id, request).map_err(|error| match error {
        RemoteError::NoHost => refused(format!(
            "{name} runs {}; go there: only sessions of `codemie run --detach` can be attached to",
            where_it_runs(run)
        )),
        error => refused(format!("{name}: {error}")),
    })
}

fn refused(message: String) -> anyhow::Error {
    Failure { code: 1, message }.into()
}

fn report(outcome: Outcome, name: &str, err: &mut dyn Write) -> anyhow::Result<u8> {
    match outcome {
        Outcome::Detached => {
            writeln!(err, "[detached from {name}; codemie attach {name} comes back]")?;
            Ok(0)
        }
        Outcome::Ended(Ended { code, name: now }) => {
            let name = if now.is_empty() { name.into() } else { shell::word(&now) };
            writeln!(err, "[{name} ended with exit code {code}]")?;
            Ok(code)
        }
        Outcome::HostGone(RemoteError::Refused(message)) => Err(refused(format!("{name}: {message}"))),
        Outcome::HostGone(error) => {
            Err(refused(format!("{error}; `codemie show {name}` says what has become of {name}")))
        }
        Outcome::Signal(signal) => {
            // Without a line: the terminal may be gone, or take nothing and hold us back.
            pty::die_of(signal);
            Ok(1)
        }
        Outcome::TerminalGone => Ok(1),
    }
}
