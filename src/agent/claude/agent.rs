//! Claude Code as the rest of the house sees it.

use std::ffi::OsString;
use std::path::Path;

use uuid::Uuid;

use super::files::ClaudeFiles;
use super::invocation;
use super::trail::ClaudeTrail;
use crate::agent::{Agent, Conversation, Injection, Invocation, Trail, Var};
use crate::session::id::AgentSessionId;

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

    fn inject(
        &self,
        invocation: &Invocation,
        args: &[OsString],
        version: Option<&str>,
        fresh: Uuid,
        var: Var<'_>,
    ) -> Option<Injection> {
        let wanted =
            invocation.injectable && invocation.persistent && invocation.session == Conversation::Fresh;
        if !wanted || !version.is_some_and(invocation::takes_session_id) {
            return None;
        }
        if invocation::agents_view_possible(args) {
            let config = std::fs::read(ClaudeFiles::from_env(var)?.global_config()).unwrap_or_default();
            if invocation::defaults_to_agents_view(&config) {
                return None;
            }
        }
        let id = fresh.to_string();
        Some(Injection {
            args: vec!["--session-id".into(), id.clone().into()],
            assigned: Some(AgentSessionId(id)),
        })
    }

    fn resume(&self, conversation: &AgentSessionId, fork: bool) -> Option<Vec<OsString>> {
        let mut args = vec!["--resume".into(), OsString::from(&conversation.0)];
        args.extend(fork.then(|| "--fork-session".into()));
        Some(args)
    }

    fn trail(&self, var: Var<'_>, folder: &Path) -> Option<Box<dyn Trail>> {
        Some(Box::new(ClaudeTrail::new(ClaudeFiles::from_env(var)?, folder)))
    }
}
