//! What was seen of an agent, and what was made of it.

use crate::{AgentSessionId, Timestamp};

crate::spelled!(
    /// What the correlator made of a piece of evidence.
    EvidenceVerdict {
        Accepted = "accepted",
        Rejected = "rejected",
        /// Neither: an addition to the agent's arguments, a hint, a run that joined.
        Noted = "noted",
    }
);

/// The source of evidence that a limit has ended a session.
pub const LIMIT_EVIDENCE: &str = "limit";

crate::row! {
    /// One line of `explain`.
    #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Evidence {
        pub at: Timestamp,
        /// Where it came from: `assigned`, `registry`, `log`, `arguments`, …
        pub source: String,
        pub verdict: EvidenceVerdict,
        pub agent_session_id: Option<AgentSessionId> = "agent_session",
        pub detail: String,
    }
}
