//! Sessions from elsewhere: old stores of earlier tools, and what `codemie export` wrote in another home.
//!
//! Decided here, for all of them:
//! - The originals are read, never written.
//! - Doing it again changes nothing. An entry of an old store is known by its file and its place in it, and by its id
//!   wherever that turns up; an exported session by its session id.
//! - Every entry becomes a session. Where two would have one id, name or agent session, the first keeps it.
//! - Their events are written as if they had always been here, and kept back: they are sent by a backfill, or when the
//!   session is opened again here.

pub mod found;
mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::Error;
use super::event::keep_back_life;
use super::exchange::{self, ExportedSession, ParseError};
use super::names;
use super::state::{Exit, State};
use crate::old::genie::Keys;
use crate::old::{self, Broken, Contents, OldSession};
use crate::{SessionRow, Store, Tx};
use source::Source;
use types::SessionId;
use types::StartReason;
use types::Timestamp;
use types::event::NAMESPACE;
use types::{Evidence, EvidenceVerdict};

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    pub imported: Vec<SessionId>,
    /// Sessions that were here already, from this file or another one.
    pub known: usize,
    /// Files that were not imported, with the reason.
    pub passed_over: Vec<(PathBuf, String)>,
}

/// More than what a user names would hold: a year of sessions with all their calls is some hundred megabytes.
const MAX_NAMED: u64 = 1 << 30;

/// Entries of an old store that one transaction takes in. They take some milliseconds, and nobody who starts an agent waits
/// for longer.
const AT_ONCE: usize = 32;

/// Records and events of exported sessions that one transaction takes in, if they are of several: a page of the database that
/// many of them change is written once.
const ROWS_AT_ONCE: usize = 300;

