//! What follows from a signal.

use crate::store::{Evidence, EvidenceVerdict};
use wire::{AgentSessionId, EvidenceKind, ProcessId, Timestamp, TransitionKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Bind {
        id: AgentSessionId,
        evidence: EvidenceKind,
    },
    /// The current conversation is over for this run. `to` is `None` while nobody knows which one followed; a `Bind` comes
    /// when it is known.
    Transition {
        kind: TransitionKind,
        to: Option<AgentSessionId>,
        evidence: EvidenceKind,
    },
    Ambiguous {
        candidates: Vec<AgentSessionId>,
    },
    /// A copy of the current conversation goes on in a process of its own; the run stays where it is.
    Forked {
        to: AgentSessionId,
        process: ProcessId,
    },
}

/// Decisions in the order in which they are to be carried out, and the evidence to keep for `explain`. Its sources are
/// `assigned`, `registry`, `lock`, `history`, `log`, `originator`, `file`, `prompt`, `claim` and `background`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conclusion {
    pub decisions: Vec<Decision>,
    pub evidence: Vec<Evidence>,
}

impl Conclusion {
    pub(super) fn explain(&mut self, at: Timestamp, source: &str, value: &str, accepted: bool, why: &str) {
        self.evidence.push(Evidence {
            at,
            source: source.to_owned(),
            verdict: if accepted { EvidenceVerdict::Accepted } else { EvidenceVerdict::Rejected },
            agent_session_id: None,
            detail: format!("{value}: {why}"),
        });
    }
}
