//! The record of a session as people and scripts see it (`show --json`, the published files, `list --json`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::coverage::Coverage;
use super::coverage::Reading;
use super::id::{AgentSessionId, RunId};
use super::state::{EndReason, EvidenceKind, Link, Phase, Status};
use crate::clock::Timestamp;
use crate::meter::price;
use crate::process::Pid;
use crate::store::{self, OpeningRow, SessionRow, Totals, View};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    pub session_id: String,
    pub name: String,
    pub agent: String,
    pub agent_version: Option<String>,
    pub wrapper_version: String,
    pub status: Status,
    pub end_reason: Option<EndReason>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub start_time: Timestamp,
    pub end_time: Option<Timestamp>,
    pub duration_ms: u64,
    pub working_directory: String,
    pub project: Option<String>,
    pub repository: Option<String>,
    pub branch: Option<String>,
    pub pid: Option<Pid>,
    pub wrapper_pid: Option<Pid>,
    pub run_id: Option<RunId>,
    pub parent_session_id: Option<String>,
    pub transitioned_from: Option<String>,
    pub transitioned_to: Option<String>,
    pub correlation: Correlation,
    pub usage: UsageSummary,
    pub sync: Sync,
    pub tags: Vec<String>,
    pub group: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Correlation {
    pub status: Link,
    pub agent_session_id: Option<AgentSessionId>,
    pub agent_session_file: Option<String>,
    pub evidence: Option<EvidenceKind>,
    pub bound_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageSummary {
    pub api_calls: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub cache_read_tokens: i64,
    pub cache_write_tokens: i64,
    pub reasoning_tokens: i64,
    pub cost_usd: f64,
    pub unpriced_models: Vec<String>,
    /// Of those that have a price, and none for one of their modes: how many calls have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unpriced_calls: BTreeMap<String, i64>,
    pub prompts: i64,
    pub tool_calls: i64,
    pub tool_errors: i64,
    pub files_changed: i64,
    pub lines_added: i64,
    pub lines_removed: i64,
    pub api_errors: i64,
    pub coverage: Coverage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sync {
    pub pending: i64,
    pub delivered: i64,
    pub dead: i64,
    pub last_delivered_at: Option<Timestamp>,
}

impl UsageSummary {
    pub fn new(totals: &Totals, unpriced: BTreeMap<String, i64>, coverage: Coverage) -> Self {
        Self {
            api_calls: totals.api_calls,
            input_tokens: totals.input,
            output_tokens: totals.output,
            cache_read_tokens: totals.cache_read,
            cache_write_tokens: totals.cache_write,
            reasoning_tokens: totals.reasoning,
            cost_usd: totals.cost.dollars(),
            unpriced_models: unpriced.keys().cloned().collect(),
            unpriced_calls: price::of_priced_models(unpriced),
            prompts: totals.prompts,
            tool_calls: totals.tool_calls,
            tool_errors: totals.tool_errors,
            files_changed: totals.files_changed,
            lines_added: totals.lines_added,
            lines_removed: totals.lines_removed,
            api_errors: totals.api_errors,
            coverage,
        }
    }

    pub(super) fn of(view: &View<'_>, row: &SessionRow) -> Result<Self, store::Error> {
        let totals = view.totals(row.n)?;
        let mut read = Reading::of(&totals, row.exit_code);
        // Asked only where nothing else speaks: most sessions have calls.
        if read == (Reading { failed: read.failed, ..Reading::default() })
            && let Some(file) = &row.agent_session_file
        {
            read.unreadable = view.has_unreadable_lines(file)?;
        }
        Ok(Self::new(&totals, view.unpriced_calls(row.n)?, Coverage::of(row.link, read)))
    }
}

impl Reading {
    /// Without the lines that could not be understood: sums do not count them.
    fn of(totals: &Totals, exit_code: Option<i32>) -> Self {
        let &Totals { api_calls: calls, api_errors: errors, prompts, tool_calls, .. } = totals;
        let failed = exit_code.is_some_and(|code| code != 0);
        Self { calls, errors, prompts, tool_calls, failed, unreadable: false }
    }
}

/// The time a session was open, all openings together; `now` closes the one that is still going on.
pub fn open_time(openings: &[OpeningRow], now: Timestamp) -> u64 {
    let spans =
        openings.iter().map(|opening| opening.closed_at.unwrap_or(now).since(opening.opened_at).as_millis());
    u64::try_from(spans.sum::<u128>()).unwrap_or(u64::MAX)
}

/// One session's record as of `now`.
pub fn record(view: &View<'_>, row: &SessionRow, now: Timestamp) -> Result<SessionRecord, store::Error> {
    let run = row.run.map(|run| view.run_number(run)).transpose()?.flatten();
    let parent = row.parent.map(|parent| view.session_number(parent)).transpose()?.flatten();
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
        duration_ms: open_time(&view.openings(row.n)?, now),
        working_directory: row.place.cwd.to_string_lossy().into_owned(),
        project: row.place.project.clone(),
        repository: row.place.repository.clone(),
        branch: row.place.branch.clone(),
        pid: run.as_ref().and_then(|run| run.agent),
        wrapper_pid: run.as_ref().map(|run| run.wrapper.pid),
        run_id: run.as_ref().map(|run| run.id),
        parent_session_id: parent.map(|parent| parent.shown_id()),
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
        usage: UsageSummary::of(view, row)?,
        sync: view.sync(row)?,
        tags: view.tags(row.n)?,
        group: row.group.clone(),
    })
}
