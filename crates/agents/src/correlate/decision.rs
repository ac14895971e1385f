//! What follows from a signal.

use types::{AgentSessionId, EvidenceKind, ProcessId, Timestamp, TransitionKind};
use types::{Evidence, EvidenceVerdict};

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
    Forked(Fork),
}

/// A copy of a conversation in a process of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    pub to: AgentSessionId,
    pub process: ProcessId,
    /// When the process began, by its own account. It is seen some time later, and may have asked the model before.
    pub begun_at: Option<Timestamp>,
}

/// Decisions in the order in which they are to be carried out, and the evidence to keep for `explain`. Its sources are
/// `assigned`, `registry`, `lock`, `history`, `log`, `originator`, `file`, `prompt`, `claim`, `background`
/// and `proxy`.
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
