//! The events that describe a session's life: START, bound and END. Nothing here leaves the machine by itself, but all of it
//! may: no path, no word of a conversation.

use super::record::{open_time, usage_of};
use super::state::Phase;
use crate::{EventRow, SessionRow, Tx, View};
use types::event::{Bound, Dimension, End, Seq, Start, Tags, Text, opening_id};
use types::{AgentSessionId, Attributes, EventType, EvidenceKind, StartReason, Status, Timestamp};

fn start(view: &View<'_>, row: &SessionRow) -> Result<Attributes, crate::Error> {
    let text = |text: &str| Text::cut(text.to_owned());
    let opening = view.openings(row.n)?.pop();
    let parent = row.parent.map(|parent| view.session_number(parent)).transpose()?.flatten();
    // A provisional session's id may turn out to be an alias, and nothing of it is ever reported.
    let parent = parent.filter(|parent| parent.phase != Phase::Provisional);
    Ok(Attributes::Start(Start {
        agent_version: row.agent_version.as_deref().map(text),
        branch: row.workspace.branch.as_deref().map(text),
        group: row.group.as_deref().map(text),
        name: Some(text(&row.name)),
        parent_session_id: parent.map(|parent| text(&parent.id.to_string())),
        project: row.workspace.project.clone().map(Dimension::cut),
        reason: Some(opening.map_or(StartReason::Startup, |opening| opening.reason)),
        repository: row.workspace.repository.as_deref().map(text),
        tags: Tags::cut(view.tags(row.n)?),
        transitioned_from: row.transitioned_from.map(|id| text(&id.to_string())),
        wrapper_version: Some(text(&row.wrapper_version)),
    }))
}

fn bound(agent_session: &AgentSessionId, evidence: Option<EvidenceKind>) -> Attributes {
    Attributes::Bound(Bound { agent_session_id: Text::cut(agent_session.0.clone()), evidence })
}

fn end(view: &View<'_>, row: &SessionRow, last_seq: i64) -> Result<Attributes, crate::Error> {
    Ok(Attributes::End(Box::new(End {
        duration_ms: open_time(&view.openings(row.n)?, row.ended_at.unwrap_or(row.started_at)).into(),
        end_reason: row.end_reason,
        exit_code: row.exit_code,
        last_seq: Seq(last_seq),
        // A session that ended has one.
        status: row.status.unwrap_or(Status::Interrupted),
        totals: Some(usage_of(view, row)?.into()),
        transitioned_to: row.transitioned_to.map(|id| Text::cut(id.to_string())),
    })))
}

/// Queues the START of the session's last opening.
pub(super) fn queue_start(tx: &Tx<'_>, row: &SessionRow, time: Timestamp) -> Result<(), crate::Error> {
    queue(tx, row, time, &start(tx, row)?)
}

pub(super) fn queue_bound(
    tx: &Tx<'_>,
    row: &SessionRow,
    time: Timestamp,
    agent_session_id: &AgentSessionId,
    evidence: EvidenceKind,
) -> Result<(), crate::Error> {
    queue(tx, row, time, &bound(agent_session_id, Some(evidence)))
}

pub(super) fn queue_end(tx: &Tx<'_>, row: &SessionRow, time: Timestamp) -> Result<(), crate::Error> {
    queue(tx, row, time, &end(tx, row, tx.next_seq(row.n)?)?)
}

fn queue(
    tx: &Tx<'_>,
    row: &SessionRow,
    time: Timestamp,
    attributes: &Attributes,
) -> Result<(), crate::Error> {
    let event = event(row, time, attributes);
    let kind = event.kind.clone();
    let (seq, session) = (tx.append_event(event)?, row.id);
    tx.log_after_commit(move || match kind.known() {
        Some(EventType::Start) => tracing::info!(%session, seq, "START queued"),
        Some(EventType::Bound) => tracing::info!(%session, seq, "bound queued"),
        _ => tracing::info!(%session, seq, "END queued"),
    });
    Ok(())
}

fn event(row: &SessionRow, time: Timestamp, attributes: &Attributes) -> EventRow {
    let kind = attributes.event_type().unwrap_or(EventType::Start);
    let id = opening_id(row.id, kind, row.opening);
    EventRow { attributes: Some(attributes.to_json()), ..EventRow::new(row.n, id, kind, row.opening, time) }
}

/// START, bound and END of an imported session, kept back until a backfill or until it is opened again.
pub(super) fn keep_back_life(tx: &Tx<'_>, row: &SessionRow) -> Result<(), crate::Error> {
    let mut life = vec![(row.started_at, start(tx, row)?)];
    if let Some(agent_session) = &row.agent_session {
        life.push((row.bound_at.unwrap_or(row.started_at), bound(agent_session, row.evidence)));
    }
    let last_seq = i64::try_from(life.len() + 1).unwrap_or(i64::MAX);
    life.push((row.ended_at.unwrap_or(row.started_at), end(tx, row, last_seq)?));
    for (seq, (time, attributes)) in (1..).zip(&life) {
        tx.insert_event(&EventRow { seq, ..event(row, *time, attributes) })?;
    }
    tx.set_last_seq(row.n, last_seq)
}

/// A new revision of the last START: the name, a tag or the agent's version became another. One held back needs none.
pub(super) fn revise_start(tx: &Tx<'_>, row: &SessionRow) -> Result<(), crate::Error> {
    match tx.event_of_opening(row.n, EventType::Start, row.opening)? {
        Some(event) => tx.revise_event(event.n, Some(&start(tx, row)?.to_json())),
        None => Ok(()),
    }
}

/// A new revision of the last END, with the sums and the highest `seq` of now.
pub(super) fn amend_end(tx: &Tx<'_>, row: &SessionRow) -> Result<(), crate::Error> {
    let Some(event) = tx.event_of_opening(row.n, EventType::End, row.opening)? else { return Ok(()) };
    tx.revise_event(event.n, Some(&end(tx, row, row.last_seq)?.to_json()))?;
    let (session, seq, rev) = (row.id, row.last_seq, event.rev + 1);
    tx.log_after_commit(move || tracing::info!(%session, rev, last_seq = seq, "END amended"));
    Ok(())
}
