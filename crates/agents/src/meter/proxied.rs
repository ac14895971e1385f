//! A call as the proxy saw it, ready to be stored.

use serde::{Deserialize, Serialize};
use types::{AgentSessionId, Billing, CallKind, RunId, Timestamp};

use super::record::{ApiError, Usage};

types::row! {
    /// One call, seen on its way between an agent and its API.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ProxiedCall {
        /// The id of the answer, else that of the request: what the agent's own file calls the same call, where it does.
        pub key: String,
        /// The agent's own file has this key for the call. Otherwise the two are matched by their tokens and their order.
        pub keyed: bool,
        pub at: Timestamp,
        pub agent: String,
        /// The run whose proxy it was; `None` for a proxy that serves no run.
        pub run: Option<RunId>,
        /// The conversation that the request named.
        pub conversation: Option<AgentSessionId>,
        pub subagent: Option<String>,
        pub kind: CallKind = "call_kind" as String => |kind| CallKind::parse(&kind).unwrap_or(CallKind::Other),
        pub latency_ms: u64 as i64 => |ms| ms.max(0).cast_unsigned(),
        pub ttft_ms: Option<u64> as Option<i64> => |ms| ms.map(|ms| ms.max(0).cast_unsigned()),
        /// Broken off before the answer's end: the numbers are the last known.
        pub aborted: bool,
        /// Counts from 1.
        pub attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub billing: Option<Billing> as Option<String> => |kind| kind.and_then(|kind| Billing::parse(&kind)),
        /// `None`: the API reported no usage (an error, a connection that broke before).
        pub usage: Option<Usage> [row],
        pub error: Option<ApiError> [row],
        /// The API reported usage that could not be read, or not all of it: the numbers are those that could. Noted elsewhere when a
        /// call begins to wait.
        #[serde(default)]
        pub unread: bool = "0",
    }
}
