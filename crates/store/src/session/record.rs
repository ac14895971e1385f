//! The record of a session as people and scripts see it (`show --json`, the published files, `list --json`).

use std::collections::{BTreeMap, HashMap};

use types::{Correlation, Coverage, Reading, SessionRecord, Status, Sums, Sync, Timestamp, UsageSummary};

use super::state::Phase;
use crate::{OpeningRow, RunProcesses, SessionRow, View};

/// A session's sums in the form of its record.
pub fn summary(sums: Sums, unpriced: BTreeMap<String, i64>, coverage: Coverage) -> UsageSummary {
    let models = unpriced.keys().cloned().collect();
    sums.summary(models, pricing::of_priced_models(unpriced), coverage)
}

/// The sums of a session as they are now.
pub(super) fn usage_of(view: &View<'_>, row: &SessionRow) -> Result<UsageSummary, crate::Error> {
    let totals = view.totals(row.n)?;
    let read = reading(view, row, &totals)?;
    Ok(summary(totals, view.unpriced_calls(row.n)?, Coverage::of(row.link, read)))
}

/// How much was read of its conversation, for the coverage.
fn reading(view: &View<'_>, row: &SessionRow, totals: &Sums) -> Result<Reading, crate::Error> {
    let &Sums { api_errors: errors, prompts, tool_calls, .. } = totals;
    let calls = totals.calls.api_calls;
    let failed = row.exit_code.is_some_and(|code| code != 0);
    // Looked up only for sessions without any number: most have calls.
    let silent = calls == 0 && errors == 0 && prompts == 0 && tool_calls == 0;
    let unreadable = match row.agent_session_file.as_ref().filter(|_| silent) {
        Some(file) => view.has_unreadable_lines(file)?,
        None => false,
    };
    let proxied = row.proxied;
    let unseen = proxied && (view.has_unseen_calls(row.n)? || view.unread_usage_of(row.n)? > 0);
    Ok(Reading { calls, errors, prompts, tool_calls, failed, unreadable, proxied, unseen })
}

/// The time a session was open, all openings together; `now` closes the one that is still going on.
pub fn open_time(openings: &[OpeningRow], now: Timestamp) -> u64 {
    let spans =
        openings.iter().map(|opening| opening.closed_at.unwrap_or(now).since(opening.opened_at).as_millis());
    u64::try_from(spans.sum::<u128>()).unwrap_or(u64::MAX)
}

/// One session's record as of `now`.
pub fn record(view: &View<'_>, row: &SessionRow, now: Timestamp) -> Result<SessionRecord, crate::Error> {
    let mut related = RelatedRows::of(view, std::slice::from_ref(row))?;
    related.record(view, row, now)
}

/// The records of many, in the same order.
pub fn records(
    view: &View<'_>,
    rows: &[SessionRow],
    now: Timestamp,
) -> Result<Vec<SessionRecord>, crate::Error> {
    let mut related = RelatedRows::of(view, rows)?;
    rows.iter().map(|row| related.record(view, row, now)).collect()
}

/// The rows that records are made from besides those of the sessions themselves.
struct RelatedRows {
    runs: HashMap<i64, RunProcesses>,
    parents: HashMap<i64, String>,
    openings: HashMap<i64, Vec<OpeningRow>>,
    totals: HashMap<i64, Sums>,
    unpriced_calls: HashMap<i64, BTreeMap<String, i64>>,
    syncs: HashMap<i64, Sync>,
    tags: HashMap<i64, Vec<String>>,
    models: HashMap<i64, Vec<String>>,
}

impl RelatedRows {
    fn of(view: &View<'_>, rows: &[SessionRow]) -> Result<Self, crate::Error> {
        let sessions: Vec<i64> = rows.iter().map(|row| row.n).collect();
        Ok(Self {
            runs: view.processes_of(rows)?,
            parents: view.parents_of(rows)?,
            openings: view.openings_of(&sessions)?,
            totals: view.totals_of(&sessions)?,
            unpriced_calls: view.unpriced_calls_of(&sessions)?,
            syncs: view.syncs_of(rows)?,
            tags: view.tags_of(&sessions)?,
            models: view.models_of(&sessions)?,
        })
    }

    fn record(
        &mut self,
        view: &View<'_>,
        row: &SessionRow,
        now: Timestamp,
    ) -> Result<SessionRecord, crate::Error> {
        let run = row.run.and_then(|run| self.runs.get(&run));
        let totals = self.totals.get(&row.n).copied().unwrap_or_default();
        let unpriced_calls = self.unpriced_calls.remove(&row.n).unwrap_or_default();
        let coverage = Coverage::of(row.link, reading(view, row, &totals)?);
        Ok(SessionRecord {
            session_id: row.shown_id(),
            name: row.name.clone(),
            agent: row.agent.clone(),
            agent_version: row.agent_version.clone(),
            wrapper_version: row.wrapper_version.clone(),
            status: row.status.filter(|_| row.phase == Phase::Closed).unwrap_or(Status::Active),
            end_reason: row.end_reason,
            exit_code: row.exit_code,
            signal: row.signal,
            start_time: row.started_at,
            end_time: row.ended_at,
            duration_ms: self.openings.get(&row.n).map_or(0, |openings| open_time(openings, now)),
            working_directory: row.workspace.cwd.to_string_lossy().into_owned(),
            project: row.workspace.project.clone(),
            repository: row.workspace.repository.clone(),
            branch: row.workspace.branch.clone(),
            pid: run.and_then(|run| run.agent),
            wrapper_pid: run.map(|run| run.wrapper),
            run_id: run.map(|run| run.id),
            parent_session_id: row.parent.and_then(|parent| self.parents.get(&parent).cloned()),
            transitioned_from: row.transitioned_from.map(|id| id.to_string()),
            transitioned_to: row.transitioned_to.map(|id| id.to_string()),
            correlation: Correlation {
                status: row.link,
                agent_session_id: row.agent_session.clone(),
                agent_session_file: row
                    .agent_session_file
                    .as_ref()
                    .map(|file| file.to_string_lossy().into_owned()),
                evidence: row.evidence,
                bound_at: row.bound_at,
            },
            usage: summary(totals, unpriced_calls, coverage),
            sync: self.syncs.get(&row.n).copied().unwrap_or_default(),
            tags: self.tags.remove(&row.n).unwrap_or_default(),
            group: row.group.clone(),
            title: row.title.clone(),
            models: self.models.remove(&row.n).unwrap_or_default(),
            state: None,
        })
    }
}
