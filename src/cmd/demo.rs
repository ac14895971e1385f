//! `codemie demo`: the scripted agent, wrapped as any other, what was recorded of it, and a backend that has received it.

mod backend;

use std::io::Write;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Context;

use super::browser;
use crate::cli;
use crate::demo::{self, report};
use crate::failure::format_error;
use ::report::open::open;
use agents::demo::Demo;
use agents::registry;
use agents::{Agent, Observe};
use format::output::Style;
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use pty::ProgramSpec;
use runtime::launch::{self, Origin, RunResult, SESSION_VARIABLE, lineage, note, wrap};
use runtime::shim::files::{DiskFiles, OwnBinary};
use runtime::shim::install::{ShimState, Shims};
use runtime::track::Plan;
use store::session::lifecycle::ConversationStart;
use store::session::record::record;
use store::{self, EnvSnapshot, Store, View};
use types::SessionRecord;
use types::{AgentSessionId, Ids, RandomIds, SessionId};

/// The commands to try next; to wrap the agents only if they are not wrapped yet.
fn next(wrapped: bool) -> String {
    let wrap = ("codemie shim install", &*format!("wrap {}", registry::names().join(", ")));
    let others = [
        ("codemie usage --scan", "what every conversation on this machine cost"),
        ("codemie dashboard", "all of it in the browser"),
        ("codemie list", "see all sessions"),
        ("codemie prune --agent demo", "forget the demonstration's"),
    ];
    let steps = (!wrapped).then_some(wrap).into_iter().chain(others);
    let lines: Vec<String> = steps.map(|(command, what)| format!("  {command:27}  {what}\n")).collect();
    format!("\nThe agent was a script; everything else was real. Next:\n{}", lines.concat())
}

/// Whether the shims of all agents are there and lead here.
fn is_wrapped(home: &Home) -> bool {
    let Some(binary) = OwnBinary::of_this_process(&DiskFiles).canonical else { return false };
    let shims = Shims::new(home.shims(), binary);
    registry::AGENTS.iter().all(|agent| matches!(shims.state(agent.name()), Ok(ShimState::Current)))
}

pub fn run(
    args: &cli::Demo,
    home: &Home,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if let Some(session) = args.in_own_terminal {
        demo::take_terminal().context("cannot take the terminal")?;
        return perform(home, session, true).map(ExitCode::from);
    }
    // Checked before anything is played: a demonstration that records nothing shows nothing.
    writable(home)?;
    let session = RandomIds.session();
    let code = if !args.quiet && presentable() { perform(home, session, false)? } else { unseen(session)? };
    let chain = recorded(home, session)?;
    anyhow::ensure!(!chain.is_empty(), "nothing was recorded; `codemie doctor` may show why");
    write!(out, "{}", report::report(&chain, Style::of_stdout()))?;
    // With --quiet there is nothing to look at, unless --open asks for it.
    if code == 0 && (args.open || !args.quiet) {
        match deliver(home, &chain) {
            Ok((events, entrance)) => {
                if !args.quiet {
                    write!(out, "{}", received(events, &entrance))?;
                }
                if args.open && !browser::show(&entrance, home, own_var) {
                    let address = if args.quiet { &entrance } else { "use the address" };
                    writeln!(err, "codemie: no browser to open: {address}")?;
                }
            }
            Err(error) => {
                writeln!(
                    err,
                    "codemie: the demonstration's own backend is missing: {}",
                    format_error(&error)
                )?;
            }
        }
    }
    if !args.quiet && code == 0 {
        write!(out, "{}", next(is_wrapped(home)))?;
    }
    Ok(ExitCode::from(code))
}

fn received(events: usize, entrance: &str) -> String {
    let events = format::grouped(events as u64);
    format!(
        "\nA backend of the demonstration's own has received all {events} events. Its dashboard:\n  {entrance}\n\
         The address lets one browser in, once, within ten minutes.\n"
    )
}

/// `codemie demo-backend`: the backend of a demonstration, in a detached process.
pub fn serve(args: &cli::DemoBackend, home: &Home) -> anyhow::Result<ExitCode> {
    backend::serve(home, &args.nonce).map(|()| ExitCode::SUCCESS)
}

