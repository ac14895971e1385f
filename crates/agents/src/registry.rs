//! Every agent this binary knows. A further agent is its folder and one line in [`AGENTS`]: the command line,
//! shims, settings, the doctor and scans are derived from it.

use std::sync::LazyLock;

use crate::Agent;
use crate::claude::Claude;
use crate::codex::Codex;
use crate::demo::Demo;
use crate::gemini::Gemini;
use crate::qwen::Qwen;

/// The agents that people call by name, on the command line and through a shim.
pub static AGENTS: &[&dyn Agent] = &[&Claude, &Codex, &Gemini, &Qwen];

/// The agent that examples in texts for the user name.
pub const EXAMPLE: &str = "claude";

/// The agents that only codemie itself starts.
static INTERNAL: &[&dyn Agent] = &[
    &Demo,
    #[cfg(any(test, feature = "testing"))]
    &crate::scribe::Scribe,
    #[cfg(any(test, feature = "testing"))]
    &crate::courier::Courier,
];

/// The names that people call, in the order of the registry.
pub fn names() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&'static str>> =
        LazyLock::new(|| AGENTS.iter().map(|agent| agent.name()).collect());
    &NAMES
}

/// The agent of this name, if people can call it.
pub fn called(name: &str) -> Option<&'static dyn Agent> {
    AGENTS.iter().copied().find(|agent| agent.name() == name)
}

/// The agent that takes a status line from another program.
pub fn with_status_line() -> Option<&'static dyn Agent> {
    AGENTS.iter().copied().find(|agent| agent.status_line_settings(&|_| None).is_some())
}

/// The agent that a record names.
pub fn by_name(name: &str) -> Option<&'static dyn Agent> {
    AGENTS.iter().chain(INTERNAL).copied().find(|agent| agent.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_name_agents_that_nobody_can_call() {
        for agent in AGENTS {
            assert_eq!(called(agent.name()).map(Agent::name), Some(agent.name()));
            assert_eq!(by_name(agent.name()).map(Agent::name), Some(agent.name()));
        }
        assert_eq!(by_name("demo").map(Agent::name), Some("demo"));
        assert!(called("demo").is_none(), "`codemie demo` is a command and no shim's name");
        assert!(by_name("").is_none());
        assert!(called(EXAMPLE).is_some() && with_status_line().is_some());
    }
}
