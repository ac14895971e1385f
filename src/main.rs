//! The binary: who was called, and with what; everything else is the library's.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use codemie::cli::{self, Cli, Command, Refusal, Request, RunOptions, Target};
use codemie::home::Home;
use codemie::{agent, cmd, terminal};

fn main() -> ExitCode {
    restore_terminal_on_panic();
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    // A shim is this binary under the agent's name: nothing is parsed, everything is the agent's.
    let called_as = Path::new(&name).file_name().and_then(|name| name.to_str());
    if let Some(agent) = called_as.and_then(agent::by_name) {
        return run(&RunOptions::default(), &Target::Agent(agent), args);
    }
    match cli::parse(args) {
        Ok(Request::Run { options, target, args }) => run(&options, &target, args),
        Ok(Request::Manage(command)) => manage(&command),
        Err(Refusal { text, code }) => {
            let _ = text.print();
            ExitCode::from(code)
        }
    }
}

fn run(options: &RunOptions, target: &Target, args: Vec<OsString>) -> ExitCode {
    let outcome = cmd::run::run(options, target, args);
    if let Some(message) = outcome.message {
        let _ = writeln!(io::stderr(), "{message}");
    }
    ExitCode::from(outcome.code)
}

fn manage(command: &Command) -> ExitCode {
    try_manage(command).unwrap_or_else(|error| {
        // A reader that has seen enough (`codemie … | head`) is no failure worth a word.
        let closed = error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
        if !closed {
            let _ = writeln!(io::stderr(), "codemie: {error:#}");
        }
        ExitCode::FAILURE
    })
}

fn try_manage(command: &Command) -> anyhow::Result<ExitCode> {
    let out = &mut io::stdout().lock();
    let agents = agent::ALL.map(agent::Agent::name);
    let home = || {
        Home::from_env(|name| std::env::var_os(name))
            .context("neither CODEMIE_HOME nor HOME is set; set CODEMIE_HOME")
    };
    match command {
        Command::Shim(args) => cmd::shim::run(args, &home()?, &agents, out),
        Command::Init(args) => cmd::init::run(args, &home()?, &agents, &mut Cli::command(), out),
        Command::Config(args) => cmd::config::run(args, &home()?, &agents, out, &mut io::stderr()),
        Command::Completions(args) => cmd::completions::run(args, &mut Cli::command(), out),
        Command::Doctor(args) => cmd::doctor::run(args, home().ok(), &agents, out),
        Command::Claude(_) | Command::Codex(_) | Command::Gemini(_) | Command::Run(_) => {
            Ok(ExitCode::from(125))
        }
    }
}

fn restore_terminal_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        terminal::restore_after_panic();
        report(panic);
    }));
}
