//! `codemie claude …`, `codemie run -- …`, and a shim called by the agent's name: run it, wrapped, and report in the end.

mod closing;

use std::ffi::OsString;

use serde::Serialize;

use super::damage;
use crate::cli::RunOptions;
use closing::Added;
use config::{Config, HostConfig};
use delivery::Sinks;
use format::output::Style;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use runtime::host;
use runtime::launch::{
    self, AssignedId, Labels, LaunchRequest, LaunchTarget, Origin, Prepared, RunResult, SystemBinaries, World,
};
use runtime::live::events::Cursor;
use runtime::remote::protocol::Size;
use store::Store;
use types::{RandomIds, SessionId};

/// A usage error before an agent started.
const USAGE: u8 = 125;

/// Printed in the end where there is nowhere to record anything.
const NO_HOME: &str = "this session is not recorded: set HOME or CODEMIE_HOME";

pub fn run(options: &RunOptions, target: LaunchTarget, args: Vec<OsString>) -> RunResult {
    // Read now: once the program runs, the process shows the program's own command line.
    let command_line: Vec<OsString> = std::env::args_os().collect();
    let origin = Origin::of_this_process();
    let home = Home::from_env(|name| origin.var(name));
    let config = launch::settings(home.as_ref(), &origin);
    let quiet = options.quiet || config.quiet;
    let on_terminals = all_terminals();
    let RunOptions { name, tag: tags, group, .. } = options.clone();
    let request = LaunchRequest {
        target,
        args,
        labels: Labels { name, tags, group },
        session: None,
        summary: !quiet && on_terminals,
        proxy: options.proxy,
    };
    let limited = is_limited(&request.target, &config);
    if options.detach {
        return detach(request, options, origin, home.as_ref(), &config);
    }
    let speaks = request.summary;
    let world = World { clock: &SystemClock, ids: &RandomIds, binaries: &SystemBinaries };
    let prepared = launch::prepare(request, &origin, home.as_ref(), &config, world);
    let (launch, plan, assigned, unnamed, proxy_setup) = match prepared {
        Ok(Prepared::Wrap { launch, plan, assigned, unnamed, proxy_setup }) => {
            (launch, plan, assigned, unnamed, proxy_setup)
        }
        Ok(Prepared::Execute(launch)) => return launch::execute(launch, &origin),
        Err(error) => return RunResult::failed(error.exit_code(), format!("codemie: {error}")),
    };
    let begun_at = plan.as_ref().map(|plan| plan.begun_at);
    let (companion, proxied) = closing::Proxied::of(proxy_setup);
    let (mut result, summary) = launch::wrap(launch, plan.map(|plan| *plan), companion, &origin);
    if let Some(AssignedId { agent, id }) = assigned.filter(|_| on_terminals)
        && agent.refused_its_id(result.code, &id, &|name| origin.var(name))
    {
        launch::restart_without_id(command_line);
    }
    let not_known = summary.session.as_ref().and_then(|session| closing::not_known(session, unnamed?));
    if let Some(session) = summary.session {
        let added = home.as_ref().zip(begun_at).and_then(|(home, at)| Added::by_run(home, &session, at));
        let line = closing::line(&session, summary.run_total, added, Style::of_stdout().columns);
        result.add_line(format!("{line}{}", proxied.lost()));
        if let Some(line) = closing::running(&summary.running) {
            result.add_line(line);
        }
    }
    for status in &summary.budgets {
        result.add_line(closing::budget(status, SystemClock.now(), &os::zone::local()));
    }
    let sinks = home.as_ref().filter(|_| speaks).and_then(|home| Sinks::of(home, &config.delivery));
    if let Some(line) = sinks.and_then(|sinks| closing::paused(&sinks, SystemClock.now())) {
        result.add_line(line);
    }
    if quiet {
        return result;
    }
    let mut problems = config.problems;
    problems.extend(summary.problem);
    problems.extend(proxied.not_used(limited));
    problems.extend(not_known);
    problems.extend(home.is_none().then(|| NO_HOME.to_owned()));
    problems.extend(home.as_ref().and_then(damage::unreported));
    if !problems.is_empty() {
        result.add_line(format!("codemie: {}", problems.join("; ")));
    }
    result
}

