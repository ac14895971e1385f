//! Checks of the set-up: findings as data, each with its fix, gathered by one file per area.
//!
//! Promises: looking changes nothing but codemie's own notes (the version that an agent answers with); a program that is asked (a shell with a hung start-up file, an agent that does not
//! answer) is ended after the time limit; a finding that is not ok says what to do.

pub mod agents;
pub mod delivery;
pub mod folder;
mod hosts;
pub mod probe;
pub mod report;
pub mod sessions;
pub mod shells;
pub mod surroundings;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use os::home::Home;
use runtime::shim::files::OwnBinary;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Worth knowing, nothing to worry about.
    Note,
    /// Something is not as the user wants it, but agents run.
    Warn,
    /// codemie cannot do its work, or an agent cannot be started through it.
    Error,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub area: String,
    pub level: Level,
    pub what: String,
    pub fix: Option<String>,
}

impl Finding {
    pub fn ok(area: &str, what: impl Into<String>) -> Self {
        Self { area: area.to_owned(), level: Level::Ok, what: what.into(), fix: None }
    }

    pub fn note(area: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { area: area.to_owned(), level: Level::Note, what: what.into(), fix: Some(fix.into()) }
    }

    pub fn warn(area: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Warn, ..Self::note(area, what, fix) }
    }

    pub fn error(area: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::note(area, what, fix) }
    }
}

/// The machine as this process sees it.
#[derive(Debug)]
pub struct Machine<'a> {
    pub home: Option<Home>,
    pub agents: &'a [&'a str],
    pub ourselves: OwnBinary,
    /// This binary, which the doctor calls to put a shell into a session of its own.
    pub codemie: PathBuf,
    pub path: Option<OsString>,
    pub shell: Option<OsString>,
    pub timeout: Duration,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Diagnosis {
    pub findings: Vec<Finding>,
    /// Some agent, called by its name, runs through codemie.
    pub wrapped: bool,
}

/// Looks at everything. The findings of each part are reported as soon as they are known: asking shells
/// and agents takes a while.
pub fn examine<E>(
    machine: &Machine<'_>,
    report: &mut dyn FnMut(&[Finding]) -> Result<(), E>,
) -> Result<Diagnosis, E> {
    let mut all = Diagnosis::default();
    let parts: [&dyn Fn() -> Diagnosis; 5] = [
        &|| folder::examine(machine).into(),
        &|| sessions::examine(machine).into(),
        &|| delivery::examine(machine).into(),
        &|| surroundings::examine().into(),
        &|| agents::examine(machine),
    ];
    for part in parts {
        let Diagnosis { findings, wrapped } = part();
        report(&findings)?;
        all.findings.extend(findings);
        all.wrapped |= wrapped;
    }
    Ok(all)
}

impl From<Vec<Finding>> for Diagnosis {
    fn from(findings: Vec<Finding>) -> Self {
        Self { findings, wrapped: false }
    }
}
