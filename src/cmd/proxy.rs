//! `codemie proxy`: the proxy on its own, and the processes of a run's proxy.

use std::io::Write;
use std::net::TcpListener;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Proxy, ProxyAction, ProxyServe};
use format::output::screen::Unread;
use format::output::table::{Cell, Column, Table};
use format::output::{Style, json};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pty::process::{Processes, SystemProcesses};
use runtime::launch::{Origin, settings};
use runtime::proxy::listeners::{self, Listener};
use runtime::proxy::{keeper, standalone, worker};
use store::Store;
use types::{Pid, RandomIds};

/// Standard output is the listener here, so nothing may be printed.
pub(super) fn keep() -> anyhow::Result<ExitCode> {
    keeper::run()?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn work() -> anyhow::Result<ExitCode> {
    worker::run()?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run(args: &Proxy, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match &args.action {
        ProxyAction::Serve(args) => serve(args, home, out),
        ProxyAction::Status { json } => status(*json, home, out),
    }
}

fn serve(args: &ProxyServe, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    home.create().with_context(|| format!("cannot make {}", home.path().display()))?;
    let config = settings(Some(home), &Origin::of_this_process());
    let token = standalone::token(home, &RandomIds).context("the proxy's token cannot be read or made")?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}; choose another with --listen", args.listen))?;
    let port = listener.local_addr()?.port();
    let settings = standalone::settings(home, &config, token.text.clone(), port, &args.upstream)
        .map_err(|why| anyhow::anyhow!(why))?;
    let _ = os::log::start(home, settings.log_level.as_deref());
    let own = SystemProcesses.identify(Pid(std::process::id().cast_signed()));
    let _note = own.and_then(|own| listeners::note(&settings, own, SystemClock.now()).ok());
    let runtime = worker::runtime()?;
    // Asked for before anybody knows the address: a signal right after must find us ready.
    let over = {
        let _within = runtime.enter();
        ended()?
    };
    announce(&token, &settings.address(), port, &mut Unread(out))?;
    worker::serve(runtime, listener, &settings, over)?;
    Ok(ExitCode::SUCCESS)
}

/// The lines to set. The token is printed when it is made, and stands in its file from then on.
fn announce(token: &standalone::Token, address: &str, port: u16, out: &mut dyn Write) -> anyhow::Result<()> {
    let hidden = format!("http://127.0.0.1:{port}/TOKEN");
    let address = if token.is_new { address } else { &hidden };
    for (_, api) in standalone::apis() {
        writeln!(out, "{}={address}/{}", api.variable, api.name)?;
    }
    if token.is_new {
        writeln!(out, "The token in these lines is shown once; it is kept in {}", token.file.display())?;
    } else {
        writeln!(out, "TOKEN stands in {}", token.file.display())?;
    }
    out.flush()?;
    Ok(())
}

fn ended() -> anyhow::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn status(as_json: bool, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let listeners = listeners::living(home, &SystemProcesses);
    if as_json {
        let shown: Vec<_> = listeners
            .iter()
            .map(|listener| {
                json!({"port": listener.port, "pid": listener.keeper_pid, "runId": listener.run,
                    "since": listener.since, "routes": listener.routes})
            })
            .collect();
        out.write_all(json::pretty(&shown)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if listeners.is_empty() {
        writeln!(out, "no proxy listens; `codemie --proxy AGENT` starts one beside the agent")?;
        return Ok(ExitCode::SUCCESS);
    }
    out.write_all(table(&listeners, home).render(Style::of_stdout()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(listeners: &[Listener], home: &Home) -> Table {
    let (now, zone) = (SystemClock.now(), os::zone::local());
    let mut store = if home.may_have_database() { Store::open(home, now).ok() } else { None };
    let mut session_of = |listener: &Listener| {
        let run = listener.run?;
        let name = store.as_mut()?.read(|view| {
            let session = view.run(run)?.and_then(|run| run.session);
            Ok::<_, store::Error>(session.map(|n| view.session_number(n)).transpose()?.flatten())
        });
        name.ok().flatten().map(|session| session.name)
    };
    let mut table = Table::new([
        Column::text("PORT", usize::MAX),
        Column::text("API", 8),
        Column::text("GOES TO", 8),
        Column::text("SESSION", 8),
        Column::text("SINCE", usize::MAX),
    ]);
    for listener in listeners {
        let session = session_of(listener).unwrap_or_else(|| "-".to_owned());
        for route in &listener.routes {
            let name = if route.name.is_empty() { &route.agent } else { &route.name };
            table.row([
                Cell::from(listener.port.to_string()),
                Cell::from(&**name),
                Cell::from(&*route.upstream),
                Cell::from(session.clone()),
                Cell::from(format::moment(listener.since, now, &zone)),
            ]);
        }
    }
    table
}