/// What `--json` prints of a session in the background.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Detached {
    session_id: SessionId,
    /// For `codemie wait`: what happens in this run comes after it.
    cursor: String,
}

/// Runs it in the background. The session's id is all that is printed, for scripts.
fn detach(
    request: LaunchRequest,
    options: &RunOptions,
    origin: Origin,
    home: Option<&Home>,
    config: &Config,
) -> RunResult {
    let agent = match &request.target {
        LaunchTarget::Agent(agent) => Some(*agent),
        LaunchTarget::Command(_) => None,
    };
    let name = request.target.name();
    let limited = is_limited(&request.target, config);
    let request = LaunchRequest { session: options.session, summary: false, ..request };
    let world = World { clock: &SystemClock, ids: &RandomIds, binaries: &SystemBinaries };
    let (launch, plan, proxy_setup) = match launch::prepare(request, &origin, home, config, world) {
        Ok(Prepared::Wrap { launch, plan: Some(plan), proxy_setup, .. }) => (launch, *plan, proxy_setup),
        Ok(Prepared::Wrap { plan: None, .. }) => {
            return RunResult::failed(USAGE, format!("codemie: {NO_HOME}"));
        }
        Ok(Prepared::Execute(_)) => {
            let message = format!(
                "codemie: these arguments begin no conversation of {name}, so there is nothing to run in the background; leave --detach out"
            );
            return RunResult::failed(USAGE, message);
        }
        Err(error) => return RunResult::failed(error.exit_code(), format!("codemie: {error}")),
    };
    // A session that nobody could find again must not run on: its caller knows nothing but its id. Closed again before the fork.
    // An existing store opens without being writable.
    let writable = Store::open(&plan.home, SystemClock.now()).and_then(|mut store| store.try_to_write());
    if let Err(error) = writable {
        return RunResult::failed(126, format!("codemie: nothing is started in the background: {error}"));
    }
    let cursor = Cursor::at(plan.begun_at).to_string();
    let HostConfig { columns: cols, rows, idle_limit: idle, total_limit: total } = config.host;
    let size = Size { rows, cols };
    let (companion, proxied) = closing::Proxied::of(proxy_setup);
    let program = host::Detached {
        launch,
        plan,
        origin,
        agent,
        size,
        limits: host::Limits { idle, unneeded: config.mcp.idle_limit.filter(|_| options.through_mcp), total },
        osc9: config.notify.osc9,
        companion,
    };
    let shown = |session_id: SessionId| {
        let line = options.json.then(|| serde_json::to_string(&Detached { session_id, cursor }).ok());
        line.flatten().unwrap_or_else(|| session_id.to_string())
    };
    match host::detach(program) {
        Ok(session) => RunResult {
            output: Some(shown(session)),
            message: proxied
                .not_used(limited)
                .map(|line| format!("codemie: {line}"))
                .filter(|_| !config.quiet),
            ..RunResult::default()
        },
        Err(host::NotDetached { code, message }) => RunResult::failed(code, message),
    }
}

/// Whether an enforced budget may refuse its calls.
fn is_limited(target: &LaunchTarget, config: &Config) -> bool {
    match target {
        LaunchTarget::Agent(agent) => config.budgets.iter().any(|budget| budget.may_refuse(agent.name())),
        LaunchTarget::Command(_) => false,
    }
}

fn all_terminals() -> bool {
    use std::io::{stderr, stdin, stdout};
    pty::is_terminal(&stdin()) && pty::is_terminal(&stdout()) && pty::is_terminal(&stderr())
}
