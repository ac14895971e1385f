//! Claude Code as the rest of the house sees it.

use std::ffi::OsString;

use super::invocation;
use crate::agent::{Agent, Invocation};

#[derive(Debug)]
pub struct Claude;

impl Agent for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn classify(&self, args: &[OsString]) -> Invocation {
        invocation::classify(args)
    }

    /// With the first of them inherited, the agent writes no session file and registers nowhere.
    fn nesting_variables(&self) -> &'static [&'static str] {
        &["CLAUDE_CODE_CHILD_SESSION", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT"]
    }
}
