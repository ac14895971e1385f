//! A stage for a real agent: its turn, its home, its model API; and the agent itself, wrapped or bare, in a terminal.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use super::agent_home::AgentHome;
use super::agents::{Agent, Turn};
use super::fake_api::FakeApi;
use super::pty::Start;

/// Bounds failures only: the agents take seconds to start, and more on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What stands between the terminal and the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Bare,
    Wrapped,
}

/// Fields go in this order: first whoever is left of the agents, then what they talk to, then the turn.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) home: AgentHome,
    pub(crate) api: FakeApi,
    _turn: Turn,
}

impl Stage {
    /// `None` where real agents cannot run; the reason has been printed.
    pub(crate) fn set() -> Option<Self> {
        let turn = Turn::take()?;
        let api = FakeApi::start();
        Some(Self { home: AgentHome::new(&api), api, _turn: turn })
    }

    /// The command line that runs the agent.
    pub(crate) fn argv<A: AsRef<OsStr>>(agent: Agent, form: Form, arguments: &[A]) -> Vec<OsString> {
        let mut argv: Vec<OsString> = match (form, agent) {
            (Form::Wrapped, _) => vec![env!("CARGO_BIN_EXE_codemie").into(), agent.name().into()],
            // Without any `-c` Codex moves into a daemon; codemie adds one by itself.
            (Form::Bare, Agent::Codex) => {
                vec![agent.program().into(), "-c".into(), "check_for_update_on_startup=false".into()]
            }
            (Form::Bare, _) => vec![agent.program().into()],
        };
        argv.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        argv
    }

    /// A start in the project folder with the agents' environment.
    pub(crate) fn start_in_project(&self, start: Start) -> Start {
        let start = start.env_clear().cwd(self.home.project()).size(40, 120).timeout(PATIENCE);
        self.home.environment(&self.api).into_iter().fold(start, |start, (name, value)| start.env(name, value))
    }
}
