//! `codemie claude …`, `codemie run -- …`, and a shim called by the agent's name: run it, wrapped, and report in the end.

mod closing;

use std::ffi::OsString;

use super::damage;
use crate::cli::RunOptions;
use crate::forward::Sinks;
use crate::home::Home;
use crate::launch::{
    self, AssignedId, Labels, LaunchRequest, LaunchTarget, Origin, Prepared, RunResult, SystemBinaries, World,
};
use crate::output::Style;
use closing::Added;
use system::clock::{Clock, SystemClock};
use wire::RandomIds;

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
    };
    let speaks = request.summary;
    let world = World { clock: &SystemClock, ids: &RandomIds, binaries: &SystemBinaries };
    let (launch, plan, assigned) = match launch::prepare(request, &origin, home.as_ref(), &config, world) {
        Ok(Prepared::Wrap { launch, plan, assigned }) => (launch, plan, assigned),
        Ok(Prepared::Execute(launch)) => return launch::execute(launch, &origin),
        Err(error) => return RunResult::failed(error.exit_code(), format!("codemie: {error}")),
    };
    let begun_at = plan.as_ref().map(|plan| plan.begun_at);
    let (mut result, summary) = launch::wrap(launch, plan.map(|plan| *plan), &origin);
    if let Some(AssignedId { agent, id }) = assigned.filter(|_| on_terminals)
        && agent.refused_its_id(result.code, &id, &|name| origin.var(name))
    {
        launch::restart_without_id(command_line);
    }
    if let Some(session) = summary.session {
        let added = home.as_ref().zip(begun_at).and_then(|(home, at)| Added::by_run(home, &session, at));
        result.add_line(closing::line(&session, summary.run_total, added, Style::of_stdout().columns));
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
    problems.extend(home.is_none().then(|| NO_HOME.to_owned()));
    problems.extend(home.as_ref().and_then(damage::unreported));
    if !problems.is_empty() {
        result.add_line(format!("codemie: {}", problems.join("; ")));
    }
    result
}

fn all_terminals() -> bool {
    use std::io::{stderr, stdin, stdout};
    terminal::is_terminal(&stdin()) && terminal::is_terminal(&stdout()) && terminal::is_terminal(&stderr())
}
