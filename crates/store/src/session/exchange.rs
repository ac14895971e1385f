//! Sessions as a file to take elsewhere: `codemie export`, and its reading back.
//!
//! The file holds the session's record, its openings, what `explain` knows, its records and its events with their ids,
//! numbers and revisions, so that whichever home sends them, the receiver sees the same events. It holds paths, as the
//! record does, and no word of a conversation, unless titles are asked for.
//!
//! A session that this home made or went on with is never touched by a file. One that came from a file is replaced by
//! a file that knows more of it. A call that another session here already owns stays that one's; the event of it comes
//! along all the same, so the numbers have no hole. One exported while active has ended here, unseen: it is shown as
//! interrupted, but no END is made up for it, since its own home will make the real one.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Error;
use super::names::{self, Name};
use super::record::record;
use super::state::{Exit, State};
use crate::old::EXPORT;
use crate::{EventRow, OpeningRow, RecordRow, SessionRow, Tx, View, Workspace};
use agents::meter::title::{Title, TitleSource};
use os::truncate::{self, shorten};
use types::Evidence;
use types::SessionId;
use types::SessionRecord;
use types::Timestamp;
use types::{EndReason, EventType, Link, StartReason, Status};

const VERSION: u32 = 1;

/// Whether titles, which are words of a conversation, go into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Titles {
    LeftOut,
    Included,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportFile {
    pub format: String,
    pub version: u32,
    pub exported_at: Timestamp,
    pub sessions: Vec<ExportedSession>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedSession {
    pub session: SessionRecord,
    /// As events are numbered; differs from the record's only for what an old store called otherwise.
    pub id: SessionId,
    pub name_base: String,
    pub name_number: u32,
    pub named: bool,
    pub owns_from: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proxied: bool,
    #[serde(default)]
    pub archived: bool,
    pub aliases: Vec<String>,
    pub openings: Vec<OpeningRow>,
    pub evidence: Vec<Evidence>,
    pub records: Vec<RecordRow>,
    /// A record names one file, and a patch may have changed several.
    #[serde(default)]
    pub changed_files: Vec<String>,
    pub events: Vec<ExportedEvent>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedEvent {
    pub id: Uuid,
    pub seq: i64,
    pub rev: i64,
    #[serde(rename = "type")]
    pub kind: EventType,
    pub opening: u32,
    pub time: Timestamp,
    pub attributes: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("the export is of a newer codemie (version {0}); update codemie")]
    Newer(u32),
    #[error("the export cannot be read: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("the export holds a {0} that cannot be: {1}")]
    Number(&'static str, i64),
}

/// No session is opened, cleared, written to or revised as often. Counting on from such a number never overflows.
const MAX_NUMBER: i64 = 1 << 30;

impl ExportedSession {
    /// Shortens texts that are longer than anybody needs. Other texts are shortened where they are checked (names, records) or
    /// stored (evidence).
    pub(super) fn shorten_texts(&mut self) {
        let record = &mut self.session;
        shorten(&mut record.agent, truncate::NAME);
        if record.working_directory.len() > truncate::PATH {
            record.working_directory.clear();
        }
        let file = &mut record.correlation.agent_session_file;
        *file = file.take().filter(|file| file.len() <= truncate::PATH);
        self.changed_files.retain(|file| file.len() <= truncate::PATH);
    }

    /// Refuses numbers and times that this home could not count on from.
    pub(super) fn check(&self) -> Result<(), ParseError> {
        let name = ("number of a name", 1, i64::from(self.name_number));
        let openings = self.openings.iter().map(|opening| ("number of an opening", 1, opening.number.into()));
        let events = self.events.iter().flat_map(|event| {
            [
                ("number of an opening", 1, event.opening.into()),
                ("number of an event", 1, event.seq),
                ("revision of an event", 0, event.rev),
            ]
        });
        if let Some((what, _, number)) = [name]
            .into_iter()
            .chain(openings)
            .chain(events)
            .find(|(_, least, n)| !(*least..=MAX_NUMBER).contains(n))
        {
            return Err(ParseError::Number(what, number));
        }
        let opened = self.openings.iter().flat_map(|opening| [Some(opening.opened_at), opening.closed_at]);
        let known = [Some(self.session.start_time), self.session.end_time, self.owns_from];
        let times = known.into_iter().chain(opened).chain(self.events.iter().map(|event| Some(event.time)));
        match times.flatten().find(|time| !time.is_a_date()) {
            Some(time) => Err(ParseError::Number("time", time.0)),
            None => Ok(()),
        }
    }
}

pub fn export(
    view: &View<'_>,
    rows: &[SessionRow],
    titles: Titles,
    now: Timestamp,
) -> Result<ExportFile, crate::Error> {
    let sessions = rows.iter().map(|row| {
        let mut session = exported(view, row, now)?;
        session.session.title = session.session.title.filter(|_| titles == Titles::Included);
        Ok(session)
    });
    let sessions = sessions.collect::<Result<_, crate::Error>>()?;
    Ok(ExportFile { format: EXPORT.into(), version: VERSION, exported_at: now, sessions })
}

fn exported(view: &View<'_>, row: &SessionRow, now: Timestamp) -> Result<ExportedSession, crate::Error> {
    let openings: Vec<u32> = view.events(row.n)?.into_iter().map(|event| event.opening).collect();
    let events = view.outgoing_of(row.n)?.into_iter().zip(openings).filter_map(|(event, opening)| {
        Some(ExportedEvent {
            id: event.id,
            seq: event.seq,
            rev: event.rev,
            // What a newer codemie has added it can export itself.
            kind: event.event_type()?,
            opening,
            time: event.time,
            // Structs of texts and numbers always have a JSON form.
            attributes: serde_json::to_value(&event.attributes).unwrap_or_default(),
        })
    });
    Ok(ExportedSession {
        session: record(view, row, now)?,
        id: row.id,
        name_base: row.name_base.clone(),
        name_number: row.name_number,
        named: row.named,
        owns_from: row.owns_from,
        proxied: row.proxied,
        archived: row.archived,
        aliases: view.aliases(row.n)?,
        openings: view.openings(row.n)?,
        evidence: view.evidence(row.n)?,
        records: view.records(row.n)?,
        changed_files: view.changed_files(row.n)?,
        events: events.collect(),
    })
}

pub(super) fn check_version(version: u64) -> Result<(), ParseError> {
    if version > u64::from(VERSION) {
        return Err(ParseError::Newer(u32::try_from(version).unwrap_or(u32::MAX)));
    }
    Ok(())
}

/// How much is known of a session: every event and every revision counts.
fn weight(revisions: impl Iterator<Item = i64>) -> i64 {
    revisions.fold(0, |sum, rev| sum.saturating_add(rev).saturating_add(1))
}

/// Imports an exported session. `None` if it holds nothing new.
pub(super) fn take_in(
    tx: &Tx<'_>,
    exported: &ExportedSession,
    source: &Path,
    at: Timestamp,
) -> Result<Option<SessionId>, Error> {
    if let Some(here) = tx.session(exported.id)? {
        let events = tx.events(here.n)?;
        let ours = here.id != exported.id
            || here.imported_from.is_none()
            || events.iter().any(|event| event.change.is_some());
        let newer = weight(exported.events.iter().map(|event| event.rev))
            > weight(events.iter().map(|event| event.rev));
        if ours || !newer {
            return Ok(None);
        }
        tx.delete_session(here.n)?;
    }
    let n = insert(tx, exported, source)?;
    for alias in exported.aliases.iter().filter(|alias| names::check(alias).is_ok()) {
        tx.add_alias(alias, n)?;
    }
    for tag in exported.session.tags.iter().filter_map(|tag| names::check_tag(tag).ok()) {
        tx.add_tag(n, tag)?;
    }
    for evidence in &exported.evidence {
        tx.insert_evidence(n, None, evidence)?;
    }
    for row in &exported.records {
        let agent = &exported.session.agent;
        if row.is_plausible() && !is_known(tx, agent, row)? {
            tx.insert_record_row(agent, n, row)?;
            if row.kind == crate::RecordKind::Usage {
                for key in row.keys() {
                    tx.take_back_call(agent, key)?;
                }
            }
        }
    }
    for file in &exported.changed_files {
        tx.note_changed_file(n, file)?;
    }
    let title = exported.session.title.as_deref();
    if let Some(title) = title.and_then(|title| Title::given(TitleSource::Agent, title)) {
        tx.set_title(exported.id, &title)?;
    }
    tx.recount(n)?;
    for event in &exported.events {
        insert_event(tx, n, &exported.session.agent, event)?;
    }
    tx.set_last_seq(n, exported.events.iter().map(|event| event.seq).max().unwrap_or(0))?;
    tx.set_archived(n, exported.archived)?;
    tx.set_published(n)?;
    tx.note_imported(&source.to_string_lossy(), &exported.id.to_string(), &exported.session.session_id, at)?;
    Ok(Some(exported.id))
}

/// Whether a session here has a record under any of its keys.
fn is_known(tx: &Tx<'_>, agent: &str, row: &RecordRow) -> Result<bool, Error> {
    for key in row.keys() {
        if tx.stored_record(agent, row.kind, key)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn insert(tx: &Tx<'_>, exported: &ExportedSession, source: &Path) -> Result<i64, Error> {
    let record = &exported.session;
    let wanted = names::of_elsewhere(Some(&record.name), &record.agent, record.start_time);
    let name = names::first(tx, &wanted)?;
    let same_name =
        name.full == record.name && names::is_of(&record.name, &exported.name_base, exported.name_number);
    let parsed = |id: &Option<String>| id.as_deref().and_then(|id| id.parse::<SessionId>().ok());
    let parent = match parsed(&record.parent_session_id) {
        Some(parent) => tx.session(parent)?.map(|parent| parent.n),
        None => None,
    };
    let first = exported.openings.first();
    let name = if same_name {
        Name { full: name.full, base: exported.name_base.clone(), number: exported.name_number }
    } else {
        name
    };
    let workspace = Workspace {
        cwd: record.working_directory.clone().into(),
        project: record.project.clone(),
        repository: record.repository.clone(),
        branch: record.branch.clone(),
    };
    let group = record.group.clone().filter(|group| names::check_group(group).is_ok());
    let new = SessionRow {
        named: exported.named,
        local_only: record.agent == types::DEMO,
        agent_version: record.agent_version.clone(),
        parent,
        transitioned_from: first.and_then(|opening| opening.transitioned_from),
        owns_from: exported.owns_from,
        group,
        proxied: exported.proxied,
        ..SessionRow::new(exported.id, record.agent.clone(), name, workspace, record.start_time)
    };
    let n = tx.insert_session(&new, first.map_or(StartReason::Startup, |opening| opening.reason))?;
    // An older store's id, which is an alias of it here as it was there. Anything else that is shown could not be asked for.
    let former = Some(&record.session_id)
        .filter(|id| {
            exported.aliases.contains(id) && names::check(id).is_ok() && id.parse::<SessionId>().is_err()
        })
        .map(String::as_str);
    tx.set_imported(n, &source.to_string_lossy(), former)?;
    tx.replace_openings(n, &exported.openings, parsed(&record.transitioned_from))?;

    let correlation = &record.correlation;
    let bound = match &correlation.agent_session_id {
        Some(id) if correlation.status == Link::Matched && id.is_plain() => {
            let free = tx.session_by_agent_session(&record.agent, id)?.is_none();
            free.then_some(id)
        }
        _ => None,
    };
    if let Some(id) = bound {
        let file = correlation.agent_session_file.as_deref().map(Path::new);
        match (correlation.evidence, correlation.bound_at) {
            (Some(evidence), Some(at)) => tx.set_binding(n, id, file, evidence, at)?,
            _ => tx.set_imported_binding(n, id, file)?,
        }
    }
    tx.set_phase(n, (if bound.is_some() { State::ClosedMatched } else { State::ClosedFailed }).parts())?;
    let row = tx.session_number(n)?.ok_or(Error::NoSession(exported.id))?;
    let exit = record.exit_code.map(Exit::Code).or(record.signal.map(Exit::Signal));
    let last_seen = record.end_time.unwrap_or(Timestamp(
        record.start_time.0.saturating_add(i64::try_from(record.duration_ms).unwrap_or(0)),
    ));
    let (status, reason) = match (record.status, record.end_reason) {
        (Status::Active, _) | (_, None) => (Status::Interrupted, EndReason::Crash),
        (status, Some(reason)) => (status, reason),
    };
    tx.close_session(&row, last_seen, status, reason, exit, parsed(&record.transitioned_to))?;
    Ok(n)
}

fn insert_event(tx: &Tx<'_>, session: i64, agent: &str, event: &ExportedEvent) -> Result<(), Error> {
    let kind = match event.kind {
        EventType::Usage => Some(crate::RecordKind::Usage),
        EventType::Tool => Some(crate::RecordKind::Tool),
        EventType::Prompt => Some(crate::RecordKind::Prompt),
        EventType::Error => Some(crate::RecordKind::Error),
        EventType::Start | EventType::Bound | EventType::Quota | EventType::End => None,
    };
    let key = event.attributes.get("key").and_then(Value::as_str);
    let known = match (kind, key) {
        (Some(kind), Some(key)) => {
            tx.stored_record(agent, kind, key)?.filter(|known| known.session == session)
        }
        _ => None,
    };
    Ok(tx.insert_event(&EventRow {
        seq: event.seq,
        rev: event.rev,
        record: known.as_ref().map(|known| known.n),
        attributes: known.is_none().then(|| event.attributes.to_string()),
        ..EventRow::new(session, event.id, event.kind, event.opening, event.time)
    })?)
}