/// How many events arrived, and the dashboard's address.
fn deliver(home: &Home, chain: &[SessionRecord]) -> anyhow::Result<(usize, String)> {
    let embedded = backend::start(home)?;
    let events = backend::send_events(home, &embedded, chain)?;
    Ok((events, embedded.entrance))
}

/// `codemie demo-agent`: the scripted agent itself.
pub fn act(args: &cli::DemoAgent, home: &Home) -> anyhow::Result<ExitCode> {
    let watched_as = std::env::var(SESSION_VARIABLE).ok();
    let record = watched_as.map(|id| home.published_sessions().join(format!("{id}.json")));
    demo::play(home, AgentSessionId(args.session_id.clone()), record, args.swift)
}

/// Whether there is somebody to watch, on a terminal that can be drawn on.
fn presentable() -> bool {
    let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    able && pty::on_terminal()
}

fn writable(home: &Home) -> anyhow::Result<()> {
    let folder = home.path().display();
    demo::workshop(home).with_context(|| {
        format!("cannot write to {folder}; set CODEMIE_HOME to a folder you can write to")
    })?;
    let opened = Store::open(home, SystemClock.now());
    opened.map(drop).with_context(|| format!("cannot record anything in {folder}; see `codemie doctor`"))
}

/// Runs the scripted agent on the terminal we are on; its exit code.
fn perform(home: &Home, session: SessionId, swift: bool) -> anyhow::Result<u8> {
    let folder = demo::workshop(home).context("cannot make the demonstration's folder")?;
    std::env::set_current_dir(&folder).context("cannot enter the demonstration's folder")?;
    let program = std::env::current_exe().context("cannot find codemie's own binary")?;
    let assigned = AgentSessionId(RandomIds.uuid().to_string());
    let mut given = vec!["demo-agent".into(), "--session-id".into(), assigned.to_string().into()];
    given.extend(swift.then(|| "--swift".into()));
    let launch = ProgramSpec {
        program: program.into_os_string(),
        arg0: "codemie".into(),
        args: given,
        set: Vec::new(),
        remove: Vec::new(),
    };
    let origin = Origin::of_this_process();
    let config = launch::settings(Some(home), &origin);
    let now = SystemClock.now();
    let plan = Plan {
        summary: false,
        home: home.clone(),
        begun_at: now,
        run: RandomIds.run(),
        session,
        local_only: true,
        proxied: false,
        agent: Demo.name().to_owned(),
        observer: Demo.observer(&|name| origin.var(name), &folder),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        binary: None,
        conversation: ConversationStart::Fresh,
        prompted: false,
        notes: vec![note(now, "arguments", format!("added: --session-id {assigned}"))],
        assigned: Some(assigned),
        folder,
        surroundings: EnvSnapshot::default(),
        name: None,
        tags: Vec::new(),
        group: None,
        lineage: lineage(&origin),
        log_level: Some(config.log_level),
        sinks: None,
        sinks_now: |_| None,
        on_news: None,
        notifier: runtime::track::notify::Notifier::default(),
    };
    let (RunResult { code, message, .. }, summary) = wrap(launch, Some(plan), None, &origin);
    match message.or(summary.problem) {
        None => Ok(code),
        Some(problem) => anyhow::bail!("{}", problem.trim_start_matches("codemie: ")),
    }
}

/// The same on a terminal of our own that nobody sees: a second codemie is the wrapper there.
fn unseen(session: SessionId) -> anyhow::Result<u8> {
    let program = std::env::current_exe().context("cannot find codemie's own binary")?;
    let mut command = Command::new(program);
    command.args(["demo", "--in-own-terminal", &session.to_string()]);
    let status = demo::in_outer_terminal(&mut command).context("cannot open a terminal to play on")?;
    Ok(code(status))
}

/// As a shell reports it.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The records of the run's sessions: the first one, and those that followed it by a transition.
fn recorded(home: &Home, first: SessionId) -> anyhow::Result<Vec<SessionRecord>> {
    let mut store = open(home)?;
    let now = SystemClock.now();
    let chain = store.read(|view: &View<'_>| {
        let (mut chain, mut next) = (Vec::new(), Some(first));
        while let Some(row) = next.map(|id| view.session(id)).transpose()?.flatten() {
            chain.push(record(view, &row, now)?);
            next = row.transitioned_to;
        }
        Ok::<_, store::Error>(chain)
    })?;
    Ok(chain)
}
