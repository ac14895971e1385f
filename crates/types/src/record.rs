//! The record of a session as people and scripts see it (`show --json`, the published files, `list --json`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    AgentSessionId, Coverage, EndReason, EvidenceKind, Link, LiveState, Pid, RunId, Status, Timestamp,
};

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
    /// What it is about: the agent's own title, else the first line of the first prompt. Known on its own machine alone.
    #[serde(default)]
    pub title: Option<String>,
    /// The models it used, the most used first.
    #[serde(default)]
    pub models: Vec<String>,
    /// What it does at the moment it is asked for; `None` once it has ended, and in the published files.
    #[serde(default)]
    pub state: Option<LiveState>,
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
    /// For models that have a price, but not in every mode (a tier, long prompts): the number of calls without one.
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
