//! The stores of earlier tools, read and never written: genie's one file of all sessions in three versions, CodeMie's
//! one file per session. What is read here are plain entries; `session::import` takes them in.

mod codemie;
pub mod genie;
mod stream;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;
use stream::Lossy;

use super::Workspace;
use crate::Exit;
use os::truncate::{self, shorten};
use types::AgentSessionId;
use types::Timestamp;
use types::{EndReason, Status};

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
    pub workspace: Workspace,
    /// What else is worth keeping, for `explain`.
    pub note: String,
}

impl OldSession {
    /// With no text longer than anybody needs: old stores lie in folders that may be anybody's.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut bounded = self.clone();
        shorten(&mut bounded.entry, truncate::PATH);
        shorten(&mut bounded.agent, truncate::NAME);
        shorten(&mut bounded.note, truncate::SENTENCE);
        for name in bounded.id.iter_mut().chain(&mut bounded.name) {
            shorten(name, truncate::NAME);
        }
        let file = bounded.agent_session_file.take();
        bounded.agent_session_file = file.filter(|file| file.as_os_str().len() <= truncate::PATH);
        if bounded.workspace.cwd.as_os_str().len() > truncate::PATH {
            bounded.workspace.cwd = PathBuf::new();
        }
        bounded
    }

    /// The entry's own time: which distinguishes it when it has no id.
    pub fn time(&self) -> Option<Timestamp> {
        self.started_at.or(self.ended_at)
    }
}

/// What a file turned out to be, by its outline.
#[derive(Clone, Debug, PartialEq)]
pub enum Contents {
    /// genie's file of all sessions.
    Genie(genie::Keys),
    /// CodeMie's file of one session.
    One(Box<OldSession>),
    /// One of the files codemie publishes itself.
    Ours,
    /// What `codemie export` writes, in this version of the format.
    Export(u64),
    Unknown,
}

/// Says what a file is, reading all of it once and holding next to nothing of it.
pub fn examine(path: &Path, reader: impl Read) -> Contents {
    let Ok(outline) = stream::outline(Lossy::buffered(reader)) else { return Contents::Unknown };
    if outline.is_export {
        return Contents::Export(outline.version.unwrap_or(0));
    }
    if outline.is_ours {
        return Contents::Ours;
    }
    if outline.has_agents || outline.has_sessions {
        return Contents::Genie(genie::Keys::of(outline.version));
    }
    codemie::read(path, &outline.of_one_session).map_or(Contents::Unknown, |one| Contents::One(Box::new(one)))
}

/// Hands out the entries of genie's file in its order, counted from 1, those after number `first`; an error ends it.
pub fn each_of_genie<E: fmt::Display>(
    path: &Path,
    reader: impl Read,
    keys: genie::Keys,
    first: u64,
    mut each: impl FnMut(u64, OldSession) -> Result<(), E>,
) -> Result<(), Broken<E>> {
    let workspace = genie::workspace_of(path);
    let mut number = 0;
    stopped_by(|stop| {
        stream::each_entry(Lossy::buffered(reader), |object, key, fields| {
            number += 1;
            let Some(fields) = fields.filter(|_| number > first) else { return Ok(()) };
            stop(each(number, genie::session(object, key, keys, &fields, &workspace)))
        })
    })
}

/// Hands out the sessions of an export one by one; an error ends it.
pub fn each_of_export<T: DeserializeOwned, E: fmt::Display>(
    reader: impl Read,
    mut each: impl FnMut(T) -> Result<(), E>,
) -> Result<(), Broken<E>> {
    stopped_by(|stop| stream::each_session(Lossy::buffered(reader), |session| stop(each(session))))
}

/// Why reading did not come to its end.
#[derive(Debug)]
pub enum Broken<E> {
    /// The file is not what it seemed.
    Shape(serde_json::Error),
    /// The caller, which gets the entries one by one, stopped with this error.
    Stopped(E),
}

/// serde carries only errors of its own type, so the caller's error is kept beside it.
fn stopped_by<E: fmt::Display>(
    read: impl FnOnce(&mut dyn FnMut(Result<(), E>) -> serde_json::Result<()>) -> serde_json::Result<()>,
) -> Result<(), Broken<E>> {
    let mut stopped = None;
    let read = read(&mut |outcome| {
        outcome.map_err(|error| {
            let carried = serde_json::Error::custom(&error);
            stopped = Some(error);
            carried
        })
    });
    match (read, stopped) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(error)) => Err(Broken::Stopped(error)),
        (Err(error), None) => Err(Broken::Shape(error)),
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

/// Status and reason, from the words of both tools. A session that was still running when the file was written has ended
/// since, unseen.
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
