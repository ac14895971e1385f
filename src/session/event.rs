//! The events that tell of a session's life: their ids and what START, bound and END say. Nothing here leaves the
//! machine by itself, but all of it may: no path, no word of a conversation.

use serde::Serialize;
use uuid::Uuid;

use super::record::{open_time, usage_of};
use super::state::Phase;
use crate::store::{self, Draft, SessionRow, Tx, View};
use wire::Timestamp;
use wire::UsageSummary;
use wire::{AgentSessionId, SessionId};
use wire::{EndReason, EventType, EvidenceKind, StartReason, Status};

/// The namespace of all event ids. Changing it would count everything twice.
pub const NAMESPACE: Uuid = Uuid::from_u128(0xf2e5_9732_da71_44bf_b6e4_7c46_ea0d_0566);

/// The id of an event that tells of something the agent has a key for. The session is left out, so the same call read
/// from a copy of the conversation makes the same event.
pub fn keyed_id(agent: &str, kind: EventType, key: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{agent}\0{kind}\0{key}").as_bytes())
}

/// The id of a START, bound or END.
pub fn opening_id(session: SessionId, kind: EventType, opening: u32) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{session}\0{kind}\0{opening}").as_bytes())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartAttributes<'a> {
    name: &'a str,
    reason: StartReason,
    agent_version: Option<&'a str>,
    wrapper_version: &'a str,
    project: Option<&'a str>,
    repository: Option<&'a str>,
    branch: Option<&'a str>,
    transitioned_from: Option<SessionId>,
    parent_session_id: Option<SessionId>,
    tags: Vec<String>,
    group: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BoundAttributes<'a> {
    agent_session_id: &'a AgentSessionId,
    evidence: Option<EvidenceKind>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndAttributes {
    status: Option<Status>,
    end_reason: Option<EndReason>,
    exit_code: Option<i32>,
    duration_ms: u64,
    transitioned_to: Option<SessionId>,
    totals: UsageSummary,
    last_seq: i64,
}

/// Structs of strings and numbers always have a JSON form.
fn json(attributes: &impl Serialize) -> String {
    serde_json::to_string(attributes).unwrap_or_default()
}

fn start_attributes(view: &View<'_>, row: &SessionRow) -> Result<String, store::Error> {
    let opening = view.openings(row.n)?.pop();
    let parent = row.parent.map(|parent| view.session_number(parent)).transpose()?.flatten();
    Ok(json(&StartAttributes {
        name: &row.name,
        reason: opening.as_ref().map_or(StartReason::Startup, |opening| opening.reason),
        agent_version: row.agent_version.as_deref(),
        wrapper_version: &row.wrapper_version,
        project: row.place.project.as_deref(),
        repository: row.place.repository.as_deref(),
        branch: row.place.branch.as_deref(),
        transitioned_from: row.transitioned_from,
        // A provisional session's id may turn out to be an alias, and nothing of it is ever told.
        parent_session_id: parent.filter(|parent| parent.phase != Phase::Provisional).map(|parent| parent.id),
        tags: view.tags(row.n)?,
        group: row.group.as_deref(),
    }))
}

fn end_attributes(view: &View<'_>, row: &SessionRow, last_seq: i64) -> Result<String, store::Error> {
    Ok(json(&EndAttributes {
        status: row.status,
        end_reason: row.end_reason,
        exit_code: row.exit_code,
        duration_ms: open_time(&view.openings(row.n)?, row.ended_at.unwrap_or(row.started_at)),
        transitioned_to: row.transitioned_to,
        totals: usage_of(view, row)?,
        last_seq,
    }))
}

/// Queues the START of the session's last opening.
pub(super) fn queue_start(tx: &Tx<'_>, row: &SessionRow, time: Timestamp) -> Result<(), store::Error> {
    let attributes = start_attributes(tx, row)?;
    queue(tx, row, EventType::Start, time, &attributes)
}

pub(super) fn queue_bound(
    tx: &Tx<'_>,
    row: &SessionRow,
    time: Timestamp,
    agent_session_id: &AgentSessionId,
    evidence: EvidenceKind,
) -> Result<(), store::Error> {
    queue(
        tx,
        row,
        EventType::Bound,
        time,
        &json(&BoundAttributes { agent_session_id, evidence: Some(evidence) }),
    )
}

