//! The record of a session as people and scripts see it (`show --json`, the published files, `list --json`).

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

pub use super::coverage::Coverage;
use super::coverage::Reading;
use super::id::{AgentSessionId, RunId};
use super::state::{EndReason, EvidenceKind, Link, Phase, Status};
use crate::clock::Timestamp;
use crate::meter::price;
use crate::process::Pid;
use crate::store::{self, OpeningRow, RunProcesses, SessionRow, Totals, View};

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
        let read = Reading::of(view, row, &totals)?;
        Ok(Self::new(&totals, view.unpriced_calls(row.n)?, Coverage::of(row.link, read)))
    }
}

impl Reading {
    fn of(view: &View<'_>, row: &SessionRow, totals: &Totals) -> Result<Self, store::Error> {
        let &Totals { api_calls: calls, api_errors: errors, prompts, tool_calls, .. } = totals;
        let failed = row.exit_code.is_some_and(|code| code != 0);
        // Asked only where nothing else speaks: most sessions have calls.
        let silent = calls == 0 && errors == 0 && prompts == 0 && tool_calls == 0;
        let unreadable = match row.agent_session_file.as_ref().filter(|_| silent) {
            Some(file) => view.has_unreadable_lines(file)?,
            None => false,
        };
        Ok(Self { calls, errors, prompts, tool_calls, failed, unreadable })
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
    let mut beside = Beside::of(view, std::slice::from_ref(row))?;
    beside.record(view, row, now)
}

/// The records of many, in the same order.
pub fn records(
    view: &View<'_>,
    rows: &[SessionRow],
    now: Timestamp,
) -> Result<Vec<SessionRecord>, store::Error> {
    let mut beside = Beside::of(view, rows)?;
    rows.iter().map(|row| beside.record(view, row, now)).collect()
}

/// What records hold that is not in the sessions' own rows, by session.
struct Beside {
    runs: HashMap<i64, RunProcesses>,
    parents: HashMap<i64, String>,
    openings: HashMap<i64, Vec<OpeningRow>>,
    totals: HashMap<i64, Totals>,
    unpriced_calls: HashMap<i64, BTreeMap<String, i64>>,
    syncs: HashMap<i64, Sync>,
    tags: HashMap<i64, Vec<String>>,
}

impl Beside {
    fn of(view: &View<'_>, rows: &[SessionRow]) -> Result<Self, store::Error> {
        let sessions: Vec<i64> = rows.iter().map(|row| row.n).collect();
        Ok(Self {
            runs: view.processes_of(rows)?,
            parents: view.parents_of(rows)?,
            openings: view.openings_of(&sessions)?,
            totals: view.totals_of(&sessions)?,
            unpriced_calls: view.unpriced_calls_of(&sessions)?,
            syncs: view.syncs_of(rows)?,
            tags: view.tags_of(&sessions)?,
        })
    }

    fn record(
        &mut self,
        view: &View<'_>,
        row: &SessionRow,
        now: Timestamp,
    ) -> Result<SessionRecord, store::Error> {
        let run = row.run.and_then(|run| self.runs.get(&run));
        let totals = self.totals.get(&row.n).copied().unwrap_or_default();
        let unpriced_calls = self.unpriced_calls.remove(&row.n).unwrap_or_default();
        let coverage = Coverage::of(row.link, Reading::of(view, row, &totals)?);
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
            working_directory: row.place.cwd.to_string_lossy().into_owned(),
            project: row.place.project.clone(),
            repository: row.place.repository.clone(),
            branch: row.place.branch.clone(),
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
            usage: UsageSummary::new(&totals, unpriced_calls, coverage),
            sync: self.syncs.get(&row.n).copied().unwrap_or_default(),
            tags: self.tags.remove(&row.n).unwrap_or_default(),
            group: row.group.clone(),
        })
    }
}
