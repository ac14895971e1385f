//! The limits that an agent's API reports: by the proxy with each answer, or in the agent's own files.
//!
//! A report belongs to the session whose call brought it. It becomes an event at most once a minute and window, over all
//! sessions of the agent, and whenever the window has begun anew. What is older than the last report of the same limit is not
//! reported again, so that a file read twice changes nothing.

use super::Error;
use super::event::amend_end;
use super::state::{Phase, State};
use crate::{EventRow, SessionRow, Tx};
use agents::meter::quota::QuotaReport;
use types::event::{Quota, Text, Time, keyed_id};
use types::{Attributes, EventType, Link, SessionId, Timestamp};

const BETWEEN_EVENTS_MS: i64 = 60_000;

/// Takes in a report that came with a call of this session; `at`: when.
pub fn take(tx: &Tx<'_>, at: Timestamp, session: SessionId, report: &QuotaReport) -> Result<(), Error> {
    let row = tx.session(session)?.ok_or(Error::NoSession(session))?;
    if !report.is_plausible() || !at.is_a_date() {
        return Ok(());
    }
    let seen = tx.last_quota_use(row.n, &report.provider, &report.window)?;
    let period = match &seen {
        Some(seen) if at <= seen.last_at => None,
        Some(seen) if report.is_new_window(seen.resets_at, seen.last) => Some(seen.period + 1),
        Some(seen) => Some(seen.period),
        None => Some(0),
    };
    if let Some(period) = period {
        tx.note_quota_use(row.n, period, at, report)?;
    }
    if note(tx, at, &row.agent, Some(&row), report)? && row.link == Link::Matched {
        queue(tx, at, &row, report)?;
    }
    Ok(())
}

/// Takes in a report that came with a call whose session is not known: it is the agent's last one, and no event.
pub fn take_unowned(tx: &Tx<'_>, at: Timestamp, agent: &str, report: &QuotaReport) -> Result<(), Error> {
    if report.is_plausible() && at.is_a_date() {
        note(tx, at, agent, None, report)?;
    }
    Ok(())
}

/// Takes in the reports that were read in a session's file. Those from before the session are another's.
pub fn take_read(tx: &Tx<'_>, session: SessionId, reports: &[(Timestamp, QuotaReport)]) -> Result<(), Error> {
    let Some(row) = tx.session(session)?.filter(|_| !reports.is_empty()) else { return Ok(()) };
    for (at, report) in reports.iter().filter(|(at, _)| row.owns_from.is_none_or(|from| *at >= from)) {
        take(tx, *at, session, report)?;
    }
    Ok(())
}

/// Notes the last report of a limit. Whether it is to become an event.
fn note(
    tx: &Tx<'_>,
    at: Timestamp,
    agent: &str,
    session: Option<&SessionRow>,
    report: &QuotaReport,
) -> Result<bool, Error> {
    let last = tx.quota(agent, &report.provider, &report.window)?;
    if last.as_ref().is_some_and(|last| at <= last.at) {
        return Ok(false);
    }
    let due = last.as_ref().is_none_or(|last| {
        at.0.saturating_sub(last.event_at.0) >= BETWEEN_EVENTS_MS
            || report.is_new_window(last.report.resets_at, last.report.utilization)
    });
    let due = due && session.is_some();
    // Of a limit that no event was made of yet, the next report of a session is due at once.
    let event_at = if due { at } else { last.map_or(Timestamp(0), |last| last.event_at) };
    tx.set_quota(agent, at, report, event_at)?;
    if due {
        tx.add_quota_report(agent, session.map(|row| row.n), at, report)?;
    }
    Ok(due)
}

fn queue(tx: &Tx<'_>, at: Timestamp, row: &SessionRow, report: &QuotaReport) -> Result<(), Error> {
    let json = Attributes::Quota(Quota {
        provider: Text::cut(report.provider.clone()),
        resets_at: report.resets_at.map(Time),
        source: Some(report.source),
        utilization: report.utilization,
        window: Text::cut(report.window.clone()),
    })
    .to_json();
    let key = format!("{} {} {} {}", row.id, report.provider, report.window, at.0);
    let id = keyed_id(&row.agent, EventType::Quota, &key);
    let event = EventRow::new(row.n, id, EventType::Quota, row.opening, at);
    tx.append_event(EventRow { attributes: Some(json), ..event })?;
    if row.phase == Phase::Closed
        && let Some(row) = tx.session_number(row.n)?
    {
        amend_end(tx, &row)?;
        tx.set_phase(row.n, State::of_row(&row)?.parts())?;
    }
    Ok(())
}
