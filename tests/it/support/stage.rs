//! A stage for a real agent: its turn, its home, its model API, and how it is started, wrapped or bare.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::agent_home::AgentHome;
use super::agents::{Agent, Turn, left_out};
use super::fake_api::FakeApi;
use super::pty::Start;

/// Bounds failures only: the agents take seconds to start, and more on a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);

/// What stands between the terminal and the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Bare,
    Wrapped,
}

impl Form {
    /// Wrapped; `CODEMIE_TEST_BARE=1` runs the same tests on the bare agents, to tell our faults from theirs.
    pub(crate) fn under_test() -> Self {
        if std::env::var_os("CODEMIE_TEST_BARE").is_some() { Self::Bare } else { Self::Wrapped }
    }
}

/// Dropped in the order of its fields: first the agents that still run, then the API they talk to, then the turn.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) home: AgentHome,
    pub(crate) api: FakeApi,
    turn: Arc<Turn>,
}

impl Stage {
    /// `None` where real agents cannot run; the reason has been printed.
    pub(crate) fn set() -> Option<Self> {
        Turn::take().map(|turn| Self::with(Arc::new(turn)))
    }

    /// With one agent in another version than the usual one (`tests/run.sh` installs them, the older ones with `--full`).
    pub(crate) fn set_version(agent: Agent, version: &str) -> Option<Self> {
        let program = agent.program_in(version);
        if !program.exists() {
            left_out(&format!("{} {version} is not installed under target/versions", agent.name()));
            return None;
        }
        let mut stage = Self::set()?;
        stage.home.pin(agent, program);
        Some(stage)
    }

    /// A second one, for the same test: another home, and an API that counts from 1 again.
    pub(crate) fn another(&self) -> Self {
        Self::with(Arc::clone(&self.turn))
    }

    fn with(turn: Arc<Turn>) -> Self {
        let api = FakeApi::start();
        Self { home: AgentHome::new(&api), api, turn }
    }

    /// The command line that runs the agent.
    pub(crate) fn argv<A: AsRef<OsStr>>(&self, agent: Agent, form: Form, arguments: &[A]) -> Vec<OsString> {
        let mut argv: Vec<OsString> = match form {
            Form::Wrapped => vec![env!("CARGO_BIN_EXE_codemie").into(), agent.name().into()],
            Form::Bare => vec![self.home.program(agent).into()],
        };
        if agent == Agent::Codex && form == Form::Bare {
            // Any override keeps Codex in its own process; without one it becomes a client of a daemon that outlives it.
            // codemie adds one itself.
            argv.extend(["-c".into(), "check_for_update_on_startup=false".into()]);
        }
        argv.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        argv
    }

    /// The same start, but in the project folder, with the agents' environment and a terminal that answers.
    pub(crate) fn prepare(&self, start: Start) -> Start {
        let start = start.env_clear().cwd(self.home.project()).size(40, 120).timeout(TIMEOUT).answers();
        self.home
            .environment(&self.api)
            .into_iter()
            .fold(start, |start, (name, value)| start.env(name, value))
    }

    /// Runs the agent to its end with pipes for all three of its descriptors.
    pub(crate) fn pipe(&self, agent: Agent, form: Form, arguments: &[&str], input: &str) -> Output {
        self.run(&self.argv(agent, form, arguments), input)
    }

    /// Runs any command to its end, in the project folder and with the agents' environment.
    pub(crate) fn run(&self, argv: &[OsString], input: &str) -> Output {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(self.home.project());
        command.env_clear().envs(self.home.environment(&self.api));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}
