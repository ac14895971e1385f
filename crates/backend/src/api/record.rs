//! The record of a session, with the names of `codemie show --json`, as far as events describe it.

use serde::Serialize;

use reader::Session;
use types::Timestamp;

use types::AgentSessionId;
use types::Reading;
use types::{Correlation, Coverage, UsageSummary};
use types::{EndReason, Status};

/// Facts that stay on the machine (folder, processes, the agent's file) are null.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub session_id: String,
    pub name: String,
    pub agent: String,
    pub agent_version: Option<String>,
    pub wrapper_version: Option<String>,
    pub status: Status,
    pub end_reason: Option<EndReason>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub start_time: Timestamp,
    pub end_time: Option<Timestamp>,
    pub duration_ms: i64,
    pub working_directory: Option<String>,
    pub project: Option<String>,
    pub repository: Option<String>,
    pub branch: Option<String>,
    pub pid: Option<u32>,
    pub wrapper_pid: Option<u32>,
    pub run_id: Option<String>,
    pub parent_session_id: Option<String>,
    pub transitioned_from: Option<String>,
    pub transitioned_to: Option<String>,
    pub correlation: Correlation,
    pub usage: UsageSummary,
    pub tags: Vec<String>,
    pub group: Option<String>,
    pub machine: Option<String>,
    pub user: Option<String>,
    /// START, END and every `seq` are there.
    pub complete: bool,
    pub missing_seq: Vec<(i64, i64)>,
    pub last_event_at: Timestamp,
    pub received_at: Timestamp,
}

impl Record {
    pub fn of(session: &Session, now: Timestamp) -> Self {
        let start = session.life.start.as_ref().map(|start| &start.value);
        let end = session.ending();
        let bound = session.life.bound.as_ref();
        Self {
            session_id: session.id.clone(),
            name: session.name().to_owned(),
            agent: session.life.agent.clone(),
            agent_version: start.and_then(|start| start.agent_version.as_deref().map(str::to_owned)),
            wrapper_version: start.and_then(|start| start.wrapper_version.as_deref().map(str::to_owned)),
            status: session.status(),
            end_reason: end.and_then(|end| end.value.end_reason),
            exit_code: end.and_then(|end| end.value.exit_code),
            signal: None,
            start_time: session.started_at(),
            end_time: end.map(|end| end.time),
            duration_ms: session.duration_ms(now),
            working_directory: None,
            project: session.project().map(str::to_owned),
            repository: session.repository().map(str::to_owned),
            branch: session.branch().map(str::to_owned),
            pid: None,
            wrapper_pid: None,
            run_id: None,
            parent_session_id: session.parent().map(str::to_owned),
            transitioned_from: session.transitioned_from().map(str::to_owned),
            transitioned_to: session.transitioned_to().map(str::to_owned),
            correlation: Correlation {
                status: session.link(),
                agent_session_id: session.agent_session().map(|id| AgentSessionId(id.to_owned())),
                agent_session_file: None,
                evidence: bound.and_then(|bound| bound.value.evidence),
                bound_at: bound.map(|bound| bound.time),
            },
            usage: usage(session),
            tags: session.tags().iter().map(|tag| tag.to_string()).collect(),
            group: session.group().map(str::to_owned),
            machine: session.life.machine.clone(),
            user: session.life.user.clone(),
            complete: session.complete(),
            missing_seq: session.missing_seq(),
            last_event_at: session.last_at,
            received_at: session.received_at,
        }
    }
}

/// The sums over its events. No event names the changed files, so their number is the sender's.
fn usage(session: &Session) -> UsageSummary {
    let numbers = &session.numbers;
    let totals = session.life.end.as_ref().and_then(|end| end.value.totals.as_ref());
    let read = Reading {
        calls: numbers.api_calls,
        errors: numbers.api_errors,
        prompts: numbers.prompts,
        tool_calls: numbers.tool_calls,
        failed: session
            .life
            .end
            .as_ref()
            .is_some_and(|end| end.value.exit_code.is_some_and(|code| code != 0)),
        // No event reports these; an END does, by its coverage.
        unreadable: false,
        proxied: false,
        unseen: false,
    };
    UsageSummary {
        api_calls: numbers.api_calls,
        input_tokens: numbers.input,
        output_tokens: numbers.output,
        cache_read_tokens: numbers.cache_read,
        cache_write_tokens: numbers.cache_write,
        reasoning_tokens: numbers.reasoning,
        cost_usd: numbers.dollars(),
        unpriced_models: session.unpriced.keys().cloned().collect(),
        unpriced_calls: pricing::of_priced_models(session.unpriced.clone()),
        prompts: numbers.prompts,
        tool_calls: numbers.tool_calls,
        tool_errors: numbers.tool_errors,
        files_changed: totals.map_or(0, |totals| totals.files_changed.get()),
        lines_added: numbers.lines_added,
        lines_removed: numbers.lines_removed,
        api_errors: numbers.api_errors,
        coverage: totals
            .and_then(|totals| totals.coverage)
            .unwrap_or_else(|| Coverage::of(session.link(), read)),
    }
}
