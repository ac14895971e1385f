//! The agents: the only room that knows one from another.
//!
//! A further agent is one file that implements [`Agent`] and one line in [`ALL`].

mod args;
pub mod claude;
mod codex;
mod gemini;
pub mod invocation;

use std::ffi::OsString;
use std::fmt::Debug;

pub use invocation::{Conversation, Invocation, Kind};

/// One coding agent: how it is launched and what it leaves behind.
pub trait Agent: Debug + Sync {
    /// The name it is called by, on the command line and in records.
    fn name(&self) -> &'static str;

    /// What these arguments, those after the agent's name, ask for.
    fn classify(&self, args: &[OsString]) -> Invocation;

    /// Variables that an enclosing session of the same agent sets for its children, and that would make this one behave
    /// as a part of it.
    fn nesting_variables(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Every agent codemie knows.
pub static ALL: [&dyn Agent; 3] = [&claude::Claude, &codex::Codex, &gemini::Gemini];

pub fn by_name(name: &str) -> Option<&'static dyn Agent> {
    ALL.into_iter().find(|agent| agent.name() == name)
}
