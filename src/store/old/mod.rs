//! The stores of earlier tools, read and never written: genie's one file of all sessions in three versions, CodeMie's
//! one file per session. What is read here are plain entries; `session::import` takes them in.

mod codemie;
mod genie;

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Place;
use crate::clock::Timestamp;
use crate::session::id::AgentSessionId;
use crate::session::state::{EndReason, Exit, Status};
use crate::short::{self, shorten};

/// One session as an earlier tool knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldSession {
    /// Which entry of its file it is.
    pub entry: String,
    pub id: Option<String>,
    pub agent: String,
    pub name: Option<String>,
    pub agent_session: Option<AgentSessionId>,
    pub agent_session_file: Option<PathBuf>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub status: Status,
    pub reason: EndReason,
    pub exit: Option<Exit>,
    pub place: Place,
    /// What else is worth keeping, for `explain`.
    pub note: String,
}

impl OldSession {
    /// With no text longer than anybody needs: old stores lie in folders that may be anybody's.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut bounded = self.clone();
        shorten(&mut bounded.entry, short::PATH);
        shorten(&mut bounded.agent, short::NAME);
        shorten(&mut bounded.note, short::SENTENCE);
        for name in bounded.id.iter_mut().chain(&mut bounded.name) {
            shorten(name, short::NAME);
        }
        let file = bounded.agent_session_file.take();
        bounded.agent_session_file = file.filter(|file| file.as_os_str().len() <= short::PATH);
        if bounded.place.cwd.as_os_str().len() > short::PATH {
            bounded.place.cwd = PathBuf::new();
        }
        bounded
    }

    /// The entry's own time: what tells it apart when it has no id.
    pub fn time(&self) -> Option<Timestamp> {
        self.started_at.or(self.ended_at)
    }
}

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Contents {
    Old(Vec<OldSession>),
    /// One of the files codemie publishes itself.
    Ours,
    /// What `codemie export` writes.
    Export(Box<Value>),
    Unknown,
}

/// Says what a file's text is, and reads it if it is of an old store.
pub fn read(path: &Path, text: &str) -> Contents {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return Contents::Unknown };
    if value.get("format").and_then(Value::as_str) == Some(EXPORT) {
        return Contents::Export(Box::new(value));
    }
    if value.get("wrapperVersion").is_some() {
        return Contents::Ours;
    }
    if let Some(entries) = genie::read(path, &value) {
        return Contents::Old(entries);
    }
    match codemie::read(path, &value) {
        Some(entry) => Contents::Old(vec![entry]),
        None => Contents::Unknown,
    }
}

/// How an export names itself.
pub const EXPORT: &str = "codemie-export";

/// Where old stores may be: genie's in the working folder, CodeMie's in the user's home.
pub fn places(user_home: &Path, cwd: &Path) -> Vec<PathBuf> {
    vec![
        cwd.join(".genie/state/agents/sessions.json"),
        cwd.join(".genie/state/sessions.json"),
        user_home.join(".codemie/sessions"),
        user_home.join(".codemie/metrics/sessions"),
    ]
}

/// A time as milliseconds or as RFC 3339, whichever a tool wrote.
fn time(value: Option<&Value>) -> Option<Timestamp> {
    match value? {
        Value::Number(number) => number.as_i64().map(Timestamp),
        Value::String(text) => Timestamp::parse(text).or_else(|| text.parse().ok().map(Timestamp)),
        _ => None,
    }
}

fn text(value: Option<&Value>) -> Option<String> {
    value?.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned)
}

/// The words of both tools for how it ended. Whatever was still going on when it was written down has ended since,
/// unseen.
fn ending(status: Option<&str>, exit: Option<Exit>) -> (Status, EndReason) {
    let failed = matches!(exit, Some(Exit::Code(1..) | Exit::Signal(_)));
    match status.unwrap_or_default() {
        "completed" | "complete" | "done" | "success" if !failed => (Status::Completed, EndReason::Exit),
        "stopped" | "cancelled" | "canceled" => (Status::Completed, EndReason::Stopped),
        "completed" | "complete" | "done" | "success" | "failed" | "error" => {
            (Status::Failed, EndReason::Exit)
        }
        _ => (Status::Interrupted, EndReason::Crash),
    }
}
