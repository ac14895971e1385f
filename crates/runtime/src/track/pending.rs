//! What a run has to write to the store, in order.

use std::path::{Path, PathBuf};

use agents::correlate::{Conclusion, Decision};
use types::Evidence;
use types::Timestamp;

/// One write, and when it was due: that is its time, however late the store takes it.
#[derive(Clone, Debug)]
pub(super) struct PendingWrite {
    pub(super) at: Timestamp,
    pub(super) content: WriteContent,
}

#[derive(Clone, Debug)]
pub(super) enum WriteContent {
    /// For `explain`.
    Evidence(Evidence),
    Decision {
        decision: Decision,
        /// Where the agent worked.
        folder: PathBuf,
    },
    /// The agent went to another folder and took the conversation along: there it is to be resumed.
    Moved(PathBuf),
    /// The agent's version became known.
    Version(String),
}

impl PendingWrite {
    /// A conclusion, in the order in which it is to be written.
    pub(super) fn of(at: Timestamp, conclusion: Conclusion, folder: &Path) -> Vec<Self> {
        let evidence = conclusion.evidence.into_iter().map(WriteContent::Evidence);
        let decisions = conclusion
            .decisions
            .into_iter()
            .map(|decision| WriteContent::Decision { decision, folder: folder.to_owned() });
        evidence.chain(decisions).map(|content| Self { at, content }).collect()
    }

    /// Whether it leads to another conversation.
    pub(super) fn is_transition(&self) -> bool {
        matches!(&self.content, WriteContent::Decision { decision: Decision::Transition { .. }, .. })
    }
}
