//! The commands: parse result in, library calls, output.

mod completions;
mod config;
mod demo;
mod doctor;
mod init;
pub mod run;
mod shim;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::agent;
use crate::cli::{Cli, Command};
use crate::home::Home;

/// Carries out a management command: everything that starts no agent.
pub fn manage(
    command: &Command,
    home: Option<Home>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let agents = agent::ALL.map(agent::Agent::name);
    // The doctor's work begins where there is no home.
    if let Command::Doctor(args) = command {
        return doctor::run(args, home, &agents, out);
    }
    let home = home.context("there is no home folder: set HOME or CODEMIE_HOME")?;
    match command {
        Command::Shim(args) => shim::run(args, &home, &agents, out),
        Command::Init(args) => init::run(args, &home, &agents, &mut Cli::command(), out),
        Command::Config(args) => config::run(args, &home, &agents, out, err),
        Command::Completions(args) => completions::run(args, &mut Cli::command(), out),
        Command::Demo(args) => demo::run(args, &home, out),
        Command::DemoAgent(args) => demo::act(args, &home),
        Command::Doctor(_)
        | Command::Claude(_)
        | Command::Codex(_)
        | Command::Gemini(_)
        | Command::Run(_) => anyhow::bail!("not a management command"),
    }
}