/// Takes in a file, or every `.json` file of a folder. Only a path that cannot be read at all is an error.
pub fn import(store: &mut Store, path: &Path, at: Timestamp) -> Result<ImportReport, Error> {
    let mut report = ImportReport::default();
    for file in files_of(path)? {
        match Source::named(&file, MAX_NAMED) {
            Ok(source) => drop(import_file(store, &source, at, 0, &mut Unpaced, &mut report)?),
            Err(error) => report.pass_over(&file, error.to_string()),
        }
    }
    Ok(report)
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let wrong = |source: io::Error| Error::Store(crate::Error::io(path, source));
    if !fs::metadata(path).map_err(wrong)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(wrong)? {
        let file = entry.map_err(wrong)?.path();
        if file.extension().is_some_and(|extension| extension == "json") && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

impl ImportReport {
    fn pass_over(&mut self, path: &Path, reason: String) {
        tracing::info!(file = %path.display(), reason, "not imported");
        self.passed_over.push((path.to_owned(), reason));
    }

    fn count(&mut self, taken: &[Option<SessionId>]) {
        self.imported.extend(taken.iter().flatten());
        self.known += taken.iter().filter(|taken| taken.is_none()).count();
    }
}

/// How an import is spread over transactions.
trait Pacing {
    /// Part of each transaction: notes that this many entries of the file are imported with it.
    fn note(&self, tx: &Tx<'_>, done: u64) -> Result<(), Error>;

    /// Between two transactions: whether the next one may follow now.
    fn may_continue(&mut self) -> bool;
}

/// One transaction after the other, because a user waits for the import.
struct Unpaced;

impl Pacing for Unpaced {
    fn note(&self, _: &Tx<'_>, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn may_continue(&mut self) -> bool {
        true
    }
}

/// Why an import ended before its file did.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Error(#[from] Error),
    #[error("later")]
    Later,
}

/// Imports a file from entry number `first` on. Returns whether it came to the file's end.
fn import_file(
    store: &mut Store,
    source: &Source,
    at: Timestamp,
    first: u64,
    pacing: &mut dyn Pacing,
    report: &mut ImportReport,
) -> Result<bool, Error> {
    let path = &source.path;
    let reason = match source.read().map(|reader| old::examine(path, reader)) {
        Ok(Contents::Genie(keys)) => match take_in_genie(store, source, keys, (at, first), pacing, report) {
            Ok(()) => return Ok(true),
            Err(Broken::Stopped(Stop::Later)) => return Ok(false),
            Err(Broken::Stopped(Stop::Error(error))) => return Err(error),
            Err(Broken::Shape(error)) => error.to_string(),
        },
        Ok(Contents::One(session)) => {
            report.count(&[store.write(|tx| take_in(tx, path, &session, at, source.written))?]);
            return Ok(true);
        }
        Ok(Contents::Export(version)) => match take_in_export(store, source, version, at, report) {
            Ok(()) => return Ok(true),
            Err(NotTaken::Store(error)) => return Err(error),
            Err(NotTaken::Parse(error)) => error.to_string(),
        },
        Ok(Contents::Ours) => "written by codemie itself".into(),
        Ok(Contents::Unknown) => "neither an export nor an old store".into(),
        Err(error) => error.to_string(),
    };
    report.pass_over(path, reason);
    Ok(true)
}

fn take_in_genie(
    store: &mut Store,
    source: &Source,
    keys: Keys,
    (at, first): (Timestamp, u64),
    pacing: &mut dyn Pacing,
    report: &mut ImportReport,
) -> Result<(), Broken<Stop>> {
    let mut waiting: Vec<OldSession> = Vec::with_capacity(AT_ONCE);
    let mut done = first;
    let mut flush = |waiting: &mut Vec<OldSession>, done: u64| {
        let taken = store.write(|tx| {
            let taken = waiting.iter().map(|old| take_in(tx, &source.path, old, at, source.written));
            let taken = taken.collect::<Result<Vec<_>, Error>>()?;
            pacing.note(tx, done)?;
            Ok::<_, Error>(taken)
        })?;
        waiting.clear();
        report.count(&taken);
        if pacing.may_continue() { Ok(()) } else { Err(Stop::Later) }
    };
    let reader = source.read().map_err(|error| Broken::Shape(serde_json::Error::io(error)))?;
    old::each_of_genie(&source.path, reader, keys, first, |number, old| {
        waiting.push(old);
        done = number;
        if waiting.len() < AT_ONCE { Ok(()) } else { flush(&mut waiting, done) }
    })?;
    match flush(&mut waiting, done) {
        Err(Stop::Error(error)) => Err(Broken::Stopped(error.into())),
        _ => Ok(()),
    }
}

enum NotTaken {
    Store(Error),
    Parse(ParseError),
}

impl From<Broken<Error>> for NotTaken {
    fn from(broken: Broken<Error>) -> Self {
        match broken {
            Broken::Stopped(error) => Self::Store(error),
            Broken::Shape(error) => Self::Parse(error.into()),
        }
    }
}

/// All sessions of an export, or none: it is read through before anything is taken in.
fn take_in_export(
    store: &mut Store,
    source: &Source,
    version: u64,
    at: Timestamp,
    report: &mut ImportReport,
) -> Result<(), NotTaken> {
    let reader = || source.read().map_err(|error| NotTaken::Parse(serde_json::Error::io(error).into()));
    exchange::check_version(version).map_err(NotTaken::Parse)?;
    old::each_of_export(reader()?, |session: ExportedSession| session.check()).map_err(
        |broken| match broken {
            Broken::Stopped(error) => NotTaken::Parse(error),
            Broken::Shape(error) => NotTaken::Parse(error.into()),
        },
    )?;
    let mut waiting: Vec<ExportedSession> = Vec::new();
    let mut flush = |waiting: &mut Vec<ExportedSession>| {
        let taken = store.write(|tx| {
            let taken = waiting.iter().map(|session| exchange::take_in(tx, session, &source.path, at));
            taken.collect::<Result<Vec<_>, Error>>()
        })?;
        waiting.clear();
        report.count(&taken);
        Ok::<_, Error>(())
    };
    old::each_of_export(reader()?, |mut session: ExportedSession| {
        session.shorten_texts();
        waiting.push(session);
        let rows: usize = waiting.iter().map(|session| session.records.len() + session.events.len()).sum();
        if rows < ROWS_AT_ONCE { Ok(()) } else { flush(&mut waiting) }
    })?;
    flush(&mut waiting).map_err(NotTaken::Store)
}

/// `None` when it is here already.
fn take_in(
    tx: &Tx<'_>,
    source: &Path,
    old: &OldSession,
    at: Timestamp,
    written: Timestamp,
) -> Result<Option<SessionId>, Error> {
    let old = &old.bounded();
    let source_path = source.to_string_lossy();
    if tx.was_imported(&source_path, &old.entry)? {
        return Ok(None);
    }
    let Some((id, former_id)) = identity(tx, &source_path, old)? else {
        return Ok(None);
    };
    let started_at = old.time().unwrap_or(written);
    let ended_at = old.ended_at.unwrap_or(started_at).max(started_at);
    let wanted = names::of_elsewhere(old.name.as_deref(), &old.agent, started_at);
    let name = names::first(tx, &wanted)?;
    let new = SessionRow {
        named: old.name.is_some(),
        local_only: old.agent == types::DEMO,
        // Calls made under the earlier tool were its to count.
        owns_from: Some(at),
        ..SessionRow::new(id, old.agent.clone(), name, old.workspace.clone(), started_at)
    };
    let n = tx.insert_session(&new, StartReason::Startup)?;
    let free = match &old.agent_session {
        Some(agent_session) => tx.session_by_agent_session(&old.agent, agent_session)?.is_none(),
        None => false,
    };
    let bound = old.agent_session.as_ref().filter(|_| free);
    if let Some(agent_session) = bound {
        tx.set_imported_binding(n, agent_session, old.agent_session_file.as_deref())?;
    }
    tx.set_phase(n, (if bound.is_some() { State::ClosedMatched } else { State::ClosedFailed }).parts())?;
    tx.set_imported(n, &source_path, former_id.as_deref())?;
    if let Some(former_id) = &former_id {
        tx.add_alias(former_id, n)?;
    }
    let row = tx.session_number(n)?.ok_or(Error::NoSession(id))?;
    let exit = old.exit.filter(|exit| *exit != Exit::Code(0) || old.status != types::Status::Interrupted);
    tx.close_session(&row, ended_at, old.status, old.reason, exit, None)?;
    tx.insert_evidence(
        n,
        None,
        &Evidence {
            at,
            source: "import".into(),
            verdict: if bound.is_some() { EvidenceVerdict::Accepted } else { EvidenceVerdict::Noted },
            agent_session_id: old.agent_session.clone(),
            detail: format!("{} ({source_path}, {})", old.note, old.entry),
        },
    )?;
    let row = tx.session_number(n)?.ok_or(Error::NoSession(id))?;
    keep_back_life(tx, &row)?;
    // Publishing it now could lie over the very file it was read from.
    tx.set_published(n)?;
    tx.note_imported(&source_path, &old.entry, &row.shown_id(), at)?;
    Ok(Some(id))
}

/// Which session id the entry gets, and its former one where that is no UUID. `None`: the entry is here under its id.
///
/// An entry without an id is called after its agent and its own time. Only where two entries of one file would be the
/// same does the second get a number; the same id in another file is a copy of the same entry.
fn identity(
    tx: &Tx<'_>,
    source: &str,
    old: &OldSession,
) -> Result<Option<(SessionId, Option<String>)>, Error> {
    let wanted = old.id.clone().unwrap_or_else(|| {
        let time = old.time().map_or_else(|| "unknown".into(), |time| time.0.to_string());
        format!("legacy-{}-{time}", old.agent)
    });
    let is_distinct = old.id.is_some() || old.time().is_some();
    let id_of = |candidate: &str| {
        let parsed = candidate.parse::<SessionId>().ok().filter(|id| id.to_string() == candidate);
        parsed.ok_or_else(|| SessionId(Uuid::new_v5(&NAMESPACE, format!("former\0{candidate}").as_bytes())))
    };
    let is_taken = |candidate: &str| {
        let id = id_of(candidate).unwrap_or_else(|made| made);
        Ok::<_, Error>(tx.session(id)?.is_some() || tx.session_by_alias(candidate)?.is_some())
    };
    if is_distinct && is_taken(&wanted)? && !tx.imported_under(source, &wanted)? {
        return Ok(None);
    }
    let free = names::first_free(&wanted, is_taken)?;
    Ok(Some(match id_of(&free) {
        Ok(id) => (id, None),
        Err(made) => (made, Some(free)),
    }))
}
