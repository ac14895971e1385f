//! `codemie claude …`, `codemie run -- …`, and a shim called by the agent's name: run it, wrapped.
//!
//! This is the hot path from argv0 to exec. Nothing here may keep the agent from running: what codemie cannot do it
//! leaves out, and says so after the agent has ended.

use std::ffi::OsString;

use crate::agent::{self, Agent, Kind};
use crate::cli::{RunOptions, Target};
use crate::config::{AgentConfig, Config};
use crate::home::Home;
use crate::shim::{self, depth::Depth};
use crate::terminal::{self, Ended, Ending, Launch};

/// How the run went: the exit code, and what to say on standard error now that the terminal is the user's again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub code: u8,
    pub message: Option<String>,
}

impl Outcome {
    fn failed(code: u8, message: String) -> Self {
        Self { code, message: Some(message) }
    }

    /// Adds what of codemie's own is broken, in one line.
    fn with_problems(self, problems: &[String], quiet: bool) -> Self {
        if problems.is_empty() || quiet {
            return self;
        }
        let line = format!("codemie: {}", problems.join("; "));
        let message = self.message.map_or(line.clone(), |message| format!("{message}\n{line}"));
        Self { message: Some(message), ..self }
    }
}

pub fn run(options: &RunOptions, target: &Target, args: Vec<OsString>) -> Outcome {
    let home = Home::from_env(|name| std::env::var_os(name));
    let file = home.as_ref().map(Home::config_file);
    let config = Config::load(file.as_deref(), |name| std::env::var_os(name), &agent::ALL.map(Agent::name));
    let launch = match target {
        Target::Agent(agent) => match agent_launch(*agent, args, &config.agent(agent.name())) {
            Ok(launch) => launch,
            Err(outcome) => return outcome,
        },
        Target::Command(command) => Launch {
            program: command.clone(),
            arg0: command.clone(),
            args,
            set: Vec::new(),
            remove: Vec::new(),
        },
    };
    let quiet = options.quiet || config.quiet;
    let outcome = match terminal::run(&launch, |_started| None) {
        Ok(Ended { ending: Ending::NotStarted(errno), .. }) => {
            cannot_run(&launch, Ending::NotStarted(errno), errno)
        }
        Ok(ended) => Outcome { code: ended.ending.code(), message: None },
        Err(error) => {
            Outcome::failed(126, format!("codemie: cannot start {}: {error}", launch.program.display()))
        }
    };
    outcome.with_problems(&config.problems, quiet)
}

/// Where the agent is and what it is told. Whatever is no conversation is executed here and now.
fn agent_launch(
    agent: &'static dyn Agent,
    args: Vec<OsString>,
    config: &AgentConfig,
) -> Result<Launch, Outcome> {
    let depth = Depth::arriving(std::env::var_os(shim::depth::VARIABLE).as_deref(), agent.name(), &args);
    if depth.exhausted() {
        let stopped = shim::stopped_loop(agent.name());
        return Err(Outcome::failed(stopped.exit_code(), format!("codemie: {stopped}")));
    }
    let program = shim::real_binary(agent.name(), config.path.as_deref())
        .map_err(|error| Outcome::failed(error.exit_code(), format!("codemie: {error}")))?;
    let counter = (OsString::from(shim::depth::VARIABLE), depth.leaving(agent.name(), &args));
    let mut launch = Launch {
        program: program.into_os_string(),
        arg0: agent.name().into(),
        args,
        set: vec![counter],
        remove: Vec::new(),
    };
    if bypassed() || agent.classify(&launch.args).kind == Kind::NotAConversation {
        let error = terminal::exec(&launch);
        let errno = error.raw_os_error().unwrap_or(0);
        return Err(cannot_run(&launch, Ending::NotStarted(errno), errno));
    }
    if config.inject {
        launch.remove = agent.nesting_variables().iter().map(OsString::from).collect();
    }
    Ok(launch)
}

fn bypassed() -> bool {
    std::env::var_os("CODEMIE_BYPASS").is_some_and(|value| value == "1")
}

fn cannot_run(launch: &Launch, ending: Ending, errno: i32) -> Outcome {
    let name = launch.program.display();
    let why = if errno == libc::ENOENT && !terminal::is_path(&launch.program) {
        "command not found".to_owned()
    } else {
        std::io::Error::from_raw_os_error(errno).to_string()
    };
    Outcome::failed(ending.code(), format!("codemie: {name}: {why}"))
}
