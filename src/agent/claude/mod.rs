//! Claude Code: what its arguments mean, where its files are, what its lines say, what evidence it gives.
//!
//! Facts were measured on 2.1.197. Everything here reads; nothing writes.

mod flags;
pub mod invocation;

use std::ffi::OsString;

use super::{Agent, Invocation};

#[derive(Debug)]
pub(super) struct Claude;

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
