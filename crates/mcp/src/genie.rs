//! Genie's names for the tools, for prompts that were written for it.

use std::ffi::OsString;

use serde_json::Value;

use super::error::{ErrorCode, ToolError};
use super::forms::{
    EndSession, EndedSession, GenieResume, GenieRun, GenieStop, GenieView, GetSessionData, ResumeSession,
    SendMessage, StartedSession,
};
use super::rules;
use super::start::{CheckedStart, prompt_arguments, unknown_agent};
use super::tools::{Tools, as_value};
use agents::registry;

impl Tools {
    /// An agent, or a command line that the user has named in the settings.
    pub(super) fn genie_run(&self, args: &GenieRun) -> Result<StartedSession, ToolError> {
        let request = format!("{args:?}");
        let configured = self.given.config.genie.get(&args.agent);
        let own = [args.agent.clone()];
        let command = match configured {
            Some(command) => command.as_slice(),
            None if registry::called(&args.agent).is_some() => &own,
            None => {
                let known = registry::names().iter().map(ToString::to_string);
                let known: Vec<String> = known.chain(self.given.config.genie.keys().cloned()).collect();
                return Err(unknown_agent(&args.agent, &known));
            }
        };
        let words = || command.iter().map(OsString::from);
        let (agent, line) = if let Some(agent) = command.first().and_then(|word| registry::called(word)) {
            let prompt = prompt_arguments(agent, args.prompt.as_deref())?;
            (agent.name().to_owned(), words().chain(prompt).collect())
        } else {
            let prompt = args.prompt.as_deref().map(plain_prompt).transpose()?;
            let line = [OsString::from("--")].into_iter().chain(words()).chain(prompt).collect();
            (args.agent.clone(), line)
        };
        let name = rules::name(args.name.as_deref())?;
        self.start(CheckedStart { agent, line, name, cwd: None, key: None, request })
    }

    /// A message where the session runs, else a resumption.
    pub(super) fn genie_resume(&self, args: GenieResume) -> Result<Value, ToolError> {
        let GenieResume { session, prompt } = args;
        let resumed =
            self.resume_session(&ResumeSession { session: session.clone(), prompt: prompt.clone() });
        match (resumed, prompt) {
            (Err(error), Some(text)) if error.code == ErrorCode::AlreadyRunning => {
                as_value(&self.send_message(SendMessage { session, text, idempotency_key: None })?)
            }
            (resumed, _) => as_value(&resumed?),
        }
    }

    pub(super) fn genie_view(&self, args: GenieView) -> Result<Value, ToolError> {
        let max_chars = (args.full == Some(true)).then_some(u32::MAX);
        self.get_session_data(&GetSessionData { session: args.session, cursor: None, max_chars })
    }

    pub(super) fn genie_stop(&self, args: GenieStop) -> Result<EndedSession, ToolError> {
        self.end_session(&EndSession { session: args.session, grace_ms: None })
    }
}

/// The last argument of a program that is no agent.
fn plain_prompt(prompt: &str) -> Result<OsString, ToolError> {
    rules::text(prompt)?;
    if prompt.starts_with('-') {
        return Err(ToolError::new(
            ErrorCode::TextNotAllowed,
            "the program would take this prompt for an option, because it begins with a dash",
            "begin the prompt with a word",
        ));
    }
    Ok(prompt.into())
}
