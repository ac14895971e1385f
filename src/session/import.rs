//! Sessions from elsewhere: old stores of earlier tools, and what `codemie export` wrote in another home.
//!
//! Decided here, for all of them:
//! - The originals are read, never written.
//! - Doing it again changes nothing. An entry of an old store is known by its file and its place in it, and by its id
//!   wherever that turns up; an exported session by its session id.
//! - Every entry becomes a session. Where two would have one id, name or agent session, the first keeps it.
//! - Their events are written as if they had always been here, and kept back: they are sent by a backfill, or when the
//!   session is opened again here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::Error;
use super::event::{NAMESPACE, keep_back_life};
use super::exchange;
use super::id::SessionId;
use super::names;
use super::state::{Exit, StartReason, State};
use crate::clock::Timestamp;
use crate::file::{modified, read_at_most, read_named};
use crate::store::old::{self, Contents, OldSession};
use crate::store::{self, Evidence, NewSession, Store, Tx, Verdict};

/// What became of what was offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub imported: Vec<SessionId>,
    /// Taken in before, here or from another file.
    pub known: usize,
    /// Files that are nothing to import, with the reason.
    pub passed_over: Vec<(PathBuf, String)>,
}

/// More than what a user names would hold: a year of sessions with all their calls is some hundred megabytes.
const MAX_ASKED: u64 = 1 << 30;

/// Many thousand sessions of an old store. What lies in a folder may be anybody's work, and to parse it takes a multiple of it.
const MAX_FOUND: u64 = 16 << 20;

/// Takes in a file, or every `.json` file of a folder. Only a path that cannot be read at all is an error.
pub fn import(store: &mut Store, path: &Path, at: Timestamp) -> Result<Report, Error> {
    let mut report = Report::default();
    for file in files_of(path)? {
        // A pipe is as good: the user says what it is.
        let text = read_named(&file, MAX_ASKED);
        import_file(store, &file, text, at, &mut report)?;
    }
    Ok(report)
}

/// What the first start in a place does: each old store it finds is read once, ever.
pub fn first_start(store: &mut Store, user_home: &Path, cwd: &Path, at: Timestamp) -> Result<Report, Error> {
    let mut report = Report::default();
    for place in old::places(user_home, cwd) {
        let key = format!("old-store:{}", place.display());
        let seen = store.read(|view| Ok::<_, Error>(view.setting(&key)?.is_some()))?;
        if seen || !place.exists() {
            continue;
        }
        let files = match files_of(&place) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!("an old store is left to another time: {error}");
                continue;
            }
        };
        for file in files {
            import_file(store, &file, read_at_most(&file, MAX_FOUND), at, &mut report)?;
        }
        store.write(|tx| tx.set_setting(&key, "read"))?;
    }
    Ok(report)
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let wrong = |source: io::Error| Error::Store(store::Error::io(path, source));
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

fn import_file(
    store: &mut Store,
    path: &Path,
    text: io::Result<Vec<u8>>,
    at: Timestamp,
    report: &mut Report,
) -> Result<(), Error> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut pass_over = |reason: String| {
        tracing::info!(file = %path.display(), reason, "not imported");
        report.passed_over.push((path.clone(), reason));
    };
    let text = match text {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            pass_over(error.to_string());
            return Ok(());
        }
    };
    match old::read(&path, &text) {
        Contents::Old(entries) => {
            // The file's own time stands in where an entry has none.
            let written = fs::metadata(&path).map_or(at, |meta| modified(&meta));
            for entry in &entries {
                match store.write(|tx| take_in(tx, &path, entry, at, written))? {
                    Some(session) => report.imported.push(session),
                    None => report.known += 1,
                }
            }
        }
        Contents::Export(value) => match exchange::parse(*value) {
            Ok(file) => {
                for session in &file.sessions {
                    match store.write(|tx| exchange::take_in(tx, session, &path, at))? {
                        Some(session) => report.imported.push(session),
                        None => report.known += 1,
                    }
                }
            }
            Err(error) => pass_over(error.to_string()),
        },
        Contents::Ours => pass_over("written by codemie itself".into()),
        Contents::Unknown => pass_over("neither an export nor an old store".into()),
    }
    Ok(())
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
    let place = source.to_string_lossy();
    if tx.was_imported(&place, &old.entry)? {
        return Ok(None);
    }
    let Some((id, former_id)) = identity(tx, &place, old)? else {
        return Ok(None);
    };
    let started_at = old.time().unwrap_or(written);
    let ended_at = old.ended_at.unwrap_or(started_at).max(started_at);
    let wanted = names::of_elsewhere(old.name.as_deref(), &old.agent, started_at);
    let name = names::first(tx, &wanted)?;
    let n = tx.insert_session(&NewSession {
        id,
        name: &name.full,
        name_base: &name.base,
        name_number: name.number,
        named: old.name.is_some(),
        agent: &old.agent,
        agent_version: None,
        phase: super::state::Phase::Open,
        started_at,
        reason: StartReason::Startup,
        run: None,
        parent: None,
        transitioned_from: None,
        place: &old.place,
        // Calls made under the earlier tool were its to count.
        owns_from: Some(at),
        group: None,
    })?;
    let free = match &old.agent_session {
        Some(agent_session) => tx.session_by_agent_session(&old.agent, agent_session)?.is_none(),
        None => false,
    };
    let bound = old.agent_session.as_ref().filter(|_| free);
    if let Some(agent_session) = bound {
        tx.set_imported_binding(n, agent_session, old.agent_session_file.as_deref())?;
    }
    tx.set_state(n, if bound.is_some() { State::ClosedMatched } else { State::ClosedFailed })?;
    tx.set_imported(n, &place, former_id.as_deref())?;
    if let Some(former_id) = &former_id {
        tx.add_alias(former_id, n)?;
    }
    let row = tx.session_number(n)?.ok_or(Error::NoSession(id))?;
    let exit =
        old.exit.filter(|exit| *exit != Exit::Code(0) || old.status != super::state::Status::Interrupted);
    tx.close_session(&row, ended_at, old.status, old.reason, exit, None)?;
    tx.insert_evidence(
        n,
        None,
        &Evidence {
            at,
            source: "import".into(),
            verdict: if bound.is_some() { Verdict::Accepted } else { Verdict::Noted },
            agent_session_id: old.agent_session.clone(),
            detail: format!("{} ({place}, {})", old.note, old.entry),
        },
    )?;
    let row = tx.session_number(n)?.ok_or(Error::NoSession(id))?;
    keep_back_life(tx, &row)?;
    // Publishing it now could lie over the very file it was read from.
    tx.set_published(n)?;
    tx.note_imported(&place, &old.entry, &row.shown_id(), at)?;
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
    let tells_apart = old.id.is_some() || old.time().is_some();
    let mut candidate = wanted.clone();
    let mut number = 1_u32;
    loop {
        let parsed = candidate.parse::<SessionId>().ok().filter(|id| id.to_string() == candidate);
        let id = parsed.unwrap_or_else(|| {
            SessionId(Uuid::new_v5(&NAMESPACE, format!("former\0{candidate}").as_bytes()))
        });
        let taken = tx.session(id)?.is_some() || tx.session_by_alias(&candidate)?.is_some();
        if !taken {
            return Ok(Some((id, parsed.is_none().then_some(candidate))));
        }
        if tells_apart && !tx.imported_under(source, &candidate)? {
            return Ok(None);
        }
        number += 1;
        candidate = format!("{wanted}-{number}");
    }
}