pub(super) fn queue_end(tx: &Tx<'_>, row: &SessionRow, time: Timestamp) -> Result<(), store::Error> {
    let attributes = end_attributes(tx, row, tx.next_seq(row.n)?)?;
    queue(tx, row, EventType::End, time, &attributes)
}

fn queue(
    tx: &Tx<'_>,
    row: &SessionRow,
    kind: EventType,
    time: Timestamp,
    attributes: &str,
) -> Result<(), store::Error> {
    let id = opening_id(row.id, kind, row.opening);
    let draft = Draft { id, kind, opening: row.opening, time, record: None, attributes: Some(attributes) };
    let (seq, session) = (tx.append_event(row.n, &draft)?, row.id);
    tx.say(move || match kind {
        EventType::Start => tracing::info!(%session, seq, "START queued"),
        EventType::Bound => tracing::info!(%session, seq, "bound queued"),
        _ => tracing::info!(%session, seq, "END queued"),
    });
    Ok(())
}

/// The whole life of a session that was lived elsewhere, kept back until someone asks for it to be sent.
pub(super) fn keep_back_life(tx: &Tx<'_>, row: &SessionRow) -> Result<(), store::Error> {
    let mut life = vec![(EventType::Start, row.started_at, start_attributes(tx, row)?)];
    if let Some(agent_session_id) = &row.agent_session {
        let bound = json(&BoundAttributes { agent_session_id, evidence: row.evidence });
        life.push((EventType::Bound, row.bound_at.unwrap_or(row.started_at), bound));
    }
    let last_seq = i64::try_from(life.len() + 1).unwrap_or(i64::MAX);
    life.push((EventType::End, row.ended_at.unwrap_or(row.started_at), end_attributes(tx, row, last_seq)?));
    for (seq, (kind, time, attributes)) in (1..).zip(&life) {
        let id = opening_id(row.id, *kind, row.opening);
        let draft = Draft {
            id,
            kind: *kind,
            opening: row.opening,
            time: *time,
            record: None,
            attributes: Some(attributes),
        };
        tx.insert_event(row.n, seq, 0, &draft, None)?;
    }
    tx.set_last_seq(row.n, last_seq)
}

/// A new revision of the last START: the name, a tag or the agent's version became another. One held back needs none.
pub(super) fn revise_start(tx: &Tx<'_>, row: &SessionRow) -> Result<(), store::Error> {
    match tx.event_of_opening(row.n, EventType::Start, row.opening)? {
        Some(event) => tx.revise_event(event.n, Some(&start_attributes(tx, row)?)),
        None => Ok(()),
    }
}

/// A new revision of the last END, with the sums and the highest `seq` of now.
pub(super) fn amend_end(tx: &Tx<'_>, row: &SessionRow) -> Result<(), store::Error> {
    let Some(event) = tx.event_of_opening(row.n, EventType::End, row.opening)? else { return Ok(()) };
    tx.revise_event(event.n, Some(&end_attributes(tx, row, row.last_seq)?))?;
    let (session, seq, rev) = (row.id, row.last_seq, event.rev + 1);
    tx.say(move || tracing::info!(%session, rev, last_seq = seq, "END amended"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_in_every_version() {
        // Written down once: a backend holds these, and another spelling would count everything again.
        assert_eq!(
            keyed_id("claude", EventType::Usage, "msg_0001").to_string(),
            "db9134c4-cda6-52de-b5f3-6444cfd3ee65"
        );
        let session = "01a1e18d-8b20-4000-8000-000000000001".parse().unwrap();
        assert_eq!(
            opening_id(session, EventType::Start, 1).to_string(),
            "820e2dcb-23d5-5fe5-8768-f938418d0541"
        );
        assert_ne!(opening_id(session, EventType::End, 1), opening_id(session, EventType::End, 2));
        assert_ne!(keyed_id("claude", EventType::Usage, "k"), keyed_id("codex", EventType::Usage, "k"));
    }
}
