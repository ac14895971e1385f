//! The scripted agent as an [`Agent`]: Claude Code with another root.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::claude::files::LAYOUT;
use crate::claude::{Claude, FORMAT};
use crate::kit::registry::{RegistryFiles, RegistryObserver};
use crate::{
    Agent, Conversation, ConversationFiles, Invocation, InvocationKind, Launch, Live, Observe, Observer,
    Proxied, Var, transcript,
};
use os::home::Home;

/// The demonstration's folder: the scripted agent's counterpart of `~/.claude`, and its project.
pub fn folder(home: &Home) -> PathBuf {
    home.path().join("demo")
}

#[derive(Debug)]
pub struct Demo;

impl Demo {
    pub const NAME: &'static str = types::DEMO;

    /// Where it keeps its files.
    pub fn files(home: &Home) -> RegistryFiles {
        RegistryFiles::at(LAYOUT, folder(home))
    }
}

impl Agent for Demo {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn product(&self) -> &'static str {
        "the demonstration"
    }
}

impl Launch for Demo {
    fn classify(&self, _: &[OsString]) -> Invocation {
        Invocation {
            kind: InvocationKind::Interactive,
            session: Conversation::Fresh,
            injectable: true,
            persistent: true,
            prompts: false,
        }
    }
}

impl ConversationFiles for Demo {
    fn transcript(&self) -> Option<transcript::Reader> {
        Claude.transcript()
    }
}

impl Live for Demo {}

impl Proxied for Demo {}

impl Observe for Demo {
    fn observer(&self, var: Var<'_>, folder: &Path) -> Option<Box<dyn Observer>> {
        let home = Home::from_env(var)?;
        Some(Box::new(RegistryObserver::new(&FORMAT, Self::files(&home), folder)))
    }
}
